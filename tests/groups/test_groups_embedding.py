"""At ingest no call of the embedding holds texts of two units."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.embedding_fakes import (
    INNER,
    NEIGHBORLY,
    PLACES,
    POISON,
    Watching,
    WatchingServer,
)
from support.groups_fakes import note

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.sealed.embedding_calls import CALLS_AT_ONCE

every_way = pytest.mark.parametrize("way", ["sync", "async"])


def corpus(units: int = 40, visits: int = 3) -> list[Document]:
    """Return the visits of all units, one visit of each after the other."""
    return [
        note(
            f"unit-{unit}", f"unit-{unit} had a cough {'often ' * unit}, visit {visit}"
        )
        for visit in range(visits)
        for unit in range(units)
    ]


async def built(
    way: str, documents: Sequence[Document], embedding: Any, **terms: Any
) -> RetrievedGroups:
    terms = {"unit_key": "unit", "n_groups": 4, **terms}
    return RetrievedGroups.from_documents(documents, embedding, **terms)


async def added(
    way: str, groups: RetrievedGroups, documents: Sequence[Document], **terms: Any
) -> int:
    if way == "async":
        return await groups.aadd_documents(documents, **terms)
    return groups.add_documents(documents, **terms)


def vectors_of(groups: RetrievedGroups) -> dict[str, bytes]:
    """Return each text's vector, to the last bit."""
    return {
        document.page_content: row.tobytes()
        for shard in groups._index.shards
        for document, row in zip(shard.documents, shard.vectors(), strict=True)
    }


@every_way
@pytest.mark.parametrize("place", PLACES)
async def test_a_call_holds_one_units_texts(place: type[Watching], way: str) -> None:
    embedding = place()
    groups = await built(way, corpus(), embedding)
    assert all(len(units) == 1 for units in embedding.units)
    assert len(embedding.calls) == 40
    texts = Counter(text for call in embedding.calls for text in call)
    assert texts == Counter(document.page_content for document in corpus())
    embedding.calls.clear()
    later = [note(f"unit-{i % 45}", f"unit-{i % 45}, later {i}") for i in range(90)]
    assert await added(way, groups, later) == 90
    assert sorted(map(len, embedding.calls)) == [2] * 45
    assert all(len(units) == 1 for units in embedding.units)


@every_way
@pytest.mark.parametrize("place", NEIGHBORLY)
@pytest.mark.parametrize("where", [0, 17, 120])
async def test_a_person_more_moves_nobodys_vector(
    place: type[Watching], way: str, where: int
) -> None:
    long = "unit-new told a long story " * 50
    news = [note("unit-new", f"{long}{i}") for i in range(5)]
    others = corpus()
    without = vectors_of(await built(way, others, place()))
    documents = [*others[:where], *news, *others[where:]]
    found = vectors_of(await built(way, documents, place()))
    assert len(found) == len(without) + 5
    assert {text: found[text] for text in without} == without


@every_way
async def test_twin_batches_move_others_vectors(way: str) -> None:
    others = corpus()
    news = [note("unit-new", "unit-new")]
    size = {"embedding_batch_size": 8}
    without = vectors_of(await built(way, others, NEIGHBORLY[0](), **size))
    found = vectors_of(await built(way, news + others, NEIGHBORLY[0](), **size))
    assert sum(found[text] != without[text] for text in without) == len(without)


@every_way
@pytest.mark.parametrize("place", NEIGHBORLY)
async def test_a_text_that_is_refused_adds_nothing_and_changes_nothing(
    place: type[Watching], way: str
) -> None:
    embedding = place()
    groups = await built(way, corpus(), embedding)
    before = vectors_of(groups)
    more = [note(f"unit-{i}", f"unit-{i}, later") for i in range(50)]
    more[20] = note("unit-20", f"unit-20 {POISON}")
    with pytest.raises(RuntimeError, match="too long"):
        await added(way, groups, more)
    assert vectors_of(groups) == before
    del more[20]
    assert await added(way, groups, more) == 49


@every_way
@pytest.mark.parametrize("size", [None, 1, 7, 120, 1000])
async def test_every_vector_lands_at_its_document(way: str, size: int | None) -> None:
    embedding = WatchingServer()
    groups = await built(way, corpus(), embedding, embedding_batch_size=size)
    found = vectors_of(groups)
    for document in corpus():
        text = document.page_content
        row = np.asarray(INNER.embed_query(text))
        unit = (row / np.linalg.norm(row)).astype(np.float32)
        assert np.allclose(np.frombuffer(found[text], np.float32), unit, atol=1e-7)
    if size is not None:
        left = [size] * (120 // size) + [120 % size] * (120 % size > 0)
        assert sorted(map(len, embedding.calls)) == sorted(left)


@every_way
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
async def test_batch_sizes_that_make_no_sense(way: str, size: Any) -> None:
    embedding = Watching()
    with pytest.raises(InvalidParameterError, match="embedding_batch_size"):
        await built(way, corpus(), embedding, embedding_batch_size=size)
    assert embedding.calls == []
    groups = await built(way, corpus(), embedding)
    with pytest.raises(InvalidParameterError, match="embedding_batch_size"):
        await added(way, groups, [note(1, "a")], embedding_batch_size=size)


@every_way
async def test_servers_are_asked_at_once_and_models_here_are_not(way: str) -> None:
    server, here = WatchingServer(), Watching()
    await built(way, corpus(100, 1), server)
    await built(way, corpus(100, 1), here)
    assert 1 < server.most_at_once <= CALLS_AT_ONCE
    assert here.most_at_once == 1
    if way == "sync":
        assert here.threads == {"MainThread"}


class Failing(WatchingServer):
    """A server that goes down at its fifth call."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        if len(self.calls) >= 5:
            raise ConnectionError("The server is down.")
        return super().vectors(texts)


@every_way
async def test_a_server_that_goes_down_is_not_asked_on(way: str) -> None:
    embedding = Failing()
    with pytest.raises(ConnectionError, match="down"):
        await built(way, corpus(200, 1), embedding)
    assert len(embedding.calls) <= 5 + 2 * CALLS_AT_ONCE


async def test_a_cancelled_ingest_asks_nothing_more() -> None:
    embedding = WatchingServer()
    groups = await built("sync", corpus(4, 1), embedding)
    embedding.asked.clear()
    embedding.calls.clear()
    task = asyncio.ensure_future(groups.aadd_documents(corpus(200, 1)))
    await embedding.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    asked = len(embedding.calls)
    await asyncio.sleep(0.02)
    assert len(embedding.calls) == asked <= CALLS_AT_ONCE


@every_way
async def test_the_bar_ends_at_the_number_of_documents(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await built(way, corpus(), WatchingServer(), progress=True)
    shown = capsys.readouterr()
    assert "Embedding documents" in shown.err
    assert "120/120" in shown.err
    assert not shown.out
