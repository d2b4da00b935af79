"""ESA embeds each answer alone: no answer changes another's vector, or fails it."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

import numpy as np
import pytest
from support.embedding_fakes import (
    INNER,
    NEIGHBORLY,
    PLACES,
    POISON,
    Neighborly,
    Watching,
    WatchingServer,
)
from support.parser_parts import paid

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import ABSTAIN, BLANK, FAILED, Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import vectors, voting
from langchain_dpicl.parsers import ESAOutputParser, PublicInput
from langchain_dpicl.parsers.esa import NOTHING
from langchain_dpicl.sealed import arun_sealed, run_sealed
from langchain_dpicl.sealed.embedding_calls import CALLS_AT_ONCE

CANDIDATES = ["A dry cough.", "A skin rash.", "Nothing at all."]
OTHERS = [Slot(f"unit-{i} had a dry cough {'often ' * i}") for i in range(30)]
every_way = pytest.mark.parametrize("way", ["sync", "async"])


class Seen:
    """What the mechanisms were given, one row or one list of votes a release."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[np.ndarray] = []
        self.votes: list[list[int]] = []
        watched: Any = (
            (vectors, "noisy_sum", self.rows),
            (voting, "noisy_counts", self.votes),
        )
        for module, name, kept in watched:
            original = getattr(module, name)

            def watch(
                given: Any, *, kept: Any = kept, original: Any = original, **terms: Any
            ) -> Any:
                kept.append(given)
                return original(given, **terms)

            monkeypatch.setattr(module, name, watch)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


async def released(
    way: str,
    parser: ESAOutputParser,
    slots: list[Slot],
    prepared: Any = None,
    slot_count: int | None = None,
) -> Any:
    """Release as a chain does, in the sealed region."""
    terms: dict[str, Any] = {
        "paid": paid(parser),
        "relation": Relation.REPLACE,
        "slot_count": slot_count or len(slots),
        "prepared": prepared or parser.prepare(PublicInput()),
    }
    if way == "async":
        return await arun_sealed(lambda: parser.arelease(slots, **terms))
    return run_sealed(lambda: parser.release(slots, **terms))


def esa(embedding: Any, **terms: Any) -> ESAOutputParser:
    return ESAOutputParser(embedding=embedding, candidates=CANDIDATES, **terms)


@every_way
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("select", ["cosine", "vote"])
async def test_a_call_holds_one_answer(
    place: type[Watching], way: str, select: Any
) -> None:
    embedding = place()
    await released(way, esa(embedding, select=select), OTHERS)
    # The candidates are public, and embedded together.
    assert embedding.calls[0] == [*CANDIDATES, *NOTHING]
    assert sorted(embedding.calls[1:]) == sorted([slot.text] for slot in OTHERS)


class Odd(Neighborly):
    """Gives an answer that says so a vector that can't be used."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        found = super().vectors(texts)
        for text, vector in zip(texts, found, strict=True):
            if "not a number" in text:
                vector[3] = math.nan
            if "zero" in text:
                vector[:] = [0.0] * len(vector)
            if "short" in text:
                del vector[1:]
        return found


@every_way
@pytest.mark.parametrize("place", [*NEIGHBORLY, Odd])
@pytest.mark.parametrize("where", [0, 13, 30])
@pytest.mark.parametrize(
    "said",
    [
        "unit-new: a rash.",
        "unit-new told a long story. " * 200,
        f"unit-new {POISON}",
        "not a number",
        "zero",
        "short",
        "",
        None,
    ],
)
async def test_no_answer_changes_another_ones_vector(
    place: type[Watching], way: str, said: str | None, where: int, seen: Seen
) -> None:
    own = ABSTAIN if said is None else Slot(said)
    slots = [*OTHERS[:where], own, *OTHERS[where:]]
    parser = esa(place())
    await released(way, parser, [*OTHERS[:where], ABSTAIN, *OTHERS[where:]])
    await released(way, parser, slots)
    without, found = seen.rows
    # Two more coordinates count what has no vector.
    assert without.shape == (30, 66)
    if len(found) == 31:
        found = np.delete(found, 30 if found[30, 64:].any() else where, axis=0)
    assert found.tobytes() == without.tobytes()


class Herd(Neighborly):
    """Every text of a call gets the vector of the longest one."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        super().vectors(texts)
        return [INNER.embed_query(max(texts, key=len))] * len(texts)


@every_way
@pytest.mark.parametrize("said", ["A skin rash.", "A skin rash. " * 100, POISON])
async def test_one_answer_is_one_vote(way: str, said: str, seen: Seen) -> None:
    parser = esa(Herd(), select="vote")
    prepared = esa(INNER).prepare(PublicInput())
    await released(way, parser, [*OTHERS, ABSTAIN], prepared)
    await released(way, parser, [*OTHERS, Slot(said)], prepared)
    without, found = seen.votes
    assert sum(abs(a - b) for a, b in zip(found, without, strict=True)) <= 1


@every_way
@pytest.mark.parametrize("select", ["cosine", "vote"])
@pytest.mark.parametrize("place", [Watching, WatchingServer])
async def test_the_bill_of_the_embedding_counts_the_public_groups(
    place: type[Watching], way: str, select: Any
) -> None:
    """It is the same whether no group, half of them, or all of them said something."""
    embedding = place()
    parser = esa(embedding, select=select)
    prepared = parser.prepare(PublicInput())
    silent = [ABSTAIN, FAILED, BLANK, Slot("I don't know."), Slot(POISON)] * 6
    for slots in ([], silent, OTHERS[:15], [*OTHERS[:15], *silent[:15]], OTHERS):
        embedding.calls.clear()
        await released(way, parser, slots, prepared, slot_count=30)
        assert [len(call) for call in embedding.calls] == [1] * 30


def test_under_add_remove_the_bill_needs_a_public_number_of_groups() -> None:
    with pytest.raises(InvalidParameterError, match="slot_count"):
        esa(INNER, relation=Relation.ADD_REMOVE)


class Reusing(Watching):
    """Fills the same array at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.array = np.zeros((1, 64))

    def vectors(self, texts: list[str]) -> Any:
        if len(texts) > 1:
            return super().vectors(texts)
        self.array[0] = 0.5 * np.asarray(INNER.embed_query(texts[0]))
        return self.array


@every_way
async def test_a_client_may_use_its_array_again(way: str, seen: Seen) -> None:
    await released(way, esa(Reusing()), OTHERS)
    wanted = np.array([INNER.embed_query(slot.text) for slot in OTHERS])
    assert np.allclose(seen.rows[0][:, :64], 0.5 * wanted)


@every_way
async def test_servers_are_asked_at_once_and_models_here_are_not(way: str) -> None:
    server, here = WatchingServer(), Watching()
    await released(way, esa(server), OTHERS)
    await released(way, esa(here), OTHERS)
    assert 1 < server.most_at_once <= CALLS_AT_ONCE
    assert here.most_at_once == 1


async def test_a_cancelled_release_asks_nothing_more() -> None:
    embedding = WatchingServer()
    task = asyncio.ensure_future(released("async", esa(embedding), OTHERS * 10))
    await embedding.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    asked = len(embedding.calls)
    await asyncio.sleep(0.02)
    assert len(embedding.calls) == asked <= 1 + CALLS_AT_ONCE


class Talking(WatchingServer):
    """Logs what it is asked, as SDKs do."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        logging.getLogger("client").warning("asked for %s", texts)
        return super().vectors(texts)


@every_way
async def test_calls_on_threads_are_sealed_too(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    embedding = Talking()
    await released(way, esa(embedding), OTHERS)
    assert len(embedding.calls) == 31
    assert "asked for" in caplog.text
    assert "unit-" not in caplog.text
