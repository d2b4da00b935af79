"""What one release is charged, and what all charges have cost.

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
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import AccountTerms, Plan


def require_charge(charge: object) -> None:
    """Refuse what can't be paid for.

    Raises:
        InvalidParameterError: If it is no `Charge`.
    """
    if not isinstance(charge, Charge):
        raise InvalidParameterError(
            "An account pays for a Charge (parser.charge() is one), not for a value of "
            f"type {type(charge).__name__}."
        )


@functools.lru_cache(maxsize=256)
def planned(
    charge: Charge, epsilon: float, delta: float, queries: int
) -> tuple[Event, ...]:
    """Return what each of `queries` equal releases may spend of (epsilon, delta).

    A sampled plan is computed twice, by independent accountants. Where the second can't
    judge, a warning says so: the first is an upper bound.

    Raises:
        PlanMismatchError: If no noise, or not the fixed one, keeps within the budget,
            or the two accountants contradict each other.

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
            events = accounting.calibrate({charge: queries}, epsilon, delta)[charge]
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

    Raises:
        InvalidParameterError: If noise is left open and `queries` is None.
        PlanMismatchError: If no noise is enough.

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


def require_planned(terms: AccountTerms, plan: Plan, charge: Charge) -> None:
    """Refuse a release that an account's plan is not for.

    What counts is what is charged, whatever the release is called.

    Raises:
        PlanMismatchError: If so.
    """
    if plan.charge is None or plan.events == charge.parts:
        return
    if (plan.charge.parts, plan.charge.shares) == (charge.parts, charge.shares):
        return
    events = f"{' and '.join(map(repr, plan.events)):.200}"
    raise PlanMismatchError(
        f"Account {terms.name!r} is planned for another kind of release than this "
        f"{charge.name} release: each of its queries spends {events}. Ask for the same "
        "release, or open an account of its own for this one (accounting='renyi' opens "
        "one that takes any release)."
    )
