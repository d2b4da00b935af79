"""What releases cost, in 40 digits, by formulas of nobody's accountant."""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf

from langchain_dpicl.accounting import Exponential, Gaussian, Pure

mp.dps = 40


def G(z: float, q: float = 1.0, n: int = 1) -> Gaussian:  # noqa: N802
    return Gaussian(noise_multiplier=z, sampling_rate=q, count=n)


def E(epsilon: float, q: float = 1.0, n: int = 1) -> Exponential:  # noqa: N802
    return Exponential(epsilon=epsilon, sampling_rate=q, count=n)


def P(epsilon: float, q: float = 1.0, n: int = 1) -> Pure:  # noqa: N802
    return Pure(epsilon=epsilon, sampling_rate=q, count=n)


def epsilon_of(curve: Callable[[mpf], mpf], delta: float, high: float = 2000) -> mpf:
    """Return where a falling curve passes delta, by halving."""
    low, top = mpf(0), mpf(high)
    if curve(low) <= delta:
        return low
    for _ in range(100):
        middle = (low + top) / 2
        low, top = (middle, top) if curve(middle) > delta else (low, middle)
    return top


def gaussian(mu: float, delta: float) -> mpf:
    """Return epsilon of one Gaussian release of noise 1 / mu."""

    def curve(eps: mpf) -> mpf:
        above = eps / m - m / 2, eps / m + m / 2
        tails = [mp.erfc(x / mp.sqrt(2)) / 2 for x in above]
        return tails[0] - mp.exp(eps) * tails[1]

    m = mpf(mu)
    return epsilon_of(curve, delta, high=float(m * m + 50 * m))


def sampled(z: float, q: float, delta: float) -> mpf:
    """Return epsilon of one sampled Gaussian, in the worse order of the worlds."""

    def cdf(x: mpf) -> mpf:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    def mixed(r: mpf) -> mpf:  # (1 - q) N(0) + q N(1) against N(0), at e^eps = r.
        if r <= 1 - q:
            return 1 - r
        x = mpf(z) ** 2 * mp.log((r - 1 + q) / q) + mpf(1) / 2
        return (1 - q - r) * cdf(-x / z) + q * cdf(-(x - 1) / z)

    def curve(eps: mpf) -> mpf:
        r = mp.exp(eps)
        other = 1 - r + r * mixed(1 / r)
        return max(mixed(r), other)

    q = mpf(q)
    return epsilon_of(curve, delta)


def amplified(loss: float, q: float) -> mpf:
    """Return what a sample makes of a loss."""
    return mp.log1p(mpf(q) * mp.expm1(mpf(loss)))
