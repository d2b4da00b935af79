"""Private voting: noisy histograms.

Wu, Panda, Wang, Mittal, *Privacy-Preserving In-Context Learning for Large Language
Models*, ICLR 2024, Algorithm 1 and Theorem 3.

1. *Sensitivity.* Each slot votes for one of C public labels or abstains. One unit
   touches one slot: under `ADD_REMOVE` one unit vector appears or vanishes, under
   `REPLACE` one is exchanged for another (or for zero). L2: 1 and sqrt(2).
2. *Noise.* Independent rounded Gaussians of scale sigma = z * sensitivity on a public
   grid of 1 / weight votes: exactly post-processing of a Gaussian mechanism.
3. *Event* (`vote_template`). Gaussian with noise multiplier z. The argmax is
   post-processing. So is a rule that gives no label out of nothing: `least_votes` and
   `lead_over_a_tie` are public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import GaussianPart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import count_array
from langchain_dpicl.mechanisms.noise import GaussianNoise
from langchain_dpicl.mechanisms.rounded_gaussian import COUNT_SCALE, count_grid
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

NOBODY = 0.01  # How often a label may come out that no group chose.
TIE = 0.05  # How often one of two labels with the same votes may come out.
OTHER_BINS = 3  # Of a vote: "none of these", unreadable replies, failed calls.
_NORMAL = NormalDist()
_ROUNDING = 1 / (2 * COUNT_SCALE)
"""Half a step of the noise, in its deviations: a step is 1 / `COUNT_SCALE`, or less."""


def vote_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    sampling_rate: float = 1.0,
    share: float = 1.0,
) -> EventTemplate[GaussianNoise]:
    """Return what `noisy_counts` is charged: Gaussian(z).

    Example:
        >>> vote_template("vote/gaussian", 2.0, sampling_rate=0.1).events(1.0, 0.0)
        (Gaussian(noise_multiplier=2.0, sampling_rate=0.1, count=1),)
    """
    part = GaussianPart(noise_multiplier)
    return EventTemplate(mechanism, (part,), GaussianNoise, sampling_rate, share=share)


def noisy_counts(
    counts: Sequence[int] | npt.NDArray[np.integer],
    *,
    noise_multiplier: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> npt.NDArray[np.float64]:
    """Release a histogram of votes over a public label set: H + N(0, (z Delta)^2).

    Args:
        counts: Votes per label, integers, shape `(C,)`. Each slot has added at most
            1 to at most one of them.
        noise_multiplier: z = sigma / sensitivity.
        relation: How the slots of neighbors differ.
        random: Source of the noise; None is the operating system's.

    Returns:
        Noisy votes, in votes, shape `(C,)`. They may be negative.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no count.

    Privacy:
        Unit and relation: one slot, as `relation` says. Sensitivity: L2, 1 under
        `ADD_REMOVE` and sqrt(2) under `REPLACE`. Noise: rounded Gaussian, sigma =
        z Delta, exact. Event: Gaussian(z). Source: ICLR 2024 paper, Theorem 3.

    Example:
        >>> noisy_counts([30, 9, 1], noise_multiplier=1.0, relation="replace").shape
        (3,)
    """
    votes = count_array(counts)
    z = parameters.noise_multiplier(noise_multiplier)
    sigma = sensitivity.noise_scale(z, sensitivity.vote_l2(relation))
    source = checked_source(random)

    # int64 holds it: a weight of at most 2^29 times a count of at most 2^32.
    weight, noise = count_grid(sigma)
    noisy = votes * weight + noise.draw(votes.size, source)
    return noisy / weight


def least_votes(sigma: float, labels: int) -> float:
    """Return the noisy count below which a label is taken for one that nobody chose.

    With no vote at all, some label's noisy count, of standard deviation sigma, reaches
    it in `NOBODY` of cases at most; where others have votes, a label without any comes
    out more rarely.

    That holds for the noise as it is drawn, whole steps of `count_grid`: where a
    rounded Gaussian reaches t, the Gaussian before the rounding reaches t less half a
    step. So t is the quantile of the rounded Gaussian, up to a step.
    """
    # Of so many labels that the rate is 1 there is a quantile all the same.
    share = math.log1p(-NOBODY) / labels
    return sigma * (-_NORMAL.inv_cdf(-math.expm1(share)) + _ROUNDING)


def lead_over_a_tie(sigma: float, labels: int = 2) -> float:
    """Return the noisy lead that a label reaches in `TIE` of cases, out of a tie.

    Of the two bins that tie, two are `labels`, or one is and one is another bin, such
    as "none of these". It is `TIE` of cases at most, for the noise as it is drawn; see
    `least_votes`.
    """
    quantile = math.sqrt(2) * _NORMAL.inv_cdf(1 - TIE / labels)
    return sigma * (quantile + 2 * _ROUNDING)


def required_lead(
    labels: int, *, sigma: float, min_lead: float = 0.0, pass_rate: float = 0.95
) -> float:
    """Return the lead with which a label comes out in `pass_rate` of questions.

    It holds however many groups have no records: the winner has the lead alone, and the
    other labels and the `OTHER_BINS` have nothing. With more votes on both sides it
    comes out at least as often. `min_lead` is the least noisy lead over every other
    label; over another bin it is that of a label out of a tie with it, at least.

    Example:
        >>> 21 < required_lead(10, sigma=4.1) < 22
        True
        >>> 25 < required_lead(8, sigma=4.1, min_lead=lead_over_a_tie(4.1)) < 26
        True
    """
    from scipy import optimize, special

    nodes, weights = np.polynomial.legendre.leggauss(200)
    least, margin = least_votes(1.0, labels), min_lead / sigma
    over_none = max(margin, lead_over_a_tie(1.0, labels=1))

    def missing(lead: float) -> float:
        # Over the winner's noise x: lead + x is enough, and beats all others' noise.
        low = min(max(least - lead, -9.0), 9.0)
        x = low + (9.0 - low) * (nodes + 1) / 2
        beats = np.exp(
            (labels - 1) * special.log_ndtr(lead + x - margin)
            + OTHER_BINS * special.log_ndtr(lead + x - over_none)
            - x * x / 2
        )
        rate = (9.0 - low) / 2 * float(weights @ beats) / math.sqrt(2 * math.pi)
        return rate - pass_rate

    return sigma * float(optimize.brentq(missing, 0.0, margin + 40.0))
