"""One caller's part of an account: what its epsilon is, and how requests name it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManager
from langchain_core.runnables import RunnableLambda
from support.chain_parts import EMBEDDING, QUESTION, every_way, record, reply
from support.corpora import CLINIC, clock_for
from support.fakes import ScriptedModel, notes
from support.release_templates import template
from support.table_parts import account, people, people_schema

from langchain_dpicl import (
    Allowance,
    AllowanceExhaustedError,
    BudgetExhaustedError,
    DPChain,
    InvalidParameterError,
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.accounting import BUDGET_UNITS, Cost, GaussianPart, spent
from langchain_dpicl.budget import filter as filters
from langchain_dpicl.budget import find_budget
from langchain_dpicl.budget import plan as plans
from langchain_dpicl.ledger import MemoryLedger, SQLLedger
from langchain_dpicl.tabular import GDPTable

VOTE = template("vote", (GaussianPart(None),))
ALICE = Allowance("alice", 3.0)
KINDS: list[dict[str, Any]] = [
    {},
    {"accounting": "zcdp"},
    {"accounting": "gdp"},
    {"accounting": "zcdp", "scope": "unit"},
    {"scope": "unit"},
]
GROUPS = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)


def handler(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "queries": 20, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(**given)


def payer(budget: PrivacyBudgetHandler) -> dict[str, Any]:
    return {"charges_units": budget.scope == "unit"}


def chain(**parts: Any) -> DPChain:
    return DPChain(
        groups=GROUPS,
        model=ScriptedModel(reply=reply),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        **parts,
    )


def charge_all(budget: PrivacyBudgetHandler) -> int:
    """Charge until the caller is refused; return how often it was not."""
    done = 0
    while budget.can_afford(VOTE):
        budget.require_payable(VOTE)
        budget.charge(VOTE, **payer(budget))
        done += 1
    before = budget.ledger.state(budget.account)
    for refused in (
        budget.require_payable,
        lambda t: budget.charge(t, **payer(budget)),
    ):
        with pytest.raises(AllowanceExhaustedError, match="'alice'"):
            refused(VOTE)
    assert budget.ledger.state(budget.account) == before
    return done


@pytest.mark.parametrize("terms", KINDS, ids=str)
def test_a_caller_spends_as_much_as_composes_to_its_epsilon(terms: Any) -> None:
    """By the accountant's own figure for that many releases, and no release fewer."""
    budget = handler(**terms)
    alice = budget.for_caller(ALICE)
    budget.charge(VOTE, **payer(budget))
    done = charge_all(alice)
    assert 2 <= done < 20
    events = budget.price(VOTE)
    assert spent(events, done, 1e-6) <= ALICE.epsilon
    if not terms.get("accounting"):
        assert not alice.can_afford()
        # A plan's figure is the accountant's; a filter's is a little above it.
        assert alice.spent() == spent(events, done, 1e-6)
        assert spent(events, done + 1, 1e-6) > ALICE.epsilon
    assert 0 < alice.spent() <= ALICE.epsilon
    assert alice.spent() < budget.spent()
    assert alice.remaining().epsilon == ALICE.epsilon - alice.spent()
    assert alice.remaining().queries == (None if terms.get("scope") else 0)
    # The account was charged in full, and goes on for others.
    assert budget.spent().queries == done + 1
    bob = budget.for_caller(Allowance("bob", 3.0))
    assert bob.spent() == 0
    assert bob.charge(VOTE, **payer(budget)).sequence == done + 2


def test_callers_together_spend_no_more_than_the_account() -> None:
    budget = handler(queries=3)
    for caller in ("alice", "bob", "eve"):
        budget.for_caller(Allowance(caller, 8.0)).charge(VOTE)
    dan = budget.for_caller(Allowance("dan", 8.0))
    assert dan.remaining() == budget.remaining() < 0.01
    assert not dan.can_afford()
    with pytest.raises(BudgetExhaustedError) as caught:
        dan.charge(VOTE)
    assert type(caught.value) is BudgetExhaustedError


@pytest.mark.parametrize("terms", KINDS, ids=str)
def test_as_much_as_the_account_is_no_limit(terms: Any) -> None:
    budget = handler(**{**terms, "queries": 2})
    alice = budget.for_caller(Allowance("alice", 8))
    for _ in range(2):
        alice.charge(VOTE, **payer(budget))
    if budget.scope == "unit":
        # Units refuse by their own balances; the price list has no end.
        assert alice.charge(VOTE, **payer(budget)).sequence == 3
        return
    with pytest.raises(BudgetExhaustedError) as caught:
        alice.charge(VOTE)
    assert type(caught.value) is BudgetExhaustedError


def test_an_allowance_below_one_release_says_so() -> None:
    small = handler().for_caller(Allowance("alice", 0.1))
    with pytest.raises(AllowanceExhaustedError, match="more than the whole allowance"):
        small.charge(VOTE)


def test_a_filters_limit_is_the_last_step_within_epsilon() -> None:
    limit = handler(accounting="zcdp")._terms.filter
    assert limit is not None
    steps = filters._loss_within(limit, 3.0)
    both = [limit.epsilon_spent(Cost(n, BUDGET_UNITS)) for n in (steps, steps + 1)]
    assert both[0] <= 3.0 < both[1]


@pytest.mark.parametrize("terms", KINDS, ids=str)
async def test_a_request_names_its_caller(terms: Any) -> None:
    """By each of LangChain's ways to ask, in a chain with the account or without."""
    groups = RetrievedGroups.from_documents(
        notes(60), EMBEDDING, unit_key="patient", n_groups=20, score_threshold=-1.0
    )
    budget = handler(**terms, epsilon=1000)
    alice = budget.for_caller(Allowance("alice", 900.0))
    parser = VoteOutputParser(labels=["cough", "rash"])
    parts = {"groups": groups, "model": ScriptedModel(reply=reply), "parser": parser}
    for asked in (DPChain(**parts), DPChain(**parts, budget=budget)):
        assert len(await every_way(asked, alice)) == 6
    charges = budget.ledger.charges(budget.account)
    assert [one.charge.caller for one in charges] == ["alice"] * 12
    assert budget.ledger.verify(budget.account).used == 12


async def test_a_refusal_reaches_the_caller_and_not_the_model() -> None:
    model = ScriptedModel(reply=reply)
    budget = handler()
    asked = chain().model_copy(update={"model": model}) | RunnableLambda(str)
    poor: Any = {"callbacks": [budget.for_caller(Allowance("eve", 0.1))]}
    with pytest.raises(AllowanceExhaustedError, match="'eve'"):
        asked.invoke(QUESTION, poor)
    with pytest.raises(AllowanceExhaustedError, match="'eve'"):
        await asked.ainvoke(QUESTION, poor)
    assert budget.spent().queries == 0
    assert model.asked == []
    asked.invoke(QUESTION, {"callbacks": [budget]})


def test_a_cached_answer_costs_no_allowance_and_names_nobody() -> None:
    budget = handler()
    cached = chain(cache=True)
    alice: Any = {"callbacks": [budget.for_caller(ALICE)]}
    eve: Any = {"callbacks": [budget.for_caller(Allowance("eve", 0.1))]}
    first = cached.invoke(QUESTION, alice)
    again = cached.invoke(QUESTION, eve)
    assert again.content == first.content
    assert record(again)["status"] == "cached"
    assert budget.spent().queries == 1
    assert "alice" not in repr([first, again])
    with pytest.raises(AllowanceExhaustedError):
        cached.invoke(f"{QUESTION} And then?", eve)


def test_a_release_that_was_paid_for_costs_no_allowance() -> None:
    budget = account(queries=2)
    rows, schema = people(50), people_schema()
    alice = budget.for_caller(Allowance("alice", budget.epsilon))
    first = GDPTable(rows, schema, budget=alice).release()
    eve = budget.for_caller(Allowance("eve", 0.01))
    again = GDPTable(rows, schema, budget=eve).release(resume=True)
    assert again.record()["events"] == first.record()["events"]
    assert budget.spent().queries == 1
    with pytest.raises(AllowanceExhaustedError, match="'eve'"):
        GDPTable(rows, schema, budget=eve).release()
    assert "alice" not in repr(first.record())


def test_a_tool_says_that_the_allowance_is_spent() -> None:
    budget = handler()
    tool = create_dp_tool(chain(), name="ask", description="Notes of patients.")
    poor: Any = {"callbacks": [budget.for_caller(Allowance("eve", 0.1))]}
    assert "allowance of caller 'eve'" in tool.invoke({"question": QUESTION}, poor)


def test_a_period_begins_with_nothing_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ledger = clock_for(monkeypatch, "2026-12-10"), MemoryLedger()
    terms: dict[str, Any] = {"ledger": ledger, "corpus": CLINIC}
    for month in ("2026-12", "2027-01"):
        clock.set(f"{month}-10")
        alice = handler(**terms, period=month).for_caller(ALICE)
        assert alice.spent() == 0
        alice.charge(VOTE, unit_key="patient")
        with pytest.raises(BudgetExhaustedError, match=r"more than|Not enough|left"):
            for _ in range(20):
                alice.charge(VOTE, unit_key="patient")


def test_a_caller_goes_on_in_another_process(tmp_path: Path) -> None:
    ledger = SQLLedger(f"sqlite:///{tmp_path}/ledger.db")
    alice = handler(ledger=ledger).for_caller(ALICE)
    alice.charge(VOTE)
    there = pickle.loads(pickle.dumps(alice))
    assert there.allowance == ALICE
    assert repr(there) == repr(alice)
    assert "caller='alice'" in repr(alice)
    assert there.spent() == alice.spent() > 0
    assert charge_all(there) == 2
    assert there.in_memory().allowance is None
    for one in (there, alice):
        one.ledger.dispose()


def test_on_low_is_called_with_the_account() -> None:
    told: list[Any] = []
    budget = handler(queries=2, on_low=(0.9, told.append))
    budget.for_caller(Allowance("alice", 8)).charge(VOTE)
    assert told == [budget]


def test_a_callers_part_stands_for_the_account_and_for_no_other() -> None:
    budget, other = handler(account="mine"), handler(account="other")
    alice, bob = (budget.for_caller(Allowance(one, 1)) for one in ("alice", "bob"))
    assert find_budget(budget, [alice]) is alice
    assert find_budget(alice, CallbackManager([budget])) is alice
    for both in ([alice, bob], [alice, other], [other.for_caller(ALICE), budget]):
        with pytest.raises(NoBudgetError, match="2 privacy budgets"):
            find_budget(None, both)
    with pytest.raises(NoBudgetError, match="for caller 'alice', 'mine' for caller"):
        find_budget(alice, [bob])


def test_a_wrong_allowance_is_refused() -> None:
    budget = handler()
    with pytest.raises(InvalidParameterError, match="takes an Allowance"):
        budget.for_caller("alice")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="'alice' already"):
        budget.for_caller(ALICE).for_caller(ALICE)


# -- twins: each is what a handler would do without one of the rules -------------------


def test_twin_epsilons_that_add_up_refuse_what_composes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each = spent(handler().price(VOTE), 1, 1e-6)
    monkeypatch.setattr(plans, "_uses_within", lambda *_: int(ALICE.epsilon / each))
    with pytest.raises(AssertionError):
        test_a_caller_spends_as_much_as_composes_to_its_epsilon({})


def test_twin_one_use_too_many_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = plans._uses_within
    monkeypatch.setattr(plans, "_uses_within", lambda *terms: inner(*terms) + 1)
    with pytest.raises(AssertionError):
        test_a_caller_spends_as_much_as_composes_to_its_epsilon({})


def test_twin_an_allowance_instead_of_the_account_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A charge to the caller alone would leave the account as it was."""
    inner = MemoryLedger.charge

    def charge(self: MemoryLedger, name: str, *args: Any, **named: Any) -> Any:
        before = self._accounts[name]
        found = inner(self, name, *args, **named)
        if found.caller is not None:
            self._accounts[name] = before
        return found

    monkeypatch.setattr(MemoryLedger, "charge", charge)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_callers_together_spend_no_more_than_the_account()
