"""Noisy tallies of table rows: counts and sums of all groups at once.

The statistics of DP-TabICL's Algorithm 2 (Carey et al., *DP-TabICL: In-Context Learning
with Differentially Private Tabular Data*, 2024), one by one:

1. *Tallies.* Rows are put into groups by public predicates, each row into one group or
   none. Tally i is an array of integers over all groups: a histogram per group, or the
   number of rows per group, or the sum of one column per group.
2. *Sensitivity.* The unit is a unit of the table with all its rows, of which at most
   `rows_per_unit` take part; neighbors differ by adding or removing them. One row moves
   tally i by at most bounds[i], in L1 over all groups together, because it is in one
   group at most. So the L1 sensitivity of tally i is rows_per_unit * bounds[i],
   `sensitivity.tally_l1`. No theorem on parallel composition is needed, and a unit
   whose rows are in different groups is covered.
3. *Noise.* Independent discrete Laplace draws on every entry of tally i, of scale
   rows_per_unit * bounds[i] / epsilons[i] or more: exact, on the integers.
4. *Event* (`tallies_template`). Tally i is pure epsilons[i]. All together are pure
   sum(epsilons), by basic composition over the tallies, not over groups. Whatever is
   computed of the noisy tallies (a mean, the largest entry) is post-processing.

**Why sums are centered.** Of a public interval [gamma, alpha], sum x - (gamma + alpha)
/ 2: it is at most (alpha - gamma) / 2 away from 0, and that is how far adding a row
moves the sum. The sum of x - gamma, as in the paper, moves by up to alpha - gamma:
twice the noise for the same epsilon. The plain sum moves by max(|gamma|, |alpha|),
which is never less than the centered one and far more for an interval far from 0.

**Counts and sums are separate.** A mean is a noisy sum divided by a noisy count, each
paid for. The count can't be taken from the data for free: it is private under
`ADD_REMOVE`.

**Histograms alone** can have Gaussian noise instead (`noisy_histograms`):

1. *Tallies.* t histograms of all rows, each over a public domain: of one column, or of
   the pairs of two. Each row adds 1 to one cell of each.
2. *Sensitivity.* The unit and the relation are those above. A unit's r rows move
   a histogram by at most r in L2, where all are in one cell; all t together, which are
   one vector, by r sqrt(t), `sensitivity.tally_l2`. In L1 it would be r t.
3. *Noise.* Independent rounded Gaussians on every cell, sigma = z r sqrt(t), exact.
4. *Event* (`histograms_template`). Gaussian with noise multiplier z, once for all t.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import GaussianPart, PurePart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.discrete_laplace import DiscreteLaplace
from langchain_dpicl.mechanisms.noise import GaussianNoise, PureNoise
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian
from langchain_dpicl.mechanisms.sensitivity import noise_scale, tally_l1, tally_l2
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

MAX_TALLY = 1 << 61
"""Entries beyond it, either way, count as it: entry and noise fit 64 bits together."""

MAX_SIGMA = 2.0**50
"""Largest standard deviation of Gaussian noise, for the same reason."""


def tallies_template(
    mechanism: str, epsilon: float | None = None, *, sampling_rate: float = 1.0
) -> EventTemplate[PureNoise]:
    """Return what `noisy_tallies` is charged: pure epsilon, for all together."""
    return EventTemplate(mechanism, (PurePart(epsilon),), PureNoise, sampling_rate)


def noisy_tallies(
    tallies: Sequence[npt.ArrayLike],
    *,
    epsilons: Sequence[float],
    bounds: Sequence[int],
    rows_per_unit: int = 1,
    random: SecureRandom | None = None,
) -> list[npt.NDArray[np.int64]]:
    """Release integer tallies of table rows, each with noise of its own.

    Args:
        tallies: Integer arrays of any shape, all groups of one tally in one array. The
            shapes are public.
        epsilons: Privacy loss bound of each tally.
        bounds: How far one row moves each tally, in L1 over the whole array: 1 for
            a histogram or a count of rows, M for a sum of values in [-M, M].
        rows_per_unit: Most rows of one unit that the tallies were made of.
        random: Source of the noise; None is the operating system's.

    Returns:
        The noisy tallies, integers in the shapes of `tallies`. They may be negative.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no entry.

    Privacy:
        Unit and relation: all rows of one unit, at most `rows_per_unit`, added or
        removed. Sensitivity: L1 of tally i, rows_per_unit * bounds[i]. Noise:
        discrete Laplace of scale rows_per_unit * bounds[i] / epsilons[i], rounded up,
        exact. Event: pure sum(epsilons). Source: Ghosh, Roughgarden, Sundararajan
        2009 for the noise; DP-TabICL, Algorithm 2, for the statistics; this module's
        docstring for why the groups cost nothing.

    Example:
        >>> rows = [[812, 95], [77, 16]]
        >>> sums = [-4093, 1268]
        >>> counts, centered = noisy_tallies(
        ...     [rows, sums], epsilons=[0.5, 0.5], bounds=[1, 73], rows_per_unit=2
        ... )
        >>> counts.shape, centered.shape
        ((2, 2), (2,))
    """
    arrays = _arrays(tallies)
    for name, values in (("epsilons", epsilons), ("bounds", bounds)):
        if len(values) != len(arrays):
            raise InvalidParameterError(
                f"{name} must hold one value per tally, {len(arrays)}, not "
                f"{len(values)}."
            )
    noises = [
        DiscreteLaplace.calibrated(
            tally_l1(Relation.ADD_REMOVE, bound, rows_per_unit), epsilon
        )
        for bound, epsilon in zip(bounds, epsilons, strict=True)
    ]
    source = checked_source(random)

    return [
        array + noise.draw(array.size, source).reshape(array.shape)
        for array, noise in zip(arrays, noises, strict=True)
    ]


def histograms_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    sampling_rate: float = 1.0,
) -> EventTemplate[GaussianNoise]:
    """Return what `noisy_histograms` is charged: Gaussian(z), for all of them together.

    Args:
        mechanism: The release's public name, for the record.
        noise_multiplier: z; None leaves it to the account.
        sampling_rate: Rate of the Poisson sample of units; 1 without sampling.
    """
    part = GaussianPart(noise_multiplier)
    return EventTemplate(mechanism, (part,), GaussianNoise, sampling_rate)


def histogram_noise(
    noise_multiplier: float, tables: int, rows_per_unit: int
) -> RoundedGaussian:
    """Return the noise that `noisy_histograms` puts on every cell.

    Raises:
        InvalidParameterError: If an argument is out of its range, or the noise would
            not fit 64 bits.

    Example:
        >>> histogram_noise(2.0, tables=4, rows_per_unit=1)
        RoundedGaussian(scale=4.0)
    """
    z = parameters.noise_multiplier(noise_multiplier)
    sigma = noise_scale(z, tally_l2(Relation.ADD_REMOVE, tables, rows_per_unit))
    if sigma > MAX_SIGMA:
        raise InvalidParameterError(
            "the noise would have a standard deviation above 2**50. Lower "
            "noise_multiplier, the number of tables, or rows_per_unit."
        )
    return RoundedGaussian(sigma)


def noisy_histograms(
    tallies: Sequence[npt.ArrayLike],
    *,
    noise_multiplier: float,
    rows_per_unit: int = 1,
    random: SecureRandom | None = None,
) -> list[npt.NDArray[np.int64]]:
    """Release histograms of table rows with Gaussian noise, all of them at once.

    Args:
        tallies: Integer arrays of any shape, to each of which a row adds 1 in one cell
            at most. The shapes are public.
        noise_multiplier: z = sigma / sensitivity.
        rows_per_unit: Most rows of one unit that the tallies were made of.
        random: Source of the noise; None is the operating system's.

    Returns:
        The noisy histograms, integers in the shapes of `tallies`. They may be negative.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no entry.

    Privacy:
        Unit and relation: all rows of one unit, at most `rows_per_unit`, added or
        removed. Sensitivity: L2 of all t histograms together, rows_per_unit *
        sqrt(t). Noise: rounded Gaussian, sigma = z times that, exact. Event:
        Gaussian(z). Source: this module's docstring for the sensitivity; Balle and
        Wang 2018 for the loss.

    Example:
        >>> by_pair, by_age = noisy_histograms(
        ...     [[[812, 95], [77, 16]], [400, 600]], noise_multiplier=2.0
        ... )
        >>> by_pair.shape, by_age.shape
        ((2, 2), (2,))
    """
    arrays = _arrays(tallies)
    noise = histogram_noise(noise_multiplier, len(arrays), rows_per_unit)
    source = checked_source(random)

    return [
        array + noise.draw(array.size, source).reshape(array.shape) for array in arrays
    ]


def _arrays(tallies: Sequence[npt.ArrayLike]) -> list[npt.NDArray[np.int64]]:
    arrays = [_tally(number, tally) for number, tally in enumerate(tallies)]
    if not arrays:
        raise InvalidParameterError("tallies must hold at least one array.")
    return arrays


def _tally(number: int, tally: Any) -> npt.NDArray[np.int64]:
    """Return one tally as integers whose noisy values fit 64 bits.

    Entries are clipped to +-`MAX_TALLY` and not refused: an error would tell of the
    rows, after the charge. Clipping moves no two entries further apart, so that the
    sensitivity stays what it is.
    """
    name = f"tallies[{number}]"
    try:
        array = np.asarray(tally)
    except (ValueError, OverflowError):
        # The chain is cut: NumPy's message may quote what it was given.
        raise InvalidParameterError(f"{name} must be an array of integers.") from None
    if array.dtype.kind not in "iu":
        raise InvalidParameterError(
            f"{name} must be integers of at most 64 bits, not {array.dtype}: put sums "
            "on a public grid of integers first."
        )
    if array.dtype.kind == "u":
        array = np.minimum(array.astype(np.uint64), np.uint64(MAX_TALLY))
    return np.clip(array.astype(np.int64), -MAX_TALLY, MAX_TALLY)
