"""Privacy events: what a release did, as mathematics; and `Charge`, with holes in it.

An event holds the parameters of the mechanism itself, before sampling, the rate of the
Poisson sample of units that the mechanism saw, and how often it was used. The
accountant amplifies. A mechanism takes the event that was paid, so its noise cannot
differ from the charge. An accountant can be written from these docstrings alone. The
ledger stores events, never epsilons, so that a better accountant can read an old book.

The contract, which later versions keep:
    * No class and no field is removed or renamed, and no meaning changes. Another
      mechanism gets another class.
    * A new field is optional, and its default means what the class meant before.
    * An accountant refuses an event that it does not know.
    * Neighbors are two data sets, one of which has one unit more. Sensitivities are
      inside: a noise multiplier is noise divided by sensitivity.
    * A rate below 1 is a Poisson sample of units with fresh secret coins for every use.
      A sample of fixed size is no such event.
    * The JSON of an event is `event.model_dump(mode="json")`; `read_events` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator
from typing_extensions import override

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Public, validated

MAX_COUNT = 10**12
"""Largest count of one event: arithmetic of doubles on counts is exact below it."""


def _plain(value: Any) -> Any:
    """Return Python's own number for NumPy's and others'; the rest as it is."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


_Number = Annotated[float, BeforeValidator(_plain)]
Positive = Annotated[_Number, Field(gt=0, allow_inf_nan=False)]
Noise = Annotated[_Number, Field(ge=1e-6, le=1e6)]
Probability = Annotated[_Number, Field(ge=0, le=1)]
Rate = Annotated[_Number, Field(gt=0, le=1)]
Count = Annotated[int, BeforeValidator(_plain), Field(ge=1, le=MAX_COUNT)]


class _Event(Public):
    sampling_rate: Rate = 1.0
    """q: probability of each unit to be in the sample; 1 means no sampling."""

    count: Count = 1
    """Number of uses."""

    @override
    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        first = HOLES[str(vars(self)["kind"])]
        yield first, vars(self)[first]
        if self.sampling_rate != 1:
            yield "sampling_rate", self.sampling_rate
        if self.count != 1:
            yield "count", self.count


class Gaussian(_Event):
    """A vector of L2 sensitivity D is released plus N(0, (z D)^2) on each coordinate.

    With sampling the worst pair of output laws, in both orders, is N(0, z^2) against
    (1 - q) N(0, z^2) + q N(1, z^2) (Mironov, Talwar, Zhang 2019; Zhu, Dong, Wang 2022).
    Uses may be chosen adaptively as long as z and q do not depend on answers.

    Example:
        >>> Gaussian(noise_multiplier=2.0, sampling_rate=0.01, count=100).count
        100
    """

    kind: Literal["gaussian"] = "gaussian"
    noise_multiplier: Noise | None
    """z, from 1e-6 to 1e6; None leaves it to the account."""


class Exponential(_Event):
    """An outcome is drawn with probability proportional to exp(epsilon u / (2 D)).

    One unit changes each utility u by at most D. The loss log(P / Q) stays in an
    interval of length epsilon, its *bounded range*, so the Renyi divergence of order a
    is at most a epsilon^2 / 8 (Cesar, Rogers 2021; Durfee, Rogers 2019). On a sample
    the range is log(1 + q (e^epsilon - 1)), in both orders of the neighbors, for any
    fixed coins of the others: the ratio is 1 - q + q e^t at the top and 1 - q + q
    e^(t - epsilon) at the bottom, and widest at t = epsilon. The bound on the
    divergence then holds on the coins' average, by joint convexity.

    Example:
        >>> Exponential(epsilon=0.1, count=1000).epsilon
        0.1
    """

    kind: Literal["exponential"] = "exponential"
    epsilon: Positive | None
    """Parameter of one use; None leaves it to the account."""


class Pure(_Event):
    """Any mechanism with P(S) <= e^epsilon Q(S), both ways; nothing else is known.

    Randomized response on one bit, true with probability 1 / (1 + e^-epsilon), is the
    worst of them (Kairouz, Oh, Viswanath 2015, Theorem 3.3). On a sample epsilon is
    log(1 + q (e^epsilon - 1)).

    Example:
        >>> Pure(epsilon=0.5).sampling_rate
        1.0
    """

    kind: Literal["pure"] = "pure"
    epsilon: Positive | None
    """Loss of one use; None leaves it to the account."""


class Failure(_Event):
    """With probability delta0 the release beside it does not keep its event's promise.

    The release is (1 - delta0) A + delta0 F with the unit, and (1 - delta0) B + delta0
    G without, with A and B under the event's curve at every real epsilon. On a sample
    of rate q both worlds fail with q delta0: take q delta0 F out of the one, q delta0 G
    out of the other. What is left is w G + (1 - w) ((1 - q) B + q A) against w G + (1 -
    w) B, w = (1 - q) delta0 / (1 - q delta0). By joint convexity that is under the
    sampled curve in both orders, as no curve is below 1 - e^epsilon. A bound at a
    single epsilon is no such split. Failures of all uses add up, whatever else is
    composed.

    Example:
        >>> Failure(delta0=1e-9, count=20).delta0
        1e-09
    """

    kind: Literal["failure"] = "failure"
    delta0: Probability | None
    """Probability of one use, before sampling; None leaves it to the account."""


PLAIN_TYPES = (Gaussian, Exponential, Pure, Failure)
Plain: TypeAlias = Annotated[
    Gaussian | Exponential | Pure | Failure, Field(discriminator="kind")
]
Branch: TypeAlias = Annotated[tuple[Plain, ...], Field(min_length=1, strict=False)]


class Parallel(Public):
    """Releases from disjoint classes of units, `count` times.

    A fixed public rule puts each unit into one class at most, by that unit's own
    records. A unit takes part in the branch of its class only. The branches may be
    interleaved, and what is done in one may depend on what was released in all of them,
    as long as no branch's events do.

    Uses of equal events have one rule: a unit stays in its class. Where that can't be
    promised the events need partitions of different names. Between events that differ
    nothing is assumed: a unit may be in any class of each.

    Example:
        >>> a, b = Gaussian(noise_multiplier=2), Gaussian(noise_multiplier=3)
        >>> len(Parallel(branches=((a,), (b,))).branches)
        2
    """

    kind: Literal["parallel"] = "parallel"
    branches: Annotated[
        tuple[Branch, ...], Field(min_length=1, max_length=10_000, strict=False)
    ]
    """The events of each class, in a public order."""

    count: Count = 1
    """Number of uses."""

    partition: Annotated[str, Field(max_length=200)] = ""
    """Public name of the rule; only equal names may mean the same rule."""


Event: TypeAlias = Annotated[
    Gaussian | Exponential | Pure | Failure | Parallel, Field(discriminator="kind")
]
"""Everything that the accountants of this package know."""

EVENT_TYPES = (*PLAIN_TYPES, Parallel)
HOLES = {
    "gaussian": "noise_multiplier",
    "exponential": "epsilon",
    "pure": "epsilon",
    "failure": "delta0",
}
"""The field of each kind that the account may set."""

_EVENTS = TypeAdapter(Annotated[tuple[Event, ...], Field(strict=False)])


def read_events(dumps: Any) -> tuple[Event, ...]:
    """Return the events of a list of `model_dump(mode="json")`.

    Example:
        >>> read_events([{"kind": "pure", "epsilon": 0.5}])[0].epsilon
        0.5
    """
    return validated("An event", (), lambda: _EVENTS.validate_python(dumps))


def is_open(event: Event) -> bool:
    """Return whether the account sets a parameter of the event."""
    if isinstance(event, Parallel):
        return any(is_open(plain) for branch in event.branches for plain in branch)
    return getattr(event, HOLES[event.kind]) is None


def merge(events: Iterable[Event], uses: int = 1) -> tuple[Event, ...]:
    """Return the events of `uses` releases; equal ones as one, in a canonical order.

    Composition does not depend on the order of the events: two lists that merge to the
    same events have the same loss. A failure of probability 0 is left out.

    Example:
        >>> merge([Pure(epsilon=0.5), Pure(epsilon=0.5, count=2)], uses=10)[0].count
        30
    """
    counts: dict[Event, int] = {}
    for event in events:
        if not isinstance(event, EVENT_TYPES):
            raise InvalidParameterError(
                f"An account adds up events, and {type(event).__name__} is none."
            )
        if is_open(event):
            raise InvalidParameterError(
                f"A {event.kind} event without its parameter can't be added up."
            )
        if isinstance(event, Failure) and event.delta0 == 0:
            continue
        single: Event = event.model_copy(update={"count": 1})
        if isinstance(single, Parallel):
            # A branch that costs nothing keeps an event, so that its class stays.
            branches = tuple(merge(b) or b[:1] for b in single.branches)
            single = single.model_copy(update={"branches": branches})
        counts[single] = counts.get(single, 0) + event.count * uses
    merged = [e.model_copy(update={"count": n}) for e, n in counts.items()]
    return tuple(sorted(merged, key=lambda event: event.model_dump_json()))


def failure_of(events: Iterable[Event]) -> Fraction:
    """Return the failure probability of closed events together, exactly.

    Of a `Parallel` it is the branch with the largest.
    """
    total = Fraction(0)
    for event in events:
        if isinstance(event, Parallel):
            total += event.count * max(map(failure_of, event.branches))
        elif isinstance(event, Failure) and event.delta0:
            rate = Fraction(event.sampling_rate)
            total += Fraction(event.delta0) * rate * event.count
    return total


class Charge(Public):
    """What a release costs, with holes that the account fills.

    Open losses follow one scale t. A part with the share s of the loss gets the Renyi
    divergence of s a / (2 t^2) at order a: noise multiplier t / sqrt(s), exponential
    epsilon 2 sqrt(s) / t, pure epsilon sqrt(s) / t.

    A `Parallel` with open branches stands alone: the account fills each branch by
    itself.

    Example:
        >>> parts = (Gaussian(noise_multiplier=None), Failure(delta0=None))
        >>> ptr = Charge(name="ksa/ptr", parts=parts)
        >>> [event.kind for event in ptr.at(9.5, delta0=1e-9)]
        ['gaussian', 'failure']
    """

    name: str
    """Public name of the release, for the record."""

    parts: Annotated[tuple[Event, ...], Field(min_length=1, strict=False)]
    """The events, in the order in which the mechanism takes them."""

    shares: Annotated[tuple[Rate, ...], Field(strict=False)] = ()
    """Share of each part's loss, above 0 and at most 1, in the order of `parts`; none
    means equal ones."""

    @model_validator(mode="after")
    def _sound(self) -> Charge:
        disjoint = [part for part in self.parts if isinstance(part, Parallel)]
        plain = tuple(part for part in self.parts if isinstance(part, PLAIN_TYPES))
        for events in (plain, *(b for part in disjoint for b in part.branches)):
            losses = [event for event in events if not isinstance(event, Failure)]
            if len({(event.sampling_rate, event.count) for event in events}) > 1:
                raise ValueError("The parts share one sampling rate and one count")
            if len(losses) > 1 and losses[0].sampling_rate < 1:
                raise ValueError(
                    "Two steps on one sample are not two sampled steps: with sampled "
                    "groups give a single k instead of a range"
                )
        if len(self.parts) > 1 and any(map(is_open, disjoint)):
            raise ValueError("Disjoint classes that leave noise open are charged alone")
        if self.shares and len(self.shares) != len(self.parts):
            raise ValueError("Each part has a share, or none has")
        return self

    @property
    def is_open(self) -> bool:
        """Whether something is left to the account."""
        return any(map(is_open, self.parts))

    def at(self, scale: float, delta0: float = 0.0) -> tuple[Event, ...]:
        """Return the events at a scale; each open failure is `delta0`."""
        shares = self.shares or (1.0,) * len(self.parts)
        filled = zip(self.parts, shares, strict=True)
        return tuple(_fill(part, share, scale, delta0) for part, share in filled)

    def fits(self, events: Iterable[Event]) -> bool:
        """Return whether the events are this charge with its holes filled."""
        return _fit(self.parts, tuple(events))


def _fill(part: Event, share: float, scale: float, delta0: float) -> Event:
    if not is_open(part):
        return part
    if isinstance(part, Parallel):
        branches = tuple(
            tuple(_fill(event, 1.0, scale, delta0) for event in branch)
            for branch in part.branches
        )
        return part.model_copy(update={"branches": branches})
    rate = math.sqrt(share) / scale
    values = {"gaussian": 1 / rate, "exponential": 2 * rate, "pure": rate}
    value = values.get(part.kind, delta0)
    return part.model_copy(update={HOLES[part.kind]: value})


def _fit(parts: tuple[Event, ...], events: tuple[Event, ...]) -> bool:
    """Return whether the events are the parts with their holes filled, in order."""
    pairs = zip(parts, events, strict=False)
    return len(parts) == len(events) and all(_fits(*pair) for pair in pairs)


def _fits(part: Event, event: Event) -> bool:
    if type(part) is not type(event) or is_open(event):
        return False
    if isinstance(part, Parallel) and isinstance(event, Parallel):
        branches = event.branches
        pairs = zip(part.branches, branches, strict=False)
        same = all(_fit(*pair) for pair in pairs)
        same = same and len(part.branches) == len(branches)
        return same and part.model_copy(update={"branches": branches}) == event
    name = HOLES[part.kind]
    return part == (event.model_copy(update={name: None}) if is_open(part) else event)
