"""What one release may spend in an account without a plan.

A filter adds up whatever was charged, so that parsers with different noise share one
account. A parser that leaves its noise open gets one query's share: 1 / `queries` of
the budget.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.accounting import BUDGET_UNITS, Event, PrivacyFilter
from langchain_dpicl.accounting.parts import GaussianPart
from langchain_dpicl.accounting.template import EventsAt, EventTemplate, Template
from langchain_dpicl.budget.charge import require_template
from langchain_dpicl.common.parameters import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError

_HALVINGS = 60
_BELOW = 1.0 - 1e-9
"""Keeps a share's delta0 off the next step, whatever its rounding."""


@functools.lru_cache(maxsize=1024)
def price_release(
    template: Template[Any], budget: PrivacyFilter, queries: int | None
) -> tuple[Event, ...]:
    """Return what one release is charged in an account without a plan.

    What the user fixed is taken as it is. What is left open gets the least noise with
    which `queries` such releases use up the budget (`template.share` of one of them).

    Args:
        template: The shape of the release, or of several in a bundle: each branch of a
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
        >>> from langchain_dpicl.mechanisms import vote_template
        >>> gdp = PrivacyFilter("gdp", 8.0, 1e-6)
        >>> round(price_release(vote_template("vote"), gdp, 20)[0].noise_multiplier, 2)
        2.99
    """
    require_template(template)
    if not template.is_fixed and queries is None:
        raise InvalidParameterError(
            f"The account has no plan, and this {template.mechanism} release leaves "
            f"its noise open. Say how much there is ({_terms_of(template)}), or give "
            "the budget queries=: how many such releases it should last for."
        )
    share = int(BUDGET_UNITS * template.share) // (queries or 1)
    return template.filled(_Share(budget, share))


@dataclass(frozen=True)
class _Share:
    """The rule by which a filter sets noise: the least that one query's share affords.

    Attributes:
        budget: The filter.
        units: The share, in `BUDGET_UNITS`.
    """

    budget: PrivacyFilter
    units: int

    def delta0(self, template: EventTemplate[Any], sharing: int) -> float:
        if template.delta0 is not None:
            return template.delta0
        total = self.budget.delta0_share * self.budget.delta
        share = min(self.units // sharing, BUDGET_UNITS) / BUDGET_UNITS
        # A failure is charged as sampling_rate * delta0.
        delta0 = total * share * _BELOW / template.sampling_rate / template.uses
        if delta0 <= 0:
            raise PlanMismatchError(
                f"A {template.mechanism} release needs a delta0, and the account sets "
                "no part of delta aside for it."
            )
        return min(delta0, 0.5)

    def events(self, template: Template[Any], events_at: EventsAt) -> tuple[Event, ...]:
        try:
            if template.is_fixed:
                events = events_at(1.0)
                self.budget.cost(events)
                return events
            return events_at(_least_noise(events_at, self.budget, self.units))
        except InvalidParameterError as error:
            raise PlanMismatchError(
                f"An account by {self.budget.method} can't pay for a "
                f"{template.mechanism} release: {error}"
            ) from None


def _terms_of(template: Template[Any]) -> str:
    """Return the arguments that fix a release's noise."""
    alone: Any = getattr(template, "templates", (template,))
    names = {
        "noise_multiplier=" if isinstance(part, GaussianPart) else "epsilon="
        for one in alone
        for part in one.parts
    }
    failing = ["delta0="] if any(one.needs_delta0 for one in alone) else []
    return ", ".join([*sorted(names, reverse=True), *failing])


def _least_noise(events_at: EventsAt, budget: PrivacyFilter, share: int) -> float:
    """Return the least scale whose cost is within the share, by halving."""

    def fits(log_scale: float) -> bool:
        return budget.cost(events_at(math.exp(log_scale))).loss <= share

    low, high = math.log(MIN_NOISE_MULTIPLIER), math.log(MAX_NOISE_MULTIPLIER * _BELOW)
    if not fits(high):
        raise InvalidParameterError(
            "not even the largest noise is within one query's share. Lower the number "
            "of queries or raise epsilon."
        )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return math.exp(high)
