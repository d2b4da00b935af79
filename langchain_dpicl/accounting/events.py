"""Privacy events: what a release did, as mathematics.

An event states a mechanism so completely that an accountant can be written from
the docstring alone. It says nothing about data, model or code. The ledger stores
events, never epsilons, so that a better accountant can be used on an old account.

Compatibility promise, from the first published version on:
    * A class of this module, or one of its fields, is never removed or renamed, and
      `event_to_dict` (`stored`) writes a form that every later version reads back.
    * The meaning of an existing event never changes; another mechanism gets another
      class.
    * New fields of an existing class are optional, and their default means what
      the class meant before.
    * Whoever accounts for events refuses a class that it does not know.

All events of one list refer to one data set and one privacy unit, neighbors being
two data sets of which one has one unit more (add/remove). Sensitivities, and with
them the `Relation` of the slots, are already inside: a noise multiplier is noise
divided by sensitivity.

A `Parallel` holds other events, one list for each class of units; all others are
*plain*. What it costs is in `accounting.parallel`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

# Largest count of one event; float arithmetic on counts stays exact below it.
MAX_COUNT = 10**12
MAX_BRANCHES = 10_000  # Most classes of a `Parallel`.
MAX_NAME = 200  # Most characters of a partition's name.


def _count(value: Any) -> int:
    number = parameters.count(value, "count")
    if number > MAX_COUNT:
        raise InvalidParameterError(f"count must be at most {MAX_COUNT}, not {number}.")
    return number


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A Gaussian release, possibly on a Poisson sample, `count` times.

    One use: each unit enters the sample independently with probability q =
    `sampling_rate` (q = 1: all of them, no sampling), with fresh randomness that
    nobody sees. A function f of the sample with L2 sensitivity D under adding or
    removing one unit is released as f + N(0, (z D)^2 I), z = `noise_multiplier`.

    The worst pair of output distributions, in both orders, is N(0, z^2) against
    (1 - q) N(0, z^2) + q N(1, z^2) (Mironov, Talwar, Zhang 2019; Zhu, Dong, Wang
    2022). Uses may be chosen adaptively as long as z and q do not depend on answers.
    A sample of fixed size is *not* this event.

    Example:
        >>> Gaussian(2.0, sampling_rate=0.01, count=100)
        Gaussian(noise_multiplier=2.0, sampling_rate=0.01, count=100)
    """

    kind: ClassVar[str] = "gaussian"

    noise_multiplier: float
    """z: standard deviation of the noise divided by the L2 sensitivity; above 0."""

    sampling_rate: float = 1.0
    """q: probability of each unit to be in the sample; above 0, at most 1."""

    count: int = 1
    """Number of uses."""

    def __post_init__(self) -> None:
        z = parameters.positive("noise_multiplier", self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", z)
        q = parameters.sampling_rate(self.sampling_rate)
        object.__setattr__(self, "sampling_rate", q)
        object.__setattr__(self, "count", _count(self.count))


@dataclasses.dataclass(frozen=True)
class Exponential:
    """An exponential mechanism, `count` times.

    One use: an outcome s is drawn with probability proportional to
    exp(epsilon * u(s) / (2 D)), where one unit changes each u(s) by at most D
    (Gumbel noise of scale 2 D / epsilon on every u(s) and taking the largest is the
    same). The privacy loss stays in an interval of length epsilon ("bounded range").

    What follows from it: epsilon-DP, and rho-zCDP with rho = epsilon^2 / 8 (Cesar,
    Rogers 2021, Lemma 3.4; Durfee, Rogers 2019), at every Renyi order, and so also
    when uses are chosen adaptively.

    Example:
        >>> Exponential(0.1, count=1000).count
        1000
    """

    kind: ClassVar[str] = "exponential"

    epsilon: float
    """Parameter of one use; above 0."""

    count: int = 1
    """Number of uses."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", parameters.epsilon(self.epsilon))
        object.__setattr__(self, "count", _count(self.count))


@dataclasses.dataclass(frozen=True)
class Pure:
    """Any pure epsilon-DP mechanism, `count` times.

    One use: P(S) <= exp(epsilon) * Q(S) for every set S of outcomes and both orders
    of two neighbors. Nothing else is known of it (permute-and-flip, Laplace noise, an
    amplified pure mechanism). Randomized response on one bit, which answers truly with
    probability 1 / (1 + exp(-epsilon)), is the worst case of all such mechanisms
    (Kairouz, Oh, Viswanath 2015, Theorem 3.3).

    Example:
        >>> Pure(0.5)
        Pure(epsilon=0.5, count=1)
    """

    kind: ClassVar[str] = "pure"

    epsilon: float
    """Privacy loss bound of one use; above 0."""

    count: int = 1
    """Number of uses."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", parameters.epsilon(self.epsilon))
        object.__setattr__(self, "count", _count(self.count))


@dataclasses.dataclass(frozen=True)
class ZCDPEvent:
    """A mechanism of which only its zCDP bound is known, `count` times.

    One use: the Renyi divergence of order a between the outputs of two neighbors, in
    both orders, is at most rho * a for every a > 1 (Bun, Steinke 2016). Neither a
    bound on the loss itself nor a Gaussian trade-off curve follows from it.

    Example:
        >>> ZCDPEvent(0.125)
        ZCDPEvent(rho=0.125, count=1)
    """

    kind: ClassVar[str] = "zcdp"

    rho: float
    """zCDP parameter of one use; above 0."""

    count: int = 1
    """Number of uses."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", parameters.positive("rho", self.rho))
        object.__setattr__(self, "count", _count(self.count))


@dataclasses.dataclass(frozen=True)
class Failure:
    """An additive failure probability, `count` times.

    One use: with probability at most `delta0` the release that this event stands
    beside does not keep what its own event promises (propose-test-release that
    passes by chance, a threshold that lets a single unit's word through, the total
    variation error of a sampler). `count` uses add count * delta0 to the total
    failure probability, whatever else is composed.

    For a release on a Poisson sample of rate q give q * delta0: the unit has to be
    in the sample for the failure to matter. That covers both orders of the neighbors.
    Let the release with the unit, A, and without, B, have P(S) - e^eps Q(S) <= delta0 +
    (1 - delta0) D(eps) for every real eps, both ways, D being the curve of the event
    beside it and D_q the same with sampling, in the same order. With r = e^eps:

    * (1-q) B + q A against B: this is q times the curve of A against B at the eps' with
      e^eps' = (r - 1 + q) / q (no more than 1 - r if that is not above 0), so at most
      q delta0 + (1 - delta0) D_q(eps).
    * B against (1-q) B + q A: it is c = 1 - (1-q) r times the curve of B against A at
      the eps' with e^eps' = q r / c (and 0 if c <= 0), so at most c delta0 + (1 -
      delta0) D_q(eps). For eps >= 0, c <= q. For eps < 0 what c is above q, (1-q) (1 -
      r), is at most (1-q) D_q(eps), as no curve is below 1 - r.

    Both are at most q delta0 + (1 - q delta0) D_q(eps).

    Example:
        >>> Failure(1e-9, count=20)
        Failure(delta0=1e-09, count=20)
    """

    kind: ClassVar[str] = "delta"

    delta0: float
    """Failure probability of one use; from 0 to 1."""

    count: int = 1
    """Number of uses."""

    def __post_init__(self) -> None:
        number = parameters.finite("delta0", self.delta0)
        if not 0 <= number <= 1:
            raise InvalidParameterError(f"delta0 must be from 0 to 1, not {number:g}.")
        object.__setattr__(self, "delta0", number)
        object.__setattr__(self, "count", _count(self.count))


PlainEvent: TypeAlias = Gaussian | Exponential | Pure | ZCDPEvent | Failure
"""What every unit takes part in alike, or may."""

PLAIN_TYPES = (
    Gaussian,
    Exponential,
    Pure,
    ZCDPEvent,
    Failure,
)


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Releases from disjoint classes of units, `count` times.

    One use: a fixed public rule puts each unit into one class at most, by that unit's
    own records alone. Class i costs the events `branches[i]`, and the records of a
    unit take part in its own class's branch only. The branches may be released in any
    order and interleaved, and what is done in one may depend on what was released in
    all of them, as long as no branch's events do.

    All uses of equal events that are composed have one and the same rule: a unit stays
    in its class. Where that can't be promised the events need `partition`s of
    different names. Between events that differ nothing is assumed: a unit may be in
    any class of each.

    Example:
        >>> labels = ((Gaussian(1.4, 0.1, 15),), (Gaussian(3.0, 0.9, 15),))
        >>> len(Parallel(labels).branches)
        2
    """

    kind: ClassVar[str] = "parallel"

    branches: tuple[tuple[PlainEvent, ...], ...]
    """The events of each class, in a public order; at least one class, at least one
    event each, and no parallel event among them."""

    count: int = 1
    """Number of uses."""

    partition: str = ""
    """Public name of the rule; only equal names may mean the same rule."""

    def __post_init__(self) -> None:
        branches = _branches(self.branches)
        object.__setattr__(self, "branches", branches)
        object.__setattr__(self, "count", _count(self.count))
        require_partition(self.partition)


def require_partition(name: object) -> None:
    """Refuse what can't name a partition."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidParameterError(
            f"partition must be a printable name of at most {MAX_NAME} characters."
        )


def _branches(branches: Any) -> tuple[tuple[PlainEvent, ...], ...]:
    if not isinstance(branches, (list, tuple)):
        raise InvalidParameterError("branches must be a list of lists of events.")
    if not 0 < len(branches) <= MAX_BRANCHES:
        raise InvalidParameterError(
            f"branches must hold 1 to {MAX_BRANCHES} classes, not {len(branches)}."
        )
    for branch in branches:
        if not isinstance(branch, (list, tuple)) or not branch:
            raise InvalidParameterError(
                "Each of the branches must be a list of events."
            )
        for event in branch:
            if not isinstance(event, PLAIN_TYPES):
                raise InvalidParameterError(
                    f"A branch can't hold a {type(event).__name__}, only plain events."
                )
    return tuple(tuple(branch) for branch in branches)


Event: TypeAlias = PlainEvent | Parallel
"""Everything that the accountants of this package know."""

EVENT_TYPES = (*PLAIN_TYPES, Parallel)

_E = TypeVar("_E", bound=Event)


def _order(event: Event) -> tuple[Any, ...]:
    if isinstance(event, Parallel):
        inside = tuple(tuple(map(_order, branch)) for branch in event.branches)
        return event.kind, inside, event.partition, event.count
    return event.kind, dataclasses.astuple(event)


def _with_count(event: _E, count: int) -> _E:
    return event if event.count == count else dataclasses.replace(event, count=count)


def _canonical(event: _E) -> _E:
    """Return an event with its branches merged, their order kept."""
    if not isinstance(event, Parallel):
        return event
    # A branch that costs nothing keeps an event, so that its class stays.
    branches = tuple(merge(branch) or branch[:1] for branch in event.branches)
    return cast("_E", dataclasses.replace(event, branches=branches))


def merge(events: Iterable[_E]) -> tuple[_E, ...]:
    """Return equal events as one with their counts added, in a canonical order.

    Composition does not depend on the order of the events, so two lists that merge
    to the same tuple have the same privacy loss.

    Example:
        >>> merge([Pure(0.5), Failure(0.0), Pure(0.5, count=2)])
        (Pure(epsilon=0.5, count=3),)
    """
    counts: dict[_E, int] = {}
    for event in events:
        if isinstance(event, Failure) and event.delta0 == 0:
            continue
        single = _with_count(_canonical(event), 1)
        counts[single] = counts.get(single, 0) + event.count
    order = sorted(counts, key=_order) if len(counts) > 1 else counts
    return tuple(_with_count(event, counts[event]) for event in order)


def repeat(events: Iterable[_E], uses: int) -> tuple[_E, ...]:
    """Return the events of `uses` releases that each cost `events`.

    Example:
        >>> repeat([Pure(0.5), Failure(1e-9)], 20)
        (Failure(delta0=1e-09, count=20), Pure(epsilon=0.5, count=20))
    """
    uses = parameters.count(uses, "uses")
    return tuple(_with_count(event, event.count * uses) for event in merge(events))


def total_delta0(events: Iterable[Event]) -> float:
    """Return the failure probabilities of all `Failure`s together, rounded up.

    Of a `Parallel` it is the branch with the largest.

    Example:
        >>> total_delta0([Failure(0.25, count=2), Pure(1.0)])
        0.5000000000000002
    """
    total = math.fsum(map(_failure, events))
    if total <= 0:
        return 0.0
    # Two steps: the products together may be rounded off by one, their sum by a half.
    return math.nextafter(math.nextafter(total, math.inf), math.inf)


def _failure(event: Event) -> float:
    if isinstance(event, Parallel):
        return event.count * max(map(total_delta0, event.branches))
    return event.delta0 * event.count if isinstance(event, Failure) else 0.0
