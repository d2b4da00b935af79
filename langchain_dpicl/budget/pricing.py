"""What one release may spend in an account without a plan.

A filter adds up whatever was charged, so that parsers with different noise share one
account. A parser that leaves its noise open gets one query's share: 1 / `queries` of
the budget.
"""

from __future__ import annotations

import functools
import math

from langchain_dpicl.accounting import STEPS, Event, PrivacyFilter
from langchain_dpicl.budget.demand import Demand
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
    demand: Demand, budget: PrivacyFilter, queries: int | None
) -> tuple[Event, ...]:
    """Return what one release is charged in an account without a plan.

    What the user fixed is taken as it is. What is left open gets the least noise with
    which `queries` such releases use up the budget (`demand.share` of one of them).

    Args:
        demand: The shape of the release.
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
    if not demand.is_fixed and queries is None:
        raise InvalidParameterError(
            f"The account has no plan, and this {demand.mechanism} release leaves its "
            "noise open. Give the parser its noise (noise_multiplier=, epsilon= and, "
            "where it has one, delta0=), or give the budget queries=: how many such "
            "releases it should last for."
        )
    share = _share(demand, queries)
    delta0 = _delta0(demand, budget, share)
    try:
        if demand.is_fixed:
            events = demand.events(1.0, delta0)
            budget.cost(events)
            return events
        return demand.events(_least_noise(demand, budget, share), delta0)
    except ParameterError as error:
        raise PlanMismatchError(
            f"An account by {budget.method} can't pay for a {demand.mechanism} "
            f"release: {error}"
        ) from None


def _share(demand: Demand, queries: int | None) -> int:
    return int(STEPS * demand.share) // (queries or 1)


def _delta0(demand: Demand, budget: PrivacyFilter, share: int) -> float:
    if not demand.needs_delta0:
        return 0.0
    if demand.delta0 is not None:
        return demand.delta0
    total = budget.delta0_share * budget.delta
    # A failure is charged as sampling_rate * delta0.
    delta0 = total * min(share, STEPS) / STEPS * _BELOW / demand.sampling_rate
    if delta0 <= 0:
        raise PlanMismatchError(
            f"A {demand.mechanism} release needs a delta0, and the account sets no "
            "part of delta aside for it."
        )
    return min(delta0, 0.5)


def _least_noise(demand: Demand, budget: PrivacyFilter, share: int) -> float:
    """Return the least scale whose cost is within the share, by halving."""

    def fits(log_scale: float) -> bool:
        return budget.cost(demand.events(math.exp(log_scale), 0.0)).loss <= share

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
