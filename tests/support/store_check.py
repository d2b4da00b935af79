"""A store must give the same groups as the embedded index.

It is filled with a made-up corpus in which texts and ids repeat and ids are odd, and is
then compared, slot for slot, with the embedded exact index over the same vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import UnitError
from langchain_dpicl.groups.filtering import UnitFilter
from langchain_dpicl.groups.ingest import (
    Vectors,
    embed_documents,
    take_documents,
    unit_question,
)
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.search import ShardSearch
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.stores.contract import ShardStore, VectorReader
from langchain_dpicl.groups.stores.live import LiveRecords, spellings_of
from langchain_dpicl.groups.stores.searching import Assignment, StoreSearch
from langchain_dpicl.groups.stores.snapshot import SnapshotRecords, read_out
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.release.flow import result
from support.known_corpus import (
    DIMENSION,
    MANY,
    QUESTIONS,
    UNIT_KEY,
    KnownEmbedding,
    known_corpus,
    without_unit,
)

_SALT = bytes(range(32))
_SHARDS = 5
_COUNTS = (1, 4, 1000)
_RATES = (0.5, 0.5, 0.25, 0.9)  # Of samples.
_MIDDLE = 0.0  # A threshold that half of the texts reach.
_CLOSE = 1e-4
_MOST = 400  # Characters of a value in a message.
_EMBEDDING = KnownEmbedding()


def check_shard_store(
    make: Callable[[Sequence[Document], Embeddings], ShardStore],
) -> None:
    """Check that a `ShardStore` finds what the embedded index finds.

    `make` returns the adapter over a store that holds exactly the given documents, each
    embedded by the given embedding, under its own id. Of an adapter with a `where` the
    attribute `"visit"` is filtered by.
    """
    documents = known_corpus()
    _check_nobodys(make)
    store = make(documents, _EMBEDDING)
    _require(store, "dimension", store.dimension, DIMENSION)
    # Twice with another number of shards in between: the last assignment counts.
    for n_shards in (_SHARDS, _SHARDS + 2, _SHARDS):
        records, expected = (
            _live(store, n_shards),
            _embedded(documents, n_shards),
        )
        sizes = [len(shard.documents) for shard in expected.shards]
        _require(store, "sizes()", store.sizes(n_shards), sizes)
        _compare_briefly(store, records.index, expected)
    _compare(store, records.index, _embedded(documents, _SHARDS))
    if store.can_sample:
        _check_sampling(store, records, documents)
    if type(store).where is not ShardStore.where:
        # Units of one record; the others' do not agree.
        only = UnitFilter.of({"visit": [0, 1]})
        expected = _embedded(documents, _SHARDS).where(only)
        _compare_briefly(store, records.index.where(only), expected)
    _check_deletion(store, records, documents)
    for gone in ("7", MANY):
        rest = without_unit(documents, gone)
        smaller = _live(make(rest, _EMBEDDING), _SHARDS)
        _compare_briefly(store, smaller.index, _embedded(rest, _SHARDS))
        _require_one_slot_changed(store, _slots(documents), _slots_of(smaller.index))
    _check_unassigned(make(documents, _EMBEDDING), documents)


def check_vector_reader(
    make: Callable[[Sequence[Document], Embeddings], VectorReader],
) -> None:
    """Check that a `VectorReader` hands out every document, its vector, and no more."""
    documents = known_corpus()
    reader = make(documents, _EMBEDDING)
    found, vectors = read_out(reader)
    _require(reader, "number of documents", len(found), len(documents))
    own = dict(zip([one.id for one in found], vectors, strict=True))
    given, expected = _vectors(documents)
    for document, vector in zip(given, expected, strict=True):
        if document.id not in own:
            _differs(reader, "read()", "no document", f"document {document.id}")
        if float(own[document.id] @ vector) < 1 - _CLOSE:
            _differs(reader, "read()", "another vector", f"that of {document.id}")
    _compare(reader, _read(reader).index, _embedded(documents, _SHARDS))
    _check_deletion(reader, _read(reader), documents)
    for gone in ("7", MANY):
        rest = without_unit(documents, gone)
        smaller = _read(make(rest, _EMBEDDING)).index
        _require_one_slot_changed(reader, _slots(documents), _slots_of(smaller))


# -- the parts of a check ----------------------------------------------------------


def _compare(store: Any, found: ShardSearch, expected: ShardIndex) -> None:
    for question in QUESTIONS:
        vector = _vector(question)
        for n in _COUNTS:
            for threshold in (None, _MIDDLE):
                _compare_best(store, found, expected, vector, n, threshold)
        for threshold in (-1.0, 0.4, 0.95):
            _compare_eligible(store, found, expected, vector, 4, threshold)
        _compare_eligible(store, found, expected, vector, max(_COUNTS), _MIDDLE)


def _compare_briefly(store: Any, found: ShardSearch, expected: ShardIndex) -> None:
    vector = _vector(QUESTIONS[0])
    _require(store, "number of units", found.n_units, expected.n_units)
    _compare_best(store, found, expected, vector, 4, None)
    _compare_eligible(store, found, expected, vector, 4, _MIDDLE)


def _compare_best(
    store: Any,
    found: ShardSearch,
    expected: ShardIndex,
    vector: Vectors,
    n: int,
    threshold: float | None,
) -> None:
    _require_slots(
        store,
        f"{n} best of each shard, threshold {threshold}",
        found.top(vector, n, threshold),
        expected.top(vector, n, threshold),
    )


def _compare_eligible(
    store: Any,
    found: ShardSearch,
    expected: ShardIndex,
    vector: Vectors,
    n: int,
    threshold: float,
) -> None:
    what = f"units that reach {threshold}"
    ours = expected.eligible(vector, threshold)
    theirs = found.eligible(vector, threshold)
    our_places, their_places = _by_id(ours), _by_id(theirs)
    _require(store, what, list(their_places), list(our_places))
    # Every other unit, as if the rest could not pay.
    chosen = list(our_places)[::2]
    mine = np.asarray([our_places[one] for one in chosen], np.int64)
    other = np.asarray([their_places[one] for one in chosen], np.int64)
    _require_slots(
        store,
        f"{n} best of each shard, half of the {what} paying",
        theirs.by_shard(other, n),
        ours.by_shard(mine, n),
    )


def _check_sampling(
    store: ShardStore, records: LiveRecords, documents: list[Document]
) -> None:
    vector, random = _vector(QUESTIONS[0]), SecureRandom()
    for rate in _RATES:
        sample = UnitSample(rate, random)
        rest = [
            document
            for document in documents
            if sample.holds(canonical_unit_id(document.metadata[UNIT_KEY]) or "")
        ]
        expected = _embedded(rest, _SHARDS)
        # Whole units, the same in every call of a draw.
        for n in _COUNTS:
            _require_slots(
                store,
                f"{n} best of each shard in a sample of {rate:g}",
                records.index.top(vector, n, None, sample),
                expected.top(vector, n, None),
            )


def _check_deletion(
    store: Any, records: LiveRecords | SnapshotRecords, documents: list[Document]
) -> None:
    gone = "7"  # Under three spellings.
    rest = without_unit(documents, gone)
    deleted = records.delete_unit(gone)
    _require(store, "documents deleted", deleted, len(documents) - len(rest))
    _compare_briefly(store, records.index, _embedded(rest, _SHARDS))
    records.refresh()
    _compare_briefly(store, records.index, _embedded(rest, _SHARDS))


def _check_unassigned(store: ShardStore, documents: list[Document]) -> None:
    known = spellings_of(store, UNIT_KEY)
    half = {unit_id: known[unit_id] for unit_id in sorted(known)[::2]}
    assignment = Assignment(_SALT, _SHARDS, half)
    store.assign(assignment.by_value(), _SHARDS)
    search = StoreSearch(
        store, assignment, name="The store", unit_key=UNIT_KEY, exact=False
    )
    seen = [
        document
        for document in documents
        if canonical_unit_id(document.metadata[UNIT_KEY]) in half
    ]
    _compare_briefly(store, search, _embedded(seen, _SHARDS))


def _check_nobodys(
    make: Callable[[Sequence[Document], Embeddings], ShardStore],
) -> None:
    known = known_corpus()
    nobodys = Document("Nobody's.", metadata={"visit": 1}, id=known[-1].id)
    store = make([*known[:20], nobodys], _EMBEDDING)
    try:
        _live(store, _SHARDS)
    except UnitError:
        return
    _differs(store, "unit_values()", "no None", "None for a record without a unit id")


# -- what is compared ----------------------------------------------------------------


def _vectors(documents: Sequence[Document]) -> tuple[list[Document], Vectors]:
    taken, unit_ids = take_documents(documents, UNIT_KEY)
    return taken, result(embed_documents(_EMBEDDING, taken, unit_ids, progress=False))


def _embedded(documents: Sequence[Document], n_shards: int) -> ShardIndex:
    taken, vectors = _vectors(documents)
    _, unit_ids = take_documents(documents, UNIT_KEY)
    return ShardIndex.from_vectors(
        vectors, taken, unit_ids, n_shards=n_shards, salt=_SALT
    )


def _live(store: ShardStore, n_shards: int) -> LiveRecords:
    return LiveRecords(
        store,
        _terms(n_shards),
        embedding=_EMBEDDING,
        salt=_SALT,
        exact=False,
        given=store,
    )


def _read(reader: VectorReader) -> SnapshotRecords:
    return SnapshotRecords(
        reader, _terms(_SHARDS), embedding=_EMBEDDING, salt=_SALT, given=reader
    )


def _terms(n_shards: int) -> RetrievalTerms:
    return RetrievalTerms(UNIT_KEY, n_shards, 4, None)


def _vector(question: str) -> Vectors:
    return unit_question(_EMBEDDING.embed_query(question), DIMENSION)


def _slots(documents: Sequence[Document]) -> list[list[Document]]:
    return _slots_of(_embedded(documents, _SHARDS))


def _slots_of(index: ShardSearch) -> list[list[Document]]:
    return index.top(_vector(QUESTIONS[0]), 1000, None)


def _by_id(found: Any) -> dict[str, int]:
    places: NDArray[np.int64] = np.arange(found.count)
    return dict(sorted(zip(found.unit_ids(places), places.tolist(), strict=True)))


def _face(document: Document) -> tuple[Any, ...]:
    # A store may keep the ids in a column of one type.
    metadata = dict(document.metadata)
    unit_id = canonical_unit_id(metadata.pop(UNIT_KEY, None))
    return document.id, document.page_content, unit_id, metadata


def _require_slots(
    store: Any, what: str, found: list[list[Document]], expected: list[list[Document]]
) -> None:
    _require(store, f"{what}: number of slots", len(found), len(expected))
    for number, (slot, right) in enumerate(zip(found, expected, strict=True)):
        where = f"{what}: slot {number}"
        _require(store, where, [one.id for one in slot], [one.id for one in right])
        for document, same in zip(slot, right, strict=True):
            _require(store, where, _face(document), _face(same))


def _require_one_slot_changed(
    store: Any, before: list[list[Document]], after: list[list[Document]]
) -> None:
    changed = sum(
        [one.id for one in slot] != [one.id for one in other]
        for slot, other in zip(before, after, strict=True)
    )
    _require(store, "slots changed by removing one unit", changed, 1)


def _require(store: Any, what: str, found: Any, expected: Any) -> None:
    if found != expected:
        _differs(store, what, found, expected)


def _differs(store: Any, what: str, found: Any, expected: Any) -> NoReturn:
    raise AssertionError(
        f"{type(store).__name__}, {what}: expected {_short(expected)}, "
        f"found {_short(found)}."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
