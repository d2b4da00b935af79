"""Embedding space aggregation: candidates, votes, and answers embedded each alone."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from support.embedding_fakes import (
    INNER,
    NEIGHBORLY,
    PLACES,
    POISON,
    Neighborly,
    Watching,
    WatchingServer,
)
from support.parser_parts import ANSWERS, EMBEDDING, PARSERS, release, rich

from langchain_dpicl.common.prompts import ABSTAIN_TEXT
from langchain_dpicl.common.replies import ABSTAIN, BLANK, FAILED, Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.parsers import ESAOutputParser, PublicInput
from langchain_dpicl.parsers.esa import NOTHING, Candidates
from langchain_dpicl.release.record import CALLS_FAILED, UNREADABLE, Status
from langchain_dpicl.sealed import sealed

CANDIDATES = ["A dry cough.", "A skin rash.", "Nothing at all."]
OTHERS = [Slot(f"unit-{i} had a dry cough {'often ' * i}") for i in range(30)]


def esa(embedding: Any = EMBEDDING, **terms: Any) -> ESAOutputParser:
    return ESAOutputParser(
        **{"embedding": embedding, "candidates": CANDIDATES, **terms}
    )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The votes that the mechanism was given, one list a release."""
    kept: list[list[int]] = []
    original = voting.noisy_counts

    def watch(votes: Any, *args: Any, **terms: Any) -> Any:
        kept.append(votes)
        return original(votes, *args, **terms)

    monkeypatch.setattr(voting, "noisy_counts", watch)
    return kept


# ---- candidates ----------------------------------------------------------------------


def test_a_single_candidate_costs_nothing() -> None:
    parser = ESAOutputParser(embedding=EMBEDDING)
    same = parser.prepare(PublicInput(zero_shot=("I don't know.", "I don't know. ")))
    outcome = parser.public_outcome(same)
    assert outcome is not None
    assert outcome.status is Status.FALLBACK
    two = parser.prepare(PublicInput(zero_shot=("A cough.", "A rash.")))
    assert parser.public_outcome(two) is None
    with pytest.raises(InvalidParameterError, match="no candidate"):
        parser.prepare(PublicInput(zero_shot=("", " ")))


def test_a_candidate_that_says_nothing_is_no_candidate() -> None:
    parser = esa(candidates=["I do not know.", "A skin rash.", "A cough."])
    assert parser.prepare(PublicInput()).texts == ("A skin rash.", "A cough.")


@pytest.mark.parametrize("vector", [[math.nan] * 4, [0.0] * 4, []])
def test_candidates_that_cannot_be_embedded_are_refused(vector: list[float]) -> None:
    class Bad(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector for _ in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector

    with pytest.raises(InvalidParameterError, match="candidates"):
        esa(Bad()).prepare(PublicInput())


def test_under_add_remove_the_number_of_candidates_is_nobodys_business() -> None:
    traced: list[Any] = []

    class Reading(BaseCallbackHandler):
        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            traced.append(inputs)

    parser = PARSERS["vote"](budget=rich(), relation=Relation.ADD_REMOVE)
    parser.invoke(ANSWERS, {"callbacks": [Reading()]})
    assert parser.invoke([]) in {"cough", "rash", ABSTAIN_TEXT}
    assert "84" not in repr(traced)
    with pytest.raises(InvalidParameterError, match="slot_count"):
        PARSERS["esa"](relation=Relation.ADD_REMOVE)


# ---- votes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", ["I don't know.", "None of these (3)", "The records do not mention it."]
)
def test_groups_that_say_nothing_outweigh_a_few_that_say_something(said: str) -> None:
    silent = [Slot(said)] * 40
    found = release(PARSERS["esa"](), silent + [Slot("A dry cough.")] * 20)
    assert found.status is Status.FALLBACK
    assert "do not tell" in found.details["reason"]
    # They are counted, and no candidate's.
    more = release(PARSERS["esa"](), silent + [Slot("A skin rash.")] * 90)
    assert more.text == "A skin rash."
    assert more.details["noisy_none"] == 40


def test_the_order_of_candidates_is_that_of_their_noisy_votes() -> None:
    slots = [Slot(CANDIDATES[0])] * 20 + [Slot(CANDIDATES[1])] * 60
    found = release(esa(), slots)
    assert found.text == CANDIDATES[1]
    assert found.ranking == (CANDIDATES[1], CANDIDATES[0], *CANDIDATES[2:])
    votes = dict(zip(CANDIDATES, (20, 60, 0), strict=True))
    assert found.details["noisy_votes"] == votes


@pytest.mark.parametrize("failing", [FAILED, BLANK, Slot(POISON)])
def test_failed_calls_and_unreadable_replies_are_told_from_answers(
    failing: Slot,
) -> None:
    parser = esa(Neighborly())
    slots = [failing] * 40 + [Slot("A dry cough.")] * 10
    found = release(parser, slots)
    reason = CALLS_FAILED if failing.failed else UNREADABLE
    assert found.details["reason"] == reason
    counted = {"noisy_unreadable": 0, "noisy_failed": 0}
    counted["noisy_failed" if failing.failed else "noisy_unreadable"] = 40
    assert counted.items() <= found.details.items()
    assert release(parser, [*slots[30:], *slots[40:] * 4]).text == "A dry cough."


def test_an_answers_vote_does_not_depend_on_the_other_answers() -> None:
    """A matrix product rounds a row by its place; tied candidates would then flip."""
    rng = np.random.default_rng(5)
    equal = np.repeat(rng.normal(size=(1, 384)), 5, axis=0)
    tied = Candidates(tuple("abcd"), equal)
    assert {tied.nearest(row) for row in rng.normal(size=(60, 384))} == {0}


# ---- embedding -----------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_call_holds_one_answer(place: type[Watching]) -> None:
    embedding = place()
    release(esa(embedding), OTHERS)
    # The candidates are public, and embedded together.
    assert embedding.calls[0] == [*CANDIDATES, *NOTHING]
    assert sorted(embedding.calls[1:]) == sorted([slot.text] for slot in OTHERS)


BAD: dict[str, Any] = {
    "not a number": [math.nan] * 64,
    "infinite": [math.inf] * 64,
    "zero": [0.0] * 64,
    "short": [1.0],
    "words": ["x"] * 64,
    "none": None,
    "huge": [10**400, *[1.0] * 63],
}


class Odd(Neighborly):
    """Gives an answer that says so a vector that can't be used."""

    def vectors(self, texts: list[str]) -> list[Any]:
        found = super().vectors(texts)
        return [BAD.get(text, row) for text, row in zip(texts, found, strict=True)]


SAID = ["unit-new: a rash.", "unit-new told on. " * 200, f"unit-new {POISON}", "", *BAD]


@pytest.mark.parametrize("place", [*NEIGHBORLY, Odd])
@pytest.mark.parametrize("said", SAID)
def test_one_answer_moves_one_vote_and_no_other(
    place: type[Watching], said: str, seen: list[list[int]]
) -> None:
    parser = esa(place())
    for where in (0, 13, 30):
        release(parser, [*OTHERS[:where], ABSTAIN, *OTHERS[where:]])
        release(parser, [*OTHERS[:where], Slot(said), *OTHERS[where:]])
        without, found = seen[-2:]
        moved = [b - a for a, b in zip(without, found, strict=True)]
        assert sorted(moved) == [0] * (len(moved) - 1) + [1]


def test_twin_that_embeds_all_answers_together_moves_more_votes() -> None:
    embedding = Neighborly()
    prepared = esa(embedding).prepare(PublicInput())
    texts = [str(slot.text) for slot in OTHERS]
    alone, beside = (
        [prepared.nearest(np.array(row)) for row in embedding.embed_documents(world)]
        for world in (texts, [*texts, "unit-new: a rash."])
    )
    assert alone != beside[:30]


@pytest.mark.parametrize("place", PLACES)
def test_the_bill_of_the_embedding_counts_the_public_groups(
    place: type[Watching],
) -> None:
    """It is the same whether no group, half of them, or all of them said something."""
    embedding = place()
    parser = esa(embedding)
    prepared = parser.prepare(PublicInput())
    silent = [ABSTAIN, FAILED, BLANK, Slot("I don't know."), Slot(POISON)] * 6
    for slots in ([], silent, OTHERS[:15], [*OTHERS[:15], *silent[:15]], OTHERS):
        embedding.calls.clear()
        release(parser, slots, prepared=prepared, slot_count=30)
        assert [len(call) for call in embedding.calls] == [1] * 30


class Reusing(Watching):
    """Fills the same array at every call."""

    array = np.zeros((1, 64))

    def vectors(self, texts: list[str]) -> Any:
        if len(texts) > 1:
            return super().vectors(texts)
        self.array[0] = 0.5 * np.asarray(INNER.embed_query(texts[0]))
        return self.array


def test_a_client_may_use_its_array_again(seen: list[list[int]]) -> None:
    slots = [Slot(CANDIDATES[n % 2]) for n in range(20)]
    release(esa(Reusing()), slots)
    release(esa(INNER), slots)
    assert seen[0] == seen[1]


class Talking(WatchingServer):
    """Logs what it is asked, as SDKs do."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        logging.getLogger("client").warning("asked for %s", texts)
        return super().vectors(texts)


async def test_calls_on_threads_are_sealed_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedding = Talking()
    parser = esa(embedding)
    prepared = parser.prepare(PublicInput())
    await asyncio.to_thread(sealed, lambda: release(parser, OTHERS, prepared=prepared))
    assert len(embedding.calls) == 31
    assert "asked for" in caplog.text
    assert "unit-" not in caplog.text
