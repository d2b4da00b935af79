"""What a mechanism takes of its charge, where several mechanisms take the same.

Each is one use's noise, before sampling, as `EventTemplate.read` computes it from the
events that were charged.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GaussianNoise:
    """The noise of a Gaussian release."""

    noise_multiplier: float
    """z = sigma / L2 sensitivity."""


@dataclass(frozen=True)
class VectorNoise(GaussianNoise):
    """The noise of a sum of vectors: there are no counts in it, and no lead."""


@dataclass(frozen=True)
class PureNoise:
    """The noise of a pure-epsilon release."""

    epsilon: float
    """Privacy loss bound of one use, before sampling."""


@dataclass(frozen=True)
class ExponentialNoise:
    """The noise of an exponential mechanism."""

    epsilon: float
    """Parameter of one use, before sampling."""
