"""The parts of a release's charge: each a loss that is fixed, or follows one scale.

A part knows what a mechanism loses *before* sampling, and what is charged for it after.
Templates are made of parts; see `template.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Gaussian,
    PlainEvent,
    Pure,
)
from langchain_dpicl.accounting.sampling import sampled_epsilon, unsampled_epsilon
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

ROUNDING = 1.0 - 1e-12
"""Undoing an amplification in floating point may overshoot by some units in the last
place; what is handed to the mechanism is rounded toward more noise."""


@dataclass(frozen=True)
class GaussianPart:
    """A Gaussian release; `noise_multiplier=None` leaves it to the account."""

    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            parameters.noise_multiplier(self.noise_multiplier)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""
        return self.noise_multiplier is not None

    def event(self, scale: float, rate: float, uses: int) -> PlainEvent:
        """Return what `uses` such releases are charged at a scale."""
        fixed = self.noise_multiplier
        return Gaussian(scale if fixed is None else fixed, rate, uses)

    def read(self, event: Event, rate: float) -> float:
        """Return the noise multiplier that an event has paid for."""
        if not isinstance(event, Gaussian) or event.sampling_rate != rate:
            raise misfit()
        return event.noise_multiplier


@dataclass(frozen=True)
class PurePart:
    """A pure-epsilon mechanism; `epsilon=None` leaves it to the account."""

    epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            parameters.epsilon(self.epsilon)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""
        return self.epsilon is not None

    def event(self, scale: float, rate: float, uses: int) -> PlainEvent:
        """Return what `uses` such releases are charged at a scale."""
        epsilon = 1.0 / scale if self.epsilon is None else self.epsilon
        return Pure(sampled_epsilon(epsilon, rate), uses)

    def read(self, event: Event, rate: float) -> float:
        """Return the epsilon, before sampling, that an event has paid for."""
        if not isinstance(event, Pure):
            raise misfit()
        return unsampled_epsilon(event.epsilon, rate)


@dataclass(frozen=True)
class ExponentialPart:
    """An exponential mechanism; `epsilon=None` leaves it to the account.

    `ratio` is the free epsilon times the scale. An exponential mechanism is
    epsilon^2/8-zCDP and a Gaussian 1/(2 t^2)-zCDP, so a ratio of 2 makes them equal.
    """

    epsilon: float | None = None
    ratio: float = 2.0

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            parameters.epsilon(self.epsilon)
        parameters.positive("ratio", self.ratio)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""
        return self.epsilon is not None

    def event(self, scale: float, rate: float, uses: int) -> PlainEvent:
        """Return what `uses` such releases are charged at a scale."""
        epsilon = self.ratio / scale if self.epsilon is None else self.epsilon
        if rate < 1:
            # Amplified, it is known to be pure, and no longer of bounded range.
            return Pure(sampled_epsilon(epsilon, rate), uses)
        return Exponential(epsilon, uses)

    def read(self, event: Event, rate: float) -> float:
        """Return the epsilon, before sampling, that an event has paid for."""
        if rate == 1 and isinstance(event, Exponential):
            return event.epsilon
        return PurePart().read(event, rate)


Part: TypeAlias = GaussianPart | ExponentialPart | PurePart


def misfit() -> InvalidParameterError:
    """Return the error for events that a release can't have been charged."""
    return InvalidParameterError("The charged events do not fit the release.")
