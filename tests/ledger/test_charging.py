"""The rule of a charge, by itself: limits at their last step, and what is said then."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from support.corpora import CLINIC, DECEMBER
from support.ledgers import FILTERED, NOISY, PLAN, PLANNED, UNIT_FILTERED, UNIT_PLANNED

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import (
    AllowanceExhaustedError,
    BudgetExhaustedError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, Allowance, Charge, MemoryLedger, Plan
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.base import (
    NAME_LIMIT,
    NO_LIMIT,
    AccountState,
    share_left,
)
from langchain_dpicl.ledger.charging import (
    LastCharges,
    charged,
    fits,
    is_payable,
    require_name,
    require_salt,
    require_unit_known,
    require_units,
    require_unused,
)

COST = FILTERED.cost(NOISY, None)
LIMIT = FILTERED.limit
DAY = timedelta(days=1)
MOMENT = timedelta(microseconds=1)
START, END = (
    datetime(2026, 12, 1, tzinfo=timezone.utc),
    datetime(2027, 1, 1, tzinfo=timezone.utc),
)


def state(terms: AccountTerms, spent: Cost = Cost(0, 0), used: int = 0) -> AccountState:  # noqa: B008 - a constant
    plan = PLAN if terms.accounting == "plan" else None
    return AccountState(terms, plan, used, closed=False, spent=spent)


@pytest.mark.parametrize("part", ["loss", "failure"])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_limit_is_reached_and_not_passed(part: str, off: int) -> None:
    assert min(COST) > 0
    last = getattr(LIMIT, part) - getattr(COST, part) + off
    before = Cost(3, 5)._replace(**{part: last})
    if off > 0:
        with pytest.raises(BudgetExhaustedError, match="out of what is left of its"):
            charged(state(FILTERED, before, used=7), NOISY)
        return
    after, charge = charged(state(FILTERED, before, used=7), NOISY)
    total = Cost(before.loss + COST.loss, before.failure + COST.failure)
    assert (after.spent, after.used) == (total, 8)
    assert (charge.sequence, charge.cost, charge.spent) == (8, COST, total)
    assert (charge.caller, charge.caller_spent) == (None, None)
    assert charge.events == NOISY


def test_both_parts_of_a_cost_fit() -> None:
    limit = Cost(4, 2)
    found = {cost for cost in _costs(6, 4) if fits(cost, limit)}
    assert found == set(_costs(5, 3))


def _costs(losses: int, failures: int) -> list[Cost]:
    return [Cost(a, b) for a in range(losses) for b in range(failures)]


def test_the_limit_of_a_per_unit_account_is_each_units_own() -> None:
    spent = Cost(10 * UNIT_PLANNED.limit.loss, 0)
    after, charge = charged(state(UNIT_PLANNED, spent, used=20), None)
    assert (after.spent, charge.sequence) == (Cost(spent.loss + 1, 0), 21)
    costly = NOISY * 40
    with pytest.raises(BudgetExhaustedError, match="more than the whole of account"):
        charged(state(UNIT_FILTERED), costly)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (PLANNED, "has spent all 5 queries of its budget"),
        (replace(PLANNED, queries=2), "has spent all 2 queries of its budget"),
        (replace(PLANNED, queries=1), "has spent the only query of its budget"),
        (FILTERED, "can't pay for this release out of what is left of its budget"),
    ],
)
def test_what_is_said_when_the_budget_is_spent(terms: AccountTerms, said: str) -> None:
    spent = state(terms, terms.limit, used=terms.queries or 9)
    with pytest.raises(BudgetExhaustedError) as caught:
        charged(spent, None if terms.queries else NOISY)
    assert str(caught.value) == (
        f"Account 'notes' {said} (epsilon 8, delta 1e-06); nothing was asked of the "
        "model and nothing was released. Answers that were released stay usable; a new "
        "account is a new promise to the same people, and the two add up."
    )


def test_a_spent_period_names_the_next_one() -> None:
    spent = replace(state(DECEMBER, DECEMBER.limit, used=20), at=START)
    with pytest.raises(BudgetExhaustedError) as caught:
        charged(spent, None)
    assert str(caught.value).endswith(
        "the two add up. 'dpicl ledger renew clinic/2026-12' opens the next one."
    )


def test_one_release_that_costs_more_than_the_account_names_its_promise() -> None:
    with pytest.raises(BudgetExhaustedError) as caught:
        charged(state(FILTERED), NOISY * 40)
    assert str(caught.value).startswith(
        "This one release would cost more than the whole of account 'notes' "
        "(epsilon 8, delta 1e-06): nothing was asked of the model"
    )


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (START - MOMENT, "has not begun;"),
        (START, None),
        (END - MOMENT, None),
        (END, "is over. 'dpicl ledger renew clinic/2026-12' opens the next one, if"),
        (END + DAY, "is over. 'dpicl ledger renew clinic/2026-12' opens the next one"),
    ],
)
def test_an_account_pays_from_its_first_moment_to_its_last(
    at: datetime, said: str | None
) -> None:
    read = replace(state(DECEMBER), at=at)
    assert is_payable(read) == (said is None)
    assert not is_payable(replace(read, closed=True))
    if said is None:
        assert charged(read, None)[0].used == 1
        return
    with pytest.raises(BudgetExhaustedError) as caught:
        charged(read, None)
    begin = "Account 'clinic/2026-12' pays for the period 2026-12 (UTC), which "
    assert str(caught.value).startswith(begin + said)


def test_a_period_is_not_judged_without_a_time() -> None:
    with pytest.raises(LedgerError, match="was read without the ledger's time"):
        charged(state(DECEMBER), None)
    assert is_payable(state(PLANNED))


def test_a_closed_account_is_refused_before_its_period() -> None:
    over = replace(state(DECEMBER), at=END, closed=True)
    with pytest.raises(LedgerError, match="is closed"):
        charged(over, None)


@pytest.mark.parametrize(
    ("spent", "loss", "after"),
    [(0, 3, 3), (2, 1, 3), (0, 0, 0), (3, 0, 3), (3, 1, None), (0, 4, None)],
)
def test_a_caller_spends_up_to_the_allowance(
    spent: int, loss: int, after: int | None
) -> None:
    limit = CallerLimit(Allowance("alice", 1.5), most=3)
    if after is not None:
        assert limit.after("notes", spent, loss) == after
        return
    with pytest.raises(AllowanceExhaustedError) as caught:
        limit.after("notes", spent, loss)
    what = (
        "This one release costs more than the whole allowance"
        if loss == 4
        else "Not enough is left of the allowance"
    )
    assert str(caught.value) == (
        f"{what} of caller 'alice' in account 'notes' (epsilon 1.5); nothing was asked "
        "of the model and nothing was charged. The operator can give the caller a "
        "larger Allowance; answers that are cached stay free."
    )


def test_a_release_of_the_whole_allowance_is_not_more_than_it() -> None:
    limit = CallerLimit(Allowance("alice", 1.0), most=3)
    with pytest.raises(AllowanceExhaustedError, match="Not enough is left"):
        limit.after("notes", 1, 3)


def test_a_charge_says_whose_allowance_paid() -> None:
    limit = CallerLimit(Allowance("alice", 1.0), most=10**12)
    _, charge = charged(state(FILTERED), NOISY, limit, caller_spent=4)
    assert (charge.caller, charge.caller_spent) == ("alice", 4 + COST.loss)
    with pytest.raises(AllowanceExhaustedError):
        charged(state(FILTERED), NOISY, replace(limit, most=COST.loss), 1)
    _, first = charged(state(FILTERED), NOISY, replace(limit, most=COST.loss))
    assert first.caller_spent == COST.loss


def test_no_limit_is_more_than_any_account_and_fits_a_column() -> None:
    assert 10**6 * LIMIT.loss < NO_LIMIT < 2**63


@pytest.mark.parametrize("length", [1, NAME_LIMIT, NAME_LIMIT + 1])
def test_names_have_a_length(length: int) -> None:
    assert NAME_LIMIT == 200
    name = "\xe4" * length
    if length <= 200:
        assert require_name(name) == name
        assert Allowance(name, 1.0).caller == name
        return
    with pytest.raises(LedgerError, match=r"printable string of 1 to 200 characters\."):
        require_name(name)
    with pytest.raises(Exception, match=r"printable string of 1 to 200 characters\."):
        Allowance(name, 1.0)


def test_an_account_of_a_corpus_needs_its_unit_before_the_first_charge() -> None:
    read = replace(state(DECEMBER), plan=None)
    with pytest.raises(LedgerError, match="fix a plan that names its unit"):
        require_unit_known(read)
    require_unit_known(state(DECEMBER))
    require_unit_known(replace(state(PLANNED), plan=None))
    assert CLINIC.name == DECEMBER.corpus


def test_units_are_named_once_each() -> None:
    require_units(state(UNIT_PLANNED), [])
    require_units(state(UNIT_PLANNED), ["a", "b", "c"])
    for repeated in (["a", "a"], ["a", "b", "a"], ["b", "a", "a"]):
        with pytest.raises(LedgerError, match="named a unit twice in one draw"):
            require_units(state(UNIT_PLANNED), repeated)
    with pytest.raises(LedgerError, match="closed"):
        require_units(replace(state(UNIT_PLANNED), closed=True), [])


@pytest.mark.parametrize("used", [0, 1, 2])
def test_a_plan_is_fixed_before_the_first_charge_alone(used: int) -> None:
    read = replace(state(PLANNED), plan=None, used=used)
    if not used:
        require_unused(read)
        return
    with pytest.raises(LedgerError, match="was charged without a plan"):
        require_unused(read)


@pytest.mark.parametrize("terms", [PLANNED, FILTERED, DECEMBER])
def test_only_a_per_unit_account_is_bound_to_a_salt(terms: AccountTerms) -> None:
    with pytest.raises(LedgerError, match="charges the whole corpus"):
        require_salt(state(terms), "aa")
    for salt in (None, "aa"):
        require_salt(replace(state(UNIT_PLANNED), salt=salt), "aa")
    with pytest.raises(PlanMismatchError, match="another salt"):
        require_salt(replace(state(UNIT_PLANNED), salt="ab"), "aa")


@pytest.mark.parametrize(
    ("spent", "left"),
    [
        (Cost(0, 0), 1.0),
        (Cost(1, 0), 0.8),
        (Cost(4, 0), 0.2),
        (Cost(5, 0), 0.0),
        (Cost(7, 0), 0.0),
    ],
)
def test_the_share_that_is_left_of_a_plan(spent: Cost, left: float) -> None:
    assert share_left(PLANNED, spent) == pytest.approx(left, abs=1e-12)
    assert state(PLANNED, spent).left == share_left(PLANNED, spent)


def test_the_share_that_is_left_of_a_filter_is_that_of_its_scarcer_part() -> None:
    loss, failure = LIMIT
    for a, b in ((0.25, 0.5), (0.5, 0.25), (1.0, 0.125), (0.5, 1.5)):
        spent = Cost(int(loss * a), int(failure * b))
        expected = max(0.0, min(1 - spent.loss / loss, 1 - spent.failure / failure))
        assert share_left(FILTERED, spent) == pytest.approx(expected, abs=1e-12)


# -- a ledger that forgets -------------------------------------------------------------


def number(sequence: int, account: str = "notes") -> Charge:
    return Charge(account, sequence, ())


@pytest.mark.parametrize(
    ("later", "is_later"), [(4, False), (5, False), (6, True), (9, True)]
)
def test_a_charge_is_later_than_the_last_one_before_it_began(
    later: int, is_later: bool
) -> None:
    last = LastCharges()
    assert last.before("notes") == 0
    last.require_later(number(5), last.before("notes"))
    assert last.before("notes") == 5
    begun = last.before("notes")
    if is_later:
        last.require_later(number(later), begun)
        assert last.before("notes") == later
        return
    with pytest.raises(LedgerError, match="'notes' has forgotten charges"):
        last.require_later(number(later), begun)
    # For good, whatever comes; other accounts go on.
    for _ in range(2):
        with pytest.raises(LedgerError, match="'notes' has forgotten charges"):
            last.before("notes")
    with pytest.raises(LedgerError, match="'notes' has forgotten charges"):
        last.require_later(number(99), math.inf)
    assert last.before("other") == 0
    last.require_later(number(1, "other"), 0)


def test_charges_that_end_in_another_order_forget_nothing() -> None:
    last = LastCharges()
    begun = [last.before("notes")] * 3
    for sequence, before in zip((3, 1, 2), begun, strict=True):
        last.require_later(number(sequence), before)
        assert last.before("notes") == 3
    with pytest.raises(LedgerError, match="forgotten"):
        last.require_later(number(3), last.before("notes"))


@pytest.mark.parametrize(("steps", "known"), [(1, False), (2, True), (3, True)])
def test_a_release_has_no_fewer_draws_than_were_stored(steps: int, known: bool) -> None:
    last = LastCharges()
    last.require_drawn("notes", 1, 0)
    for stored in (1, 2, 1):
        last.note_drawn("notes", 1, stored)
    last.require_drawn("notes", 2, 0)
    last.require_drawn("other", 1, 0)
    if known:
        last.require_drawn("notes", 1, steps)
        assert last.before("notes") == 0
        return
    with pytest.raises(LedgerError, match="or what was drawn for one"):
        last.require_drawn("notes", 1, steps)
    with pytest.raises(LedgerError, match="has forgotten charges"):
        last.before("notes")


# -- the same rule in a ledger ---------------------------------------------------------

PLANLESS = Plan({"parts": []}, ())
ODD: dict[str, tuple[AccountTerms, Callable[[MemoryLedger], object], str]] = {
    "a plan without events": (
        PLANNED,
        lambda ledger: (ledger.fix_plan("notes", PLANLESS), ledger.charge("notes")),
        "plan can't be read: it is damaged",
    ),
    "a filter without events": (
        FILTERED,
        lambda ledger: ledger.charge("notes", []),
        "has no plan: a charge must name its events",
    ),
    "no plan": (
        PLANNED,
        lambda ledger: ledger.charge("notes", PLAN.events),
        "has no plan yet: fix one before the first charge",
    ),
    "a filter without a share": (
        replace(FILTERED, delta0_share=None),
        lambda ledger: ledger.charge("notes", NOISY),
        "has terms that make no filter",
    ),
    "a filter of an odd order": (
        replace(FILTERED, accounting="renyi", order=0.5),
        lambda ledger: ledger.charge("notes", NOISY),
        r"has terms that make no filter \(",
    ),
    "a plan without queries": (
        replace(PLANNED, queries=None),
        lambda ledger: (ledger.fix_plan("notes", PLAN), ledger.charge("notes")),
        "more than the whole of account",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_account_that_promises_nothing_pays_for_nothing(name: str) -> None:
    terms, use, said = ODD[name]
    ledger = MemoryLedger()
    ledger.open(terms)
    with pytest.raises((LedgerError, BudgetExhaustedError), match=said):
        use(ledger)
    assert ledger.state("notes").used == 0
