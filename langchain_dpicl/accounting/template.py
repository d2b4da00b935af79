"""What one release is charged: its events, with at most one free scale.

A mechanism knows the *shape* of its events (a Gaussian; an exponential mechanism and
then a Gaussian; ...) and leaves the noise to the account. An `EventTemplate` is that
shape. Every part that the user did not fix follows one scale t, the noise multiplier of
the release's Gaussian; the account finds the smallest t that it can pay for. `read` is
the way back: from the events that were charged to the noise that the mechanism takes.

Privacy:
    A part names the loss of the mechanism *before* sampling; `events` returns what is
    charged, after sampling. A Poisson-sampled Gaussian keeps its sampling rate in the
    event. A pure epsilon (and an exponential mechanism, which is one) under sampling
    rate q is charged as log(1 + q (exp(epsilon) - 1)), and a failure probability
    delta0 as q delta0 (Balle, Barthe, Gaboardi, 2018, Theorem 8). Sampling is
    amplified only for a *single* part: two mechanisms on one and the same sample are
    not two independently sampled ones, so such a template is refused.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from langchain_dpicl.accounting.events import (
    MAX_COUNT,
    Event,
    Failure,
    PlainEvent,
)
from langchain_dpicl.accounting.parts import ROUNDING, Part, misfit
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

# What a mechanism takes of its charge: a dataclass beside the mechanism.
NoiseT = TypeVar("NoiseT", covariant=True, default=Any)  # noqa: PLC0105  # as it reads
DELTA0_SHARE = 0.5
"""The part of delta that a plan sets aside for the releases' own delta0."""


EventsAt: TypeAlias = Callable[[float], tuple[Event, ...]]
"""The events of a release at a scale."""


class NoiseRule(Protocol):
    """How an account sets what a template leaves open."""

    def delta0(self, template: EventTemplate[Any], sharing: int) -> float:
        """Return the delta0 of each use, where `sharing` templates share the failures.

        Called for templates that need one.
        """

    def events(self, template: Template[Any], events_at: EventsAt) -> tuple[Event, ...]:
        """Return the events at the least scale that the account can pay for."""


class Template(ABC, Generic[NoiseT]):
    """What an account may be asked to pay for: one release, or several in a bundle."""

    mechanism: str
    """The public name of the release, for the record."""

    sampling_rate: float
    """Poisson sampling rate of units; 1 without sampling."""

    share: float = 1.0
    """In an account without a plan: which part of one query's share the release takes
    where its noise is left open."""

    @property
    @abstractmethod
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""

    @abstractmethod
    def filled(self, rule: NoiseRule) -> tuple[Event, ...]:
        """Return what the release is charged, with what is open set by a rule."""

    @abstractmethod
    def read(self, events: tuple[Event, ...]) -> NoiseT:
        """Return the noise that spends exactly `events`.

        The stored events are what is charged, so the noise is computed back from them,
        never from the template alone: a plan that another version calibrated is then
        followed, not derived again.

        Raises:
            InvalidParameterError: If the events are not those of such a release.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the template as JSON-able values: two equal ones share a plan."""


@dataclass(frozen=True)
class EventTemplate(Template[NoiseT]):
    """The shape of one release's events.

    Attributes:
        mechanism: The release's public name, for the record.
        parts: The randomized steps, in the order in which they are taken.
        noise: What makes the mechanism's noise of the parts' parameters, in their
            order, and of delta0, if there is one: a dataclass, mostly.
        sampling_rate: Poisson sampling rate of units; 1 without sampling.
        needs_delta0: Whether the mechanism may fail with probability delta0.
        delta0: That probability, if the user fixed it; None leaves it to the account.
        share: In an account without a plan: which part of one query's share the
            release takes where its noise is left open.
        uses: How often the release is made within one charge, each time on a fresh
            sample of its own (of few-shot generation: once a token). What is left open
            is the noise of each of them.

    Raises:
        InvalidParameterError: If a fixed value is out of range, or several parts would
            share one sample.

    Example:
        >>> from langchain_dpicl.accounting import GaussianPart
        >>> vote = EventTemplate("vote", (GaussianPart(),), float)
        >>> vote.events(2.5, delta0=0.0)
        (Gaussian(noise_multiplier=2.5, sampling_rate=1.0, count=1),)
        >>> vote.read(vote.events(2.5, delta0=0.0))
        2.5
    """

    mechanism: str
    parts: tuple[Part, ...]
    noise: Callable[..., NoiseT]
    sampling_rate: float = 1.0
    needs_delta0: bool = False
    delta0: float | None = None
    share: float = 1.0
    uses: int = 1

    def __post_init__(self) -> None:
        parameters.sampling_rate(self.sampling_rate)
        if parameters.count(self.uses, "uses") > MAX_COUNT:
            raise InvalidParameterError(f"uses must be at most {MAX_COUNT}.")
        parameters.positive("share", self.share)
        if self.delta0 is not None:
            parameters.delta(self.delta0, "delta0")
        if not isinstance(self.parts, tuple) or not all(
            isinstance(part, Part) for part in self.parts
        ):
            raise InvalidParameterError(
                "parts must be a tuple of GaussianPart, ExponentialPart and PurePart."
            )
        if self.sampling_rate < 1 and len(self.parts) > 1:
            raise InvalidParameterError(
                f"{self.mechanism} takes {len(self.parts)} randomized steps on one "
                "sample, which sampling does not amplify step by step. With sampled "
                "groups give a single k instead of a range."
            )

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""
        has_delta0 = self.delta0 is not None or not self.needs_delta0
        return has_delta0 and all(part.is_fixed for part in self.parts)

    @property
    def n_events(self) -> int:
        """How many events the release is charged."""
        return len(self.parts) + self.needs_delta0

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
        """Return what the release is charged at a scale."""
        charged = [
            part.event(scale, self.sampling_rate, self.uses) for part in self.parts
        ]
        if delta0 > 0:
            charged.append(Failure(delta0 * self.sampling_rate, self.uses))
        return tuple(charged)

    def filled(self, rule: NoiseRule) -> tuple[Event, ...]:
        """Return what the release is charged, with what is open set by a rule."""
        delta0 = rule.delta0(self, 1) if self.needs_delta0 else 0.0
        return rule.events(self, functools.partial(self.events, delta0=delta0))

    def read(self, events: tuple[Event, ...]) -> NoiseT:
        """Return the noise that spends exactly `events`; see `Template.read`."""
        rate = self.sampling_rate
        if len(events) != self.n_events:
            raise misfit()
        if any(event.count != self.uses for event in events):
            raise misfit()
        values: list[Any] = [
            part.read(event, rate)
            for part, event in zip(self.parts, events, strict=False)
        ]
        if self.needs_delta0:
            last = events[-1]
            if not isinstance(last, Failure):
                raise misfit()
            values.append(last.delta0 if rate == 1 else last.delta0 / rate * ROUNDING)
        return self.noise(*values)

    def to_dict(self) -> dict[str, Any]:
        """Return the template as JSON-able values: two equal ones share a plan."""
        return {
            "uses": self.uses,
            "parts": [
                {"kind": type(part).__name__, **asdict(part)} for part in self.parts
            ],
            "sampling_rate": self.sampling_rate,
            "needs_delta0": self.needs_delta0,
            "delta0": self.delta0,
        }
