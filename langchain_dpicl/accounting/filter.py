"""A filter: a limit on events that are chosen as answers come in.

It adds up Renyi divergences at one order that is fixed at the opening, and failures
beside them. The least over orders, or over bounds, is *not* a filter, and neither is a
loss distribution.

*Proof* (Feldman, Zrnic 2021). At order a, E_Q[(P/Q)^a e^(-(a - 1) sum of R_t)] is a
supermartingale whatever rule chooses the next event by what was released: given the
transcript each round multiplies it by at most 1. With the sum held below R on every
path the whole run has a divergence of order a of at most R, both ways, which is
(epsilon, delta')-private with epsilon = R - headroom. Failures are public numbers of
each event; their sum is held below delta - delta'.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from langchain_dpicl.accounting.calibrate import by_class, scale_range
from langchain_dpicl.accounting.compose import UP, below, divergence, headroom
from langchain_dpicl.accounting.events import (
    Charge,
    Event,
    Failure,
    Gaussian,
    Parallel,
    Positive,
    failure_of,
    is_open,
    merge,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Public

UNITS = 2**31 - 1
"""Steps of a filter's limits: two costs together fit 32 bits."""

_INSIDE = 1 - 1e-9  # Keeps a share's delta0 off the next step, whatever its rounding.
_HALVINGS = 60


class Cost(NamedTuple):
    """What a release costs, or what was spent, in steps of a filter's limits."""

    loss: int
    failure: int


class Filter(Public):
    """A limit on the losses and failures of events that are chosen on the way.

    Example:
        >>> account = Filter(epsilon=3.0, delta=1e-6, order=best_order(3.0, 5e-7))
        >>> cost = account.cost([Gaussian(noise_multiplier=20.0)])
        >>> UNITS // cost.loss
        140
    """

    epsilon: Positive
    """Total privacy loss bound."""

    delta: Annotated[float, Field(gt=0, lt=1)]
    """Total failure probability."""

    order: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    """Order of the divergences, fixed at the opening; `best_order` proposes one."""

    failure_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Part of delta that pays for failures."""

    @model_validator(mode="after")
    def _usable(self) -> Filter:
        if self._delta_left <= 0 or self._limit <= 0:
            raise ValueError("At this order the conversion alone costs epsilon")
        return self

    def cost(self, events: Iterable[Event]) -> Cost:
        """Return the cost of one release, each sum rounded up.

        Costs above the limits are returned as they are. Without a failure share every
        failure costs `UNITS + 1`.
        """
        return _cost(self, merge(events))

    def fill(self, charge: Charge, uses: int) -> tuple[Event, ...]:
        """Return a charge's events: the least noise that lasts for `uses` of them.

        Of disjoint classes each gets the least noise by itself. Each open failure gets
        its part of the failures' share.

        Example:
            >>> vote = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
            >>> account = Filter(epsilon=8.0, delta=1e-6, order=4.0, failure_share=0.2)
            >>> UNITS // account.cost(account.fill(vote, 20)).loss
            20
        """
        units = UNITS // parameters.count(uses, "uses")
        return by_class(charge, lambda part: self._filled(part, units))

    def epsilon_spent(self, spent: Cost, delta: float | None = None) -> float:
        """Return an upper bound of epsilon for what was spent, at `delta`.

        `delta` is by default the filter's; there epsilon is never above the filter's
        within the limits. It is 0 for no loss, and infinite beyond the limits, and
        where failures leave nothing of delta. It is a report: the figure would hold for
        a run whose events had been fixed before. The divergence at the filter's order
        bounds those at lower orders.
        """
        if max(spent) > UNITS:
            return math.inf
        if spent[0] == 0:
            return 0.0
        failed = Fraction(self.delta) * Fraction(self.failure_share) * spent[1] / UNITS
        least = self._delta_left if delta is None else 0.0
        rest = max(least, below(Fraction(delta or self.delta) - failed))
        if rest <= 0:
            return math.inf
        x = np.append(np.geomspace(1e-9, self.order - 1, 300)[:-1], self.order - 1)
        lost = self._limit * spent[0] / UNITS * (1 + 1e-15)
        spent_at = max(0.0, float((lost - headroom(x, rest)).min()))
        return spent_at if delta is not None else min(spent_at, self.epsilon)

    @property
    def _delta_left(self) -> float:
        """What the failures leave of delta, rounded down."""
        share = Fraction(self.delta) * Fraction(self.failure_share)
        return below(Fraction(self.delta) - share)

    @property
    def _limit(self) -> float:
        """The divergence that is (epsilon, delta)-private, rounded down."""
        gain = headroom(np.array([self.order - 1]), self._delta_left)
        return self.epsilon * (1 - 1e-15) + float(gain[0])

    def _filled(self, charge: Charge, units: int) -> tuple[Event, ...]:
        """Return the events of a charge without open classes for so many units."""
        open_failures = [
            part.sampling_rate * part.count
            for part in charge.parts
            if isinstance(part, Failure) and is_open(part)
        ]
        delta0 = 0.0
        if open_failures:
            share = self.delta * self.failure_share * (units / UNITS) * _INSIDE
            delta0 = min(share / sum(open_failures), 0.5)
            if delta0 <= 0:
                raise InvalidParameterError(
                    f"A {charge.name} release may fail, and the account sets no part "
                    "of delta aside for it."
                )
        if all(isinstance(part, Failure) or not is_open(part) for part in charge.parts):
            return charge.at(1.0, delta0)

        def fits(log_scale: float) -> bool:
            return self.cost(charge.at(math.exp(log_scale), delta0)).loss <= units

        low, high = scale_range(charge)
        if not fits(high):
            raise InvalidParameterError(
                f"Not even the largest noise is within one {charge.name} release's "
                "share. Lower the number of uses or raise epsilon."
            )
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return charge.at(math.exp(high), delta0)


@functools.lru_cache(maxsize=4096)
def _cost(account: Filter, events: tuple[Event, ...]) -> Cost:
    loss, failure = _loss(account.order, events), failure_of(events)
    steps = math.ceil(loss * UNITS / Fraction(account._limit))  # noqa: SLF001
    allowed = Fraction(account.delta) * Fraction(account.failure_share)
    if not allowed:
        return Cost(steps, UNITS + 1 if failure else 0)
    return Cost(steps, math.ceil(failure * UNITS / allowed))


def _loss(order: float, events: Iterable[Event]) -> Fraction:
    """Return the divergence of events at an order, exactly or rounded up."""
    total = Fraction(0)
    for event in events:
        if isinstance(event, Parallel):
            single = max(_loss(order, branch) for branch in event.branches)
        elif isinstance(event, Gaussian) and event.sampling_rate == 1:
            z = Fraction(event.noise_multiplier or 0)
            single = Fraction(order) / (2 * z**2)
        else:
            with np.errstate(over="ignore", under="ignore"):
                value = float(divergence(event, np.array([order - 1]))[0])
            single = Fraction(value) * Fraction(UP)
        total += event.count * single
    return total


def best_order(epsilon: float, delta: float) -> float:
    """Return the order at which a Gaussian release can be repeated most often.

    It is what is expected. Other releases cost uses there, not privacy.

    Example:
        >>> round(best_order(1.0, 1e-5), 1)
        17.8
    """
    loss, gain = parameters.epsilon(epsilon), parameters.delta(delta)
    x = np.r_[np.geomspace(1e-4, 1e6, 4001), np.arange(1.0, 257.0)]
    each = divergence(Gaussian(noise_multiplier=1.0), x)
    return 1 + float(x[np.argmax((loss + headroom(x, gain)) / each)])
