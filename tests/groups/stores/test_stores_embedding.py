"""Written to through the groups, a store embeds one unit's texts a call."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from support.chain_parts import EMBEDDING
from support.embedding_fakes import POISON, Neighborly, Watching
from support.pgvector_parts import EMBEDDING as SMALL
from support.pgvector_parts import VectorServer
from support.store_parts import chroma, in_memory, qdrant, searching

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import InvalidParameterError

MAKERS: dict[str, Callable[..., Any]] = {
    "in memory": in_memory,
    "chroma": chroma,
    "searches": lambda documents, embedding: searching(documents, embedding=embedding),
    "qdrant": qdrant,
}
every_store = pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))
every_way = pytest.mark.parametrize("way", ["sync", "async"])
KEY = "patient"


def visit(unit: Any, number: int, key: str = KEY, **terms: Any) -> Document:
    text = f"unit-{unit} had a cough {'often ' * (number % 7)}, visit {number}"
    return Document(text, metadata={key: f"unit-{unit}"}, **terms)


def corpus(key: str = KEY) -> list[Document]:
    return [visit(i % 10, i, key) for i in range(20)]


def news(key: str = KEY) -> list[Document]:
    """Return visits of units known and new, one of each after the other."""
    return [visit(i % 15, 100 + i, key) for i in range(45)]


async def added(way: str, groups: RetrievedGroups, documents: Any, **terms: Any) -> int:
    if way == "async":
        return await groups.aadd_documents(documents, **terms)
    return groups.add_documents(documents, **terms)


def opened(store: Any, key: str = KEY) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(store, unit_key=key, n_groups=3)


def check_calls(embedding: Watching, documents: list[Document]) -> None:
    assert all(len(units) == 1 for units in embedding.units)
    texts = [text for call in embedding.calls for text in call]
    assert sorted(texts) == sorted(one.page_content for one in documents)


@every_store
@every_way
async def test_a_call_holds_one_units_texts(maker: Any, way: str) -> None:
    embedding = Watching(EMBEDDING)
    groups = opened(maker(corpus(), embedding))
    embedding.calls.clear()
    assert await added(way, groups, news()) == 45
    check_calls(embedding, news())
    assert groups.n_units == 15
    embedding.calls.clear()
    later = [visit(i, 200 + i) for i in range(20)]
    await added(way, groups, later, embedding_batch_size=5)
    # Qdrant and the others embed what one call of the store holds.
    assert sorted(map(len, embedding.calls)) == [5, 5, 5, 5]


def test_a_call_of_postgresql_holds_one_units_texts(vectors: VectorServer) -> None:
    embedding = Watching(SMALL)
    groups = opened(vectors.by_column(corpus("unit"), embedding), "unit")
    embedding.calls.clear()
    assert groups.add_documents(news("unit")) == 45
    check_calls(embedding, news("unit"))


@every_way
async def test_a_call_of_postgresql_holds_one_units_texts_async(
    vectors: VectorServer, way: str
) -> None:
    embedding = Watching(SMALL)
    groups = opened(vectors.by_column(corpus("unit"), embedding), "unit")
    embedding.calls.clear()
    assert await added(way, groups, news("unit")) == 45
    check_calls(embedding, news("unit"))


@every_way
async def test_a_person_more_moves_nobodys_vector(way: str) -> None:
    documents = [visit(i % 15, 100 + i, id=f"d{i}") for i in range(45)]
    person = [visit("new", 500, id="n"), visit("new", 501, id="n2")]

    async def stored(more: list[Document]) -> dict[str, list[float]]:
        embedding = Neighborly(EMBEDDING)
        store = in_memory([visit(i, i, id=f"first{i}") for i in range(1)], embedding)
        groups = RetrievedGroups.from_vectorstore(store, unit_key=KEY, n_groups=1)
        await added(way, groups, more)
        return {own: kept["vector"] for own, kept in store.store.items()}

    without = await stored(documents)
    found = await stored([*documents[:7], *person, *documents[7:]])
    assert {own: found[own] for own in without} == without
    assert len(found) == len(without) + 2


@every_way
async def test_a_text_that_is_refused_is_nobody_elses_failure(way: str) -> None:
    embedding = Neighborly(EMBEDDING)
    store = in_memory(corpus(), embedding)
    groups = opened(store)
    bad = visit("bad", 900)
    bad.page_content += POISON
    with pytest.raises(RuntimeError, match="too long"):
        await added(way, groups, [*news(), bad])
    # Units before it are in the store, with the vectors that they have anyway.
    groups.refresh()
    assert groups.n_units == 15


@every_store
@every_way
async def test_nothing_is_written_where_an_id_is_taken(
    maker: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_dpicl.groups.stores.writing._BATCH", 3)
    taken = str(uuid.UUID(int=999))
    first = [visit(i, i, id=str(uuid.UUID(int=i))) for i in range(10)]
    embedding = Watching(EMBEDDING)
    store = maker([*first, visit("other", 1, id=taken)], embedding)
    groups = opened(store)
    n_units = groups.n_units
    embedding.calls.clear()
    with pytest.raises(InvalidParameterError, match="id"):
        await added(way, groups, [*news(), visit("thief", 1, id=taken)])
    assert embedding.calls == []
    groups.refresh()
    assert groups.n_units == n_units


@every_way
async def test_the_bar_ends_at_the_number_of_documents(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = opened(in_memory(corpus(), EMBEDDING))
    await added(way, groups, news(), progress=True)
    shown = capsys.readouterr()
    assert "Adding documents" in shown.err
    assert "45/45" in shown.err


@every_way
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
async def test_batch_sizes_that_make_no_sense(way: str, size: Any) -> None:
    embedding = Watching(EMBEDDING)
    groups = opened(in_memory(corpus(), embedding))
    embedding.calls.clear()
    with pytest.raises(InvalidParameterError, match="embedding_batch_size"):
        await added(way, groups, news(), embedding_batch_size=size)
    assert embedding.calls == []
