"""The next token, from the distributions of many slots: the release behind generation.

Tang, Shin, Inan, Manoel, Mireshghallah, Lin, Gopi, Kulkarni, Sim, *Privacy-Preserving
In-Context Learning with Differentially Private Few-Shot Generation*, ICLR 2024,
Algorithm 1 and Theorem 4.2; McKenna, Sheldon, *Permute-and-Flip*, NeurIPS 2020.

Input         Slot i says p_i, the probabilities of K *public* tokens, or nothing. What
              a row says is a function of that slot alone (`token_distributions`), and
              so is its point of the grid: integers, none negative. `on_grid` computes
              the norm of the grid point itself, so its bound holds whatever the
              floating-point steps before it did, and nothing is added to the
              sensitivity for the rounding of the rows.
              *Contrast* (`contrasted`): p_i times (p_i / p_pub)^a, renormalized. p_pub
              and the power a are public, so it is again a function of slot i alone, and
              a distribution: what follows holds as it stands. *Before the sum*, that
              is. The contrast of a noisy or exact mean has no such bound: at p_pub =
              1e-6 one of 20 slots moves it by 28 where the sum moves by sqrt(2).
Neighbors     One unit touches one slot. `replace`: its row changes to any other, or to
              none. `add_remove`: one row appears or vanishes.
Sensitivity   *Gaussian:* points of norm at most `limit` steps (`on_grid`). A
              row appears or vanishes: L2 `limit`. A row p becomes q: |p - q|^2 = |p|^2
              + |q|^2 - 2 <p, q> <= 2 limit^2, because <p, q> >= 0: sqrt(2) `limit`.
              Probabilities of at most 1 in all have norm at most 1, so clipping to that
              takes nothing away.
              *Noisy max:* each row, divided by its own maximum, becomes integers in 0
              .. 2^20. Whatever one row does, each sum moves by at most 2^20, up or
              down. (Under `add_remove` a row moves all sums one way, for which half the
              noise would do; the factor 2 stays, as in the paper, so that a stored
              event means one thing.)
Noise         *Gaussian:* rounded Gaussians of s = 2^14 steps, limit = s / z or s /
              (sqrt(2) z): the noise multiplier is z, exactly. (The paper's N(0, 2
              sigma^2) is this, z = sigma.)
              *Noisy max:* permute-and-flip. Candidate c succeeds with probability
              exp(-epsilon (max - u_c) / (2 * 2^20)), an exact trial; one of those that
              succeed is drawn, each as likely. It is the argmax of scores plus
              exponential noise of scale 2 Delta / epsilon.
Event         *Gaussian:* Gaussian(z, rate), of the whole vector. *Noisy max:*
              Pure(epsilon, rate), of the winner alone.
What is free  *Gaussian:* the argmax of the noisy sum, or a token sampled from what it
              says, at any temperature. *Noisy max:* nothing but the winner.
Tested by     `tests/unit_tests/laws`: both L2 sensitivities, measured; the noise; the
              law of the winner, with half the noise as the twin.
              `tests/mechanisms/test_releases.py`: norms and abstaining rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import Charge, Gaussian, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs, voting
from langchain_dpicl.mechanisms.exact import (
    Floats,
    Integers,
    RoundedGaussian,
    bernoulli_exp,
)
from langchain_dpicl.mechanisms.random import current

SCALE = 2.0**14
"""Standard deviation of the Gaussian noise, in grid steps."""

_SLACK = 1e-9
"""Relative error granted to a floating-point norm, at most D 2^-53, D <= 10^6, and to
the limit itself."""

_FLOOR = 1e-6  # Least public probability that a row is held against.
_UNIT = 1 << 20  # Grid steps that a row's maximum becomes, for noisy max.


def charge(
    *,
    noise_multiplier: float | None = None,
    sampling_rate: float = 1.0,
    count: int = 1,
    name: str = "few-shot/gaussian",
) -> Charge:
    """Return what `count` calls of `noisy_next_token` cost, each on a fresh sample.

    Example:
        >>> charge(sampling_rate=0.1, count=100).parts[0].count
        100
    """
    part = Gaussian(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, count=count
    )
    return Charge(name=name, parts=(part,))


def max_charge(
    *,
    epsilon: float | None = None,
    sampling_rate: float = 1.0,
    count: int = 1,
    name: str = "few-shot/noisy-max",
) -> Charge:
    """Return what `count` calls of `noisy_max_next_token` cost, each on a fresh sample.

    `epsilon` is that of one token before sampling.
    """
    part = Pure(epsilon=epsilon, sampling_rate=sampling_rate, count=count)
    return Charge(name=name, parts=(part,))


def sensitivity(relation: Relation | str) -> float:
    """Return the L2 sensitivity of a sum of probability vectors: 1 or sqrt 2."""
    return voting.sensitivity(relation)


def noisy_next_token(
    distributions: npt.ArrayLike, paid: Gaussian, relation: Relation | str
) -> Floats:
    """Release the sum of next-token distributions: sum_i p_i + N(0, (z Delta)^2 I).

    The token is its argmax (`numpy.argmax`: equal sums go to the token that is listed
    first, a public order), or what any other public decoder makes of it.

    Args:
        distributions: One row per answering slot, its probabilities of the public
            tokens, shape `(m, K)`; m may be 0, and slots that abstain are left out.
        paid: The event that was charged.
        relation: How the slots of neighbors differ.

    Returns:
        The noisy sum, shape `(K,)`. Entries may be negative.

    Example:
        >>> rows = [[0.5, 0.5, 0.0], [0.9, 0.0, 0.1]]
        >>> noisy_next_token(rows, Gaussian(noise_multiplier=0.6), "replace").shape
        (3,)
    """
    rows = inputs.probability_rows("distributions", distributions)
    limit = SCALE / (sensitivity(relation) * inputs.noise_multiplier(paid))
    total = np.zeros(rows.shape[1], np.int64)
    for block in inputs.blocks(rows):
        total += on_grid(block, limit).sum(axis=0, dtype=np.int64)
    noise = RoundedGaussian(SCALE).draw(rows.shape[1])
    released: Floats = (total + noise) / limit
    return released


def on_grid(rows: Floats, limit: float) -> Integers:
    """Map each row, alone, to integers of norm at most `limit`; norm 1 maps to it.

    Rows are clipped a little shorter than `limit` (2 + D / (8 limit) steps) and
    rounded to nearest, so that the rounding, which can lengthen a row, nearly always
    stays within. A row that is still too long is truncated toward zero instead, which
    shortens it. (Truncating all of them would pull every coordinate toward zero.)
    """
    dimension = rows.shape[1]
    clip = limit * (1 - 2 * _SLACK) - 2 - dimension / (8 * limit)
    clip = max(clip, limit / 2)
    with np.errstate(divide="ignore"):
        factors = np.minimum(limit, clip / _norms(rows))
    scaled = rows * factors[:, np.newaxis]
    grid = np.rint(scaled)
    long = _norms(grid) > limit * (1 - _SLACK)
    grid[long] = np.trunc(scaled[long])
    # The line that the sensitivity rests on. Rounding errors above would have to be
    # far larger than floating point allows for it to find anything.
    grid[_norms(grid) > limit * (1 - _SLACK)] = 0
    points: Integers = grid.astype(np.int64)
    return points


def _norms(rows: Floats) -> Floats:
    """Return the L2 norms, shape `(m,)`, also of rows whose squares overflow."""
    with np.errstate(over="ignore", under="ignore"):
        norms: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        huge = ~np.isfinite(norms)
        if bool(huge.any()):
            peaks = np.abs(rows[huge]).max(axis=1)
            shrunk = rows[huge] / peaks[:, np.newaxis]
            norms[huge] = peaks * np.sqrt(np.einsum("ij,ij->i", shrunk, shrunk))
    return norms


def noisy_max_next_token(
    distributions: npt.ArrayLike, paid: Pure, relation: Relation | str
) -> int:
    """Release the index of a token that many slots find likely: report-noisy-max.

    Only the winner is released. There are no noisy scores that a temperature could be
    applied to, and to leave out tokens by their private scores first (top-k, nucleus)
    is a release of its own that nobody paid for. The set of tokens is the caller's, and
    public.

    Args:
        distributions: One row per answering slot, its probabilities of the public
            tokens, shape `(m, K)`; m may be 0. Each row is divided by its maximum;
            a row of zeros stays one.
        paid: The event that was charged.
        relation: How the slots of neighbors differ.

    Returns:
        An index in `range(K)`: argmax of the scores plus exponential noise of scale 2
        Delta / epsilon. Equal scores are equally likely, whatever their order.

    Example:
        >>> noisy_max_next_token([[0.1, 0.9, 0]] * 500, Pure(epsilon=1.0), "replace")
        1
    """
    rows = inputs.probability_rows("distributions", distributions)
    inputs.is_replace(relation)  # One sensitivity for both; what is neither is refused.
    slope = inputs.epsilon(paid, Pure) / (2 * _UNIT)
    scores = np.zeros(rows.shape[1], np.int64)
    for block in inputs.blocks(rows):
        scores += _of_maximum_one(block).sum(axis=0, dtype=np.int64)
    # Visiting candidates in random order until one succeeds gives the same law: which
    # trials succeed does not depend on the order, and the first of them in a random
    # order is each as likely. One with the largest score always succeeds.
    succeeded = np.flatnonzero(bernoulli_exp(scores.max() - scores, slope))
    return int(succeeded[current().randrange(succeeded.size)])


def token_distributions(
    answers: Sequence[npt.ArrayLike | None],
    size: int,
    places: npt.ArrayLike | None = None,
) -> list[Floats | None]:
    """Turn what a model says of many slots into distributions over the public tokens.

    Args:
        answers: One a slot: natural logarithms of probabilities, which need not add up
            to one, -inf for what is impossible; None abstains.
        size: How many of them an answer has, public; any other slot abstains.
        places: Where in them the public tokens are, public; None takes all.

    Returns:
        For each slot the probabilities of the public tokens, divided by their sum,
        shape `(K,)`. None for a slot that abstains: one that says what can't be (not a
        number, above 0, infinite, no list of so many numbers), and one that finds all
        public tokens impossible. To take such a row for a uniform one, or its argmax,
        would make a vote out of no answer.

    Privacy:
        Each result is a function of that slot alone, which raises nothing that depends
        on it. Slot i is row i of an array, that of one who abstains too, so that
        nobody's place in it depends on what others say; and what is done to the array
        is done to each entry by itself, or adds up one row in an order that its length
        gives.

    Example:
        >>> import math
        >>> halves, nothing = np.log([0.25, 0.25, 0.5]), np.full(3, -math.inf)
        >>> one, other = token_distributions([halves, nothing], 3, [0, 1])
        >>> one.tolist(), other is None
        ([0.5, 0.5], True)
    """
    wanted = _wanted(places)
    width = parameters.count(size, "size")
    if wanted is not None and int(wanted.max()) >= width:
        return [None] * len(answers)
    result: list[Floats | None] = []
    height = max(1, inputs.BLOCK // width)
    for start in range(0, len(answers), height):
        block = answers[start : start + height]
        # What nobody has said is impossible, and abstains.
        rows = np.full((len(block), width), np.inf)
        for row, answer in zip(rows, block, strict=True):
            given = None if answer is None else _numbers(answer)
            if given is not None and given.size == width:
                row[:] = given
        result += _normalized(rows, wanted)
    return result


def contrasted(row: Floats, public: Floats, power: float) -> Floats:
    """Return one slot's distribution, sharpened by what it adds to the public one.

    `row` times (`row` / `public`) to the power, divided by its sum: what the model says
    without any record counts for less (*Plausible Token Amplification*, ICML 2025).

    Args:
        row: A slot's distribution over the public tokens, shape `(K,)`.
        public: The distribution without records, shape `(K,)`, asked for in a call that
            holds no private prompt. What is below 1e-6 counts as that.
        power: How strongly; 0 leaves the row as it is.

    Privacy:
        A function of this slot and of public values, whose entries are not negative and
        add up to 1. So it is put *before* the sum and the noise.

    Example:
        >>> row, public = np.array([0.6, 0.4, 0.0]), np.array([0.8, 0.1, 0.1])
        >>> contrasted(row, public, 1.0).round(2).tolist()
        [0.22, 0.78, 0.0]
    """
    with np.errstate(divide="ignore"):
        logs = (1 + power) * np.log(row) - power * np.log(np.maximum(public, _FLOOR))
    weights = np.exp(logs - logs.max())
    result: Floats = weights / weights.sum()
    return result


def _wanted(places: npt.ArrayLike | None) -> Integers | None:
    """Return the public places, at least one of them, shape `(K,)`."""
    if places is None:
        return None
    array = inputs.integers("places", places)
    if array.ndim != 1 or array.size == 0 or int(array.min()) < 0:
        raise InvalidParameterError(
            "places must be a flat sequence of one index or more, none negative."
        )
    return array.astype(np.int64)


def _numbers(answer: npt.ArrayLike) -> Floats | None:
    """Return one slot's answer as a flat array of doubles; None if it is none."""
    try:
        given = np.asarray(answer)
        if given.ndim != 1 or given.dtype.kind not in "fiu":
            return None
        return given.astype(np.float64, copy=False)
    except Exception:  # noqa: BLE001  # Any error would tell of one slot's answer.
        return None


def _normalized(given: Floats, wanted: Integers | None) -> list[Floats | None]:
    """Return each row's distribution over the places, None for one that abstains."""
    # What can't be is computed too, and dropped: a row alone must not raise or warn.
    with np.errstate(all="ignore"):
        # A NaN makes the maximum one, and fails the comparison.
        can_be = given.max(axis=1) <= inputs.MASS_TOLERANCE
        if wanted is not None:
            # `given[:, wanted]` would lie column by column in memory, and a row's sum
            # would be taken in another order than that of a row alone.
            given = given.take(wanted, axis=1)
        largest = given.max(axis=1, keepdims=True)
        can_be &= ~np.isneginf(largest[:, 0])
        weights = np.exp(given - largest)
        weights /= weights.sum(axis=1, keepdims=True)
    return [
        row if good else None
        for row, good in zip(weights, can_be.tolist(), strict=True)
    ]


def _of_maximum_one(rows: Floats) -> Integers:
    """Map each row, alone, to integers in 0 .. 2^20; its maximum becomes 2^20."""
    largest = rows.max(axis=1, keepdims=True)
    # A row of zeros, which has no maximum to divide by, stays.
    scaled = np.rint(rows / np.where(largest > 0, largest, 1.0) * _UNIT)
    # The line that the sensitivity rests on.
    points: Integers = np.clip(scaled, 0, _UNIT).astype(np.int64)
    return points
