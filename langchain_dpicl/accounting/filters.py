"""Privacy filters: how much of a budget each release costs, and when it is used up.

A *plan* fixes its events before the first release. A *filter* bounds a run whose events
are chosen as the answers come in: it admits the next events exactly while a running
sum of their costs stays within a limit that was fixed at the start.

    method   loss of an event                          limit of the sum
    zcdp     rho, as in `accounting.rho`               largest rho with epsilon(rho,
                                                       delta') <= epsilon
    gdp      1 / z^2, unsampled Gaussians only         largest mu^2 with epsilon(mu,
                                                       delta') <= epsilon
    renyi    R(a) at one order a, fixed at the start   epsilon - log(1 - 1/a)
                                                       + (log delta' + log a) / (a - 1)
    pure     epsilon of a pure mechanism               largest pure loss that is
                                                       (epsilon, delta')-private

delta' is delta without the share that is set aside for additive failures: the sum of
the `Failure`s has that share for a limit of its own.

Privacy:
    The run is (epsilon, delta)-DP as a whole, for any rule that chooses the next
    events from everything seen so far, their number included:

    * zcdp: Whitehouse, Ramdas, Rogers, Wu, "Fully-Adaptive Composition in Differential
      Privacy" (ICML 2023), for approximate zCDP; the question is that of Rogers, Roth,
      Ullman, Vadhan (2016). The conversion is Canonne, Kamath, Steinke (2020),
      Proposition 12, at its best order.
    * renyi: Feldman, Zrnic, "Individual Privacy Accounting via a Renyi Filter" (2021);
      the same conversion at the fixed order.
    * gdp: Smith, Thakurta, "Fully Adaptive Composition for Gaussian Differential
      Privacy" (2022); Koskela, Tobaben, Honkela, "Individual Privacy Accounting with
      Gaussian Differential Privacy" (2023). The conversion is exact (Balle, Wang 2018).
    * pure: Rogers, Roth, Ullman, Vadhan, "Privacy Odometers and Filters" (2016): on
      every path the losses' sum is within the limit. For a few large releases (noisy
      tables) no other filter does better; for many small ones all of them do.
    * Failures are added by a union bound, which doesn't care how they were chosen.

    A `Parallel` costs the largest loss of its branches and the largest failure
    probability of its branches. A unit takes part in one of them, whose loss at the
    filter's order is at most the largest; so what a unit has lost after any number of
    charges is at most the sum of the maxima, whatever its class in each of them (it
    may even change, and depend on what was released). The sum is fixed at the end on
    every path, as for plain events.

    The same sum may be kept for each unit by itself (an individual filter), with the
    loss of a release that the unit takes no part in being 0.

    **What is not a filter.** To compose loss distributions or whole trade-off curves of
    what was released and to stop where the curve meets (epsilon, delta) is not valid,
    nor is the smallest Renyi bound over many orders. Each path of the run would be held
    to a bound that suits this path, and a rule that picks the path by what it saw joins
    the bad events of several: each is within delta, together they aren't. A sum at
    one order has a fixed end on every path. zCDP may take its best order because its
    loss is a line, R(a) <= a rho for *every* a: one and the same order, which depends
    on (epsilon, delta') alone and not on the path, is best on all of them.

    **A filter is not an odometer.** What is promised is the total. The figure for "so
    far" (`PrivacyFilter.epsilon_spent`) is a report: no promise holds for a run that is
    stopped because that figure has a certain value.

Costs are integers, in units of limit / `BUDGET_UNITS`, every cost rounded up. Sums of
them are exact in any order, on any machine and in any database.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from langchain_dpicl.accounting import limits
from langchain_dpicl.accounting.composition import own_events
from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    PlainEvent,
    Pure,
)
from langchain_dpicl.accounting.gaussian import gaussian_epsilon
from langchain_dpicl.accounting.renyi import zcdp_epsilon
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

BUDGET_UNITS = 2**31 - 1
"""Steps of a budget: a sum of two costs within it still fits 32 bits."""

Method = Literal["zcdp", "gdp", "renyi", "pure"]
_METHODS = ("zcdp", "gdp", "renyi", "pure")


class Cost(NamedTuple):
    """What a release costs, or what was spent, in steps of an account's limit.

    Example:
        >>> Cost(loss=3, failure=0) == (3, 0)
        True
    """

    loss: int
    """Steps of the limit on the sum of losses."""

    failure: int
    """Steps of the limit on the sum of failure probabilities."""


@dataclass(frozen=True)
class PrivacyFilter:
    """A limit on the sum of the costs of events that are chosen as a run goes.

    Equal terms make equal filters. Of equal releases with limit / loss = x in exact
    arithmetic, at least the whole part of x - x^2 / BUDGET_UNITS - 1e-8 x are
    admitted. Few are lost (one at most for x below 40,000), but where x is a whole
    number above 1, or that little above one, one is: noise for n releases is right
    when their cost is at most `BUDGET_UNITS // n`.

    Attributes:
        method: `zcdp`, `gdp`, `renyi` or `pure`; see the module docstring.
        epsilon: Total privacy loss bound; above 0.
        delta: Total failure probability, strictly between 0 and 1.
        delta0_share: The part of delta that pays for `Failure`s, from 0 (none can
            be paid for) to below 1. The conversion to epsilon has the rest.
        order: For `renyi`: the order, above 1. None takes the best one for many small
            Gaussian releases; the attribute then holds it.

    Privacy: see the module docstring for theorems and their conditions. Unit and
    relation are the events': one unit added or removed.

    Raises:
        InvalidParameterError: If a parameter is out of its range, an order is given to
            another method, or nothing is left of epsilon at that order.

    Example:
        >>> account = PrivacyFilter("zcdp", epsilon=1.0, delta=1e-6)
        >>> cost = account.cost([Gaussian(100.0), Failure(1e-10)])
        >>> spent, admitted = Cost(0, 0), 0
        >>> while account.affords(spent, cost):
        ...     spent = Cost(spent.loss + cost.loss, spent.failure + cost.failure)
        ...     admitted += 1
        >>> admitted
        458
        >>> 0.9 < account.epsilon_spent(spent) <= 1.0
        True
    """

    method: Method
    epsilon: float
    delta: float
    delta0_share: float = field(default=0.5, kw_only=True)
    order: float | None = field(default=None, kw_only=True)
    budget: float = field(init=False, repr=False)
    """The limit in its own units: rho, mu, Renyi divergence at the order, epsilon."""
    failure_budget: float = field(init=False, repr=False)
    """The limit on the sum of failure probabilities."""
    delta_left: float = field(init=False, repr=False)
    """delta for the conversion: what the failures' budget leaves, rounded down."""

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise InvalidParameterError(
                f"method must be one of {', '.join(_METHODS)}, not {self.method!r:.40}."
            )
        epsilon = parameters.epsilon(self.epsilon)
        delta = parameters.delta(self.delta)
        share = parameters.finite("delta0_share", self.delta0_share)
        if not 0 <= share < 1:
            raise InvalidParameterError(
                f"delta0_share must be at least 0 and below 1, not {share:g}."
            )
        if self.order is not None and self.method != "renyi":
            raise InvalidParameterError(f"Method {self.method!r} takes no order.")
        failure = delta * share
        left = _float_below(Fraction(delta) - Fraction(failure))
        if left <= 0:
            raise InvalidParameterError(
                f"delta0_share {share} leaves nothing of delta {delta:g} for the "
                "conversion to epsilon."
            )
        order = None
        if self.method == "renyi":
            order = _usable_order(self.order, epsilon, left)
            budget = limits.renyi_budget(order, epsilon, left)
        elif self.method == "gdp":
            budget = limits.gdp_budget(epsilon, left)
        elif self.method == "pure":
            budget = limits.pure_budget(epsilon, left)
        else:
            budget = limits.zcdp_budget(epsilon, left)
        if budget < limits.LEAST_BUDGET:
            raise InvalidParameterError(
                f"epsilon {epsilon:g} and delta {delta:g} are too small for a filter."
            )
        own = {
            "epsilon": epsilon,
            "delta": delta,
            "delta0_share": share,
            "order": order,
            "budget": budget,
            "failure_budget": failure,
            "delta_left": left,
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def limit(self) -> Cost:
        """What may be spent in all."""
        return Cost(BUDGET_UNITS, BUDGET_UNITS)

    def cost(self, events: Iterable[Event]) -> Cost:
        """Return what a release costs, in steps of the limit, rounded up.

        Costs above the limit are returned as they are; they may have hundreds of
        digits. Where `delta0_share` is 0, every positive failure costs `BUDGET_UNITS +
        1`, which nothing affords.

        Args:
            events: No events cost (0, 0), any positive loss or failure at least one
                step.

        Raises:
            InvalidParameterError: If an event is unknown, or the method can't account
                for it.

        Privacy: the cost depends on the events' public parameters alone.

        Example:
            >>> account = PrivacyFilter("gdp", epsilon=1.0, delta=1e-6)
            >>> account.cost([])
            Cost(loss=0, failure=0)
            >>> account.cost([Gaussian(1e-160)]).loss > BUDGET_UNITS
            True
        """
        return _cost(self, own_events(events))

    def affords(self, spent: Cost, cost: Cost) -> bool:
        """Return whether a further cost fits beside what was spent.

        Example:
            >>> account = PrivacyFilter("gdp", epsilon=1.0, delta=1e-6)
            >>> account.affords(Cost(BUDGET_UNITS - 1, 0), Cost(1, 0))
            True
            >>> account.affords(Cost(BUDGET_UNITS, 0), Cost(1, 0))
            False
        """
        return (
            spent.loss + cost.loss <= BUDGET_UNITS
            and spent.failure + cost.failure <= BUDGET_UNITS
        )

    def epsilon_spent(self, cost: Cost) -> float:
        """Return an upper bound of epsilon for what was spent, at the full delta.

        The conversion has all of delta but the failures spent so far. It is 0 for no
        loss, never above the filter's for a cost within the limit, infinite for one
        beyond it. A cost that is no pair of integers of 0 or more is a
        `InvalidParameterError`.

        Privacy: a report, not a promise. The filter's total holds on every path; this
        figure would hold for a run whose events had been fixed before.

        Example:
            >>> account = PrivacyFilter("gdp", epsilon=1.0, delta=1e-6)
            >>> account.epsilon_spent(Cost(0, 0))
            0.0
            >>> 0.4 < account.epsilon_spent(Cost(BUDGET_UNITS // 4, 0)) < 0.5
            True
        """
        loss = parameters.count(cost[0], "cost.loss", minimum=0, unbounded=True)
        failure = parameters.count(cost[1], "cost.failure", minimum=0, unbounded=True)
        if loss > BUDGET_UNITS or failure > BUDGET_UNITS:
            return math.inf
        if loss == 0:
            return 0.0
        failed = Fraction(self.failure_budget) * failure / BUDGET_UNITS
        delta = max(self.delta_left, _float_below(Fraction(self.delta) - failed))
        used = loss / BUDGET_UNITS
        if self.method == "gdp":
            mu = self.budget * math.sqrt(used) * (1 + limits.SLACK)
            found = gaussian_epsilon(mu, delta)
        elif self.method == "pure":
            found = self.budget * used * (1 + limits.SLACK)
        elif self.order is None:
            rho = self.budget * used * (1 + limits.SLACK)
            found = zcdp_epsilon(rho, delta)
        else:
            total = self.budget * used * (1 + limits.SLACK)
            found = limits.renyi_epsilon_at(self.order, total, delta)
        # What is within the limit is within epsilon, whatever this figure rounds to.
        return min(found, self.epsilon)


@functools.lru_cache(maxsize=4096)
def _cost(account: PrivacyFilter, events: tuple[Event, ...]) -> Cost:
    loss, failure = _sums(account, own_events(events))
    budget = Fraction(account.budget)
    if account.method == "gdp":
        budget *= budget
    steps = math.ceil(loss * BUDGET_UNITS / budget)
    if not account.failure_budget:
        return Cost(steps, BUDGET_UNITS + 1 if failure else 0)
    return Cost(
        steps, math.ceil(failure * BUDGET_UNITS / Fraction(account.failure_budget))
    )


def _sums(account: PrivacyFilter, events: Iterable[Event]) -> tuple[Fraction, Fraction]:
    """Return loss and failure probability, both never below the true ones."""
    loss = failure = Fraction(0)
    for event in events:
        if isinstance(event, Parallel):
            sums = [_sums(account, branch) for branch in dict.fromkeys(event.branches)]
            # The largest of each, even if they belong to different branches.
            loss += event.count * max(branch[0] for branch in sums)
            failure += event.count * max(branch[1] for branch in sums)
        elif isinstance(event, Failure):
            failure += event.count * Fraction(event.delta0)
        else:
            loss += event.count * _loss(account, event)
    return loss, failure


def _loss(account: PrivacyFilter, event: PlainEvent) -> Fraction:
    """Return the loss of one use, never below the true one."""
    if account.order is not None:
        return limits.renyi_loss(event, account.order)
    if account.method == "zcdp":
        return limits.exact_rho(event)
    if account.method == "pure":
        if isinstance(event, Pure | Exponential):
            return Fraction(event.epsilon)
        raise InvalidParameterError(
            f"A 'pure' filter adds up pure epsilons only, not {event!r}: use the "
            "method 'zcdp', or 'renyi' for sampled Gaussian events."
        )
    if isinstance(event, Gaussian) and event.sampling_rate == 1:
        return 2 * limits.exact_rho(event)
    raise InvalidParameterError(
        f"A 'gdp' filter adds up Gaussian events without sampling only, not {event!r}: "
        "use the method 'zcdp', or 'renyi' for sampled ones."
    )


def _usable_order(order: float | None, epsilon: float, delta: float) -> float:
    default = limits.default_order(epsilon, delta)
    order = default if order is None else parameters.finite("order", order)
    if order <= 1:
        raise InvalidParameterError(f"order must be above 1, not {order:g}.")
    if limits.renyi_budget(order, epsilon, delta) <= 0:
        raise InvalidParameterError(
            f"At order {order:g} the conversion alone costs more than epsilon "
            f"{epsilon:g}. The best order for many small releases is {default!r}."
        )
    return order


def _float_below(value: Fraction) -> float:
    """Return the largest double that is not above `value`."""
    number = float(value)
    return number if number <= value else math.nextafter(number, -math.inf)
