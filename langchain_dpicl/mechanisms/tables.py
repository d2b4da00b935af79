"""Noisy tallies of table rows: counts and sums, all at once.

The statistics of DP-TabICL's Algorithm 2 (Carey et al., *DP-TabICL: In-Context Learning
with Differentially Private Tabular Data*, 2024), for tables over public domains.

Input         Tally i is an array of integers. For each row it adds at most bounds[i],
              either way, to at most cells[i] of its entries: 1 to one entry where it
              counts rows by a column or a pair; 1 to each of m entries where a cell of
              the column holds up to m values; the value of another column, in
              [-M, M], to one entry where it is a sum.
Neighbors     A unit of the table with all its rows, of which at most r =
              `rows_per_unit` take part, is added or removed.
Sensitivity   Divide tally i by bounds[i]. Then a row moves all tallies together, which
              are one vector, by 1 at most in each of C = sum of cells[i] entries: by C
              in L1, by sqrt(C) in L2. A unit's r rows move it by at most r times that,
              where all of them hit the same entries. With single values C is the number
              t of tallies; a column of m values counts m times, and a pair of such
              columns m m'.
Noise         On every entry of tally i, independent: *Laplace:* a discrete Laplace draw
              of scale bounds[i] r C / epsilon or more, exact, on the integers.
              *Gaussian:* a rounded Gaussian, sigma = bounds[i] z r sqrt(C), rounded up.
Event         *Laplace:* Pure(epsilon). *Gaussian:* Gaussian(z). Once for all tallies.
What is free  Whatever is computed of the noisy tallies: a mean, the largest entry.
Tested by     `tests/mechanisms/test_releases.py`: the laws, with half the noise as
              the twin; both sensitivities by enumeration of small tables, also of
              columns that hold sets, with a set that counts once as the twin.

**Why dividing changes nothing.** Noise of scale b s on an integer x is b times noise of
scale s on x / b: the ratio of two probabilities is the same. For discrete Laplace noise
it is exp(|x - x'| / (b s)) at most; these exponents add up over all entries to r C /
(r C / epsilon) = epsilon. Rounded Gaussian noise on integers is post-processing of
Gaussian noise on them, and sum over i of |x_i - x'_i|^2 / sigma_i^2 is at most 1 / z^2.

**Parents of a set.** Where a person may have several values, the sum of a set's counts
is no number of people. That is no matter of privacy, but what is computed of the noisy
tallies must not take one for the other.

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
from typing import Any

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

Whole = Sequence[int] | None
"""One whole number for each tally; None: 1 for each."""


def tallies_charge(*, epsilon: float | None = None, name: str = "tallies") -> Charge:
    """Return what `noisy_tallies` costs: pure epsilon, for all together.

    Example:
        >>> tallies_charge(epsilon=2.0).parts[0].epsilon
        2.0
    """
    return Charge(name=name, parts=(Pure(epsilon=epsilon),))


def histograms_charge(
    *, noise_multiplier: float | None = None, name: str = "histograms"
) -> Charge:
    """Return what `noisy_histograms` costs: one Gaussian, for all of them together."""
    return voting.charge(noise_multiplier=noise_multiplier, name=name)


def noises(
    paid: Pure | Gaussian,
    count: int,
    *,
    bounds: Whole = None,
    cells: Whole = None,
    rows: int = 1,
) -> list[DiscreteLaplace | RoundedGaussian]:
    """Return the noise that a release puts on every entry of each tally.

    Args:
        paid: The event that was charged; its kind is the noise's.
        count: How many tallies there are.
        bounds: Most that a row adds to an entry, for each tally.
        cells: Most entries that a row adds to, for each tally.
        rows: Most rows of one unit.

    Example:
        >>> noises(Pure(epsilon=1.0), 2, bounds=[1, 5], cells=[3, 1])
        [DiscreteLaplace(scale=Fraction(4, 1)), DiscreteLaplace(scale=Fraction(20, 1))]
        >>> noises(Gaussian(noise_multiplier=2.0), 2, cells=[3, 1])
        [RoundedGaussian(scale=4.0), RoundedGaussian(scale=4.0)]
    """
    hit = sum(_whole(cells, "cells", count))
    most, each = (
        parameters.count(rows, "rows_per_unit"),
        _whole(bounds, "bounds", count),
    )
    if isinstance(paid, Pure):
        epsilon = inputs.epsilon(paid, Pure)
        return [DiscreteLaplace.calibrated(b * hit * most, epsilon) for b in each]
    z = inputs.noise_multiplier(paid)
    sigmas = [inputs.at_least(z, inputs.root(b * b * hit * most**2)) for b in each]
    if max(sigmas) > MAX_SCALE:
        raise InvalidParameterError(
            "the noise would have a standard deviation above 2**50. Lower "
            "noise_multiplier, the number of tables, or rows_per_unit."
        )
    return [RoundedGaussian(sigma) for sigma in sigmas]


def noisy_tallies(
    tallies: Sequence[npt.ArrayLike],
    paid: Pure,
    *,
    bounds: Whole = None,
    cells: Whole = None,
    rows_per_unit: int = 1,
) -> list[Integers]:
    """Release integer tallies of table rows with discrete Laplace noise.

    Args:
        tallies: Integer arrays of any shape. The shapes are public.
        paid: The event that was charged.
        bounds: Most that a row adds to an entry of each tally, either way; None: 1.
        cells: Most entries of each tally that a row adds to; None: 1.
        rows_per_unit: Most rows of one unit that the tallies were made of.

    Returns:
        The noisy tallies, integers in the shapes of `tallies`. They may be negative.

    Example:
        >>> rows, sums = [[812, 95], [77, 16]], [-4093, 1268]
        >>> paid = Pure(epsilon=1.0)
        >>> [t.shape for t in noisy_tallies([rows, sums], paid, bounds=[1, 73])]
        [(2, 2), (2,)]
    """
    inputs.epsilon(paid, Pure)  # The other event is `noisy_histograms`'.
    return _noisy(tallies, paid, bounds=bounds, cells=cells, rows=rows_per_unit)


def noisy_histograms(
    tallies: Sequence[npt.ArrayLike],
    paid: Gaussian,
    *,
    bounds: Whole = None,
    cells: Whole = None,
    rows_per_unit: int = 1,
) -> list[Integers]:
    """Release integer tallies of table rows with Gaussian noise.

    The arguments are those of `noisy_tallies`.

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0)
        >>> [t.shape for t in noisy_histograms([[[812, 95], [77, 16]], [400]], paid)]
        [(2, 2), (1,)]
    """
    inputs.noise_multiplier(paid)
    return _noisy(tallies, paid, bounds=bounds, cells=cells, rows=rows_per_unit)


def _whole(given: Whole, name: str, count: int) -> list[int]:
    if given is not None and len(given) != count:
        raise InvalidParameterError(f"{name} must hold one value for each tally.")
    return [1] * count if given is None else [parameters.count(n, name) for n in given]


def _noisy(
    tallies: Sequence[npt.ArrayLike], paid: Pure | Gaussian, **moved: Any
) -> list[Integers]:
    arrays = _arrays(tallies)
    return [
        tally + noise.draw(tally.size).reshape(tally.shape)
        for tally, noise in zip(arrays, noises(paid, len(arrays), **moved), strict=True)
    ]


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
