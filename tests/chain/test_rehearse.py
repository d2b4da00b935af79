"""`DPChain.rehearse`: the whole chain on synthetic records, groups' answers shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from langchain_core.documents import Document
from support.chain_parts import EMBEDDING, QUESTION, reply
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    GroupSource,
    InvalidParameterError,
    KSAPTROutputParser,
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    UnitError,
    VoteOutputParser,
)
from langchain_dpicl.chain.rehearsing import NOTE, Rehearsal
from langchain_dpicl.parsers import DPOutputParser

OWN = [Document(f"canary-{i}", metadata={"patient": i}) for i in range(300)]


def chain(
    parser: DPOutputParser | None = None,
    budget: PrivacyBudgetHandler | None = None,
    groups: GroupSource | None = None,
) -> DPChain:
    own = RetrievedGroups.from_documents(
        OWN, EMBEDDING, unit_key="patient", n_groups=40
    )
    return DPChain(
        groups=groups or own,
        model=ScriptedModel(reply=reply),
        parser=parser or VoteOutputParser(labels=["cough", "rash"]),
        budget=budget,
        cache=True,
    )


def account(path: Path) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=2, ledger=f"sqlite:///{path}/ledger.db"
    )


@pytest.mark.parametrize("awaited", [False, True])
def test_it_shows_everything_and_touches_no_account_and_no_record_of_the_chain(
    tmp_path: Path, awaited: bool
) -> None:
    budget = account(tmp_path)
    made = chain(budget=budget)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    # More questions than the account pays for: each has one of its own, in memory.
    questions = [QUESTION, {"question": QUESTION}, QUESTION]
    shown = (
        asyncio.run(made.arehearse(notes(), questions))
        if awaited
        else made.rehearse(notes(), questions)
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert [one.answer for one in shown] == ["cough"] * 3
    assert shown[0].group_answers == ("cough",) * 40
    assert shown[0].noisy_counts["cough"] > 20
    assert shown[0].record["account"]["epsilon"] == 8
    assert not any("canary" in text for text in made.model.asked)


def test_it_is_marked_everywhere() -> None:
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=2, ledger=":memory:")
    (shown,) = chain().rehearse(notes(), QUESTION, budget=budget)
    assert str(shown).startswith(NOTE.capitalize())
    assert shown.to_dict()["note"] == shown.record["rehearsal"] == NOTE
    assert "not private: synthetic records only" in NOTE
    assert "40 cough" in str(shown)
    assert budget.remaining().queries == 2


def test_drafted_options_and_reasons_are_shown() -> None:
    def drafting(prompt: str) -> str:
        return "rash\nnausea" if "Possible answers" in prompt else "none of these"

    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=2, ledger=":memory:")
    made = chain(VoteOutputParser(labels="draft"), budget)
    made = made.model_copy(update={"model": ScriptedModel(reply=drafting)})
    (shown,) = made.rehearse(notes(), QUESTION)
    assert shown.options == ("rash", "nausea")
    assert "Options: rash, nausea" in str(shown)
    assert "Outcome: abstained (" in str(shown)


def test_a_long_list_of_answers_is_cut_when_printed() -> None:
    record = {"details": {}, "ranking": [], "status": "fallback"}
    answers = tuple(f"answer {i}" for i in range(30))
    shown = str(Rehearsal("Why?", "So.", (*answers, None), record))
    assert "19 other answers" in shown


def test_sampled_groups_and_per_unit_accounts_rehearse_too() -> None:
    budget = PrivacyBudgetHandler(
        epsilon=20, delta=1e-6, queries=2, scope="unit", ledger=":memory:"
    )
    groups: GroupSource = RetrievedGroups.from_documents(
        OWN,
        EMBEDDING,
        unit_key="patient",
        n_groups=300,
        score_threshold=-1.0,
        grouping="unit",
    )
    (shown,) = chain(budget=budget, groups=groups).rehearse(notes(), QUESTION)
    assert len(shown.group_answers) == 300
    groups = SampledGroups.from_documents(
        OWN, unit_key="patient", n_groups=20, sampling_rate=0.5
    )
    budget = PrivacyBudgetHandler(epsilon=20, delta=1e-6, queries=2, ledger=":memory:")
    made = chain(KSAPTROutputParser(k=1), budget, groups)
    assert len(made.rehearse(notes(), QUESTION)[0].group_answers) == 20


def test_what_can_not_be_rehearsed_says_why() -> None:
    with pytest.raises(NoBudgetError, match="budget"):
        chain().rehearse(notes(), QUESTION)
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=2, ledger=":memory:")
    with pytest.raises(UnitError, match="n_groups"):
        chain(budget=budget).rehearse(notes(3), QUESTION)
    with pytest.raises(InvalidParameterError, match="question"):
        chain(budget=budget).rehearse(notes(), [])


def test_a_source_of_ones_own_needs_a_way_to_be_made_of_records() -> None:
    class Same(RetrievedGroups):
        def over(self, documents: object) -> RetrievedGroups:
            return self

    class Bare(RetrievedGroups):
        over = GroupSource.over  # type: ignore[assignment]

    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=2, ledger=":memory:")
    for kind, why in {Same: "of its own", Bare: "can't be made of other"}.items():
        groups = kind.from_documents(OWN, EMBEDDING, unit_key="patient", n_groups=40)
        with pytest.raises(InvalidParameterError, match=why):
            chain(budget=budget, groups=groups).rehearse(notes(), QUESTION)
