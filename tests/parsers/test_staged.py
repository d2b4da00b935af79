"""What noisy sums of blocks say: the rules of an answer, for the summed noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.parser_parts import ANSWERS, EMBEDDING, PARSERS, paid

from langchain_dpicl import ESAOutputParser, VoteOutputParser, mechanisms
from langchain_dpicl.common.outcome import CALLS_FAILED, NO_LEAD, Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import FAILED, answered
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.stages import Asked, usual_stop
from langchain_dpicl.parsers.base import PublicInput
from langchain_dpicl.parsers.staged import Said
from langchain_dpicl.release.flow import aresult, result

Z = 2.0
SIGMA = Z * math.sqrt(2)
LAST = Asked(100, 100, stages=4, of_stages=4)
FIRST = Asked(25, 100, stages=1, of_stages=4)
DRAFTED = VoteOutputParser(labels="draft")
GIVEN = VoteOutputParser(labels=["a", "b"])


def said(
    parser: Any, noisy: list[float], asked: Asked = LAST, prepared: Any = ("a", "b")
) -> Said:
    found: Said = parser.said(
        np.array(noisy),
        asked=asked,
        paid=paid(parser, Z),
        relation=Relation.REPLACE,
        prepared=prepared,
    )
    return found


# -- votes -----------------------------------------------------------------------------


def test_after_four_blocks_the_lead_is_held_against_the_noise_of_four() -> None:
    lead = usual_stop(4) * SIGMA * 2 * math.sqrt(2)
    assert said(DRAFTED, [60 + lead + 0.1, 60, 0, 0, 0]).outcome.text == "a"
    below = said(DRAFTED, [60 + lead - 0.1, 60, 0, 0, 0])
    assert below.outcome.text is None
    assert not below.is_answer
    # One release of all would need less than half of it.
    all_at_once = said(DRAFTED, [60 + lead / 2, 60, 0, 0, 0], Asked.whole(100))
    assert all_at_once.outcome.text == "a"


def test_a_count_is_held_against_what_summed_noise_makes_of_no_votes() -> None:
    least = mechanisms.least_votes(2 * SIGMA, 2, looks=4)
    assert said(GIVEN, [least + 0.1, -99, -99, -99, -99]).outcome.text == "a"
    few = said(GIVEN, [least - 0.1, -99, -99, -99, -99]).outcome
    assert few.details["reason"] == NO_LEAD


def test_a_label_leads_none_of_these_by_the_summed_noise() -> None:
    lead = mechanisms.lead_over_a_tie(2 * SIGMA, labels=1, looks=4)
    assert said(GIVEN, [50 + lead + 0.1, 0, 50, 0, 0]).outcome.text == "a"
    assert said(GIVEN, [50 + lead - 0.1, 0, 50, 0, 0]).outcome.text is None


def test_confidence_is_in_deviations_of_the_summed_noise() -> None:
    found = said(GIVEN, [80, 0, 0, 0, 0]).outcome.details["confidence"]
    assert found == pytest.approx(80 / (2 * SIGMA * math.sqrt(2)), abs=0.01)


def test_the_lead_that_stops_counts_the_part_that_is_not_asked() -> None:
    found = said(GIVEN, [20, 2, 1, 0, 0], FIRST)
    part = 25 * 75 / 99
    assert found.lead == pytest.approx(18 / math.sqrt(2 * SIGMA**2 + part))
    assert found.is_answer


def test_a_lead_of_your_own_is_in_groups_at_each_stage() -> None:
    strict = VoteOutputParser(labels=["a", "b"], min_lead=30)
    early = said(strict, [25, 0, 0, 0, 0], FIRST)
    assert early.lead > 2
    assert not early.is_answer
    assert said(strict, [85, 50, 0, 0, 0]).is_answer


def test_that_the_records_do_not_tell_may_be_clear_as_well() -> None:
    found = said(GIVEN, [1, 2, 24, 0, 0], FIRST)
    assert found.is_answer
    assert found.outcome.status is Status.FALLBACK
    assert found.lead == pytest.approx(22 / FIRST.deviation(SIGMA * math.sqrt(2)))
    # A label that few chose is no such thing.
    assert not said(GIVEN, [3, -9, -9, -9, -9], FIRST).is_answer


def test_failed_calls_lead_by_the_summed_noise() -> None:
    lead = mechanisms.lead_over_a_tie(2 * SIGMA, labels=1, looks=4)
    failing = said(GIVEN, [40, 0, 0, 0, 40 + lead + 0.1])
    assert failing.outcome.details["reason"] == CALLS_FAILED
    assert failing.is_answer
    fewer = said(GIVEN, [40, 0, 0, 0, 40 + lead - 0.1])
    assert fewer.outcome.details["reason"] == NO_LEAD
    assert not fewer.is_answer


@pytest.mark.parametrize("name", ["vote", "esa", "esa-vote"])
async def test_one_block_is_the_release_of_all(name: str) -> None:
    parser = PARSERS[name]()
    prepared = parser.prepare(PublicInput())
    terms: dict[str, Any] = {
        "paid": paid(parser),
        "relation": Relation.REPLACE,
        "prepared": prepared,
    }
    slots = [answered(text) for text in ANSWERS]
    staged: Any = parser
    each = (
        result(staged.noisy(slots, slot_count=84, **terms)),
        await aresult(staged.noisy(slots, slot_count=84, **terms)),
    )
    found = [
        staged.said(noisy, asked=Asked.whole(84), **terms).outcome for noisy in each
    ]
    released = parser.release(slots, slot_count=84, **terms)
    assert {one.text for one in [*found, released]} == {released.text}


def test_blocks_add_up_to_the_votes_of_all() -> None:
    slots = [answered(text) for text in ("a", "b", "a", "none of these")] + [FAILED]
    terms: dict[str, Any] = {
        "paid": paid(GIVEN),
        "relation": Relation.REPLACE,
        "prepared": ("a", "b"),
        "slot_count": 2,
    }
    parts = [result(GIVEN.noisy(slots[i : i + 2], **terms)) for i in (0, 2, 4)]
    assert np.round(np.sum(parts, axis=0)).tolist() == [2, 1, 1, 0, 1]


def test_permute_and_flip_has_no_stages() -> None:
    flip = PARSERS["flip"]()
    assert isinstance(flip, VoteOutputParser)
    assert not flip.has_stages
    assert GIVEN.has_stages


def ties_out(parser: Any, sigma_of: Any) -> float:
    """Return how often a tie of 100 votes comes out of the last of four looks."""
    draws, out = np.random.default_rng(3), 0
    for _ in range(4000):
        noisy = np.array([50.0, 50.0, 0, 0, 0]) + draws.normal(0, 2 * SIGMA, 5)
        z = sigma_of(Z)
        found = parser.said(
            noisy,
            asked=LAST,
            paid=paid(parser, z),
            relation=Relation.REPLACE,
            prepared=("a", "b"),
        )
        out += found.outcome.text is not None
    return out / 4000


def test_a_tie_rarely_comes_out_at_the_last_look() -> None:
    assert ties_out(DRAFTED, lambda z: z) < 0.025


def test_twin_a_lead_for_one_blocks_noise_lets_a_fifth_of_ties_out() -> None:
    assert ties_out(DRAFTED, lambda z: z / 2) > 0.15


def noise_answers(parser: Any, stop_at: float, looks: int = 4) -> float:
    """Return how often some label comes out where no group says anything."""
    draws, out, runs = np.random.default_rng(5), 0, 6000
    for _ in range(runs):
        total = np.zeros(5)
        for stage in range(1, 5):
            total += draws.normal(0, SIGMA, 5)
            asked = Asked(25 * stage, 100, min(stage, looks), looks)
            found = said(parser, total.tolist(), asked)
            is_last = stage == 4
            if is_last or (found.is_answer and found.lead >= stop_at):
                out += found.outcome.text is not None
                break
    return out / runs


@pytest.mark.parametrize("parser", [DRAFTED, GIVEN])
def test_noise_alone_makes_an_answer_in_one_percent_over_all_looks(parser: Any) -> None:
    stop_at = usual_stop(4, lets_ties_out=parser.lets_ties_out)
    assert noise_answers(parser, stop_at) <= 0.01 + 4 * math.sqrt(0.01 / 6000)


def test_twin_one_blocks_noise_makes_many_answers_of_nothing() -> None:
    assert noise_answers(GIVEN, 1.64, looks=1) > 0.05


# -- candidates ------------------------------------------------------------------------

TEXTS = ("A dry cough.", "A skin rash.", "Swollen ankles.")
ESA = ESAOutputParser(embedding=EMBEDDING, candidates=TEXTS, radius=0.5)
PREPARED = ESA.prepare(PublicInput())
ONE = Z * sensitivity.embedding_l2(Relation.REPLACE, 0.5)


def toward(place: int, length: float) -> list[float]:
    vector: list[float] = (PREPARED.vectors[place] * length).tolist()
    return [*vector, 0.0, 0.0]


def test_a_sum_is_divided_by_the_slots_that_were_asked() -> None:
    half = ESAOutputParser(embedding=EMBEDDING, candidates=TEXTS, min_score=0.5)
    prepared = half.prepare(PublicInput())
    for asked in (FIRST, LAST):
        near = said(half, toward(0, 0.51 * asked.slots), asked, prepared)
        far = said(half, toward(0, 0.49 * asked.slots), asked, prepared)
        assert near.outcome.text == TEXTS[0]
        assert not far.is_answer


def test_a_sum_is_held_against_what_the_summed_noise_reaches() -> None:
    for asked in (FIRST, LAST):
        least = mechanisms.least_votes(asked.noise(ONE), 3, looks=4)
        near = said(ESA, toward(1, least + 0.01), asked, PREPARED)
        far = said(ESA, toward(1, least - 0.01), asked, PREPARED)
        assert near.outcome.text == TEXTS[1]
        assert near.is_answer
        assert far.outcome.text is None
        assert not far.is_answer


def test_a_candidate_leads_along_the_line_to_each_other_one() -> None:
    vectors = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    nothing = np.array([[-1.0, 0, 0]])
    flat = replace(PREPARED, vectors=vectors, center=np.zeros(3), nothing=nothing)
    found = said(ESA, [20.0, 6.0, 0.0, 0.0, 0.0], FIRST, flat)
    deviation = math.sqrt(ONE**2 + 0.5**2 * 25 * 75 / 99)
    assert found.lead == pytest.approx(14 / math.sqrt(2) / deviation)
    # Along a line of length 1 the noise of a sum is that of one coordinate.
    assert FIRST.deviation(ONE, 0.5) == pytest.approx(deviation)


def test_that_the_records_do_not_tell_is_a_candidate() -> None:
    vectors = np.array([[1.0, 0], [0, 1]])
    nothing = np.array([[-1.0, 0], [-0.6, -0.8]])
    flat = replace(
        PREPARED,
        texts=TEXTS[:2],
        vectors=vectors,
        center=np.zeros(2),
        nothing=nothing,
    )
    found = said(ESA, [-20.0, 0.0, 0.0, 0.0], FIRST, flat)
    assert (found.is_answer, found.outcome.status) == (True, Status.FALLBACK)
    assert found.lead == pytest.approx(20 / math.sqrt(2) / FIRST.deviation(ONE, 0.5))


def test_the_same_candidate_twice_is_no_race() -> None:
    vectors = np.array([[1.0, 0], [1.0, 0], [0, 1]])
    flat = replace(
        PREPARED, vectors=vectors, center=np.zeros(2), nothing=np.array([[-1.0, 0]])
    )
    found = said(ESA, [20.0, 6.0, 0.0, 0.0], FIRST, flat)
    assert found.lead == pytest.approx(14 / math.sqrt(2) / FIRST.deviation(ONE, 0.5))


def test_votes_for_candidates_are_held_against_the_summed_noise() -> None:
    parser = ESAOutputParser(embedding=EMBEDDING, candidates=TEXTS, select="vote")
    least = mechanisms.least_votes(2 * SIGMA, 3, looks=4)
    near = said(parser, [least + 0.1, 0, 0, -99, -99, -99], LAST, PREPARED)
    assert near.outcome.text == TEXTS[0]
    assert (
        said(parser, [least - 0.1, 0, 0, -99, -99, -99], LAST, PREPARED).outcome.text
        is None
    )
    tell = said(parser, [0, 0, 0, 25.0, 0, 0], FIRST, PREPARED)
    assert tell.is_answer
    assert tell.outcome.details["reason"].endswith('do not tell"')


@pytest.mark.parametrize("radius", [0.1, 1.0])
def test_a_row_moves_the_lead_by_the_radius_at_most(radius: float) -> None:
    """By random rows: what the part that is not asked is counted with."""
    parser = ESAOutputParser(embedding=EMBEDDING, candidates=TEXTS, radius=radius)
    draws = np.random.default_rng(1)
    size = PREPARED.center.size
    line = PREPARED.vectors[0] - PREPARED.vectors[1]
    line /= np.linalg.norm(line)
    for row in [line * 9, *draws.normal(size=(20, size))]:
        noise = paid(parser, 1e-6).noise
        noisy = parser._sum([row], (0, 0), noise, Relation.REPLACE, PREPARED)
        assert abs(float(noisy[:-2] @ line)) <= radius * (1 + 1e-3)
