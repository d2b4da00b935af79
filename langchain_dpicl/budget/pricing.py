"""What a release costs, whether an account can pay it, and what charges have cost.

Under a plan, what a parser leaves open gets the least noise that keeps all `queries`
releases together within (epsilon, delta). Under a filter it gets that of one of
`queries` equal shares. What the user fixed is taken as it is.

Privacy:
    Prices depend on public numbers alone. The events of a plan are fixed before the
    first use, so any bound of their composition holds. Those of a filter may depend on
    whatever was released before.
"""

from __future__ import annotations

import functools
import warnings

from langchain_dpicl import accounting
from langchain_dpicl.accounting import UNITS, Charge, Cost, Event, Filter
from langchain_dpicl.accounting.events import is_open
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, Book, Plan
from langchain_dpicl.ledger.book import Transaction

LARGEST_QUIET_DELTA = 1e-5
"""The largest delta that is no reason for a warning where no size is declared.

It is below one over the number of people in corpora of fewer than 100,000.
"""


def check_delta(delta: float, people_at_most: int | None) -> None:
    """Compare delta with the number of people that the operator declares.

    Without such a number a delta above `LARGEST_QUIET_DELTA` is warned of.

    Privacy:
        Delta below one over the number of people is advice on a parameter, and no part
        of the theorem. Compared with the records themselves it would tell how many
        people there are, so nothing here looks at them.
    """
    why = "to publish the records of one of them at random would satisfy it"
    if people_at_most is None:
        if delta > LARGEST_QUIET_DELTA:
            warnings.warn(
                f"delta {delta:g} means little to {1 / delta:.3g} people or more: "
                f"{why}. Give people_at_most=, the largest number of people that the "
                "account may protect, or a smaller delta.",
                stacklevel=3,
            )
    elif delta >= (least := 1 / parameters.count(people_at_most, "people_at_most")):
        raise InvalidParameterError(
            f"delta {delta:g} is too large for people_at_most={people_at_most}: {why}. "
            f"Open the account with delta below {least:.2g}."
        )


def require_charge(charge: object) -> None:
    """Refuse what can't be paid for."""
    if not isinstance(charge, Charge):
        raise InvalidParameterError(
            "An account pays for a Charge (parser.charge() is one), not for a value of "
            f"type {type(charge).__name__}."
        )


# ---- Events and their cost -----------------------------------------------------------


@functools.lru_cache(maxsize=256)
def planned(
    charge: Charge, epsilon: float, delta: float, queries: int
) -> tuple[Event, ...]:
    """Return what each of `queries` equal releases may spend of (epsilon, delta).

    A sampled plan is computed twice, by independent accountants. Where the second can't
    judge, a warning says so: the first is an upper bound.

    Example:
        >>> part = accounting.Gaussian(noise_multiplier=None)
        >>> vote = Charge(name="vote", parts=(part,))
        >>> events = planned(vote, epsilon=8, delta=1e-6, queries=20)
        >>> round(events[0].noise_multiplier, 2)
        2.92
    """
    events = charge.parts
    if charge.is_open:
        try:
            events = accounting.calibrate(charge, queries, epsilon, delta)
        except InvalidParameterError as error:
            raise PlanMismatchError(
                f"No amount of noise lets {charge.name} answer {queries} queries "
                f"within epsilon {epsilon:g} and delta {delta:g}: {error}"
            ) from None
    merged = accounting.merge(events, queries)
    cost = accounting.compose(merged, delta)
    if cost > epsilon:
        raise PlanMismatchError(
            f"{queries} releases by {charge.name} with the noise you fixed cost "
            f"epsilon {cost:.4g} at delta {delta:g}; the account has {epsilon:g}. "
            "Leave the noise to the plan, or give more noise or fewer queries."
        )
    second = accounting.check(merged, delta)
    if second.agrees is None:
        warnings.warn(
            f"The second accountant can't judge this plan: {second.reason}. Its "
            f"epsilon of {second.epsilon:.3g} is the first accountant's upper bound, "
            "unconfirmed.",
            stacklevel=2,
        )
    elif not second.agrees:
        raise PlanMismatchError(
            f"Two independent accountants disagree on this plan: {second}. Nothing is "
            "released on a figure that is in doubt; change the sampling rate, the "
            "noise or the number of queries."
        )
    return events


@functools.lru_cache(maxsize=1024)
def priced(charge: Charge, limit: Filter, queries: int | None) -> tuple[Event, ...]:
    """Return what one release is charged in an account that adds up as it goes.

    Example:
        >>> part = accounting.Gaussian(noise_multiplier=None)
        >>> vote = Charge(name="vote", parts=(part,))
        >>> limit = Filter(epsilon=8.0, delta=1e-6, order=5.0, failure_share=0.2)
        >>> 2.9 < priced(vote, limit, 20)[0].noise_multiplier < 3.5
        True
    """
    if charge.is_open and queries is None:
        names = {"gaussian": "noise_multiplier=", "failure": "delta0="}
        kinds = [part.kind for part in charge.parts if is_open(part)]
        fixing = dict.fromkeys(names.get(kind, "epsilon=") for kind in kinds)
        raise InvalidParameterError(
            f"The account has no plan, and this {charge.name} release leaves its noise "
            f"open. Say how much there is ({', '.join(fixing)}), or give the budget "
            "queries=: how many such releases it should last for."
        )
    try:
        return limit.fill(charge, queries or 1)
    except InvalidParameterError as error:
        raise PlanMismatchError(
            f"This account can't pay for a {charge.name} release: {error}"
        ) from None


def epsilon_spent(
    terms: AccountTerms, plan: Plan | None, used: int, cost: Cost
) -> float:
    """Return the epsilon of so many charges of such a cost, at the full delta.

    Under a plan the uses count, under a filter the cost. In a per-unit account it is
    the epsilon of a unit that took part every time, as far as its balance went.
    """
    if not used:
        return 0.0
    if terms.filter is not None:
        within = Cost(min(cost.loss, UNITS), min(cost.failure, UNITS))
        return terms.filter.epsilon_spent(within)
    events = () if plan is None else plan.events
    merged = accounting.merge(events, min(used, terms.queries or 1))
    return min(accounting.compose(merged, terms.delta), terms.epsilon)


# ---- What an account pays for --------------------------------------------------------


def require_planned(
    terms: AccountTerms, plan: Plan, charge: Charge, unit_key: str | None
) -> None:
    """Refuse a release, or a unit, that an account's first charge was not for.

    What counts is what is charged, whatever the release is called.
    """
    given = charge.parts, charge.shares
    planned_for = plan.charge and (plan.charge.parts, plan.charge.shares)
    if planned_for not in (None, given) and plan.events != charge.parts:
        events = f"{' and '.join(map(repr, plan.events)):.200}"
        raise PlanMismatchError(
            f"Account {terms.name!r} is planned for another kind of release than this "
            f"{charge.name} release: each of its queries spends {events}. Ask for the "
            "same release, or open an account of its own for this one "
            "(accounting='renyi' opens one that takes any release)."
        )
    if plan.unit_key != unit_key:
        units = [
            "each record by itself" if key is None else f"units named by {key!r}"
            for key in (plan.unit_key, unit_key)
        ]
        raise PlanMismatchError(
            f"Account {terms.name!r} protects {units[0]}, and this release {units[1]}. "
            "Open an account of its own for the other kind of unit."
        )


def require_payable(transaction: Transaction, book: Book, cost: Cost) -> int:
    """Return the time of a charge that an account pays for now, or refuse it.

    The refusals are a `BudgetExhaustedError`: it can't pay, its period is over or has
    not begun, or its corpus's cap has no room for its first charge. A closed account
    and a damaged corpus are a `LedgerError`.

    A transaction that writes has locked the account alone. This locks its corpus: alone
    for the first charge, which is compared with the cap, and else shared.

    Args:
        transaction: One that writes, before a charge; one that reads, to ask.
        book: The account.
        cost: What the charge would cost.

    Returns:
        The ledger's time, in microseconds.
    """
    terms, state = book.account, None
    if not book.is_open:
        raise LedgerError(
            f"Account {book.name!r} is closed: it pays for nothing any more. Open an "
            "account with another name if the people in the corpus agree to a new "
            "guarantee."
        )
    if terms.corpus is None:
        at = transaction.now(book)
    else:
        lock = "shared" if book.used else "alone"
        state = transaction.state_of(transaction.load("corpus", terms.corpus, lock))
        at = state.at
    reason = _not_now(terms, at) or _too_much(book, cost)
    if reason:
        raise BudgetExhaustedError(
            f"Account {terms.name!r} {reason} It promises epsilon {terms.epsilon:g} "
            f"and delta {terms.delta:g}; nothing was asked of the model and nothing "
            "was released."
        )
    if state is not None and not book.used:
        state.require_room(terms)
    return at


def _not_now(terms: AccountTerms, at: int) -> str:
    """Return why an account does not pay at a time; empty if it does."""
    start, end = terms.span
    if start <= at < end:
        return ""
    pays = f"pays for the period {terms.period} (UTC), which"
    if at < start:
        return f"{pays} has not begun."
    return (
        f"{pays} is over. 'dpicl ledger renew {terms.name}' opens the next one, if the "
        f"cap of corpus {terms.corpus!r} has room for it."
    )


def _too_much(book: Book, cost: Cost) -> str:
    """Return why an account can't pay a cost; empty if it can."""
    terms, limit = book.account, book.account.limit
    if max(cost.loss - limit.loss, cost.failure - limit.failure) > 0:
        return (
            f"can't pay for this release: alone it costs {_figures(cost, limit)} of "
            "the whole budget. Give it more noise (and a smaller delta0, if it has "
            "one)."
        )
    # A per-unit account is a price list: its limit is each unit's own.
    spent = Cost(0, 0) if book.unit_key else book.spent
    left = Cost(limit.loss - spent.loss, limit.failure - spent.failure)
    if cost.loss <= left.loss and cost.failure <= left.failure:
        return ""
    queries = "the only query" if terms.queries == 1 else f"all {terms.queries} queries"
    what = f"has spent {queries} of its budget"
    if terms.queries is None:
        what = (
            f"has spent {_figures(spent, limit)} of its budget, and this release "
            f"costs {_figures(cost, limit)}"
        )
    renew = f"'dpicl ledger renew {terms.name}' opens the next period's account."
    return (
        f"{what}. Answers that were released stay usable; a new account is a new "
        f"promise to the same people, and the two add up. {renew * bool(terms.period)}"
    ).rstrip()


def _figures(cost: Cost, limit: Cost) -> str:
    """Return the larger share of two, in words."""
    share = max(
        part / most if most else float(part > 0)
        for part, most in zip(cost, limit, strict=True)
    )
    return f"{100 * share:.3g} %"
