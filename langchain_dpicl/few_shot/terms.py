"""A generation's public terms: its identity, its charge, its record, its forecast.

An example of a label is T token steps. With groups, each step draws a fresh Poisson
sample of the label's units at the rate q = M N / |D_y|, so that n examples are n T
steps, and all of them compose. A finished example is not free because the next one
looks like it. With the clipped decoder a unit is in one example alone, so that T tokens
of all n are T uses, without sampling (`few_shot.clipped`).

Privacy:
    |D_y|, the number of a label's units, is public: declared, or taken as counted. It
    is that of this label, not of all: else q, and with it the noise, would be too
    small. What is charged for each label is `mechanisms.next_token.charge` (or
    `max_charge`) of n T uses at q, or `mechanisms.clipped_token.charge` of T uses. A
    label's examples are made of its own units' records alone, and a public rule puts
    each unit under one label, by its own records. So labels are charged in parallel,
    and the account gives each the least noise that it allows. The rule's name tells one
    partition from another.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from langchain_dpicl.accounting import (
    Charge,
    Event,
    Exponential,
    Gaussian,
    Parallel,
    Pure,
)
from langchain_dpicl.accounting.events import Count, Positive
from langchain_dpicl.errors import (
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.few_shot.decoding import Clipped, Decoding, NoisyMax, noise_of_mean
from langchain_dpicl.mechanisms import clipped_token, next_token
from langchain_dpicl.public import Public
from langchain_dpicl.release.record import NEIGHBORS, release_record

PASS_RATE = 0.95

MAX_NOISE = 2.0
"""Noise on the mean probability, which is at most 1, above which nothing is written."""

_WAYS_OUT = (
    "Use more groups (n_groups), more records of such labels, fewer tokens or "
    "examples, or a larger epsilon"
)

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]

SIZES_PUBLIC = "; the number of units under each label is public"
"""What a record adds where the labels' numbers of units are counted."""

Sizes = Mapping[str, int]
"""Each label's number of units."""

TokenEvent = Gaussian | Pure | Exponential
"""What the tokens of one label are charged, by mechanism."""


class GenerationTerms(Public):
    """What is public about a generation; its JSON tells one from another.

    Example:
        >>> from langchain_dpicl.few_shot.decoding import Greedy
        >>> terms = GenerationTerms(
        ...     model="my-model", prompt="{examples}Text:", labels=("a",), sizes=(500,),
        ...     n_groups=10, records_per_group=5, max_tokens=20, top_k_public=100,
        ...     decoder=Greedy(),
        ... )
        >>> terms.charge(terms.rates(), 2).parts[0]
        Gaussian(noise_multiplier=None, sampling_rate=0.1, count=40)
    """  # fmt: skip

    model: Text
    """The model's public name."""

    prompt: Text
    """The template of all prompts."""

    labels: Annotated[tuple[Text, ...], Field(min_length=1, max_length=10_000)]
    """What examples are written of: texts, as the model reads them."""

    sizes: tuple[Count, ...] | None
    """The labels' declared numbers of units; None takes them as counted."""

    n_groups: Count | None = None
    """Groups M of a step; of the clipped decoder, the people that a text expects."""

    records_per_group: Positive = 1.0
    """Units N in a group, on average; of the clipped decoder, the records of a person
    that are shown, at most."""

    max_tokens: Count
    """Most tokens T of an example; all of them are paid for, used or not."""

    top_k_public: Annotated[Count, Field(ge=2)] | None
    """Size K of a step's public vocabulary; None: all tokens."""

    decoder: Annotated[Decoding, Field(discriminator="kind")]
    """How the slots' distributions become a token."""

    unit_key: Text | None = None
    """The field that names a record's unit; None: each record is one."""

    is_seeded: bool = False
    """Whether the noise is a test's."""

    @field_validator("labels")
    @classmethod
    def _once(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(labels)) < len(labels):
            raise ValueError("each label is given once")
        return labels

    @model_validator(mode="after")
    def _has_sizes(self) -> GenerationTerms:
        if self.n_groups is None and not self.is_clipped:
            raise ValueError("n_groups is how many groups a token is asked of")
        if self.n_groups is None and self.sizes is None:
            raise ValueError(
                "labels must be a mapping from each label to its public number of "
                "units, or n_groups the number of people that a text expects"
            )
        return self

    @property
    def is_max(self) -> bool:
        """Whether the winner alone is released."""
        return isinstance(self.decoder, NoisyMax)

    @property
    def is_clipped(self) -> bool:
        """Whether each person is asked about alone, in one example."""
        return isinstance(self.decoder, Clipped)

    @property
    def needs_public(self) -> bool:
        """Whether a step compares slots with what the model says without records."""
        return isinstance(self.decoder, Clipped) or self.decoder.contrast > 0

    @property
    def temperature(self) -> float:
        """The clipped decoder's temperature."""
        return self.decoder.temperature if isinstance(self.decoder, Clipped) else 1.0

    @property
    def release(self) -> str:
        """The release's public name."""
        if self.is_clipped:
            return "few-shot/clipped"
        return f"few-shot/{'noisy-max' if self.is_max else 'gaussian'}"

    @property
    def declared(self) -> Sizes | None:
        """Each label's declared number of units."""
        if self.sizes is None:
            return None
        return dict(zip(self.labels, self.sizes, strict=True))

    @property
    def counts(self) -> bool:
        """Whether the labels' numbers of units are counted, and so made public."""
        return self.sizes is None and not self.is_clipped

    def rates(self, counted: Sizes | None = None) -> dict[str, float]:
        """Return each label's sampling rate M N / size; 1 where nobody is sampled.

        Args:
            counted: The labels' numbers of units, used where none are declared.

        Raises:
            InvalidParameterError: If there are no sizes, or groups are to hold more
                units than a label has.
        """
        if self.is_clipped:
            return dict.fromkeys(self.labels, 1.0)
        sizes = self.declared or counted
        if not sizes:
            raise InvalidParameterError("Each label needs a number of units.")
        wanted = self.groups * self.records_per_group
        for label in self.labels:
            if wanted > sizes[label]:
                raise InvalidParameterError(
                    f"Label {label!r}: {self.groups} groups of "
                    f"{self.records_per_group:g} need {wanted:g} units, and it has "
                    f"{sizes[label]}. Ask for fewer or smaller groups, bring more "
                    "records of it, or leave it out."
                )
        return {label: wanted / sizes[label] for label in self.labels}

    def people(self, per_label: int) -> dict[str, int]:
        """Return how many people a text of each label expects: B, public.

        It is n_groups, or else the declared size of the label over its texts.
        """
        sizes = self.declared or {}
        return {
            label: self.n_groups or max(1, sizes[label] // per_label)
            for label in self.labels
        }

    def charge(self, rates: Mapping[str, float], per_label: int) -> Charge:
        """Return what one generation is charged: its labels, in parallel."""

        def tokens(label: str) -> Charge:
            if self.is_clipped:
                return clipped_token.charge(count=self.max_tokens)
            make = next_token.max_charge if self.is_max else next_token.charge
            count = self.max_tokens * per_label
            return make(sampling_rate=rates[label], count=count)

        branches: Any = tuple(tokens(label).parts for label in self.labels)
        if len(branches) == 1:
            return Charge(name=self.release, parts=branches[0])
        rule = json.dumps(["label", self.unit_key, self.labels]).encode()
        name = f"label {hashlib.blake2b(rule, digest_size=8).hexdigest()}"
        labels = Parallel(branches=branches, partition=name)
        return Charge(name=self.release, parts=(labels,))

    @property
    def groups(self) -> int:
        """Groups M of a step, where a step has groups."""
        if self.n_groups is None:
            raise TypeError("The clipped decoder has no groups.")
        return self.n_groups

    def key(self, per_label: int) -> str:
        """Return the key under which generations of these terms are stored."""
        terms = json.dumps([self.model_dump(mode="json"), per_label], sort_keys=True)
        return f"few-shot {hashlib.blake2b(terms.encode(), digest_size=32).hexdigest()}"

    def record(self, per_label: int, *, is_free: bool = False) -> dict[str, Any]:
        """Return a generation's record as far as it is known before the charge.

        `is_free` is that of examples that no private record had a part in.
        """
        key, unit = self.unit_key, "one record"
        if key is not None:
            unit = f"all records with the same {key!r}"
        terms = self.model_dump(mode="json", exclude={"model", "unit_key", "is_seeded"})
        record = release_record(
            kind="examples",
            status="released",
            mechanism=self.release,
            parameters={**terms, "per_label": per_label},
            unit=unit,
            unit_key=key,
            relation="add_remove" if self.is_clipped else "replace",
            neighbors=f"{NEIGHBORS}{SIZES_PUBLIC * self.counts}",
            model=self.model,
        )
        if is_free:
            record |= {"status": "public", "mechanism": "few-shot/without-records"}
            record |= dict.fromkeys(("unit", "unit_key", "relation", "neighbors"))
            record |= {"epsilon": 0.0, "delta": 0.0}
        return record

    def forecast(
        self, events: Sequence[Event], per_label: int, choices: int
    ) -> GenerationForecast:
        """Return what a generation that pays these events costs and can do."""
        groups = self.groups
        noise = {
            label: 2.0 / (amount(event) * groups)
            if self.is_max
            else noise_of_mean(amount(event), groups)
            for label, event in paid_tokens(self.labels, events).items()
        }
        leads = {
            label: required_lead(deviation, choices, is_max=self.is_max)
            for label, deviation in noise.items()
        }
        tokens = len(self.labels) * self.max_tokens * per_label
        public = 3 if self.needs_public else 2
        return GenerationForecast(noise, leads, tokens * (groups + public), tokens)


def paid_tokens(
    labels: Sequence[str], events: Sequence[Event]
) -> dict[str, TokenEvent]:
    """Return what the tokens of each label were charged."""
    with suppress(AttributeError, IndexError, ValueError):
        first = events[0]
        branches = first.branches if isinstance(first, Parallel) else (events,)
        tokens: Any = [branch[0] for branch in branches]
        return dict(zip(labels, tokens, strict=True))
    raise LedgerError("A stored generation was charged for something else.")


def amount(event: TokenEvent) -> float:
    """Return a token's noise as a number: its noise multiplier, or its epsilon."""
    noise = event.noise_multiplier if isinstance(event, Gaussian) else event.epsilon
    if noise is None:
        raise TypeError("An event that was paid has no hole.")
    return noise


class MostlyNoiseWarning(UserWarning):
    """What a generation will write for some labels is mostly chance."""


@dataclass(frozen=True)
class GenerationForecast:
    """What one generation costs and can do, of public numbers; as text, in words.

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
        worst = max(self.leads, key=lambda label: self.leads[label])
        lead = f"{self.leads[worst]:.2g}"
        cost = f"{self.tokens} tokens and {self.model_calls} model calls at most."
        if self.is_possible:
            return (
                "The groups' mean probability of a token must lead the others' by "
                f"{lead} to come out in {PASS_RATE:.0%} of cases ({worst!r}). {cost}"
            )
        hopeless = [repr(label) for label, lead in self.leads.items() if lead > 1.0]
        return (
            "Not even a token that all groups agree on stands out of the noise for "
            f"{', '.join(hopeless)} (it would have to lead by {lead}): what comes out "
            f"there is mostly chance. {_WAYS_OUT}. {cost}"
        )

    def require_signal(self) -> None:
        """Refuse a generation of noise alone; warn of one that is mostly noise.

        It is noise alone where that on a mean probability is above 2 for some label.
        """
        for label, noise in self.noise.items():
            if noise > MAX_NOISE:
                raise PlanMismatchError(
                    f"The budget is too small for one example of {label!r}: the noise "
                    f"on a mean probability would be {noise:.2g}. {_WAYS_OUT}, or "
                    "leave the label out."
                )
        if not self.is_possible:
            warnings.warn(str(self), MostlyNoiseWarning, stacklevel=6)


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
