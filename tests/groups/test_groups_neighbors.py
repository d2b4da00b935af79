"""One unit more or less changes one slot: for every source, and not for its twins.

Each property is a function of a *drawer*, so that the same check runs on the library
and on the defective groupings found elsewhere, where it must fail.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.groups_fakes import (
    QUESTION,
    SALT,
    Scripted,
    WordEmbedding,
    contents,
    corpora,
    note,
    retrieved,
    slots_in_and_out,
)
from support.neighbor_checks import (
    M,
    Slots,
    check_disjoint,
    check_insertion_order,
    check_one_appears,
    check_one_place,
    run,
)

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.groups.units import keyed_slot

if TYPE_CHECKING:
    from langchain_core.documents import Document


def by_shard(documents: list[Document], _: dict[str, int]) -> Slots:
    return contents(retrieved(documents, n_groups=M).draw(QUESTION))


def by_shard_with_threshold(documents: list[Document], _: dict[str, int]) -> Slots:
    groups = retrieved(documents, n_groups=M, score_threshold=0.5)
    return contents(groups.draw(QUESTION))


def sampled(documents: list[Document], words: dict[str, int]) -> Slots:
    """Draw with every unit's inclusion, slot and order given by its own word."""
    if not documents:
        return [()] * M
    groups = SampledGroups.from_documents(
        documents,
        unit_key="unit",
        n_groups=1,
        sampling_rate=0.5,
        docs_per_unit=2,
    )
    object.__setattr__(groups._terms, "n_groups", M)
    corpus = groups._corpus
    # Byte 0 is below the threshold of one half, byte 255 above it.
    heads = [255 * (words[unit] % 2) for unit in corpus.unit_ids]
    heads += [0] * (-len(heads) % 8)
    units = [unit for unit in corpus.unit_ids if words[unit] % 2 == 0]
    rows = [doc for unit in units for doc in documents if doc.metadata["unit"] == unit]
    groups._random = Scripted(
        np.array(heads, np.uint8).view(np.uint64).tolist(),
        [],
        [words[unit] // 2 for unit in units],
        [hash_of(doc, words) for doc in rows],
    )
    return contents(groups.draw(QUESTION))


def hash_of(document: Document, words: dict[str, int]) -> int:
    """Stand in for a row's own random word."""
    own = f"{words[document.metadata['unit']]} {document.page_content}"
    return keyed_slot(SALT, own, 1 << 64)


REPLACE_BY_PLACE = [by_shard, by_shard_with_threshold, sampled]


def ranked(documents: list[Document]) -> list[Document]:
    """Rank the whole corpus, as a plain retriever does."""
    embed = WordEmbedding().embed_query
    question = np.array(embed(QUESTION))
    scores = [
        -float(np.dot(v := np.array(embed(doc.page_content)), question))
        / float(np.linalg.norm(v))
        for doc in documents
    ]
    order = sorted(
        range(len(documents)),
        key=lambda i: (scores[i], documents[i].metadata["unit"]),
    )
    return [documents[i] for i in order]


def sliced_ranking(documents: list[Document], _: dict[str, int]) -> Slots:
    """Defect: the k best of all, sliced into consecutive groups."""
    best = ranked(documents)[: 2 * M]
    return contents([best[2 * i : 2 * i + 2] for i in range(M)])


def sliced_listing(documents: list[Document], _: dict[str, int]) -> Slots:
    """Defect: the records as listed, sliced into consecutive groups."""
    return contents([documents[6 * i : 6 * i + 6] for i in range(M)])


def drawn_independently(documents: list[Document], _: dict[str, int]) -> Slots:
    """Defect: each group samples for itself, so that a record sits in several."""
    return contents(
        [random.Random(i).sample(documents, min(3, len(documents))) for i in range(M)]
    )


def global_top_k_hashed(documents: list[Document], _: dict[str, int]) -> Slots:
    """Defect: the k best of all, hashed to groups: one out lets another in."""
    slots: list[list[Document]] = [[] for _ in range(M)]
    for document in ranked(documents)[:6]:
        slots[keyed_slot(SALT, document.metadata["unit"], M)].append(document)
    return contents(slots)


def dealt_in_turn(documents: list[Document], _: dict[str, int]) -> Slots:
    """Defect: units dealt to groups in the order in which they were inserted."""
    slots: list[list[Document]] = [[] for _ in range(M)]
    order = list(dict.fromkeys(doc.metadata["unit"] for doc in documents))
    for document in documents:
        slots[order.index(document.metadata["unit"]) % M].append(document)
    return contents(slots)


def chunks_hashed(documents: list[Document], _: dict[str, int]) -> Slots:
    """Defect: every chunk is a unit of its own."""
    slots: list[list[Document]] = [[] for _ in range(M)]
    for document in documents:
        slots[keyed_slot(SALT, document.page_content, M)].append(document)
    return contents(slots)


def fixed_size_sample(documents: list[Document], words: dict[str, int]) -> Slots:
    """Defect: a sample of fixed size, where one unit in is another unit out."""
    units = sorted({doc.metadata["unit"] for doc in documents}, key=words.__getitem__)
    return contents(
        [[doc for doc in documents if doc.metadata["unit"] == u] for u in units[:3]]
    )


@pytest.mark.parametrize("drawer", REPLACE_BY_PLACE)
def test_no_unit_sits_in_two_slots(drawer: Any) -> None:
    run(check_disjoint(drawer))


@pytest.mark.parametrize("drawer", REPLACE_BY_PLACE)
def test_one_unit_changes_one_numbered_slot(drawer: Any) -> None:
    run(check_one_place(drawer))


@pytest.mark.parametrize("drawer", REPLACE_BY_PLACE)
def test_slots_do_not_depend_on_insertion_order(drawer: Any) -> None:
    run(check_insertion_order(drawer))


@pytest.mark.parametrize(
    "twin",
    [
        sliced_ranking,
        sliced_listing,
        drawn_independently,
        global_top_k_hashed,
        dealt_in_turn,
        chunks_hashed,
    ],
)
def test_twins_change_more_than_one_slot(twin: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_one_place(twin), twin=True)


@pytest.mark.parametrize(
    "twin", [sliced_ranking, sliced_listing, drawn_independently, chunks_hashed]
)
def test_twins_put_a_unit_into_two_slots(twin: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_disjoint(twin), twin=True)


@pytest.mark.parametrize("twin", [fixed_size_sample])
def test_a_fixed_number_of_units_is_not_add_remove(twin: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_one_appears(twin), twin=True)


@pytest.mark.parametrize("twin", [sliced_listing, drawn_independently, dealt_in_turn])
def test_twins_depend_on_insertion_order(twin: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_insertion_order(twin), twin=True)


def test_shards_are_no_add_remove() -> None:
    # The relation is the weakest true one: a shard's slot really does change both ways.
    documents = [note(f"p{i}", "rash") for i in range(40)]
    closest = note("q", QUESTION)
    new, lost = slots_in_and_out(
        by_shard(documents, {}), by_shard([*documents, closest], {})
    )
    assert (new, lost) == (1, 1)


@settings(deadline=None, max_examples=60)
@given(corpora())
def test_deleting_is_the_same_as_never_having_added(case: Any) -> None:
    documents, rest, gone = case
    groups = retrieved(documents, n_groups=M)
    deleted = groups.delete_unit(gone)
    assert deleted == len(documents) - len(rest)
    assert contents(groups.draw(QUESTION)) == by_shard(rest, {})
    groups.add_documents([doc for doc in documents if doc.metadata["unit"] == gone])
    assert contents(groups.draw(QUESTION)) == by_shard(documents, {})


@pytest.mark.parametrize("terms", [{}, {"score_threshold": 0.2}])
def test_relation_of_retrieved_groups(terms: Any) -> None:
    groups = retrieved([note(i, "rash") for i in range(5)], **terms)
    assert groups.relation is Relation.REPLACE
    assert groups.sampling_rate == 1.0
    with pytest.raises(InvalidParameterError):
        groups.relation = Relation.ADD_REMOVE


def test_relation_of_sampled_groups() -> None:
    groups = SampledGroups.from_documents(
        [note(i, "rash") for i in range(5)],
        unit_key="unit",
        n_groups=2,
        sampling_rate=0.25,
    )
    assert groups.relation is Relation.REPLACE
    assert groups.sampling_rate == 0.25
