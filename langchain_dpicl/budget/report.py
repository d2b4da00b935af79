"""What an account has spent, what is left, and what it would still pay for."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_dpicl import accounting
from langchain_dpicl.accounting import STEPS, Cost, Event, PrivacyFilter
from langchain_dpicl.accounting.events import EVENT_TYPES
from langchain_dpicl.budget.bundle import AnyDemand, Bundle, require_demand
from langchain_dpicl.budget.demand import Demand
from langchain_dpicl.budget.planning import is_affordable
from langchain_dpicl.budget.pricing import price_release
from langchain_dpicl.budget.state import BudgetState
from langchain_dpicl.exceptions import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import AccountState, AccountTerms, Plan
from langchain_dpicl.ledger.charging import charged, fits
from langchain_dpicl.parameters import ParameterError


def spent_after(
    terms: AccountTerms, events: tuple[Event, ...], used: int, total: Cost
) -> BudgetState:
    """Return the epsilon of `used` charges, at the account's full delta.

    In a per-unit account it is the epsilon of a unit that took part every time, as far
    as its balance went.

    Args:
        terms: The account.
        events: Under a plan, the events of one use.
        used: Number of charges.
        total: Their costs together.
    """
    if terms.filter is None:
        uses = min(used, terms.queries or 0)
        epsilon = accounting.spent(events, uses, terms.delta)
    else:
        limit = terms.limit
        within = Cost(min(total.loss, limit.loss), min(total.failure, limit.failure))
        epsilon = min(terms.filter.epsilon_spent(within), terms.epsilon)
    return BudgetState(epsilon, delta=terms.delta, queries=used)


def queries_left(
    terms: AccountTerms, queries: int | None, state: AccountState
) -> int | None:
    """Return how many queries are left, or None where that is not fixed."""
    if terms.scope == "unit" or queries is None:
        return None
    if terms.filter is None:
        return queries - state.used
    share = STEPS // queries
    left = STEPS - state.spent.loss
    if terms.filter.delta0_share:
        left = min(left, STEPS - state.spent.failure)
    return left // share if share else 0


def would_pay(
    terms: AccountTerms,
    queries: int | None,
    state: AccountState,
    asked: AnyDemand | Event | Sequence[Event] | None,
) -> bool:
    """Return whether an account would pay for one more release.

    Raises:
        InvalidParameterError: If what is asked about is no release.
    """
    _require_release(asked)
    if state.closed:
        return False
    if terms.filter is not None:
        return _filter_pays(terms, terms.filter, queries, state, asked)
    if terms.scope == "corpus" and state.used >= (terms.queries or 0):
        return False
    return asked is None or _plan_pays(terms, state, asked)


def require_payment(
    terms: AccountTerms, queries: int | None, state: AccountState, demand: AnyDemand
) -> None:
    """Refuse a release that an account would not pay for now.

    Raises:
        BudgetExhaustedError: If it can't pay.
        LedgerError: If it is closed.
        InvalidParameterError: If it is no demand.
    """
    require_demand(demand)
    if terms.filter is not None:
        charged(state, price_release(demand, terms.filter, queries))
    elif state.plan is not None:
        charged(state, None)


def is_planned(demand: AnyDemand, plan: Plan | None) -> bool:
    """Return whether a plan is for releases of this shape; none is for any."""
    if plan is None:
        return True
    known = {key: value for key, value in plan.demand.items() if key != "unit_key"}
    return known == demand.to_dict()


def _require_release(asked: object) -> None:
    found = asked if isinstance(asked, (list, tuple)) else [asked]
    if asked is None or all(isinstance(one, EVENT_TYPES) for one in found):
        return
    require_demand(asked)


def _plan_pays(
    terms: AccountTerms, state: AccountState, asked: AnyDemand | Event | Sequence[Event]
) -> bool:
    if isinstance(asked, (Demand, Bundle)):
        return is_planned(asked, state.plan)
    events = tuple(asked) if isinstance(asked, Sequence) else (asked,)
    if state.plan is not None:
        return events == state.plan.events
    return is_affordable(
        events, epsilon=terms.epsilon, delta=terms.delta, queries=terms.queries or 1
    )


def _filter_pays(
    terms: AccountTerms,
    found: PrivacyFilter,
    queries: int | None,
    state: AccountState,
    asked: AnyDemand | Event | Sequence[Event] | None,
) -> bool:
    # What a unit has left is private: the account pays for what a full balance could.
    spent = state.spent if terms.scope == "corpus" else Cost(0, 0)
    if asked is None:
        return spent.loss < found.limit.loss
    try:
        if isinstance(asked, (Demand, Bundle)):
            events = price_release(asked, found, queries)
        else:
            events = tuple(asked) if isinstance(asked, Sequence) else (asked,)
        cost = found.cost(events)
    except (ParameterError, InvalidParameterError, PlanMismatchError):
        return False
    total = Cost(spent.loss + cost.loss, spent.failure + cost.failure)
    return fits(total, found.limit)
