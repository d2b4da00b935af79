"""Votes that an answer has beforehand, where groups are asked in stages.

`prior` counts in groups, of all of them. A first quarter of the votes can't be held
against all of it: the label that is behind among all groups would look far ahead.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.chain_parts import EMBEDDING, QUESTION, record
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import GaussianNoise
from langchain_dpicl.mechanisms.stages import Asked, blocks, usual_stop
from langchain_dpicl.parsers.base import PublicInput
from langchain_dpicl.parsers.staged import Said

LABELS = ("cough", "rash")
SLOTS, STAGES, PRIOR = 100, 4, 20.0


def said(votes: list[float], asked: Asked, labels: Any = LABELS) -> Said:
    """Return what votes with next to no noise say; the model's answer is a cough."""
    parser = VoteOutputParser(labels=labels, prior=PRIOR)
    drafted = "cough\nrash"
    public = PublicInput("What?", "", ("A dry cough.",), drafted)
    paid: Any = SimpleNamespace(noise=GaussianNoise(0.01))
    return parser.said(
        np.array([*votes, 0.0, 0.0, 0.0]),
        asked=asked,
        paid=paid,
        relation=Relation.REPLACE,
        prepared=parser.prepare(public),
    )


def asked_so_far(stage: int) -> Asked:
    return Asked(blocks(SLOTS, STAGES)[stage - 1].stop, SLOTS, stage, STAGES)


def test_all_at_once_thirty_and_twenty_votes_lose_to_seventy() -> None:
    found = said([30.0, 70.0], Asked.whole(SLOTS))
    assert found.outcome.text == "rash"


@pytest.mark.parametrize("stage", [1, 2, 3, 4])
def test_a_part_of_the_same_votes_says_the_same(stage: int) -> None:
    part = asked_so_far(stage)
    share = part.slots / SLOTS
    found = said([30.0 * share, 70.0 * share], part)
    is_clear = found.is_answer and found.lead >= usual_stop(STAGES, lets_ties_out=True)
    assert found.outcome.text == "rash" or not is_clear


@pytest.mark.parametrize("labels", [LABELS, "draft"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_tie_with_the_prior_is_no_clear_lead(stage: int, labels: Any) -> None:
    part = asked_so_far(stage)
    share = part.slots / SLOTS
    # 40 and 20 beforehand against 60.
    assert said([40.0 * share, 60.0 * share], part, labels).lead < 1.0


def test_a_chain_in_stages_gives_the_answer_that_it_gives_at_once() -> None:
    """30 of 100 groups say what the model says by itself, 70 something else."""

    class Replies:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, text: str) -> str:
            if "Lisinopril" not in text:
                return "A dry cough."
            self.count += 1
            return "A dry cough." if self.count % 10 < 3 else "A skin rash."

    groups = RetrievedGroups.from_documents(
        notes(1600), EMBEDDING, unit_key="patient", n_groups=SLOTS
    )
    answers = []
    for stages in (1, STAGES):
        chain = DPChain(
            groups=groups,
            model=AsyncScriptedModel(reply=Replies()),
            parser=VoteOutputParser(labels=LABELS, prior=PRIOR),
            budget=PrivacyBudgetHandler(
                epsilon=400, delta=1e-6, queries=1, ledger=":memory:"
            ),
            stages=stages,
        )
        answer = chain.invoke(QUESTION)
        assert record(answer)["status"] == "released"
        answers.append(answer.content)
    assert answers == ["rash", "rash"]


def test_labels_with_a_favored_one_can_be_copied() -> None:
    parser = VoteOutputParser(labels=LABELS, prior=PRIOR)
    prepared = parser.prepare(PublicInput("What?", "", ("A dry cough.",), ""))
    assert copy.deepcopy(prepared) == prepared
