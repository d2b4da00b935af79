"""Embedding space aggregation: candidates, vectors, balls."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from support.parser_parts import ANSWERS, EMBEDDING, PARSERS, paid, release, rich

from langchain_dpicl.common.outcome import CALLS_FAILED, UNREADABLE, Status
from langchain_dpicl.common.prompts import ABSTAIN_TEXT
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import ABSTAIN, BLANK, FAILED, Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import vectors
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import ESAOutputParser, PublicInput
from langchain_dpicl.release.flow import result


@pytest.mark.parametrize(
    "bad",
    [
        [math.nan] * 384,
        [math.inf] * 384,
        [0.0] * 384,
        [1.0] * 3,
        ["x"] * 384,
        None,
        [10**400, *[1.0] * 383],
    ],
    ids=["nan", "inf", "zero", "short", "text", "none", "huge"],
)
def test_an_answer_with_a_bad_embedding_abstains(bad: Any) -> None:
    class Odd(HashingEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            good = super().embed_documents(texts)
            return [bad if "odd" in t else v for t, v in zip(texts, good, strict=True)]

    parser = ESAOutputParser(embedding=Odd(), candidates=["A dry cough.", "A rash."])
    slots = [Slot("A dry cough.")] * 50 + [Slot("odd")]
    assert release(parser, slots).text == "A dry cough."
    assert (
        asyncio.run(
            parser.arelease(
                slots,
                paid=paid(parser),
                relation=Relation.REPLACE,
                slot_count=51,
                prepared=parser.prepare(PublicInput()),
            )
        ).text
        == "A dry cough."
    )


def test_one_answer_that_breaks_the_embedding_call_silences_no_other() -> None:
    class Fragile(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if any("poison" in text for text in texts):
                raise RuntimeError("too long")
            return EMBEDDING.embed_documents(texts)

        def embed_query(self, text: str) -> list[float]:
            return EMBEDDING.embed_query(text)

    parser = ESAOutputParser(
        embedding=Fragile(), candidates=["A dry cough.", "A rash."], select="vote"
    )
    slots = [Slot("A dry cough.")] * 50 + [Slot("poison")]
    assert release(parser, slots).text == "A dry cough."


def test_an_answers_vote_does_not_depend_on_the_other_answers() -> None:
    """A matrix product rounds a row by its place; tied candidates would then flip."""
    rng = np.random.default_rng(5)
    equal = rng.normal(size=(5, 384))
    equal[1:] = equal[0]
    parser = ESAOutputParser(embedding=EMBEDDING, candidates=["a", "b"])
    prepared = parser.prepare(PublicInput())
    tied = type(prepared)(tuple("abcde"), equal, np.zeros(384), equal[:1])
    rows = list(rng.normal(size=(60, 384)))
    for m in range(1, 61):
        assert tied.votes(rows[:m]) == [m, 0, 0, 0, 0, 0]


def test_under_add_remove_the_number_of_candidates_is_nobodys_business() -> None:
    seen: list[Any] = []

    class Watching(BaseCallbackHandler):
        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            seen.append(inputs)

    parser = PARSERS["vote"](budget=rich(), relation=Relation.ADD_REMOVE)
    parser.invoke(ANSWERS, {"callbacks": [Watching()]})
    assert parser.invoke([]) in {"cough", "rash", ABSTAIN_TEXT}
    assert "84" not in repr(seen)
    with pytest.raises(InvalidParameterError, match="slot_count"):
        PARSERS["esa"](relation=Relation.ADD_REMOVE, center="candidates")


@pytest.mark.parametrize("vector", [[math.nan] * 4, [0.0] * 4, []])
def test_candidates_that_cannot_be_embedded_are_refused(vector: list[float]) -> None:
    class Bad(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector for _ in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector

    parser = ESAOutputParser(embedding=Bad(), candidates=["a", "b"])
    with pytest.raises(InvalidParameterError, match="candidates"):
        parser.prepare(PublicInput())


def test_a_small_ball_around_the_candidates_divides_the_noise() -> None:
    texts = ["The patients report a dry cough.", "The patients report a skin rash."]
    slots = [Slot(texts[0])] * 40 + [Slot(texts[1])] * 10
    near = ESAOutputParser(
        embedding=EMBEDDING,
        candidates=texts,
        center="candidates",
        radius=0.3,
        min_score=-1,
        random=SeededRandom(1),
    )
    far = near.model_copy(
        update={"center": None, "radius": 1.0, "random": SeededRandom(1)}
    )

    def share(parser: ESAOutputParser) -> float:
        found = [
            release(parser, slots, paid=paid(parser, z=12.0)).text == texts[0]
            for _ in range(300)
        ]
        return float(np.mean(found))

    assert share(near) > share(far) + 0.05


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


@pytest.mark.parametrize("least", [-2, 1.5, float("nan")])
def test_a_least_score_is_a_cosine(least: float) -> None:
    with pytest.raises(InvalidParameterError, match="min_score"):
        ESAOutputParser(embedding=EMBEDDING, candidates=["one", "two"], min_score=least)


def test_a_least_score_goes_with_cosines() -> None:
    with pytest.raises(InvalidParameterError, match="min_score"):
        ESAOutputParser(
            embedding=EMBEDDING, candidates=["one", "two"], min_score=0, select="vote"
        )


@pytest.mark.parametrize(("share", "status"), [(0.8, "released"), (0.2, "fallback")])
def test_the_score_is_the_mean_cosine_with_all_groups(
    share: float, status: str
) -> None:
    """Groups without an answer count nothing: 0.5 is half of them in agreement."""
    said = [Slot("Cough.")] * int(200 * share)
    slots = said + [Slot(None)] * (200 - len(said))
    parser = ESAOutputParser(
        embedding=EMBEDDING, candidates=["Cough.", "Rash."], min_score=0.5
    )
    outcome = release(parser, slots, slot_count=200)
    assert outcome.status.value == status
    assert outcome.ranking == (("Cough.",) if status == "released" else ())


def pure(value: Any) -> Any:
    """Return steps that make no call."""
    yield from ()
    return value


SAID = [f"The patients report {what}." for what in ("a cough", "a rash", "nausea")]


def answered_in(draws: int, slots: list[Slot], z: float, **terms: Any) -> float:
    """Return the share of draws in which a candidate comes out, of 60 groups."""
    parser = ESAOutputParser(
        embedding=EMBEDDING, candidates=SAID, random=SeededRandom(3), **terms
    )
    terms: Any = {"paid": paid(parser, z), "prepared": parser.prepare(PublicInput())}
    # The answers are embedded once, which would be most of the work.
    rows = result(parser.rows(slots, 60, terms["prepared"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ESAOutputParser, "rows", lambda *_: pure(rows))
        found = [release(parser, slots, slot_count=60, **terms) for _ in range(draws)]
    return sum(one.status is Status.RELEASED for one in found) / draws


@pytest.mark.parametrize("z", [0.3, 2.9, 40.0])
@pytest.mark.parametrize("center", [None, "candidates"])
def test_noise_alone_answers_in_one_of_a_hundred(z: float, center: Any) -> None:
    assert answered_in(1000, [Slot(None)] * 60, z, center=center) <= 0.02


def test_twin_without_the_rule_noise_answers_often() -> None:
    assert answered_in(200, [Slot(None)] * 60, 2.9, min_score=-1) > 0.3


@pytest.mark.parametrize("terms", [{}, {"center": "candidates", "radius": 0.7}])
def test_what_the_groups_agree_on_is_told_from_noise(terms: Any) -> None:
    assert (
        answered_in(200, [Slot(SAID[0])] * 45 + [Slot(None)] * 15, 2.9, **terms) > 0.95
    )


def test_the_center_may_be_a_vector_of_the_embeddings_length() -> None:
    texts = ["A dry cough.", "A skin rash."]
    given = EMBEDDING.embed_query("A cough.")

    def parser(center: list[float]) -> ESAOutputParser:
        return ESAOutputParser(embedding=EMBEDDING, candidates=texts, center=center)

    assert parser(given).prepare(PublicInput()).center.tolist() == given
    assert release(parser(given), [Slot(ANSWERS[0])] * 80).text == texts[0]
    for wrong in ([math.nan, *given[1:]], [*given, 0.0]):
        with pytest.raises(InvalidParameterError, match="finite vector"):
            parser(wrong).prepare(PublicInput())


@pytest.mark.parametrize(
    "said", ["I don't know.", "None of these.", "none of these (3)"]
)
@pytest.mark.parametrize("name", ["esa", "esa-vote"])
def test_groups_that_say_nothing_outweigh_a_few_that_say_something(
    name: str, said: str
) -> None:
    found = release(PARSERS[name](), [Slot(said)] * 40 + [Slot("A dry cough.")] * 20)
    assert found.status is Status.FALLBACK
    assert "do not tell" in found.details["reason"]


def test_the_record_has_the_noisy_score_of_each_candidate() -> None:
    parser, slots = PARSERS["esa"](), [Slot(ANSWERS[0])] * 80
    found, again = (release(parser, slots, paid=paid(parser, 2.9)) for _ in range(2))
    scores = found.details["scores"]
    *candidates, nothing = scores
    assert sorted(candidates, key=scores.get, reverse=True) == list(found.ranking)
    assert nothing == "The records do not say."
    assert all(-2 < score == round(score, 3) < 2 for score in scores.values())
    # They are those of the noisy sum: without its noise they would be the same.
    assert scores != again.details["scores"]
    silent = release(PARSERS["esa"](), [Slot("I don't know.")] * 80)
    assert max(silent.details["scores"], key=silent.details["scores"].get) == nothing


@pytest.mark.parametrize("name", ["esa", "esa-vote"])
@pytest.mark.parametrize("failing", [FAILED, BLANK, Slot("poison")])
def test_failed_calls_and_unreadable_replies_are_told_from_answers(
    name: str, failing: Slot
) -> None:
    class Fragile(HashingEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if texts == ["poison"]:
                raise RuntimeError("too long")
            return super().embed_documents(texts)

    parser = PARSERS[name]().model_copy(update={"embedding": Fragile()})
    slots = [failing] * 40 + [Slot("A dry cough.")] * 10
    found = release(parser, slots, paid=paid(parser, z=1.0))
    reason = CALLS_FAILED if failing.failed else UNREADABLE
    assert found.details["reason"] == reason
    counted = {"noisy_unreadable": 0.0, "noisy_failed": 0.0}
    counted["noisy_failed" if failing.failed else "noisy_unreadable"] = 40.0
    for count, number in counted.items():
        assert found.details[count] == pytest.approx(number, abs=10)
    few = release(parser, [*slots[30:], *slots[40:] * 4], paid=paid(parser, z=1.0))
    assert few.text == "A dry cough."


@pytest.mark.parametrize(
    ("center", "radius"), [(None, 1.0), (None, 0.2), ("candidates", 0.2)]
)
def test_one_slot_moves_the_sum_by_twice_the_radius_at_most(
    center: Any, radius: float
) -> None:
    """Over all pairs of what a slot may be: an answer, nothing, or a tally."""

    class Opposed(HashingEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            found = super().embed_documents([text.lstrip("-") for text in texts])
            signs = [-1.0 if text.startswith("-") else 1.0 for text in texts]
            return [[s * x for x in row] for s, row in zip(signs, found, strict=True)]

    seen: list[Any] = []
    parser = ESAOutputParser(
        embedding=Opposed(), candidates=SAID, center=center, radius=radius
    )
    prepared = parser.prepare(PublicInput())
    texts = ["A cough.", "-A cough.", "Many words " * 9, "I don't know.", "", *SAID]
    kinds = [[], [FAILED], [BLANK], [ABSTAIN], *([Slot(text)] for text in texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            vectors, "noisy_sum", lambda rows, **_: seen.append(rows) or rows[0] * 0
        )
        others = [Slot(SAID[0]), FAILED]
        for kind in kinds:
            release(parser, [*others, *kind], prepared=prepared, slot_count=3)
    sums = [vectors.on_grid(rows, radius, 4096.0).sum(axis=0) / 4096 for rows in seen]
    far = [float(np.linalg.norm(one - two)) for one in sums for two in sums]
    assert 1.7 < max(far) <= 2
    tallies = [one - sums[0] for one in sums[1:3]]
    assert np.linalg.norm(tallies[0] - tallies[1]) == pytest.approx(2**0.5, rel=0.01)
    if center is None:
        # A twin whose tally comes on top of a vector moves the sum by more.
        assert np.linalg.norm(sums[4] + tallies[0] - sums[5]) > 2.2


def test_a_sum_leads_along_the_line_to_each_other_candidate() -> None:
    parser = ESAOutputParser(embedding=EMBEDDING, candidates=SAID)
    given = parser.prepare(PublicInput())

    def lead(vectors: list[list[float]], *total: float) -> float:
        nothing = np.array([[-1.0, *[0.0] * (len(total) - 1)]])
        flat = replace(given, vectors=np.array(vectors), nothing=nothing)
        return flat.lead(np.array(total))

    three = lead([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 20.0, 6.0, 0.0)
    # The same candidate twice is no race.
    twice = lead([[1, 0], [1, 0], [0, 1]], 20.0, 6.0)
    assert three == pytest.approx(14 / math.sqrt(2)) == twice
    # That the records do not tell is a candidate.
    assert lead([[1, 0], [0, 1]], -20.0, 0.0) == pytest.approx(20 / math.sqrt(2))


@pytest.mark.parametrize("radius", [0.1, 1.0])
def test_a_row_moves_a_sum_by_the_radius_at_most(radius: float) -> None:
    parser = ESAOutputParser(embedding=EMBEDDING, candidates=SAID, radius=radius)
    prepared = parser.prepare(PublicInput())
    line = prepared.vectors[0] - prepared.vectors[1]
    line /= np.linalg.norm(line)
    draws = np.random.default_rng(1).normal(size=(20, line.size))
    for row in [line * 9, *draws]:
        noisy = vectors.noisy_sum(
            [row], *paid(parser, 1e-6).events, Relation.REPLACE, radius=radius
        )
        assert abs(float(noisy @ line)) <= radius * (1 + 1e-3)
