"""The curve of a Gaussian release on a sample of fixed size, for `discretization`.

With the unit the release is P = (1 - q) A + q B, without it Q = (1 - q) A + q B', where
any two of A, B and B' are a Gaussian's neighbors. Advanced joint convexity (Balle,
Barthe, Gaboardi 2018, Theorem 2) gives for epsilon >= 0, H being the Gaussian's curve,

    H(P, Q; eps) <= h(eps) = q H(log(1 + (e^eps - 1) / q)),

and the same for H(Q, P; eps). Below 0 the curve follows from that of the other order:
H(P, Q; -eps) = 1 - e^-eps + e^-eps H(Q, P; eps). For eps >= 0, h is the curve of the
Poisson sample's pair M = (1 - q) N(0, z^2) + q N(1, z^2) against N = N(0, z^2), which
`renyi` knows the moments of.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_POINTS = 4000
_NEAREST, _FARTHEST = 1e-9, 60.0
_UP = 1 + 1e-9


def curve(noise_multiplier: float, sampling_rate: float, epsilons: Floats) -> Floats:
    """Return the bound of the curve at epsilons of either sign.

    Example:
        >>> found = curve(1.0, 0.25, np.array([-0.5, 0.0, 0.5]))
        >>> [round(float(delta), 4) for delta in found]
        [0.406, 0.0957, 0.0207]
    """
    above = _above(noise_multiplier, sampling_rate, np.abs(epsilons))
    below = -np.expm1(-np.abs(epsilons)) + np.exp(-np.abs(epsilons)) * above
    found: Floats = np.clip(np.where(epsilons < 0, below, above), 0.0, 1.0)
    return found


def probabilities(
    noise_multiplier: float, sampling_rate: float, step: float, top: float
) -> tuple[int, Floats, float]:
    """Return the loss on a grid from -top to top: first index, masses, mass beyond.

    "Connect the dots" (Doroshenko et al. 2022), by dp-accounting.
    """
    from dp_accounting.pld import pld_pmf

    last = math.ceil(top / step)
    places = np.arange(-last, last + 1)
    losses = np.asarray(places * step, np.float64)
    deltas = curve(noise_multiplier, sampling_rate, losses)
    # Rounding must not let the curve rise; upward is the safe way.
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    found = pld_pmf.create_pmf_pessimistic_connect_dots(step, places, deltas)
    dense = found.to_dense_pmf()
    return (
        int(dense._lower_loss),  # noqa: SLF001 - as in `discretization`
        np.asarray(dense._probs, dtype=np.float64),  # noqa: SLF001
        float(dense._infinity_mass),  # noqa: SLF001
    )


@functools.lru_cache(maxsize=256)
def further_moments(
    noise_multiplier: float, sampling_rate: float, orders: tuple[int, ...]
) -> Floats:
    """Return what the moments of each order exceed the Poisson sample's by, at most.

    The moment of order a is 1 + a (a - 1) times the integral over eps > 0 of e^((a - 1)
    eps) H(P, Q; eps) + e^(-a eps) H(Q, P; eps). Of M against N the first curve is h
    too, so that h minus the curve of N against M is left under e^(-a eps). Both curves
    fall, so the ends of each interval bound the integral.
    """
    z, q = noise_multiplier, sampling_rate
    grid = np.concatenate([[0.0], np.geomspace(_NEAREST, _FARTHEST, _POINTS)])
    own, other = _above(z, q, grid), _adding(z, q, grid)
    excess = np.append(own[:-1] - other[1:], own[-1])
    widths = np.append(np.diff(grid), 0.0)
    a = np.array(orders, np.float64)[:, None]
    with np.errstate(under="ignore"):
        weights = np.exp(-a * grid[None, :])
    inside = (weights * (excess * widths)[None, :]).sum(axis=1)
    beyond = weights[:, -1] * own[-1] / a[:, 0]
    found: Floats = a[:, 0] * (a[:, 0] - 1) * (inside + beyond) * _UP
    return found


def _above(z: float, q: float, epsilons: Floats) -> Floats:
    """Return h."""
    # log(1 + (e^x - 1) / q) without overflow.
    inner = epsilons - math.log(q) + np.log1p((q - 1) * np.exp(-epsilons))
    return q * _gaussian(z, inner)


def _adding(z: float, q: float, epsilons: Floats) -> Floats:
    """Return the curve of N against M; it is 0 from -log(1 - q) on."""
    # Nothing, where it is not above 0, would have no logarithm.
    share = np.maximum(1 - (1 - q) * np.exp(epsilons), 1e-300)
    return share * _gaussian(z, epsilons + math.log(q) - np.log(share))


def _gaussian(z: float, epsilons: Floats) -> Floats:
    """Return the Gaussian's curve."""
    from scipy import special

    with np.errstate(under="ignore", over="ignore"):
        second = special.log_ndtr(-1 / (2 * z) - z * epsilons)
        found = special.ndtr(1 / (2 * z) - z * epsilons) - np.exp(epsilons + second)
    clipped: Floats = np.clip(found, 0.0, 1.0)
    return clipped
