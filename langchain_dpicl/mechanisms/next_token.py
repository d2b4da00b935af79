"""The next token, from the distributions of many slots: the release behind generation.

Tang, Shin, Inan, Manoel, Mireshghallah, Lin, Gopi, Kulkarni, Sim, *Privacy-Preserving
In-Context Learning with Differentially Private Few-Shot Generation*, ICLR 2024,
Algorithm 1 and Theorem 4.2.

Slot i says p_i, the probabilities of K *public* tokens, or nothing. What a row says is
a function of that slot alone (`token_distribution`), and so is its point of the grid.

**Gaussian** (`noisy_next_token`)

1. *Sensitivity.* Each row becomes a point of an integer grid, in no coordinate negative
   and of norm at most `limit` steps; `on_grid` establishes the norm on the grid point
   itself. One row appears or vanishes (`ADD_REMOVE`): the integer sum moves by at most
   `limit`. One row p changes to q (`REPLACE`): |p - q|^2 = |p|^2 + |q|^2 - 2 <p, q> <=
   2 limit^2, because <p, q> >= 0: by at most sqrt(2) `limit`. Probabilities of at most
   1 in all have norm at most 1, so clipping to that takes nothing away.
2. *Noise.* Rounded Gaussians of s = 2^14 steps, limit = s / z or s / (sqrt(2) z): the
   noise multiplier is z, exactly. (The paper's N(0, 2 sigma^2) is this, z = sigma.)
3. *Event* (`next_token_template`). Gaussian with noise multiplier z, of the whole
   vector: its argmax, or a token sampled from what it says, at any temperature, is
   post-processing.

**Noisy max** (`noisy_max_next_token`)

1. *Sensitivity.* Each row, divided by its own maximum, becomes integers in 0 .. 2^20.
   One row appears, vanishes or changes: each sum moves by at most 2^20, up or down.
2. *Noise.* Permute-and-flip: candidate c succeeds with probability exp(-epsilon (max -
   u_c) / (2 * 2^20)), an exact trial; one of those that succeed is drawn, each as
   likely. It is the argmax of scores plus exponential noise of scale 2 Delta / epsilon.
3. *Event* (`max_token_template`). Pure epsilon (McKenna, Sheldon, NeurIPS 2020, Theorem
   1), of the winner alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import GaussianPart, PurePart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.ball_grid import SCALE, on_grid
from langchain_dpicl.mechanisms.exponential_trials import succeed_exp
from langchain_dpicl.mechanisms.inputs import (
    MASS_TOLERANCE,
    index_array,
    probability_rows,
)
from langchain_dpicl.mechanisms.noise import GaussianNoise, PureNoise
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

_UNIT = 1 << 20  # Grid steps that a row's maximum becomes, for noisy max.
_BLOCK = 1 << 17
"""Numbers that are put on a grid at a time, so that they stay in the cache."""


def next_token_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    sampling_rate: float = 1.0,
    uses: int = 1,
) -> EventTemplate[GaussianNoise]:
    """Return what `uses` calls of `noisy_next_token` are charged: Gaussian(z) each.

    Each is on a fresh sample.
    """
    part = GaussianPart(noise_multiplier)
    return EventTemplate(mechanism, (part,), GaussianNoise, sampling_rate, uses=uses)


def noisy_next_token(
    distributions: npt.ArrayLike,
    *,
    noise_multiplier: float,
    relation: Relation | str = "replace",
    random: SecureRandom | None = None,
) -> npt.NDArray[np.float64]:
    """Release the sum of next-token distributions: sum_i p_i + N(0, (z Delta)^2 I).

    The token is its argmax (`numpy.argmax`: equal sums go to the token that is listed
    first, a public order), or what any other public decoder makes of it.

    Args:
        distributions: One row per answering slot, its probabilities of the public
            tokens, shape `(m, K)`; m may be 0, and slots that abstain are left out.
        noise_multiplier: z = sigma / sensitivity.
        relation: How the slots of neighbors differ.
        random: Source of the noise; None is the operating system's.

    Returns:
        The noisy sum, shape `(K,)`. Entries may be negative.

    Raises:
        InvalidParameterError: If an argument is malformed: rows that are ragged,
            negative, not finite, or more than 1 in all. Messages hold no entry.

    Privacy:
        Unit and relation: one row, as `relation` says. Sensitivity: L2, 1 under
        `ADD_REMOVE` and sqrt(2) under `REPLACE`. Noise: rounded Gaussian, sigma = z
        Delta, exact. Event: Gaussian(z), subsampled where every token's rows come
        from a fresh Poisson sample. Source: Tang et al., ICLR 2024, Theorem 4.2.

    Example:
        >>> rows = [[0.5, 0.5, 0.0], [0.9, 0.0, 0.1]]
        >>> noisy_next_token(rows, noise_multiplier=0.6).shape
        (3,)
    """
    rows = probability_rows(distributions)
    z = parameters.noise_multiplier(noise_multiplier)
    per_limit = sensitivity.next_token_l2(relation)
    source = checked_source(random)

    limit = SCALE / (per_limit * z)
    total = np.zeros(rows.shape[1], np.int64)
    for block in _blocks(rows):
        total += on_grid(block, 1.0, limit).sum(axis=0, dtype=np.int64)
    noise = RoundedGaussian(SCALE).draw(rows.shape[1], source)
    released: npt.NDArray[np.float64] = (total + noise) / limit
    return released


def max_token_template(
    mechanism: str,
    epsilon: float | None = None,
    *,
    sampling_rate: float = 1.0,
    uses: int = 1,
) -> EventTemplate[PureNoise]:
    """Return what `uses` calls of `noisy_max_next_token` are charged: pure epsilons.

    Each is on a fresh sample; `epsilon` is that of one token before sampling.
    """
    part = PurePart(epsilon)
    return EventTemplate(mechanism, (part,), PureNoise, sampling_rate, uses=uses)


def noisy_max_next_token(
    distributions: npt.ArrayLike,
    *,
    epsilon: float,
    relation: Relation | str = "replace",
    random: SecureRandom | None = None,
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
        epsilon: Privacy loss bound of the choice.
        relation: How the slots of neighbors differ.
        random: Source of the draws; None is the operating system's.

    Returns:
        An index in `range(K)`: argmax of the scores plus exponential noise of scale 2
        Delta / epsilon. Equal scores are equally likely, whatever their order.

    Raises:
        InvalidParameterError: If an argument is malformed: rows that are ragged,
            negative, not finite, or more than 1 in all. Messages hold no entry.

    Privacy:
        Unit and relation: one row, as `relation` says. Sensitivity: L-infinity, 1
        under both. Under `ADD_REMOVE` a row moves all scores one way, for which half
        the noise would do; the factor 2 stays, as in the paper, so that a stored event
        means one thing. Noise: exact trials, see above. Event: pure epsilon, which
        sampling at rate q amplifies to log(1 + q (e^epsilon - 1)). Source: McKenna,
        Sheldon, NeurIPS 2020, Theorem 1; Tang et al., ICLR 2024.

    Example:
        >>> noisy_max_next_token([[0.1, 0.9, 0.0]] * 500, epsilon=1.0)
        1
    """
    rows = probability_rows(distributions)
    slope = Fraction(parameters.epsilon(epsilon))
    slope /= 2 * Fraction(sensitivity.next_token_linf(relation)) * _UNIT
    source = checked_source(random)

    scores = np.zeros(rows.shape[1], np.int64)
    for block in _blocks(rows):
        scores += _of_maximum_one(block).sum(axis=0, dtype=np.int64)
    # Visiting candidates in random order until one succeeds gives the same law: which
    # trials succeed does not depend on the order, and the first of them in a random
    # order is each as likely. One with the largest score always succeeds.
    succeeded = np.flatnonzero(succeed_exp(scores.max() - scores, slope, source))
    return int(succeeded[source.below(succeeded.size)])


def token_distribution(
    log_probabilities: npt.ArrayLike, places: npt.ArrayLike | None = None
) -> npt.NDArray[np.float64] | None:
    """Turn what a model says of one slot into a distribution over the public tokens.

    Args:
        log_probabilities: Natural logarithms of probabilities, shape `(n,)`; -inf for
            what is impossible. They need not add up to one.
        places: Where in them the public tokens are, shape `(K,)`, public; None takes
            all.

    Returns:
        The probabilities of the public tokens, divided by their sum, shape `(K,)`. None
        for a slot that abstains: one that says what can't be (not a number, above 0,
        infinite, not a list of numbers that has these places), and one that finds all
        public tokens impossible. To take such a row for a uniform one, or its argmax,
        would make a vote out of no answer.

    Raises:
        InvalidParameterError: If `places` are not a flat array of indices.

    Privacy:
        A function of this slot alone, which raises nothing that depends on it.

    Example:
        >>> import math
        >>> logs = [math.log(0.5), -math.inf, math.log(0.125), math.log(0.375)]
        >>> token_distribution(logs, [0, 2, 1]).round(9).tolist()
        [0.8, 0.2, 0.0]
        >>> token_distribution(logs, [1]) is None
        True
    """
    wanted = _wanted(places)
    said = _numbers(log_probabilities)
    if said is None or said.size == 0 or not _reaches(said.size, wanted):
        return None
    return _normalized(said[np.newaxis], wanted)[0]


def token_distributions(
    answers: Sequence[npt.ArrayLike | None],
    size: int,
    places: npt.ArrayLike | None = None,
) -> list[npt.NDArray[np.float64] | None]:
    """Turn what a model says of many slots into distributions over the public tokens.

    `token_distribution` of each answer, to the last bit and several times as fast.

    Args:
        answers: One a slot: natural logarithms of probabilities; None abstains.
        size: How many of them an answer has, public; any other slot abstains.
        places: Where in them the public tokens are; None takes all.

    Raises:
        InvalidParameterError: If `places` are not a flat array of indices, or `size` is
            no positive integer.

    Privacy:
        Each result is a function of that slot alone. Slot i is row i of an array, that
        of one who abstains too, so that nobody's place in it depends on what others
        say; and what is done to the array is done to each entry by itself, or adds up
        one row in an order that its length gives.

    Example:
        >>> import math
        >>> halves, nothing = np.log([0.25, 0.25, 0.5]), np.full(3, -math.inf)
        >>> one, other = token_distributions([halves, nothing], 3, [0, 1])
        >>> one.tolist(), other is None
        ([0.5, 0.5], True)
    """
    wanted = _wanted(places)
    width = parameters.count(size, "size")
    if not _reaches(width, wanted):
        return [None] * len(answers)
    found: list[npt.NDArray[np.float64] | None] = []
    height = max(1, _BLOCK // width)
    for start in range(0, len(answers), height):
        block = answers[start : start + height]
        # What nobody has said is impossible, and abstains.
        rows = np.full((len(block), width), np.inf)
        for row, answer in zip(rows, block, strict=True):
            said = None if answer is None else _numbers(answer)
            if said is not None and said.size == width:
                row[:] = said
        found += _normalized(rows, wanted)
    return found


def _wanted(places: npt.ArrayLike | None) -> npt.NDArray[np.integer] | None:
    return None if places is None else index_array("places", places)


def _reaches(size: int, wanted: npt.NDArray[np.integer] | None) -> bool:
    return wanted is None or int(wanted.max()) < size


def _numbers(answer: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
    """Return one slot's answer as a flat array of doubles; None if it is none."""
    try:
        said = np.asarray(answer)
        if said.ndim != 1 or said.dtype.kind not in "fiu":
            return None
        return said.astype(np.float64, copy=False)
    except Exception:  # noqa: BLE001  # Any error would tell of one slot's answer.
        return None


def _normalized(
    said: npt.NDArray[np.float64], wanted: npt.NDArray[np.integer] | None
) -> list[npt.NDArray[np.float64] | None]:
    """Return each row's distribution over the places, None for one that abstains."""
    # What can't be is computed too, and dropped: a row alone must not raise or warn.
    with np.errstate(all="ignore"):
        # A NaN makes the maximum one, and fails the comparison.
        can_be = said.max(axis=1) <= MASS_TOLERANCE
        if wanted is not None:
            # `said[:, wanted]` would lie column by column in memory, and a row's sum
            # would be taken in another order than that of a row alone.
            said = said.take(wanted, axis=1)
        largest = said.max(axis=1, keepdims=True)
        can_be &= ~np.isneginf(largest[:, 0])
        weights = np.exp(said - largest)
        weights /= weights.sum(axis=1, keepdims=True)
    return [
        row if good else None
        for row, good in zip(weights, can_be.tolist(), strict=True)
    ]


def _of_maximum_one(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Map each row, alone, to integers in 0 .. 2^20; its maximum becomes 2^20."""
    largest = rows.max(axis=1, keepdims=True)
    # A row of zeros, which has no maximum to divide by, stays.
    scaled = np.rint(rows / np.where(largest > 0, largest, 1.0) * _UNIT)
    # The line that the sensitivity rests on.
    points: npt.NDArray[np.int64] = np.clip(scaled, 0, _UNIT).astype(np.int64)
    return points


def _blocks(rows: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    """Yield some rows at a time: each is mapped alone, so that changes nothing."""
    height = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), height):
        yield rows[start : start + height]
