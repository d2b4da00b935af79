"""A plan and a filter answer the same questions; nothing above asks which it is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from support.release_templates import template

import langchain_dpicl
from langchain_dpicl import Allowance, PrivacyBudgetHandler
from langchain_dpicl.accounting import (
    Cost,
    Event,
    Gaussian,
    GaussianPart,
    PurePart,
)
from langchain_dpicl.accounting import spent as epsilon_of
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.filter import AccountFilter
from langchain_dpicl.budget.plan import AccountPlan
from langchain_dpicl.errors import (
    AllowanceExhaustedError,
    BudgetExhaustedError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import Charge, MemoryLedger, Plan
from langchain_dpicl.mechanisms import vote_template

PACKAGE = Path(langchain_dpicl.__file__).parent
ASKS = re.compile(r"""accounting [!=]= "plan"|\.filter\b(?!\()|isinstance\(.*Account""")
DECIDES = {
    "budget/terms.py": "chooses between the two, once, and writes a handler's repr",
    "budget/handler.py": "opens a copy by the constructor's own argument",
    "ledger/base.py": "what a charge costs, and the limit",
    "ledger/sql/rows.py": "refuses a stored row that is neither",
    "report/curve.py": "draws epsilon over delta of each",
    "report/registry.py": "names a filter's own budget",
}

VOTE = vote_template("vote")


def handler(kind: Any, **terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "queries": 2, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(accounting=kind, **given)


def test_which_of_the_two_an_account_is_gets_decided_once() -> None:
    asking = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if ASKS.search(file.read_text())
    }
    assert asking == set(DECIDES)


@pytest.mark.parametrize("kind", [None, "zcdp", "gdp"])
def test_both_answer_the_same_questions(kind: Any) -> None:
    budget = handler(kind)
    quoted = budget.quote(VOTE)
    budget.require_payable(VOTE)
    assert budget.has_left_for(VOTE)
    assert budget.can_afford(VOTE)
    first = budget.charge(VOTE)
    assert first.noise == quoted
    assert budget.spent().queries == first.sequence == 1
    assert budget.remaining().queries == 1
    assert budget.charge(VOTE).noise == quoted
    assert budget.remaining().queries == 0
    assert not budget.can_afford(VOTE)
    assert not budget.has_left_for(VOTE)
    for refused in (budget.require_payable, budget.charge):
        with pytest.raises(BudgetExhaustedError):
            refused(VOTE)
    assert budget.public_state(first)["queries_spent"] == 1
    assert budget.public_state(first)["epsilon_spent"] < budget.spent()


def test_both_fill_in_one_interface() -> None:
    assert isinstance(handler(None)._account, AccountPlan)
    assert isinstance(handler("zcdp")._account, AccountFilter)
    shared = {name for name in vars(Account) if not name.startswith("_")}
    for kind in (AccountPlan, AccountFilter):
        own = {name for name in vars(kind) if not name.startswith("_")}
        assert own <= shared | {"fixes_classes", "charges_together"}
        assert not kind.__abstractmethods__


def test_a_release_that_does_not_fit_is_no_spent_budget() -> None:
    budget = handler("gdp")
    budget.charge(VOTE)
    sampled = template("vote", (GaussianPart(3.0),), 0.1)
    assert budget.has_left_for(sampled)
    with pytest.raises(PlanMismatchError, match="gdp"):
        budget.charge(sampled)
    planned = handler(None)
    planned.charge(VOTE)
    assert planned.has_left_for(template("flip", (PurePart(),)))


def test_classes_are_fixed_by_a_plan_of_several_charges_alone() -> None:
    assert handler(None).fixes_classes
    assert not handler(None, queries=1).fixes_classes
    assert not handler("renyi").fixes_classes


@pytest.mark.parametrize(
    "name",
    [
        "price",
        "require_filter",
        "_first",
        "_events",
        "_require_payment",
        "_pays",
        "_epsilon",
        "_queries_left",
        "_most",
        "_queries_in",
    ],
)
def test_an_account_that_leaves_one_thing_out_can_not_be_made(name: str) -> None:
    others = {own: getattr(AccountPlan, own) for own in Account.__abstractmethods__}
    others.pop(name)
    with pytest.raises(TypeError, match=name):
        type("Partial", (Account,), others)(None, None, None)  # type: ignore[call-arg]


# -- what a ledger of somebody else's returns ------------------------------------------


class Retelling(MemoryLedger):
    """Charges, and returns the charge as `tell` tells it."""

    def __init__(self, tell: Any) -> None:
        super().__init__()
        self.tell = tell

    def charge(self, *args: Any, **named: Any) -> Charge:
        return self.tell(super().charge(*args, **named))  # type: ignore[no-any-return]


def copied(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(dataclasses.replace(event) for event in events)


@pytest.mark.parametrize("kind", [None, "zcdp"])
@pytest.mark.parametrize("z", [1e-3, 1e3])
def test_a_charge_of_other_events_releases_nothing(kind: Any, z: float) -> None:
    other = Retelling(lambda c: dataclasses.replace(c, events=(Gaussian(z),)))
    with pytest.raises(PlanMismatchError, match="'default' was charged for another"):
        handler(kind, ledger=other).charge(VOTE)


@pytest.mark.parametrize("kind", [None, "zcdp"])
def test_equal_events_are_the_same_release(kind: Any) -> None:
    ledger = Retelling(lambda c: dataclasses.replace(c, events=copied(c.events)))
    budget = handler(kind, ledger=ledger)
    assert budget.charge(VOTE).noise == budget.quote(VOTE)


def test_a_charge_says_what_all_of_them_cost() -> None:
    budget = handler("zcdp")
    first, second = budget.charge(VOTE), budget.charge(VOTE)
    assert first.spent.loss > 0
    assert second.spent == Cost(2 * first.spent.loss, 0)
    assert second.spent == budget.ledger.state("default").spent
    assert budget.public_state(second)["epsilon_spent"] == budget.spent()
    # A ledger that does not add up tells the cost of one.
    untold = handler(
        "zcdp", ledger=Retelling(lambda c: dataclasses.replace(c, spent=None))
    )
    assert [untold.charge(VOTE).spent for _ in range(2)] == [first.spent] * 2


# -- what is left, exactly -------------------------------------------------------------


def test_what_a_plan_has_left_is_never_below_nothing() -> None:
    ledger = MemoryLedger()
    budget = handler(None, ledger=ledger)
    ledger.fix_plan("default", Plan({**VOTE.to_dict(), "unit_key": None}, DEAR))
    budget.charge(VOTE)
    assert budget.spent() == epsilon_of(DEAR, 1, 1e-6) > 8
    assert budget.remaining().epsilon == 0.0
    assert budget.remaining().queries == 1


DEAR = (Gaussian(0.5),)


@pytest.mark.parametrize("kind", [None, "zcdp"])
def test_each_figure_says_its_delta_and_its_queries(kind: Any) -> None:
    budget = handler(kind, queries=5)
    alice = budget.for_caller(Allowance("alice", 6.0))
    paid = alice.charge(VOTE)
    budget.charge(VOTE)
    figures = [budget.spent(), budget.remaining(), alice.spent(), alice.remaining()]
    assert {figure.delta for figure in figures} == {1e-6}
    left = alice.remaining().queries
    assert [figure.queries for figure in figures] == [2, 3, None, left]
    assert budget.public_state(paid)["queries_spent"] == 1
    assert alice.remaining().epsilon == 6.0 - alice.spent()
    assert budget.remaining().epsilon == 8.0 - budget.spent()
    rich = budget.for_caller(Allowance("rich", 7.9))
    assert rich.remaining() == budget.remaining()
    assert rich.remaining().queries == 3


@pytest.mark.parametrize("kind", [None, "zcdp", "gdp"])
@pytest.mark.parametrize("uses", [1, 3])
def test_an_allowance_of_so_many_uses_pays_for_just_these(kind: Any, uses: int) -> None:
    budget = handler(kind, queries=9)
    budget.charge(VOTE)
    steps = uses * budget.ledger.state("default").spent.loss
    exact = Allowance("exact", budget._account.epsilon_of(state_of(budget), steps))
    short = Allowance("short", exact.epsilon - 1e-6)
    for allowance, paid in ((exact, uses), (short, uses - 1)):
        caller = budget.for_caller(allowance)
        for left in range(paid, 0, -1):
            assert caller.remaining().queries == left
            assert caller.can_afford(VOTE)
            assert caller.can_afford(budget.price(VOTE))
            assert caller.can_afford()
            caller.charge(VOTE)
        assert caller.remaining().queries == 0
        assert not caller.can_afford(VOTE)
        assert not caller.can_afford(budget.price(VOTE)[0])
        with pytest.raises(AllowanceExhaustedError):
            caller.charge(VOTE)


def state_of(budget: PrivacyBudgetHandler) -> Any:
    return budget.ledger.state(budget.account)


@pytest.mark.parametrize("kind", [None, "zcdp"])
def test_an_allowance_that_was_lowered_leaves_nothing(kind: Any) -> None:
    budget = handler(kind, queries=6)
    before = budget.for_caller(Allowance("alice", 7.0))
    for _ in range(3):
        before.charge(VOTE)
    lowered = budget.for_caller(Allowance("alice", 0.5))
    assert lowered.spent() == before.spent() > 0.5
    assert lowered.remaining().epsilon == 0.0
    assert lowered.remaining().queries == 0
    assert not lowered.can_afford()
    assert before.can_afford()


@pytest.mark.parametrize("epsilon", [8.0, 9.0])
@pytest.mark.parametrize("kind", [None, "zcdp"])
def test_a_unit_account_holds_no_caller_to_a_larger_allowance(
    kind: Any, epsilon: float
) -> None:
    budget = handler(kind, scope="unit")
    alice = budget.for_caller(Allowance("alice", epsilon))
    for number in range(1, 5):
        assert alice.can_afford()
        assert alice.can_afford(VOTE)
        assert alice.charge(VOTE, charges_units=True).sequence == number


# -- one kind of unit ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "zcdp"])
@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ("patient", "visit", "units named by 'patient', and this release units named"),
        ("visit", "patient", "units named by 'visit', and this release units named"),
        ("visit", None, "units named by 'visit', and this release each record by its"),
        (None, "visit", "each record by itself, and this release units named by 'vis"),
    ],
)
def test_a_file_keeps_the_kind_of_unit(
    tmp_path: Path, kind: Any, first: Any, other: Any, message: str
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    handler(kind, ledger=url, queries=5).charge(VOTE, unit_key=first)
    again = handler(kind, ledger=url, queries=5)
    with pytest.raises(PlanMismatchError, match=message):
        again.charge(VOTE, unit_key=other)
    same = first and "".join(list(first))
    assert again.charge(VOTE, unit_key=same).sequence == 2
