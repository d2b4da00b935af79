"""What one person loses by a list of releases, from the laws of both worlds.

Gaussians without a sample have a closed form. dp-accounting composes all others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langchain_dpicl.accounting import Gaussian, compose

UNSEEN = 1e-15
"""A probability that may be one where a law has none: a rounding error of 1 - p."""

_SAME = 1e-12
_MOST_NOISE = 1e6  # An event holds no more; less noise is a larger loss.
_DIGITS = 9
_FINEST, _STEPS = 1e-4, 2e4
"""Step of a loss distribution, or into how many the longest one is cut."""


@dataclass(frozen=True, repr=False)
class GaussianLoss:
    """N(0, 1) without the person, and with: (1 - q) N(0, 1) + q N(distance, 1)."""

    distance: float
    rate: float = 1.0


@dataclass(frozen=True, repr=False)
class FiniteLoss:
    """The probability of each outcome without the person, and with."""

    pairs: tuple[tuple[float, float], ...]


Loss = GaussianLoss | FiniteLoss


def gaussian_loss(distance: float, rate: float) -> list[Loss]:
    """Return the loss of Gaussian releases so many deviations apart; none for 0."""
    return [GaussianLoss(distance, rate)] if distance > _SAME else []


def finite_loss(
    without: Mapping[Any, float], within: Mapping[Any, float], rate: float
) -> list[Loss]:
    """Return the loss between two finite laws; none where they are the same.

    Args:
        without: The law without the person.
        within: The law with the person in the sample.
        rate: The probability of being in the sample.
    """
    outcomes = sorted({*without, *within}, key=repr)
    laws = [(without.get(one, 0.0), within.get(one, 0.0)) for one in outcomes]
    if all(abs(p - own) <= _SAME * max(p, own) for p, own in laws):
        return []
    return [FiniteLoss(tuple((p, (1 - rate) * p + rate * own) for p, own in laws))]


def epsilon_of(losses: Iterable[Loss], delta: float, *, upper: bool = True) -> float:
    """Return epsilon of independent releases together, in the worse direction.

    Args:
        losses: One for each release.
        delta: The failure probability.
        upper: Whether rounding makes the figure larger, and never smaller; else the
            other way round.
    """
    # All Gaussians without a sample are one, exactly.
    square = 0.0
    others: Counter[Loss] = Counter()
    for loss in losses:
        if isinstance(loss, GaussianLoss) and loss.rate == 1:
            square += loss.distance**2
        elif isinstance(loss, GaussianLoss):
            others[GaussianLoss(round(loss.distance, _DIGITS), loss.rate)] += 1
        else:
            others[loss] += 1
    if not others:
        return _gaussian(math.sqrt(square), delta) if square else 0.0
    if square:
        others[GaussianLoss(math.sqrt(square))] += 1
    key = frozenset(others.items())
    return _composed(key, delta, upper=upper)


def _gaussian(distance: float, delta: float) -> float:
    return compose([Gaussian(noise_multiplier=min(1 / distance, _MOST_NOISE))], delta)


@lru_cache(maxsize=1024)
def _composed(
    losses: frozenset[tuple[Loss, int]], delta: float, *, upper: bool
) -> float:
    if upper and _surely_told(losses) > delta:
        return math.inf
    step = _step(loss for loss, _ in losses)
    together: Any = None
    for loss, count in losses:
        one = _distribution(loss, step, upper=upper)
        many = one if count == 1 else one.self_compose(count)
        together = many if together is None else together.compose(many)
    return float(together.get_epsilon_for_delta(delta))


def _surely_told(losses: Iterable[tuple[Loss, int]]) -> float:
    """Return how often an outcome comes that one world doesn't have, at the most."""
    hidden = [1.0, 1.0]
    for loss, count in losses:
        if isinstance(loss, GaussianLoss):
            continue
        for side in (0, 1):
            told = math.fsum(p[side] for p in loss.pairs if not p[1 - side])
            hidden[side] *= max(1 - told, 0.0) ** count
    return 1 - min(hidden)


def _step(losses: Iterable[Loss]) -> float:
    """Return a step at which no distribution takes long to compose."""
    longest = max(
        (loss.distance**2 / 2 + 10 * loss.distance)
        if isinstance(loss, GaussianLoss)
        else max(
            (abs(math.log(p / own)) for p, own in loss.pairs if p and own), default=0.0
        )
        for loss in losses
    )
    return max(_FINEST, longest / _STEPS)


@lru_cache(maxsize=64)
def _distribution(loss: Loss, step: float, *, upper: bool) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if isinstance(loss, GaussianLoss):
        return pld.from_gaussian_mechanism(
            1 / loss.distance,
            pessimistic_estimate=upper,
            value_discretization_interval=step,
            sampling_prob=loss.rate,
            use_connect_dots=upper,
        )
    least = 0.0 if upper else UNSEEN
    without, within = (
        {
            place: math.log(p) if (p := max(pair[side], least)) else -math.inf
            for place, pair in enumerate(loss.pairs)
        }
        for side in (0, 1)
    )
    return pld.from_two_probability_mass_functions(
        without, within, upper, step, symmetric=False
    )
