"""From a total (epsilon, delta) and a number of queries to each query's events."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from langchain_dpicl import accounting, parameters
from langchain_dpicl.accounting import Event, GaussianEvent, repeat, unsampled_epsilon
from langchain_dpicl.budget.bundle import AnyDemand, require_demand
from langchain_dpicl.budget.demand import Demand, PurePart
from langchain_dpicl.exceptions import PlanMismatchError
from langchain_dpicl.parameters import ParameterError
from langchain_dpicl.validation import checked


def plan_queries(
    demand: AnyDemand, *, epsilon: float, delta: float, queries: int
) -> tuple[Event, ...]:
    """Return the events that each of `queries` equal releases may spend.

    What the user left open is set to the least noise that keeps all queries together
    within (epsilon, delta). What the user fixed is only checked.

    Args:
        demand: The shape of one release, or of several in a bundle.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: Number of releases.

    Returns:
        The events of one release. Of a disjoint bundle each branch is planned by
        itself for all of (epsilon, delta); equal ones are planned once.

    Privacy:
        All releases are fixed before the first is made, so any composition theorem
        for non-adaptive events applies: closed form for unsampled Gaussians (Balle and
        Wang 2018), privacy loss distributions for sampled ones, Renyi curves where an
        exponential mechanism takes part. A sampled plan is computed twice, by
        dp-accounting and by prv-accountant; unless the two agree it is refused.

    Raises:
        PlanMismatchError: If no noise, or not the fixed one, keeps within the budget,
            or the two accountants disagree.
        InvalidParameterError: If an argument is out of its range or no demand.

    Example:
        >>> from langchain_dpicl.budget import Demand, GaussianPart
        >>> events = plan_queries(
        ...     Demand("vote", (GaussianPart(),)), epsilon=8, delta=1e-6, queries=20
        ... )
        >>> round(events[0].noise_multiplier, 2)
        2.92
    """
    require_demand(demand)
    epsilon = checked(parameters.epsilon, epsilon)
    delta = checked(parameters.delta, delta)
    queries = checked(parameters.count, queries, "queries")
    events_at: Callable[[float], tuple[Event, ...]]
    if isinstance(demand, Demand):
        delta0 = _delta0(demand, delta, queries, sharing=1)
        events_at = functools.partial(demand.events, delta0=delta0)
    elif demand.disjoint:
        plans = {
            one: plan_queries(one, epsilon=epsilon, delta=delta, queries=queries)
            for one in dict.fromkeys(demand.demands)
        }
        return demand.parallel(plans[one] for one in demand.demands)
    else:
        delta0s = tuple(
            _delta0(one, delta, queries, sharing=demand.n_failing)
            for one in demand.demands
        )
        events_at = functools.partial(demand.in_turn, delta0s=delta0s)
    return _planned(demand, events_at, epsilon, delta, queries)


def _delta0(demand: Demand, delta: float, queries: int, *, sharing: int) -> float:
    """Return the delta0 of each use, where `sharing` demands share the failures."""
    delta0 = demand.delta0_for(delta, queries * max(sharing, 1))
    uses = queries * demand.uses
    charged = delta0 * demand.sampling_rate * uses
    if charged >= delta:
        raise PlanMismatchError(
            f"{uses} releases with delta0 {delta0:g} each use up a delta of "
            f"{charged:g}, and the account has {delta:g}. Leave delta0 to the plan or "
            f"give less than {delta / uses / demand.sampling_rate:.2g}."
        )
    return delta0


def _planned(
    demand: AnyDemand,
    events_at: Callable[[float], tuple[Event, ...]],
    epsilon: float,
    delta: float,
    queries: int,
) -> tuple[Event, ...]:
    if demand.is_fixed:
        events = events_at(1.0)
        cost = _cost(events, delta, queries)
        if not cost <= epsilon:
            raise PlanMismatchError(
                f"{queries} releases by {demand.mechanism} with the noise you fixed "
                f"cost epsilon {cost:.4g} at delta {delta:g}; the account has "
                f"{epsilon:g}. Leave the noise to the plan, or give more noise or "
                "fewer queries."
            )
    else:
        try:
            scale = accounting.calibrate(events_at, epsilon, delta, uses=queries)
        except ParameterError as error:
            raise PlanMismatchError(
                f"No amount of noise lets {demand.mechanism} answer {queries} queries "
                f"within epsilon {epsilon:g} and delta {delta:g} ({error})."
            ) from None
        events = events_at(min(scale, _plain(demand, epsilon, delta, queries, scale)))
    _require_second_opinion(events, delta, queries)
    return events


def _plain(
    demand: AnyDemand, epsilon: float, delta: float, queries: int, scale: float
) -> float:
    """Return the scale at which pure releases add up to epsilon, if that is private.

    For one release, or few, basic composition is exact, where calibration stops a
    little before.
    """
    if not isinstance(demand, Demand) or len(demand.parts) != 1:
        return scale
    if not isinstance(demand.parts[0], PurePart) or demand.needs_delta0:
        return scale
    each = epsilon / (queries * demand.uses)
    found = 1.0 / unsampled_epsilon(each, demand.sampling_rate)
    events = demand.events(found, 0.0)
    fits = is_affordable(events, epsilon=epsilon, delta=delta, queries=queries)
    return found if fits else scale


def _require_second_opinion(
    events: tuple[Event, ...], delta: float, queries: int
) -> None:
    sampled = [
        event
        for event in events
        if isinstance(event, GaussianEvent) and event.sampling_rate < 1
    ]
    if not sampled:
        return
    check = accounting.cross_check(repeat(events, queries), delta)
    if not check.agrees:
        raise PlanMismatchError(
            f"Two independent accountants disagree on this plan: {check}. Nothing is "
            "released on a figure that is in doubt; change the sampling rate, the "
            "noise or the number of queries."
        )


def _cost(events: tuple[Event, ...], delta: float, queries: int) -> float:
    try:
        return accounting.spent(events, queries, delta)
    except ParameterError as error:
        raise PlanMismatchError(f"No plan adds up so many releases: {error}") from None


def is_affordable(
    events: tuple[Event, ...], *, epsilon: float, delta: float, queries: int
) -> bool:
    """Return whether `queries` such releases stay within (epsilon, delta)."""
    cost = _cost(events, delta, queries)
    return math.isfinite(cost) and cost <= epsilon
