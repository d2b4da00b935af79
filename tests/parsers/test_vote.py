"""Voting: no answer out of nothing, drafted labels, and what the record says."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import pytest
from support.parser_parts import PARSERS, paid, release

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.common.prompts import ABSTAIN_TEXT
from langchain_dpicl.common.replies import ABSTAIN, BLANK, FAILED, Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_joint, voting
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.mechanisms.voting import lead_over_a_tie, least_votes
from langchain_dpicl.parsers import PublicInput, VoteOutputParser
from langchain_dpicl.parsers.vote import NONE, verdict
from langchain_dpicl.release.record import CALLS_FAILED, NO_LEAD, UNREADABLE, Status

DRAFTED = PublicInput(question="Which?", draft="1. cough\n2. rash\n3. nausea")
RUNS = 1_500


def drafting(**terms: Any) -> VoteOutputParser:
    return VoteOutputParser(labels="draft", **terms)


def outcomes(
    parser: VoteOutputParser, slots: list[Slot], *, runs: int = RUNS, **changes: Any
) -> list[Any]:
    """Return what so many draws release; the slots are read once."""
    changes = {"paid": paid(parser, z=4.0, epsilon=0.5), **changes}
    labels = changes.setdefault("prepared", parser.prepare(PublicInput(question="?")))
    counts = parser.counts(slots, labels)
    once = mock.patch.object(VoteOutputParser, "counts", return_value=counts)
    with once, use(SeededRandom(3)):
        return [release(parser, slots, **changes) for _ in range(runs)]


def share_released(found: list[Any]) -> float:
    return sum(one.status is Status.RELEASED for one in found) / len(found)


REFUSALS = {
    "No answer: more groups chose none of these than any one option.": "None of these.",
    "No answer: too many replies could not be read.": "xyz",
    ABSTAIN_TEXT: None,
}


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_says_why(text: str) -> None:
    said = REFUSALS[text]
    parser = VoteOutputParser(
        labels=["cough", "rash"],
        budget=PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=9, ledger=":memory:"
        ),
    )
    replies = ["cough"] * 30 + [said or "none of these"] * (90 if said else 30)
    own = parser.model_copy(update={"abstain_text": "Sorry."})
    with use(SeededRandom(2)):
        assert parser.invoke(replies) == text
        assert own.invoke(replies) == "Sorry."


@pytest.mark.parametrize("failing", [FAILED, BLANK])
def test_failed_calls_and_unreadable_replies_are_the_reason_if_they_lead_clearly(
    failing: Slot,
) -> None:
    parser = PARSERS["vote"]()
    noise = paid(parser, z=1.0)
    reason = CALLS_FAILED if failing.failed else UNREADABLE
    with use(SeededRandom(2)):
        outcome = release(parser, [failing] * 60 + [Slot("cough")] * 40, paid=noise)
        fewer = release(parser, [failing] * 40 + [Slot("cough")] * 60, paid=noise)
    equal = [failing] * 50 + [Slot("cough")] * 50
    ties = outcomes(parser, equal, runs=200, paid=noise)
    assert outcome.details["reason"] == reason
    assert outcome.text is None
    # Noise alone makes an answer of a tie in 5 % of releases; four deviations more.
    assert sum(tie.text is not None for tie in ties) < 0.11 * len(ties)
    assert NO_LEAD in {tie.details.get("reason") for tie in ties}
    assert fewer.text == "cough"


@pytest.mark.parametrize(
    ("labels", "relation"), [(2, Relation.REPLACE), (8, Relation.ADD_REMOVE)]
)
def test_a_label_that_nobody_chose_comes_out_in_one_of_a_hundred_questions(
    labels: int, relation: Relation
) -> None:
    parser = VoteOutputParser(
        labels=[f"label {number}" for number in range(labels)],
    )
    found = outcomes(parser, [], relation=relation, slot_count=60)
    # Whole votes leave a little of the 1 %, and the other bins half of that.
    assert 0.001 < share_released(found) < 0.013


def test_nothing_is_released_where_the_groups_chose_none() -> None:
    parser = VoteOutputParser(labels=["a", "b"])
    slots = [Slot("None of these.")] * 44 + [Slot("a")] * 10
    found = outcomes(parser, slots, runs=400)
    assert share_released(found) < 0.02
    assert found[0].details["reason"] == NONE


def test_twin_without_a_bin_for_none_a_few_votes_would_be_an_answer() -> None:
    parser = VoteOutputParser(labels=["a", "b"])
    slots = [Slot("a")] * 25 + [ABSTAIN] * 44
    assert share_released(outcomes(parser, slots, runs=400)) > 0.8


def test_an_even_race_of_drafted_labels_comes_out_in_one_of_twenty() -> None:
    parser = drafting()
    slots = [Slot("cough")] * 45 + [Slot("rash")] * 45
    found = outcomes(parser, slots, prepared=parser.prepare(DRAFTED))
    assert 0.03 < share_released(found) < 0.065
    silent = [one for one in found if one.status is not Status.RELEASED]
    reasons = [one.details["reason"] for one in silent]
    assert reasons.count(NO_LEAD) == len(silent)


def test_a_classifier_goes_on_choosing_the_larger_count() -> None:
    parser = VoteOutputParser(labels=["cough", "rash"])
    slots = [Slot("cough")] * 45 + [Slot("rash")] * 45
    assert share_released(outcomes(parser, slots, runs=300)) > 0.99
    firm = VoteOutputParser(labels=["cough", "rash"], min_lead=1e6)
    assert share_released(outcomes(firm, slots, runs=5)) == 0


def test_an_even_race_with_none_of_these_comes_out_in_one_of_twenty() -> None:
    slots = [Slot("cough")] * 45 + [Slot("none of these")] * 45
    labels = ["cough", "rash"]
    found = outcomes(VoteOutputParser(labels=labels), slots)
    assert 0.03 < share_released(found) < 0.065
    reasons = [one.details.get("reason") for one in found]
    assert 0.03 < reasons.count(NONE) / RUNS < 0.065
    loose = VoteOutputParser(labels=labels, min_lead=0)
    assert 0.02 < share_released(outcomes(loose, slots, runs=800)) < 0.08


def test_drafts_are_read_and_written_into_the_prompt() -> None:
    parser = drafting(max_labels=2)
    assert parser.prepare(DRAFTED) == ("cough", "rash")
    text = parser.instructions(parser.prepare(DRAFTED))
    assert "- cough\n- rash\n- none of these" in text
    assert "- none of these" in parser.get_format_instructions()


@pytest.mark.parametrize("reply", ["", "I can't help with that."])
def test_without_any_draft_nothing_is_asked_or_paid(reply: str) -> None:
    parser = drafting()
    prepared = parser.prepare(PublicInput(question="Which?", draft=reply))
    found = parser.public_outcome(prepared)
    assert found is not None
    assert found.status is Status.FALLBACK
    assert found.details["reason"] == "the model listed no option"
    assert parser.public_outcome(("a",)) is None


def test_alone_drafted_labels_need_a_question() -> None:
    with pytest.raises(InvalidParameterError, match="needs a question"):
        drafting().prepare(PublicInput())


REPLIES = [
    "cough",
    "**Rash** (2 of 3)",
    "none of these",
    "I don't know.",
    "a, b, c?",
    "",
]


def histograms(name: str, worlds: list[list[Slot]]) -> list[list[int]]:
    """Return the exact counts that a parser hands to its mechanism, world by world."""
    seen: list[list[int]] = []
    module, function = voting, "noisy_counts"
    if name == "joint":
        module, function = keyword_joint, "joint_top_k"
    original = getattr(module, function)

    def watched(counts: list[int], *args: Any, **terms: Any) -> Any:
        seen.append(list(counts))
        return original(counts, *args, **terms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, function, watched)
        for slots in worlds:
            release(PARSERS[name](), slots, slot_count=9)
    return seen


def moved(name: str) -> tuple[int, int]:
    """Return how far one slot moves the counts: exchanged, and added (L2, squared)."""
    slots = [*map(Slot, REPLIES), ABSTAIN, FAILED]
    others = [Slot("cough"), Slot("none of these"), FAILED]
    alone, *each = histograms(name, [others, *([*others, slot] for slot in slots)])

    def far(one: list[int], two: list[int]) -> int:
        return sum((a - b) ** 2 for a, b in zip(one, two, strict=True))

    exchanged = max(far(one, two) for one in each for two in each)
    return exchanged, max(far(alone, one) for one in each)


@pytest.mark.parametrize("name", ["vote", "esa"])
def test_one_slot_moves_one_vote(name: str) -> None:
    assert moved(name) == (2, 1)


def test_one_slot_moves_each_count_of_a_domain_by_one() -> None:
    worlds = [[Slot("cough")], [Slot("cough"), Slot("rash, nausea")], [Slot("hm")]]
    one, two, none = histograms("joint", worlds)
    assert (one, two, none) == ([1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1])


def test_twin_a_failed_call_that_also_counts_as_none_moves_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = VoteOutputParser.release

    def doubled(self: Any, slots: list[Slot], **terms: Any) -> Any:
        more = [Slot("none of these") for slot in slots if slot.failed]
        return right(self, [*slots, *more], **terms)

    monkeypatch.setattr(VoteOutputParser, "release", doubled)
    exchanged, added = moved("vote")
    assert exchanged > 2
    assert added > 1


# ---- when a winner is an answer: each bound on both sides ----------------------------

SIGMA = 2.0
OVER = lead_over_a_tie(SIGMA, labels=1)


def found(votes: list[int], none: int = 0, *more: int, **terms: Any) -> Any:
    others = [none, *more, *[0] * (2 - len(more))]
    return verdict(votes, others, **{"sigma": SIGMA, "min_lead": 0, **terms})


def said(votes: list[int], none: int = 0, *more: int, **terms: Any) -> tuple[Any, str]:
    winner, _, reason = found(votes, none, *more, **terms)
    return winner, reason


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_a_winner_has_the_least_votes(labels: int) -> None:
    least = least_votes(SIGMA, labels)
    others, low = [-9] * (labels - 1), [-9] * 3
    assert said([*others, least], *low) == (labels - 1, "")
    assert said([*others, least - 1], *low) == (None, NO_LEAD)


@pytest.mark.parametrize("place", range(3))
def test_a_bin_that_is_no_label_is_the_reason_if_it_leads_clearly(place: int) -> None:
    reason = [NONE, UNREADABLE, CALLS_FAILED][place]
    least = least_votes(SIGMA, 2)

    def of(votes: list[int], count: int, second: int = 0) -> tuple[Any, str]:
        others = [second] * 3
        others[place] = count
        return said(votes, *others)

    assert of([50, 1], 50 + OVER) == (None, reason)
    assert of([50, 1], 50 + OVER - 1) == (None, NO_LEAD)
    assert of([1, 1], 60, second=60 - OVER) == (None, reason)
    assert of([1, 1], 60, second=61 - OVER) == (None, NO_LEAD)
    assert of([-9, -9], least, second=-9) == (None, reason)
    assert of([-9, -9], least - 1, second=-9) == (None, NO_LEAD)


@pytest.mark.parametrize("place", range(3))
def test_a_winner_leads_the_others_and_none_by_enough(place: int) -> None:
    assert said([50, 40], min_lead=10) == (0, "")
    assert said([40, 49], min_lead=10) == (None, NO_LEAD)
    others = [0] * 3
    others[place] = 50 - OVER
    assert said([50, 0], *others) == (0, "")
    assert said([50, 0], *others, min_lead=OVER + 1) == (None, NO_LEAD)
    others[place] += 1
    assert said([50, 0], *others) == (None, NO_LEAD)
    # Of labels with the same votes the first one wins, if no lead is asked for.
    assert said([50, 50, 50]) == (0, "")
    assert said([0, 50, 50]) == (1, "")
    assert said([0, 1, 50]) == (2, "")


@pytest.mark.parametrize(
    ("votes", "others", "lead"),
    [
        ([50, 40, 5], (20,), 10),
        ([40, 5, 50], (20,), 10),
        ([50, 10], (45, 20), 5),
        ([10, 3], (45, 9), 35),
        ([10, 3], (9, 25, 45), 20),
        ([50], (20, 30), 20),
    ],
)
def test_the_confidence_is_the_lead_of_the_first_bin_over_the_second(
    votes: list[int], others: tuple[int, ...], lead: int
) -> None:
    assert found(votes, *others)[1] == round(lead / (SIGMA * math.sqrt(2)), 2)
