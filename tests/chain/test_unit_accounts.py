"""A chain whose account charges the units that take part, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, every_way, record, reply
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    LedgerError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    UnsoundStoreError,
    VoteOutputParser,
)
from langchain_dpicl.budget import charges
from langchain_dpicl.budget import paid as paid_module

OTHER = "Ramipril gave a skin rash."


def unit_budget(**changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {
        "epsilon": 30,
        "delta": 1e-6,
        "queries": 6,
        "scope": "unit",
        "ledger": ":memory:",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


def by_threshold(**changes: Any) -> RetrievedGroups:
    documents = [
        *notes(200),
        *(
            Document(f"{OTHER} Note {i}.", metadata={"patient": f"other-{i}"})
            for i in range(200)
        ),
    ]
    terms: dict[str, Any] = {
        "unit_key": "patient",
        "n_groups": 50,
        "docs_per_group": 3,
        "score_threshold": 0.3,
    }
    return RetrievedGroups.from_documents(documents, EMBEDDING, **{**terms, **changes})


def chain_over(groups: Any, parser: str = "vote", **changes: Any) -> DPChain:
    model = AsyncScriptedModel(reply=reply)
    return DPChain(groups=groups, model=model, parser=PARSERS[parser](), **changes)


@pytest.mark.parametrize("name", list(PARSERS))
async def test_every_parser_by_every_way(name: str) -> None:
    budget = unit_budget()
    said = await every_way(chain_over(by_threshold(), name), budget)
    for message in said:
        found = record(message)
        assert found["status"] == "released"
        assert found["account"]["scope"] == "unit"
        assert "cough" in str(message.content).casefold()
    assert len(charges(budget.ledger, "default")) == len(said)


def test_only_those_who_take_part_pay_and_the_account_never_ends() -> None:
    budget = unit_budget(queries=2)
    chain = chain_over(by_threshold())
    config: Any = {"callbacks": [budget]}
    for _ in range(2):
        assert chain.invoke(QUESTION, config).content == "cough"
    tag = budget.ledger.unit_tag
    spent = {b.tag: b.spent.loss for b in budget.ledger.unit_balances("default")}
    # All of them, also those whose records found no place in a group of three.
    assert [spent.get(tag("default", f"unit-{i}")) for i in range(200)] == [2] * 200
    assert not any(tag("default", f"other-{i}") in spent for i in range(200))
    # Whoever asked about lisinopril is spent; ramipril is still open to questions.
    said = chain.invoke("Which drug gave a skin rash? Ramipril?", config)
    assert record(said)["account"]["queries_spent"] == 3
    spent = {b.tag: b.spent.loss for b in budget.ledger.unit_balances("default")}
    assert all(spent.get(tag("default", f"other-{i}")) == 1 for i in range(200))
    chain.invoke(QUESTION, config)
    assert budget.spent().queries == 4
    assert budget.can_afford()


def test_a_spent_unit_is_in_no_prompt_any_more() -> None:
    budget = unit_budget(queries=1)
    groups = by_threshold()
    model = AsyncScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS["vote"](), budget=budget)
    chain.invoke(QUESTION)
    assert any("Lisinopril" in text for text in model.asked)
    model.asked.clear()
    said = chain.invoke(QUESTION)
    # One more call where the vote of nobody ends in the public answer.
    assert len(model.asked) - groups.n_groups in (0, 1)
    assert not any("Lisinopril" in text for text in model.asked)
    assert record(said)["charge"] == 2


def test_a_vote_of_nobody_is_no_answer() -> None:
    budget = unit_budget(queries=1)
    chain = chain_over(by_threshold(), budget=budget)
    assert record(chain.invoke(QUESTION))["status"] == "released"
    said = [record(chain.invoke(QUESTION)) for _ in range(40)]
    missed = [found for found in said if found["status"] != "abstained"]
    # One in a hundred may pass by chance.
    assert len(missed) <= 4
    assert any(
        found["details"].get("reason") == "no answer leads clearly" for found in said
    )
    assert all(len(found["events"]) == 1 for found in said)


def test_a_small_unanimous_vote_is_an_answer() -> None:
    budget = unit_budget(queries=1)
    few = RetrievedGroups.from_documents(
        notes(60), EMBEDDING, unit_key="patient", n_groups=20, score_threshold=0.3
    )
    said = record(chain_over(few, budget=budget).invoke(QUESTION))
    assert said["status"] == "released"


def test_deleted_and_added_again_a_unit_is_as_spent_as_before() -> None:
    budget = unit_budget(queries=1)
    groups = by_threshold()
    chain = chain_over(groups, budget=budget)
    chain.invoke(QUESTION)
    for i in range(200):
        groups.delete_unit(f"unit-{i}")
    groups.add_documents(notes(200))
    model = chain.model
    model.asked.clear()
    chain.invoke(QUESTION)
    assert not any("Lisinopril" in text for text in model.asked)


def test_sources_that_cannot_charge_units_are_refused_before_any_charge() -> None:
    budget = unit_budget()
    for groups in (
        by_threshold(score_threshold=None),
        SampledGroups.from_documents(
            notes(200), unit_key="patient", n_groups=20, sampling_rate=0.5
        ),
    ):
        chain = chain_over(groups)
        with pytest.raises(InvalidParameterError, match="score_threshold"):
            chain.invoke(QUESTION, {"callbacks": [budget]})
    assert budget.spent().queries == 0


class Forgetful(RetrievedGroups):
    """A wrapper as one writes it in a hurry."""

    def draw_prepared(self, prepared: Any, *, collect: Any = None) -> Any:
        return super().draw_prepared(prepared)


class Eager(RetrievedGroups):
    def draw_prepared(self, prepared: Any, *, collect: Any = None) -> Any:
        super().draw_prepared(prepared, collect=collect)
        return super().draw_prepared(prepared, collect=collect)


@pytest.mark.parametrize("source", [Forgetful, Eager])
async def test_a_source_that_does_not_let_its_units_pay_once_releases_nothing(
    source: type[RetrievedGroups],
) -> None:
    groups = source.from_documents(
        notes(200), EMBEDDING, unit_key="patient", n_groups=50, score_threshold=0.3
    )
    model = AsyncScriptedModel(reply=reply)
    chain = DPChain(
        groups=groups, model=model, parser=PARSERS["vote"](), budget=unit_budget()
    )
    with pytest.raises(UnsoundStoreError, match="exactly once"):
        chain.invoke(QUESTION)
    with pytest.raises(UnsoundStoreError, match="exactly once"):
        await chain.ainvoke(QUESTION)
    assert not any("Records:" in text for text in model.asked)
    # A whole-corpus account asks nothing of it.
    corpus = unit_budget(scope="corpus")
    whole = DPChain(groups=groups, model=model, parser=PARSERS["vote"](), budget=corpus)
    assert whole.invoke(QUESTION).content == "cough"


def test_a_parser_alone_cannot_charge_units() -> None:
    parser = VoteOutputParser(labels=["yes", "no"], budget=unit_budget())
    with pytest.raises(InvalidParameterError, match="can't name the units"):
        parser.invoke(["yes"] * 30)


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_ledger_that_fails_while_it_collects_releases_nothing(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = unit_budget()
    model = AsyncScriptedModel(reply=reply)
    chain = DPChain(
        groups=by_threshold(), model=model, parser=PARSERS["vote"](), budget=budget
    )

    def lost(*_args: object) -> set[str]:
        raise LedgerError("The ledger is gone.")

    monkeypatch.setattr(paid_module, "collect", lost)
    with pytest.raises(LedgerError, match="gone"):
        await chain.ainvoke(QUESTION) if way == "async" else chain.invoke(QUESTION)
    assert not any("Records:" in text for text in model.asked)
    assert budget.spent().queries == 1
