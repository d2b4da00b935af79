"""From a total (epsilon, delta) and a number of queries to each query's events."""

from __future__ import annotations

import warnings

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Charge, Event, merge
from langchain_dpicl.budget.charge import require_charge
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError


def plan_queries(
    charge: Charge,
    *,
    epsilon: float,
    delta: float,
    queries: int,
) -> tuple[Event, ...]:
    """Return the events that each of `queries` equal releases may spend.

    What the user left open is set to the least noise that keeps all queries together
    within (epsilon, delta). What the user fixed is only checked.

    Args:
        charge: What one release costs.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: Number of releases.

    Returns:
        The events of one release. Each of disjoint classes is planned by itself for all
        of (epsilon, delta).

    Privacy:
        All releases are fixed before the first is made, so any composition theorem
        for non-adaptive events applies: see `accounting.compose`. A sampled plan is
        computed twice, by dp-accounting and by prv-accountant; where the two contradict
        each other it is refused. Where the second can't judge a case a warning says so:
        the first is an upper bound.

    Raises:
        PlanMismatchError: If no noise, or not the fixed one, keeps within the budget,
            or the two accountants contradict each other.
        InvalidParameterError: If an argument is out of its range or no charge.

    Example:
        >>> from langchain_dpicl.mechanisms import voting
        >>> events = plan_queries(voting.charge(), epsilon=8, delta=1e-6, queries=20)
        >>> round(events[0].noise_multiplier, 2)
        2.92
    """
    require_charge(charge)
    parameters.epsilon(epsilon)
    parameters.delta(delta)
    parameters.count(queries, "queries")
    try:
        events = accounting.calibrate({charge: queries}, epsilon, delta)[charge]
    except InvalidParameterError as error:
        fixed = "" if charge.is_open else " at the noise you fixed"
        raise PlanMismatchError(
            f"No plan lets {charge.name} answer {queries} queries{fixed} within "
            f"epsilon {epsilon:g} and delta {delta:g}: {error} Leave the noise and "
            "delta0 to the plan, or ask fewer queries."
        ) from None
    result = accounting.check(merge(events, queries), delta)
    if result.agrees is None:
        warnings.warn(
            f"The second accountant can't judge this plan: {result.reason}. Its "
            f"epsilon of {result.epsilon:.3g} is the first accountant's upper bound, "
            "unconfirmed.",
            stacklevel=2,
        )
    elif not result.agrees:
        raise PlanMismatchError(
            f"Two independent accountants disagree on this plan: {result}. Nothing is "
            "released on a figure that is in doubt; change the sampling rate, the "
            "noise or the number of queries."
        )
    return events


def is_affordable(
    events: tuple[Event, ...], *, epsilon: float, delta: float, queries: int
) -> bool:
    """Return whether `queries` such releases stay within (epsilon, delta)."""
    return accounting.compose(merge(events, queries), delta) <= epsilon
