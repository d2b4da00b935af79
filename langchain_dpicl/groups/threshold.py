"""A score threshold chosen for each question, by noisy prefix counts.

For users who know how many units an answer should rest on, but not which cosine. Public
score edges e_0 > e_1 > ... cut the eligible units into bins: bin j holds those whose
own best score is in [e_j, e_(j-1)). From the top edge down, each bin's units are
charged, those that paid are counted, and Gaussian noise is added to the count. The
first bin at which the noisy counts add up to the target gives the threshold, its lower
edge; failing that, the last bin does.

Privacy:
    *Unit and relation.* What one value of `unit_key` names; add/remove, whatever the
    relation of the slots is: counts are of units, not of slots. A unit's best score is
    a function of its own documents and the question, so that it is in one bin at most:
    the counts of all bins are one histogram. *Sensitivity, noise, event:*
    `mechanisms.voting`, one Gaussian(z) for all bins; each edge is decided from the
    noisy counts alone, and what is given out (the edge, the noisy sum) is
    post-processing. It is charged to everybody under an account of the whole corpus,
    and to every unit of a touched bin under per-unit accounts (parallel composition:
    no unit is in two bins, so that none pays twice).

    *Why an untouched bin's units pay nothing.* Whether a unit is charged depends on its
    own score, on its own balance and on whether its bin is reached, which the noisy
    counts of the bins *above* decide: those its own presence has not changed. That is
    an individual filter's charge, chosen from the transcript and the unit's own data.
    A unit whose bin is not reached has changed nothing that was drawn.

    *A unit that does not pay is not counted.* It may still be eligible for the release
    that follows, if the threshold includes it and its balance covers *that* charge; and
    a unit that paid for the count may be unable to pay for the release. Both are sound:
    each of the two charges is a function of the unit's own score and balance and of
    what is public by then, and every unit that contributes to a step has paid for that
    step.

    *Sampled groups* count a sample of their own (`groups.sampling`), drawn among those
    who paid: the event is the sampled Gaussian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.units import ChargeUnits
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.search import EligibleUnits
from langchain_dpicl.groups.selection import payers
from langchain_dpicl.mechanisms import noisy_counts, vote_template
from langchain_dpicl.mechanisms.noise import GaussianNoise
from langchain_dpicl.mechanisms.source import SecureRandom

# 0.95, 0.90, ..., 0.05. Cosines of text embeddings that have to do with a question lie
# above 0, wherever the embedding puts them, and unrelated vectors scatter around 0 (by
# 0.05 at 400 dimensions), so that there is nobody worth finding below the last edge.
# Steps of 0.05 come close to the target, and 19 bins keep the noise of the largest sum
# below 4.4 z. Constants: edges taken from the corpus' own scores would be private.
DEFAULT_BINS = tuple(round(0.05 * step, 2) for step in range(19, 0, -1))
MECHANISM = "threshold/prefix-counts"

SHARE = 0.1
"""Part of one query's share of a filter account. A count of some hundred units
tolerates far more noise than the release after it."""


@dataclass(frozen=True)
class NoisyThreshold:
    """Asks for a threshold that about `units` units reach, chosen for each question.

    Pass it as `score_threshold=` of `RetrievedGroups`, instead of a number. Every
    question then makes two releases: the threshold, then the answer. The answer's
    record names the threshold.

    The noise of a sum over j bins has standard deviation z sqrt(j), in groups that are
    sampled at a rate q divided by q. A target below a few times that may be reached by
    noise alone, at an edge that nobody reaches.

    Attributes:
        units: Public target: the number of eligible units to aim for, at least 1.
        bins: Public score edges, strictly descending, from 1 down to -1. The last one
            is the lowest threshold that may be chosen.
        noise_multiplier: Standard deviation of the noise on each count, in units; None
            leaves it to the budget.

    Raises:
        InvalidParameterError: If a value is of the wrong type or out of range.

    Example:
        >>> NoisyThreshold(units=200, bins=(0.8, 0.6, 0.4))
        NoisyThreshold(units=200, bins=(0.8, 0.6, 0.4), noise_multiplier=None)

    Privacy:
        See the module docstring. Event: Gaussian(noise_multiplier).
    """

    units: int
    bins: Sequence[float] = DEFAULT_BINS
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        bins = _checked_bins(self.bins)
        units = parameters.count(self.units, "units")
        noise = self.noise_multiplier
        if noise is not None:
            noise = parameters.noise_multiplier(noise)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "bins", bins)
        object.__setattr__(self, "noise_multiplier", noise)

    def event_template(
        self, sampling_rate: float = 1.0
    ) -> EventTemplate[GaussianNoise]:
        """The event template of choosing a threshold, on a sample or on all units."""
        noise = self.noise_multiplier
        return vote_template(MECHANISM, noise, share=SHARE, sampling_rate=sampling_rate)

    def description(self) -> dict[str, Any]:
        """Return the parameters, ready for JSON; the keyword arguments of this class.

        Example:
            >>> NoisyThreshold(9, (0.5, 0.25)).description()
            {'units': 9, 'bins': [0.5, 0.25], 'noise_multiplier': None}
        """
        return {
            "units": self.units,
            "bins": list(self.bins),
            "noise_multiplier": self.noise_multiplier,
        }


@dataclass(frozen=True)
class ChosenThreshold:
    """What `choose_threshold` releases: differentially private, hence public."""

    edge: float  # The threshold, one of the bins' edges.
    # The noisy number of units that reach it and paid, rounded; may be negative.
    noisy_units: int

    def details(self) -> dict[str, Any]:
        """Return it as the answer's record names it."""
        return {"score_threshold": self.edge, "noisy_units": self.noisy_units}


def choose_threshold(
    found: EligibleUnits,
    terms: NoisyThreshold,
    *,
    noise_multiplier: float,
    charge_units: ChargeUnits | None = None,
    sample: UnitSample | None = None,
    random: SecureRandom | None = None,
) -> ChosenThreshold:
    """Choose the threshold that about `terms.units` units reach; see `ChosenThreshold`.

    `found` are all units that reach the last edge. `charge_units` charges the units of
    each touched bin, once a bin, from the top down. With a sample, its units alone are
    counted, and the count is divided by the rate.

    Raises:
        InvalidParameterError: If the noise multiplier is out of range.
        LedgerError: If `charge_units` gives no full answer; then nothing is released.

    Privacy:
        See the module docstring. Sensitivity 1, Gaussian(z), for the units of the
        touched bins, each of which was asked to pay before its count got its noise.
    """
    z = parameters.noise_multiplier(noise_multiplier)
    # A unit's bin is the first edge, from the top, that its score reaches.
    edges = np.array(terms.bins)
    bin_of = np.searchsorted(-edges, -found.scores, side="left")
    by_bin = np.argsort(bin_of, kind="stable")
    starts = np.searchsorted(bin_of[by_bin], np.arange(len(edges) + 1))

    rate = 1.0 if sample is None else sample.rate
    noisy_sum = 0.0
    touched = 0
    while noisy_sum < terms.units and touched < len(edges):
        own = by_bin[starts[touched] : starts[touched + 1]]
        counted = len(payers(found, own, charge_units))
        if sample is not None:
            # A unit is in one bin: the samples of the bins are one of all units.
            counted = len(sample.places(counted))
        (noisy,) = noisy_counts(
            [counted],
            noise_multiplier=z,
            relation=Relation.ADD_REMOVE,
            random=random,
        )
        noisy_sum += float(noisy) / rate
        touched += 1
    return ChosenThreshold(terms.bins[touched - 1], round(noisy_sum))


def _checked_bins(bins: Any) -> tuple[float, ...]:
    if not isinstance(bins, Sequence | np.ndarray) or isinstance(bins, str):
        raise InvalidParameterError(
            "bins must be a list of score edges, such as (0.9, 0.8, 0.7), not "
            f"{type(bins).__name__}."
        )
    edges = tuple(parameters.finite("an edge of bins", one) for one in bins)
    if not edges:
        raise InvalidParameterError("bins must hold at least one score edge.")
    if not all(-1 <= edge <= 1 for edge in edges):
        raise InvalidParameterError(
            "bins are edges of cosines: all of them must be between -1 and 1."
        )
    if not all(upper > lower for upper, lower in pairwise(edges)):
        raise InvalidParameterError(
            "bins must be strictly descending, from the highest score edge down."
        )
    return edges
