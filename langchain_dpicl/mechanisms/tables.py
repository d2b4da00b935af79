"""Noisy tallies of table rows: counts and sums of all groups at once.

The statistics of DP-TabICL's Algorithm 2 (Carey et al., *DP-TabICL: In-Context Learning
with Differentially Private Tabular Data*, 2024), and histograms with Gaussian noise.

Input         Rows are put into groups by public predicates, each row into one group or
              none. Tally i is an array of integers over all groups: a histogram per
              group, or the number of rows per group, or the sum of one column per
              group. For Gaussian noise: t histograms of all rows, each over a public
              domain, of one column or of the pairs of two.
Neighbors     A unit of the table with all its rows, of which at most r =
              `rows_per_unit` take part, is added or removed.
Sensitivity   *Laplace:* one row moves tally i by at most bounds[i], in L1 over all
              groups together, because it is in one group at most. So the L1 sensitivity
              of tally i is r * bounds[i]. No theorem on parallel composition is needed,
              and a unit whose rows are in different groups is covered.
              *Gaussian:* a row adds 1 to one cell of each histogram. A unit's r rows
              move a histogram by at most r in L2, where all are in one cell; all t
              together, which are one vector, by r sqrt(t). In L1 it would be r t.
Noise         *Laplace:* independent discrete Laplace draws on every entry of tally i,
              of scale r * bounds[i] / epsilon_i or more: exact, on the integers. The
              epsilon_i are the paid epsilon times public shares, as exact rationals, so
              that they sum to it. *Gaussian:* independent rounded Gaussians on every
              cell, sigma = z r sqrt(t), rounded up.
Event         *Laplace:* tally i is pure epsilon_i, and all together are Pure(epsilon,
              rate), by basic composition over the tallies, not over groups. *Gaussian:*
              Gaussian(z, rate), once for all t.
What is free  Whatever is computed of the noisy tallies: a mean, the largest entry.
Tested by     `tests/mechanisms/test_sums.py`: the laws against mpmath, with half the
              noise as the twin; both sensitivities by enumeration of small tables.

**Why sums are centered.** Of a public interval [gamma, alpha], sum x - (gamma + alpha)
/ 2: it is at most (alpha - gamma) / 2 away from 0, and that is how far adding a row
moves the sum. The sum of x - gamma, as in the paper, moves by up to alpha - gamma:
twice the noise for the same epsilon. The plain sum moves by max(|gamma|, |alpha|),
which is never less than the centered one and far more for an interval far from 0.

**Counts and sums are separate.** A mean is a noisy sum divided by a noisy count, each
paid for. The count can't be taken from the data for free: it is private under
`add_remove`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import Charge, Gaussian, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs, voting
from langchain_dpicl.mechanisms.exact import (
    MAX_SCALE,
    DiscreteLaplace,
    Integers,
    RoundedGaussian,
)

MAX_TALLY = 1 << 61
"""Entries beyond it, either way, count as it: entry and noise fit 64 bits together."""


def tallies_charge(
    *,
    epsilon: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "tallies",
) -> Charge:
    """Return what `noisy_tallies` costs: pure epsilon, for all together.

    Example:
        >>> tallies_charge(epsilon=2.0).parts[0].epsilon
        2.0
    """
    return Charge(
        name=name, parts=(Pure(epsilon=epsilon, sampling_rate=sampling_rate),)
    )


def histograms_charge(
    *,
    noise_multiplier: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "histograms",
) -> Charge:
    """Return what `noisy_histograms` costs: one Gaussian, for all of them together."""
    return voting.charge(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, name=name
    )


def laplace_noises(
    paid: Pure,
    *,
    bounds: Sequence[int],
    shares: Sequence[float] | None = None,
    rows_per_unit: int = 1,
) -> tuple[DiscreteLaplace, ...]:
    """Return the noise that `noisy_tallies` puts on every entry of each tally.

    Raises:
        InvalidParameterError: If an argument is out of its range, or the noise would
            not fit 64 bits.

    Example:
        >>> laplace_noises(Pure(epsilon=1.0), bounds=[1, 3], shares=[0.25, 0.75])
        (DiscreteLaplace(scale=Fraction(4, 1)), DiscreteLaplace(scale=Fraction(4, 1)))
    """
    loss = inputs.epsilon(paid, Pure)
    rows = parameters.count(rows_per_unit, "rows_per_unit")
    given = [1.0] * len(bounds) if shares is None else shares
    if len(given) != len(bounds):
        raise InvalidParameterError("shares must hold one value for each tally.")
    parts = [Fraction(parameters.positive("shares", share)) for share in given]
    return tuple(
        DiscreteLaplace.calibrated(
            parameters.count(bound, "bounds") * rows, loss * part / sum(parts)
        )
        for bound, part in zip(bounds, parts, strict=True)
    )


def noisy_tallies(
    tallies: Sequence[npt.ArrayLike],
    paid: Pure,
    *,
    bounds: Sequence[int],
    shares: Sequence[float] | None = None,
    rows_per_unit: int = 1,
) -> list[Integers]:
    """Release integer tallies of table rows, each with noise of its own.

    Args:
        tallies: Integer arrays of any shape, all groups of one tally in one array. The
            shapes are public.
        paid: The event that was charged.
        bounds: How far one row moves each tally, in L1 over the whole array: 1 for
            a histogram or a count of rows, M for a sum of values in [-M, M].
        shares: How the paid epsilon is divided, public: one positive number for each
            tally, of whatever sum; None divides it equally.
        rows_per_unit: Most rows of one unit that the tallies were made of.

    Returns:
        The noisy tallies, integers in the shapes of `tallies`. They may be negative.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no entry.

    Example:
        >>> rows, sums = [[812, 95], [77, 16]], [-4093, 1268]
        >>> paid = Pure(epsilon=1.0)
        >>> [t.shape for t in noisy_tallies([rows, sums], paid, bounds=[1, 73])]
        [(2, 2), (2,)]
    """
    arrays = _arrays(tallies)
    if len(bounds) != len(arrays):
        raise InvalidParameterError("bounds must hold one value for each tally.")
    noises = laplace_noises(
        paid, bounds=bounds, shares=shares, rows_per_unit=rows_per_unit
    )
    return [_noisy(*pair) for pair in zip(arrays, noises, strict=True)]


def gaussian_noise(
    paid: Gaussian, *, tables: int, rows_per_unit: int = 1
) -> RoundedGaussian:
    """Return the noise that `noisy_histograms` puts on every cell.

    Raises:
        InvalidParameterError: If an argument is out of its range, or the noise would
            not fit 64 bits.

    Example:
        >>> gaussian_noise(Gaussian(noise_multiplier=2.0), tables=4)
        RoundedGaussian(scale=4.0)
    """
    rows = parameters.count(rows_per_unit, "rows_per_unit")
    distance = inputs.root(rows * rows * parameters.count(tables, "tables"))
    sigma = inputs.at_least(inputs.noise_multiplier(paid), distance)
    if sigma > MAX_SCALE:
        raise InvalidParameterError(
            "the noise would have a standard deviation above 2**50. Lower "
            "noise_multiplier, the number of tables, or rows_per_unit."
        )
    return RoundedGaussian(sigma)


def noisy_histograms(
    tallies: Sequence[npt.ArrayLike], paid: Gaussian, *, rows_per_unit: int = 1
) -> list[Integers]:
    """Release histograms of table rows with Gaussian noise, all of them at once.

    Args:
        tallies: Integer arrays of any shape, to each of which a row adds 1 in one cell
            at most. The shapes are public.
        paid: The event that was charged.
        rows_per_unit: Most rows of one unit that the tallies were made of.

    Returns:
        The noisy histograms, integers in the shapes of `tallies`. They may be negative.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no entry.

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0)
        >>> [t.shape for t in noisy_histograms([[[812, 95], [77, 16]], [400]], paid)]
        [(2, 2), (1,)]
    """
    arrays = _arrays(tallies)
    noise = gaussian_noise(paid, tables=len(arrays), rows_per_unit=rows_per_unit)
    return [_noisy(array, noise) for array in arrays]


def _noisy(tally: Integers, noise: DiscreteLaplace | RoundedGaussian) -> Integers:
    noisy: Integers = tally + noise.draw(tally.size).reshape(tally.shape)
    return noisy


def _arrays(tallies: Sequence[npt.ArrayLike]) -> list[Integers]:
    """Return the tallies as integers whose noisy values fit 64 bits.

    Entries are clipped to +-`MAX_TALLY` and not refused: an error would tell of the
    rows, after the charge. Clipping moves no two entries further apart, so that the
    sensitivity stays what it is.
    """
    arrays = []
    for number, tally in enumerate(tallies):
        array = inputs.integers(f"tallies[{number}]", tally)
        if array.dtype.kind == "u":
            array = np.minimum(array.astype(np.uint64), np.uint64(MAX_TALLY))
        arrays.append(np.clip(array.astype(np.int64), -MAX_TALLY, MAX_TALLY))
    if not arrays:
        raise InvalidParameterError("tallies must hold at least one array.")
    return arrays
