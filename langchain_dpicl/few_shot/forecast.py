"""What a generation will be able to write: computed from public numbers alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import PlanMismatchError
from langchain_dpicl.few_shot.decoding import noise_of_mean
from langchain_dpicl.few_shot.spec import GenerationSpec, PaidTokens

PASS_RATE = 0.95

MAX_NOISE = 2.0
"""Noise on the mean probability, which is at most 1, above which nothing is written."""


class MostlyNoiseWarning(UserWarning):
    """What a generation will write for some labels is mostly chance."""


@dataclass(frozen=True)
class LabelForecast:
    """What the noise does to one label's tokens.

    Attributes:
        label: The label.
        sampling_rate: The rate q of a step's sample.
        noise: Noise multiplier of a step, or its epsilon for `noisy_max`.
        required_lead: By how much the groups' mean probability of the right token
            must lead every other's, for it to come out with 95 % probability.
    """

    label: str
    sampling_rate: float
    noise: float
    required_lead: float

    @property
    def is_possible(self) -> bool:
        """Whether a token that all groups are sure of comes out nearly always."""
        return self.required_lead <= 1.0


@dataclass(frozen=True)
class GenerationForecast:
    """What one generation costs, and what it can do.

    Attributes:
        labels: One forecast for each label.
        model_calls: Next-token questions to the model, at most: for every token one
            for each group, and two without records.
        tokens: Tokens of all examples, at most.
    """

    labels: tuple[LabelForecast, ...]
    model_calls: int
    tokens: int

    @property
    def is_possible(self) -> bool:
        """Whether it is possible for every label."""
        return all(label.is_possible for label in self.labels)

    def __str__(self) -> str:
        return self.advice()

    def advice(self) -> str:
        """Return what the numbers mean, in a few sentences."""
        worst = max(self.labels, key=lambda label: label.required_lead)
        cost = (
            f"{self.tokens} tokens at most, {self.model_calls} questions to the model."
        )
        if worst.is_possible:
            return (
                "The groups' mean probability of a token must lead the others' by "
                f"{worst.required_lead:.2g} to come out in {PASS_RATE:.0%} of cases "
                f"({worst.label!r}). {cost}"
            )
        hopeless = [label.label for label in self.labels if not label.is_possible]
        return (
            f"Not even a token that all groups agree on stands out of the noise for "
            f"{', '.join(map(repr, hopeless))}: it would have to lead by "
            f"{worst.required_lead:.2g}. What comes out there is mostly chance. Use "
            "more groups (n_groups), more records of these labels, fewer tokens or "
            f"examples, or a larger epsilon. {cost}"
        )


def forecast(
    terms: GenerationSpec,
    budget: PrivacyBudgetHandler,
    rates: Mapping[str, float],
    *,
    per_label: int,
    choices: int,
) -> GenerationForecast:
    """Return what one generation costs and can do, of `choices` tokens a step.

    Nothing is charged. A plan that is for another release, or can't be made, is a
    `PlanMismatchError`.
    """
    events = budget.quote(terms.charge(rates, per_label))
    is_gaussian = terms.mechanism == "gaussian"
    labels = []
    for name, noise in PaidTokens.of(terms.labels, events).noise.items():
        lead = required_lead(
            noise, n_groups=terms.n_groups, choices=choices, is_gaussian=is_gaussian
        )
        labels.append(LabelForecast(name, rates[name], noise, lead))
    tokens = len(terms.labels) * terms.max_tokens * per_label
    return GenerationForecast(tuple(labels), tokens * (terms.n_groups + 2), tokens)


def require_signal(found: GenerationForecast, terms: GenerationSpec) -> None:
    """Refuse a generation that would be noise alone; warn of one that is mostly so.

    It is noise alone where that of a mean probability is above 2 for some label.
    """
    for label in found.labels:
        is_gaussian = terms.mechanism == "gaussian"
        deviation = (
            noise_of_mean(label.noise, terms.n_groups)
            if is_gaussian
            else 2.0 / (label.noise * terms.n_groups)
        )
        if deviation > MAX_NOISE:
            raise PlanMismatchError(
                f"The budget is too small for one example of {label.label!r}: the "
                f"noise on the groups' mean probability would be {deviation:.2g}, and "
                "a probability is at most 1. Nothing was asked or charged. Use more "
                "groups (n_groups), more records of this label, fewer tokens or "
                "examples, or a larger epsilon; or leave the label out."
            )
    if not found.is_possible:
        warnings.warn(found.advice(), MostlyNoiseWarning, stacklevel=4)


def required_lead(
    noise: float, *, n_groups: int, choices: int, is_gaussian: bool
) -> float:
    """Return by how much a token's mean must lead all others' for 95 %.

    For the Gaussian a normal approximation with a union bound over the other choices;
    for report-noisy-max the bound of the exponential mechanism, which permute-and-flip
    does at least as well as. There it is of probabilities scaled to maximum 1.
    """
    others = max(choices - 1, 1)
    if not is_gaussian:
        scale = 2.0 / (noise * n_groups)
        return scale * math.log(others * PASS_RATE / (1 - PASS_RATE))
    tail = (1 - PASS_RATE) / others
    deviation = noise_of_mean(noise, n_groups) * math.sqrt(2.0)
    return deviation * -NormalDist().inv_cdf(tail)
