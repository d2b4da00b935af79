"""What one release asks of the account: its events, with at most one free scale.

A parser knows the *shape* of its release (a Gaussian, an exponential mechanism that
chooses k and then a Gaussian, ...) but leaves the noise to the plan. A `Demand` is that
shape. Every part that the user did not fix follows one scale t, the noise multiplier of
the release's Gaussian; the plan finds the smallest t that the account can pay for.

Privacy:
    A part names the loss of the mechanism *before* sampling; `events` returns what is
    charged, after sampling. A Poisson-sampled Gaussian keeps its sampling rate in the
    event. A pure epsilon (and an exponential mechanism, which is one) under sampling
    rate q is charged as log(1 + q (exp(epsilon) - 1)), and a failure probability
    delta0 as q delta0 (Balle, Barthe, Gaboardi, 2018, Theorem 8). Sampling is
    amplified only for a *single* part: two mechanisms on one and the same sample are
    not two independently sampled ones, so such a demand is refused.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_dpicl import parameters
from langchain_dpicl.accounting import (
    Cost,
    DeltaEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    PlainEvent,
    PureEvent,
    sampled_epsilon,
    unsampled_epsilon,
)
from langchain_dpicl.accounting.events import MAX_COUNT
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.ledger.base import NOTHING
from langchain_dpicl.parameters import ParameterError
from langchain_dpicl.units import Collect

DELTA0_SHARE = 0.5
"""The part of delta that a plan sets aside for the releases' own delta0."""

ROUNDING = 1.0 - 1e-12
"""Undoing an amplification in floating point may overshoot by some units in the last
place; what is handed to the mechanism is rounded towards more noise."""

SELECTION_SHARE = 0.2
"""The part of a bundle's zCDP loss for choosing k; the rest is the Gaussian's."""


@dataclass(frozen=True)
class GaussianPart:
    """A Gaussian release; `noise_multiplier=None` leaves it to the plan."""

    noise_multiplier: float | None = None

    def multiplier_at(self, scale: float) -> float:
        """Return the noise multiplier at a scale."""
        return scale if self.noise_multiplier is None else self.noise_multiplier


@dataclass(frozen=True)
class ExponentialPart:
    """An exponential mechanism; `epsilon=None` leaves it to the plan.

    `ratio` is the free epsilon times the scale. An exponential mechanism is
    epsilon^2/8-zCDP and a Gaussian 1/(2 t^2)-zCDP, so a ratio of 2 makes them equal.
    """

    epsilon: float | None = None
    ratio: float = 2.0

    def epsilon_at(self, scale: float) -> float:
        """Return epsilon at a scale."""
        return self.ratio / scale if self.epsilon is None else self.epsilon


@dataclass(frozen=True)
class PurePart:
    """A pure-epsilon mechanism; `epsilon=None` leaves it to the plan."""

    epsilon: float | None = None

    def epsilon_at(self, scale: float) -> float:
        """Return epsilon at a scale."""
        return 1.0 / scale if self.epsilon is None else self.epsilon


Part = GaussianPart | ExponentialPart | PurePart

SELECTION_RATIO = 2.0 * math.sqrt(SELECTION_SHARE / (1.0 - SELECTION_SHARE))


@dataclass(frozen=True)
class Demand:
    """The shape of one release.

    Attributes:
        mechanism: The mechanism's public name, for the record.
        parts: The randomized steps, in the order in which they are taken.
        sampling_rate: Poisson sampling rate of units; 1 without sampling.
        needs_delta0: Whether the mechanism may fail with probability delta0.
        delta0: That probability, if the user fixed it; None leaves it to the plan.
        share: In an account without a plan: which part of one query's share the
            release takes where its noise is left open.
        uses: How often the release is made within one charge, each time on a fresh
            sample of its own (of few-shot generation: once a token). What is left open
            is the noise of each of them.

    Raises:
        InvalidParameterError: If a fixed value is out of range, or several parts
            would share one sample.
    """

    mechanism: str
    parts: tuple[Part, ...]
    sampling_rate: float = 1.0
    needs_delta0: bool = False
    delta0: float | None = None
    share: float = 1.0
    uses: int = 1

    def __post_init__(self) -> None:
        try:
            parameters.sampling_rate(self.sampling_rate)
            _require_uses(self.uses)
            parameters.positive("share", self.share)
            if self.delta0 is not None:
                parameters.delta(self.delta0, "delta0")
            for part in _parts(self.parts):
                if isinstance(part, GaussianPart):
                    if part.noise_multiplier is not None:
                        parameters.noise_multiplier(part.noise_multiplier)
                    continue
                if part.epsilon is not None:
                    parameters.epsilon(part.epsilon)
                if isinstance(part, ExponentialPart):
                    parameters.positive("ratio", part.ratio)
        except ParameterError as error:
            raise InvalidParameterError(str(error)) from None
        if self.sampling_rate < 1 and len(self.parts) > 1:
            raise InvalidParameterError(
                f"{self.mechanism} takes {len(self.parts)} randomized steps on one "
                "sample, which sampling does not amplify step by step. With sampled "
                "groups give a single k instead of a range."
            )

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the plan."""
        return (self.delta0 is not None or not self.needs_delta0) and not any(
            (part.noise_multiplier if isinstance(part, GaussianPart) else part.epsilon)
            is None
            for part in self.parts
        )

    def delta0_for(self, delta: float, queries: int) -> float:
        """Return the delta0 of each use in `queries` releases under a total `delta`.

        A failure is charged as sampling_rate * delta0, so that a sampled release gets
        a delta0 larger by 1 / sampling_rate.
        """
        if not self.needs_delta0:
            return 0.0
        if self.delta0 is not None:
            return self.delta0
        uses = queries * self.uses
        return min(DELTA0_SHARE * delta / (uses * self.sampling_rate), 0.5)

    def events(self, scale: float, delta0: float) -> tuple[PlainEvent, ...]:
        """Return what one release is charged at a scale."""
        charged: list[PlainEvent] = [self._event(part, scale) for part in self.parts]
        if delta0 > 0:
            charged.append(DeltaEvent(delta0 * self.sampling_rate, self.uses))
        return tuple(charged)

    def to_dict(self) -> dict[str, Any]:
        """Return the demand as JSON-able values: two equal ones share a plan."""
        # Plans of older accounts know of one use only, and say nothing about it.
        uses = {"uses": self.uses} if self.uses > 1 else {}
        return {
            **uses,
            "parts": [
                {"kind": type(part).__name__, **asdict(part)} for part in self.parts
            ],
            "sampling_rate": self.sampling_rate,
            "needs_delta0": self.needs_delta0,
            "delta0": self.delta0,
        }

    def _event(self, part: Part, scale: float) -> PlainEvent:
        rate = self.sampling_rate
        if isinstance(part, GaussianPart):
            return GaussianEvent(part.multiplier_at(scale), rate, self.uses)
        epsilon = part.epsilon_at(scale)
        if rate < 1:
            return PureEvent(sampled_epsilon(epsilon, rate), self.uses)
        if isinstance(part, ExponentialPart):
            return ExponentialEvent(epsilon, self.uses)
        return PureEvent(epsilon, self.uses)


def _parts(parts: Any) -> tuple[Part, ...]:
    if not isinstance(parts, tuple) or not all(isinstance(p, Part) for p in parts):
        raise ParameterError(
            "parts must be a tuple of GaussianPart, ExponentialPart and PurePart."
        )
    return parts


def _require_uses(uses: int) -> None:
    if parameters.count(uses, "uses") > MAX_COUNT:
        raise ParameterError(f"uses must be at most {MAX_COUNT}.")


@dataclass(frozen=True)
class Granted:
    """The parameters of one demand's release, for each of its uses.

    Attributes:
        noise_multiplier: Of the Gaussian step; None without one.
        epsilon: Of the exponential or pure step, before sampling; None without one.
        delta0: Failure probability of the mechanism, before sampling.
    """

    noise_multiplier: float | None
    epsilon: float | None
    delta0: float


@dataclass(frozen=True)
class Grant:
    """The parameters that one charged release must use, and no others.

    Attributes:
        noise_multiplier: Of the Gaussian step; None without one, and for a bundle.
        epsilon: Of the exponential or pure step, before sampling; None without one,
            and for a bundle.
        delta0: Failure probability of the mechanism, before sampling; 0 for a bundle.
        events: What was charged.
        account: The account that paid.
        sequence: The charge's number on that account.
        spent: What the account's charges cost together, this one included.
        collect: In a per-unit account, what charges the units that take part: the
            group source calls it in the sealed region. None where everybody paid.
        parts: The parameters of each demand of a bundle, in order; of a plain demand
            its own alone.
    """

    noise_multiplier: float | None
    epsilon: float | None
    delta0: float
    events: tuple[Event, ...]
    account: str
    sequence: int
    spent: Cost = NOTHING
    collect: Collect | None = field(default=None, compare=False, repr=False)
    parts: tuple[Granted, ...] = ()


def read_parameters(
    demand: Demand, events: tuple[Event, ...]
) -> tuple[float | None, float | None, float]:
    """Return (noise multiplier, epsilon, delta0) that spend exactly `events`.

    The stored events are what is charged, so the mechanism's parameters are computed
    back from them, never from the demand alone: a plan that another version calibrated
    is then followed, not re-derived.

    Raises:
        InvalidParameterError: If the events are not those of such a demand.
    """
    rate = demand.sampling_rate
    if len(events) != length(demand):
        raise misfit()
    if any(event.count != demand.uses for event in events):
        raise misfit()
    multiplier: float | None = None
    epsilon: float | None = None
    for part, event in zip(demand.parts, events, strict=False):
        if isinstance(part, GaussianPart):
            multiplier = _multiplier(event, rate)
        else:
            epsilon = _epsilon(part, event, rate)
    delta0 = 0.0
    if demand.needs_delta0:
        last = events[-1]
        if not isinstance(last, DeltaEvent):
            raise misfit()
        delta0 = last.delta0 if rate == 1 else last.delta0 / rate * ROUNDING
    return multiplier, epsilon, delta0


def _multiplier(event: Event, rate: float) -> float:
    if not isinstance(event, GaussianEvent) or event.sampling_rate != rate:
        raise misfit()
    return event.noise_multiplier


def _epsilon(part: Part, event: Event, rate: float) -> float:
    if isinstance(part, ExponentialPart) and isinstance(event, ExponentialEvent):
        if rate < 1:
            raise misfit()
        return event.epsilon
    if not isinstance(event, PureEvent):
        raise misfit()
    return unsampled_epsilon(event.epsilon, rate)


def length(demand: Demand) -> int:
    """Return how many events a demand is charged."""
    return len(demand.parts) + (1 if demand.needs_delta0 else 0)


def misfit() -> InvalidParameterError:
    """Return the error for events that a demand can't have been charged."""
    return InvalidParameterError("The plan's events do not fit the demand.")
