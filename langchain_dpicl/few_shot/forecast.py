"""What a generation will be able to write: computed from public numbers alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from langchain_dpicl.errors import PlanMismatchError
from langchain_dpicl.few_shot.decoding import NoisyMax, noise_of_mean
from langchain_dpicl.few_shot.terms import GenerationTerms, TokenEvent, amount

PASS_RATE = 0.95

MAX_NOISE = 2.0
"""Noise on the mean probability, which is at most 1, above which nothing is written."""


class MostlyNoiseWarning(UserWarning):
    """What a generation will write for some labels is mostly chance."""


@dataclass(frozen=True)
class GenerationForecast:
    """What one generation costs, and what it can do.

    Attributes:
        noise: For each label, the noise on the groups' mean probability: the standard
            deviation, or the scale of `noisy_max`.
        leads: For each label, by how much the mean probability of the right token must
            lead every other's, for it to come out with 95 % probability.
        model_calls: Next-token questions to the model, at most: for every token one for
            each group, and those without records.
        tokens: Tokens of all examples, at most.
    """

    noise: Mapping[str, float]
    leads: Mapping[str, float]
    model_calls: int
    tokens: int

    @property
    def is_possible(self) -> bool:
        """Whether a token that all groups are sure of comes out for every label."""
        return max(self.leads.values()) <= 1.0

    def __str__(self) -> str:
        return self.advice()

    def advice(self) -> str:
        """Return what the numbers mean, in a few sentences."""
        worst = max(self.leads, key=lambda label: self.leads[label])
        lead = f"{self.leads[worst]:.2g}"
        cost = (
            f"{self.tokens} tokens at most, {self.model_calls} questions to the model."
        )
        if self.is_possible:
            return (
                "The groups' mean probability of a token must lead the others' by "
                f"{lead} to come out in {PASS_RATE:.0%} of cases ({worst!r}). {cost}"
            )
        hopeless = [repr(label) for label, lead in self.leads.items() if lead > 1.0]
        return (
            "Not even a token that all groups agree on stands out of the noise for "
            f"{', '.join(hopeless)}: it would have to lead by {lead}. What comes out "
            "there is mostly chance. Use more groups (n_groups), more records of these "
            f"labels, fewer tokens or examples, or a larger epsilon. {cost}"
        )

    def require_signal(self) -> None:
        """Refuse a generation of noise alone; warn of one that is mostly noise.

        It is noise alone where that on a mean probability is above 2 for some label.
        """
        for label, noise in self.noise.items():
            if noise > MAX_NOISE:
                raise PlanMismatchError(
                    f"The budget is too small for one example of {label!r}: the noise "
                    f"on the groups' mean probability would be {noise:.2g}, and a "
                    "probability is at most 1. Nothing was asked or charged. Use more "
                    "groups (n_groups), more records of this label, fewer tokens or "
                    "examples, or a larger epsilon; or leave the label out."
                )
        if not self.is_possible:
            warnings.warn(self.advice(), MostlyNoiseWarning, stacklevel=6)


def forecast_of(
    terms: GenerationTerms,
    paid: Mapping[str, TokenEvent],
    per_label: int,
    choices: int,
) -> GenerationForecast:
    """Return what a generation costs and can do, of `choices` tokens a step."""
    is_max = isinstance(terms.mechanism, NoisyMax)
    noise = {
        label: (
            2.0 / (amount(event) * terms.n_groups)
            if is_max
            else noise_of_mean(amount(event), terms.n_groups)
        )
        for label, event in paid.items()
    }
    tokens = len(terms.labels) * terms.max_tokens * per_label
    public = 3 if terms.mechanism.contrast else 2
    return GenerationForecast(
        noise=noise,
        leads={
            label: required_lead(each, choices, is_max=is_max)
            for label, each in noise.items()
        },
        model_calls=tokens * (terms.n_groups + public),
        tokens=tokens,
    )


def required_lead(noise: float, choices: int, *, is_max: bool) -> float:
    """Return by how much a token's mean must lead all others' for 95 %.

    For the Gaussian a normal approximation with a union bound over the other choices;
    for report-noisy-max the bound of the exponential mechanism, which permute-and-flip
    does at least as well as. There it is of probabilities scaled to maximum 1.

    Example:
        >>> round(required_lead(0.1, 100, is_max=False), 2)
        0.46
    """
    others = max(choices - 1, 1)
    if is_max:
        return noise * math.log(others * PASS_RATE / (1 - PASS_RATE))
    return noise * math.sqrt(2.0) * -NormalDist().inv_cdf((1 - PASS_RATE) / others)
