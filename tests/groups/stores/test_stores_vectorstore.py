"""`RetrievedGroups.from_vectorstore`: what it takes, and how the records change."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from support.chain_parts import EMBEDDING, QUESTION
from support.groups_fakes import Returns
from support.list_store import ListStore
from support.store_parts import (
    chroma,
    chroma_client,
    ids,
    in_memory,
    opened,
    patients,
    qdrant,
    records,
    searching,
)

from langchain_dpicl import (
    InvalidParameterError,
    RetrievedGroups,
    UnitError,
)
from langchain_dpicl.groups.stores.readers import InMemoryReader

CANARY = "canary-7f3a"
SALT = bytes(range(32))


MAKERS = {
    "in memory": in_memory,
    "chroma": chroma,
    "searches": searching,
    "qdrant": qdrant,
}
every_store = pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))
TERMS: list[dict[str, Any]] = [
    {},
    {"score_threshold": 0.3},
    {"score_threshold": 0.3, "docs_per_group": 1},
]


def new(unit: Any, text: str = "Lisinopril: a cough.", **terms: Any) -> Document:
    return Document(text, metadata={"patient": unit}, **terms)


def units_of(groups: RetrievedGroups) -> set[str]:
    found = groups._index.eligible(groups.prepare(QUESTION).vector, -1.0)
    return set(found.unit_ids(np.arange(found.count)))


# Not Qdrant: its client stores vectors rounded to norm 1 in a way of its own, and texts
# of this embedding tie exactly.
@pytest.mark.parametrize("maker", [in_memory, chroma, searching])
@pytest.mark.parametrize("terms", TERMS)
async def test_the_groups_are_those_of_every_other_store(
    maker: Any, terms: dict[str, Any]
) -> None:
    documents = records(40, 40)
    expected = opened(in_memory(documents), salt=SALT, **terms)
    groups = opened(maker(documents), salt=SALT, **terms)
    slots = ids(expected.draw(QUESTION))
    assert any(slots)
    assert ids(groups.draw(QUESTION)) == slots
    assert ids(await groups.adraw(QUESTION)) == slots
    assert groups.relation == expected.relation
    assert groups.n_units == expected.n_units == 80


@every_store
async def test_writing_reading_and_deleting(
    maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_dpicl.groups.stores.writing._BATCH", 3)
    store = maker(records(30, 0))
    groups = opened(store, n_groups=3, docs_per_group=1000)
    assert groups.add_documents([new("fresh"), new(7), new("7"), new("unit-3")]) == 4
    assert await groups.aadd_documents([new("later"), new(" fresh ")]) == 2
    assert groups.n_units == 33
    assert units_of(groups) >= {"fresh", "7", "later", "unit-3"}
    drawn = patients(groups.draw(QUESTION))
    assert groups.delete_unit("7") == 2
    assert groups.delete_unit("fresh") == 2
    assert groups.n_units == 31
    with pytest.raises(UnitError, match="nothing was deleted"):
        groups.delete_unit("fresh")
    groups.refresh()
    await groups.arefresh()
    left = patients(groups.draw(QUESTION))
    assert [slot - {"fresh", " fresh ", 7, "7"} for slot in drawn] == left
    assert "7" not in units_of(opened(store, n_groups=3))


@every_store
def test_others_write_to_the_store(maker: Any) -> None:
    store = maker(records(30, 0))
    groups = opened(store, n_groups=3, docs_per_group=1000)
    before = patients(groups.draw(QUESTION))
    store.add_documents([new("later", id=str(uuid.UUID(int=999)))])
    # A new unit is in the corpus from the next refresh on.
    assert patients(groups.draw(QUESTION)) == before
    groups.refresh()
    after = patients(groups.draw(QUESTION))
    assert sorted(len(new - old) for new, old in zip(after, before, strict=True)) == [
        0,
        0,
        1,
    ]
    assert all(old <= new for new, old in zip(after, before, strict=True))
    # An erasure looks at the store, not at what was read: all of the unit goes.
    store.add_documents([new("later", id=str(uuid.UUID(int=1000)))])
    assert groups.delete_unit("later") == 2
    groups.refresh()
    assert patients(groups.draw(QUESTION)) == before


@every_store
async def test_a_taken_id_replaces_nothing(maker: Any) -> None:
    documents = records(30, 0)
    store = maker(documents)
    groups = opened(store, n_groups=3)
    store.add_documents([new("later", id=str(uuid.UUID(int=999)))])
    for taken in (documents[0].id, str(uuid.UUID(int=999))):
        with pytest.raises(InvalidParameterError, match="id"):
            groups.add_documents([new("thief", id=taken)])
        with pytest.raises(InvalidParameterError, match="id"):
            await groups.aadd_documents([new("thief", id=taken)])
    groups.refresh()
    assert "thief" not in units_of(groups)


class Writable(InMemoryReader):
    """An adapter that can be written to, and offers no awaiting calls."""

    def add_documents(self, documents: list[Document]) -> None:
        self._store.add_documents(documents)


class Unasked(Writable):
    """Can't look up ids, and says so."""

    def get_by_ids(self, ids: list[str]) -> list[Document]:
        raise NotImplementedError


@pytest.mark.parametrize("kind", [Writable, Unasked])
async def test_an_adapter_needs_no_awaiting_calls(kind: Any) -> None:
    adapter = kind(in_memory(records(30, 0)))
    groups = opened(adapter, embedding=EMBEDDING, n_groups=3)
    assert groups.add_documents([new("one", id="one")]) == 1
    assert await groups.aadd_documents([new("two", id="two")]) == 1
    assert {"one", "two"} <= units_of(groups)


async def test_a_store_that_cannot_be_written_to_says_so() -> None:
    reader = InMemoryReader(in_memory(records(30, 0)))
    groups = opened(reader, embedding=EMBEDDING, n_groups=3)
    with pytest.raises(InvalidParameterError, match=r"add_documents.*refresh"):
        groups.add_documents([new("one")])
    with pytest.raises(InvalidParameterError, match=r"add_documents.*refresh"):
        await groups.aadd_documents([new("one")])


@every_store
def test_a_record_without_a_unit_is_refused(maker: Any) -> None:
    store = maker(records(30, 0))
    groups = opened(store, n_groups=3)
    before = ids(groups.draw(QUESTION))
    bad = Document(CANARY, metadata={"other": 1}, id=str(uuid.UUID(int=999)))
    store.add_documents([bad])
    for call in (lambda: opened(store, n_groups=3), groups.refresh):
        with pytest.raises(UnitError, match="patient") as caught:
            call()
        assert CANARY not in str(caught.value)
    assert ids(groups.draw(QUESTION)) == before
    with pytest.raises(UnitError):
        groups.add_documents([Document(CANARY, metadata={"other": 1})])


@every_store
def test_too_few_units(maker: Any) -> None:
    with pytest.raises(UnitError, match="31"):
        opened(maker(records(30, 0)), n_groups=31)
    with pytest.raises(UnitError, match="no documents"):
        opened(maker([]))


@every_store
def test_a_store_may_become_empty(maker: Any) -> None:
    """An erasure is never refused for the sake of the groups."""
    groups = opened(maker(records(2, 0)), n_groups=2)
    for unit in range(2):
        assert groups.delete_unit(f"unit-{unit}") == 2
    groups.refresh()
    assert groups.n_units == 0
    assert groups.draw(QUESTION) == [[], []]


@every_store
def test_what_is_said_of_the_groups(maker: Any) -> None:
    documents = [new(f"unit-{i}", f"cough {CANARY}") for i in range(4)]
    groups = opened(maker(documents), n_groups=2)
    said = f"{groups!r} {groups} {groups.description} {vars(groups)}"
    assert CANARY not in said
    assert "unit-1" not in said
    assert groups.description["store"] in repr(groups)
    with pytest.raises(TypeError):
        pickle.dumps(groups)


def test_saving(tmp_path: Path) -> None:
    groups = opened(in_memory(records(30, 0)), n_groups=3)
    groups.save(tmp_path / "saved")
    loaded = RetrievedGroups.load(tmp_path / "saved", EMBEDDING)
    assert ids(loaded.draw(QUESTION)) == ids(groups.draw(QUESTION))
    assert groups.metadata_keys == {"patient"}
    live = opened(searching(records(30, 0)), n_groups=3)
    assert live.metadata_keys is None
    with pytest.raises(InvalidParameterError, match="nothing to save"):
        live.save(tmp_path / "other")


def test_a_salt_of_ones_own() -> None:
    documents = records(40, 0)
    one, two = opened(in_memory(documents)), opened(in_memory(documents))
    assert ids(one.draw(QUESTION)) != ids(two.draw(QUESTION))
    # All processes agree on a store that searches by itself.
    store = searching(documents)
    assert ids(opened(store).draw(QUESTION)) == ids(opened(store).draw(QUESTION))
    secret = opened(store, salt=SALT).draw(QUESTION)
    assert ids(secret) != ids(opened(store).draw(QUESTION))
    for bad in (b"short", "text", bytes(31), 7):
        with pytest.raises(InvalidParameterError, match="salt"):
            opened(store, salt=bad)


class Unknown(VectorStore):
    """A store that nobody has written an adapter for."""

    similarity_search = from_texts = None  # type: ignore[assignment]


class MilvusLike(Unknown):
    pass


@pytest.mark.parametrize("store", [Unknown, MilvusLike])
def test_an_unknown_store_is_told_how_to_write_an_adapter(store: Any) -> None:
    with pytest.raises(InvalidParameterError, match="VectorReader") as caught:
        opened(store())
    assert store.__name__ in str(caught.value)
    assert "ShardStore" in str(caught.value)


@pytest.mark.parametrize("store", [None, "chroma", InMemoryVectorStore])
def test_what_is_no_store(store: Any) -> None:
    with pytest.raises(InvalidParameterError, match="no adapter"):
        opened(store)


class Custom(InMemoryVectorStore):
    """A user's own subclass."""


def test_a_subclass_of_a_known_store_is_known() -> None:
    store = Custom(EMBEDDING)
    store.add_documents(records(30, 0))
    groups = opened(store)
    assert groups.description["store"] == "Custom"
    assert opened(InMemoryReader(store), embedding=EMBEDDING).draw(QUESTION)


def test_a_store_without_an_embedding() -> None:
    name = f"c{uuid.uuid4().hex}"
    Chroma(name, EMBEDDING, client=chroma_client()).add_documents(records(30, 0))
    store = Chroma(name, client=chroma_client())
    with pytest.raises(InvalidParameterError, match="embedding="):
        opened(store)
    assert opened(store, embedding=EMBEDDING).draw(QUESTION)
    with pytest.raises(InvalidParameterError, match="LangChain Embeddings"):
        opened(store, embedding=CANARY)


@every_store
def test_an_embedding_of_another_dimension(maker: Any) -> None:
    groups = opened(maker(records(30, 0)), embedding=Returns([], [1.0, 2.0]))
    with pytest.raises(InvalidParameterError, match="2 numbers for the question"):
        groups.prepare(QUESTION)


@pytest.mark.parametrize(
    ("vectors", "error"),
    [
        ([[0.0, 0.0]] * 3, UnitError),
        ([[float("nan"), 1.0]] * 3, UnitError),
        ([[1.0, 0.0], [1.0], [0.0, 1.0]], InvalidParameterError),
    ],
)
def test_vectors_that_cannot_be_compared(vectors: Any, error: type[Exception]) -> None:
    store = InMemoryVectorStore(Returns(vectors))
    store.add_documents([new(i, CANARY) for i in range(3)])
    with pytest.raises(error) as caught:
        opened(store, n_groups=2)
    assert CANARY not in str(caught.value)


def test_a_store_of_two_embeddings() -> None:
    store = InMemoryVectorStore(Returns([[1.0, 0.0]] * 1000))
    store.add_documents([new(i) for i in range(1000)])
    store.embedding = Returns([[1.0, 0.0, 0.0]] * 1000)
    store.add_documents([new(i) for i in range(1000)])
    with pytest.raises(InvalidParameterError, match="different dimensions"):
        opened(store, n_groups=2)


@pytest.mark.parametrize(
    "terms",
    [
        {"n_groups": 0},
        {"unit_key": ""},
        {"score_threshold": 2},
        {"exact": "yes"},
    ],
)
def test_bad_terms(terms: dict[str, Any]) -> None:
    store = in_memory(records(30, 0))
    with pytest.raises(InvalidParameterError):
        opened(store, **terms)


def test_images_without_a_text_are_no_records() -> None:
    store = chroma(records(30, 0))
    vector = EMBEDDING.embed_query(QUESTION)
    store._collection.add(
        ids=["image"], embeddings=[vector], metadatas=[{"patient": "image"}]
    )
    assert "image" not in units_of(opened(store, n_groups=3))


async def test_many_draw_while_others_write() -> None:
    store = searching(records(60, 0))
    groups = opened(store, n_groups=3, score_threshold=0.1)

    async def write(number: int) -> None:
        await groups.aadd_documents([new(f"w-{number}")])
        await asyncio.to_thread(groups.delete_unit, f"w-{number}")

    draws = [groups.adraw(QUESTION) for _ in range(8)]
    found = await asyncio.gather(*draws, *(write(i) for i in range(8)))
    for slots in found[:8]:
        assert len(slots) == 3
    assert groups.n_units == 60


def test_no_store_library_is_imported_for_another_store() -> None:
    code = (
        "import sys\n"
        "from langchain_core.vectorstores import InMemoryVectorStore\n"
        "from langchain_core.documents import Document\n"
        "from langchain_dpicl import RetrievedGroups\n"
        "from langchain_dpicl.offline import HashingEmbeddings\n"
        "store = InMemoryVectorStore(HashingEmbeddings())\n"
        "store.add_documents([Document('a', metadata={'u': i}) for i in range(9)])\n"
        "RetrievedGroups.from_vectorstore(store, unit_key='u', n_groups=2)\n"
        "names = {'chromadb', 'langchain_chroma', 'qdrant_client', 'psycopg',\n"
        "         'langchain_qdrant', 'langchain_postgres'}\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_adapter_that_cannot_write() -> None:
    class ReadOnly(ListStore):
        add_documents = None  # type: ignore[assignment]

        def __init__(self, rows: ListStore) -> None:
            self.__dict__.update(vars(rows))

    groups = opened(ReadOnly(searching(records(30, 0))))
    with pytest.raises(InvalidParameterError, match=r"refresh\(\)"):
        groups.add_documents([new("fresh")])


def test_a_unit_that_vanishes_after_it_paid_is_what_it_was_when_found() -> None:
    store = searching(records(30, 0))
    groups = opened(store, score_threshold=0.1, n_groups=3, docs_per_group=99)

    def collect(unit_ids: Any) -> set[str]:
        store.delete("unit-3")
        return {*unit_ids}

    slots = groups.draw_prepared(groups.prepare(QUESTION), collect=collect)
    assert any("unit-3" in slot for slot in patients(slots))
