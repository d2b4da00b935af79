"""Events and exact curves that several accounting tests share."""

from __future__ import annotations

import mpmath as mp
from hypothesis import strategies as st

from langchain_dpicl.accounting import (
    Exponential,
    Failure,
    Gaussian,
    Pure,
    ZCDPEvent,
)

counts = st.integers(1, 50)
noise = st.floats(0.3, 50)
rates = st.sampled_from([0.01, 0.2, 1.0])
plain_gaussians = st.builds(Gaussian, noise, count=counts)
# Few different parameters, so that their loss distributions are computed once.
sampled_gaussians = st.builds(Gaussian, st.sampled_from([0.8, 2.0, 8.0]), rates, counts)
selections = st.one_of(
    st.builds(Exponential, st.sampled_from([0.05, 0.3, 2.0]), counts),
    st.builds(Pure, st.sampled_from([0.05, 0.3, 2.0]), counts),
)
failures = st.builds(Failure, st.floats(0, 1e-9), counts)
events = st.one_of(plain_gaussians, sampled_gaussians, selections, failures)
any_event = st.one_of(
    st.builds(
        Gaussian,
        st.floats(1e-6, 1e6),
        st.floats(0, 1, exclude_min=True),
        st.integers(1, 10**12),
    ),
    st.builds(Exponential, st.floats(0, 1e300, exclude_min=True), counts),
    st.builds(Pure, st.floats(0, 1e300, exclude_min=True), counts),
    st.builds(ZCDPEvent, st.floats(0, 1e300, exclude_min=True), counts),
    st.builds(Failure, st.floats(0, 1), counts),
)


def gaussian_curve(mu: float, epsilon: float) -> mp.mpf:
    """delta(epsilon) of Balle and Wang, Theorem 8, in 60 digits."""
    with mp.workdps(60):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def sampled_curve(z: float, q: float, epsilon: float) -> mp.mpf:
    """The larger hockey-stick divergence of one sampled Gaussian, in 60 digits.

    The likelihood ratio is monotone, so the best set is a half-line.
    """
    with mp.workdps(60):
        z, q, e = mp.mpf(z), mp.mpf(q), mp.mpf(epsilon)

        def above(x: mp.mpf, mean: int) -> mp.mpf:
            return mp.ncdf((mean - x) / z)

        x = z**2 * mp.log((mp.exp(e) - 1 + q) / q) + mp.mpf(1) / 2
        remove = q * above(x, 1) + (1 - q - mp.exp(e)) * above(x, 0)
        add = mp.mpf(0)
        if mp.exp(-e) > 1 - q:
            x = z**2 * mp.log((mp.exp(-e) - 1 + q) / q) + mp.mpf(1) / 2
            add = (1 - above(x, 0)) * (1 - mp.exp(e) * (1 - q))
            add -= mp.exp(e) * q * (1 - above(x, 1))
        return max(remove, add)


def two_point_curve(loss: float, spread: float, uses: int, epsilon: float) -> mp.mpf:
    """delta(epsilon) of `uses` independent losses of `loss` or `loss - spread`.

    With spread = 2 * loss that is randomized response; any loss between 0 and the
    spread is an exponential mechanism's.
    """
    with mp.workdps(60):
        top, width = mp.mpf(loss), mp.mpf(spread)
        # Both masses follow from E exp(-L) = 1.
        p = (mp.exp(width) - mp.exp(top)) / (mp.exp(width) - 1) * mp.mpf(1)
        p = 1 - (1 - mp.exp(-top)) / (mp.exp(width - top) - mp.exp(-top))
        total = mp.mpf(0)
        for k in range(uses + 1):
            value = k * top + (uses - k) * (top - width)
            if value > epsilon:
                mass = mp.binomial(uses, k) * p**k * (1 - p) ** (uses - k)
                total += mass * (1 - mp.exp(epsilon - value))
        return total
