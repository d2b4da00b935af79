"""What one release may spend in an account without a plan.

A filter adds up whatever was charged, so that parsers with different noise share one
account. A parser that leaves its noise open gets one query's share: 1 / `queries` of
the budget.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from langchain_dpicl.accounting import STEPS, Event, PrivacyFilter
from langchain_dpicl.budget.bundle import AnyDemand, require_demand
from langchain_dpicl.budget.demand import Demand, GaussianPart
from langchain_dpicl.exceptions import InvalidParameterError, PlanMismatchError
from langchain_dpicl.parameters import (
    MAX_NOISE_MULTIPLIER,
    MIN_NOISE_MULTIPLIER,
    ParameterError,
)

_HALVINGS = 60
_BELOW = 1.0 - 1e-9
"""Keeps a share's delta0 off the next step, whatever its rounding."""


@functools.lru_cache(maxsize=1024)
def price_release(
    demand: AnyDemand, budget: PrivacyFilter, queries: int | None
) -> tuple[Event, ...]:
    """Return what one release is charged in an account without a plan.

    What the user fixed is taken as it is. What is left open gets the least noise with
    which `queries` such releases use up the budget (`demand.share` of one of them).

    Args:
        demand: The shape of the release, or of several in a bundle: each branch of a
            disjoint one gets the least noise by itself.
        budget: The account's filter.
        queries: How many equal releases the account should last for; None if
            everything is fixed.

    Returns:
        The events of one release.

    Privacy:
        The noise depends on public numbers alone, and a filter allows it to depend on
        anything that was released: see `PrivacyFilter`.

    Raises:
        InvalidParameterError: If noise is left open and `queries` is None.
        PlanMismatchError: If the filter can't add up such events, or no noise is
            enough.

    Example:
        >>> from langchain_dpicl.budget import Demand, GaussianPart
        >>> gdp = PrivacyFilter("gdp", 8.0, 1e-6)
        >>> vote = Demand("vote", (GaussianPart(),))
        >>> round(price_release(vote, gdp, 20)[0].noise_multiplier, 2)
        2.99
    """
    require_demand(demand)
    if not demand.is_fixed and queries is None:
        raise InvalidParameterError(
            f"The account has no plan, and this {demand.mechanism} release leaves its "
            f"noise open. Say how much there is ({_terms_of(demand)}), or give the "
            "budget queries=: how many such releases it should last for."
        )
    events_at: Callable[[float], tuple[Event, ...]]
    if isinstance(demand, Demand):
        share = int(STEPS * demand.share) // (queries or 1)
        delta0 = _delta0(demand, budget, share)
        events_at = functools.partial(demand.events, delta0=delta0)
    elif demand.disjoint:
        return demand.parallel(
            price_release(one, budget, queries) for one in demand.demands
        )
    else:
        share = STEPS // (queries or 1)
        delta0s = tuple(
            _delta0(one, budget, share // max(demand.n_failing, 1))
            for one in demand.demands
        )
        events_at = functools.partial(demand.in_turn, delta0s=delta0s)
    try:
        if demand.is_fixed:
            events = events_at(1.0)
            budget.cost(events)
            return events
        return events_at(_least_noise(events_at, budget, share))
    except ParameterError as error:
        raise PlanMismatchError(
            f"An account by {budget.method} can't pay for a {demand.mechanism} "
            f"release: {error}"
        ) from None


def _terms_of(demand: AnyDemand) -> str:
    """Return the arguments that fix a release's noise."""
    alone = [demand] if isinstance(demand, Demand) else list(demand.demands)
    parts = [part for one in alone for part in one.parts]
    names = []
    if any(isinstance(part, GaussianPart) for part in parts):
        names.append("noise_multiplier=")
    if not all(isinstance(part, GaussianPart) for part in parts):
        names.append("epsilon=")
    if any(one.needs_delta0 for one in alone):
        names.append("delta0=")
    return ", ".join(names)


def _delta0(demand: Demand, budget: PrivacyFilter, share: int) -> float:
    if not demand.needs_delta0:
        return 0.0
    if demand.delta0 is not None:
        return demand.delta0
    total = budget.delta0_share * budget.delta
    # A failure is charged as sampling_rate * delta0.
    delta0 = total * min(share, STEPS) / STEPS * _BELOW / demand.sampling_rate
    delta0 /= demand.uses
    if delta0 <= 0:
        raise PlanMismatchError(
            f"A {demand.mechanism} release needs a delta0, and the account sets no "
            "part of delta aside for it."
        )
    return min(delta0, 0.5)


def _least_noise(
    events_at: Callable[[float], tuple[Event, ...]], budget: PrivacyFilter, share: int
) -> float:
    """Return the least scale whose cost is within the share, by halving."""

    def fits(log_scale: float) -> bool:
        return budget.cost(events_at(math.exp(log_scale))).loss <= share

    low, high = math.log(MIN_NOISE_MULTIPLIER), math.log(MAX_NOISE_MULTIPLIER * _BELOW)
    if not fits(high):
        raise ParameterError(
            "not even the largest noise is within one query's share. Lower the number "
            "of queries or raise epsilon."
        )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return math.exp(high)
