"""A generation's public terms: checked once, then its identity, its charge, its record.

An example of a label is T token steps. Each draws a fresh Poisson sample of the label's
units at the rate q = M N / |D_y|, so that n examples are n T steps, and all of them
compose. A finished example is not free because the next one looks like it.

Privacy:
    |D_y|, the number of a label's units, is public: declared, or taken as counted. It
    is that of this label, not of all: else q, and with it the noise, would be too
    small. What is charged is `mechanisms.next_token.charge` (or `max_charge`) of n T
    uses at q, for each label. A label's examples are made of its own units' records
    alone, and a public rule puts each unit under one label, by its own records. So
    labels are charged in parallel, and the account gives each the least noise that it
    allows. The rule's name tells one partition from another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field, field_validator

from langchain_dpicl.accounting import Charge, Event, Gaussian, Parallel, Pure, compose
from langchain_dpicl.accounting.events import Count, Positive
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.few_shot.decoding import Decoding, NoisyMax
from langchain_dpicl.mechanisms import next_token
from langchain_dpicl.public import Public
from langchain_dpicl.release.record import NEIGHBORS, Status, release_record

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]

Sizes = Mapping[str, int]
"""Each label's number of units."""

TokenEvent = Gaussian | Pure
"""What the tokens of one label are charged, by mechanism."""


class GenerationTerms(Public):
    """What is public about a generation; its JSON tells one from another.

    Example:
        >>> from langchain_dpicl.few_shot.decoding import Greedy
        >>> terms = GenerationTerms(
        ...     model="my-model", prompt="{examples}Text:", labels=("a",), sizes=(500,),
        ...     n_groups=10, records_per_group=5, max_tokens=20, top_k_public=100,
        ...     mechanism=Greedy(),
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

    n_groups: Count
    """Groups M of a step."""

    records_per_group: Positive
    """Units N in a group, on average."""

    max_tokens: Count
    """Most tokens T of an example; all of them are paid for, used or not."""

    top_k_public: Annotated[Count, Field(ge=2)] | None
    """Size K of a step's public vocabulary; None: all tokens."""

    mechanism: Annotated[Decoding, Field(discriminator="kind")]
    """How the groups' distributions become a token."""

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

    @property
    def release(self) -> str:
        """The release's public name."""
        name = "noisy-max" if isinstance(self.mechanism, NoisyMax) else "gaussian"
        return f"few-shot/{name}"

    @property
    def unit(self) -> str:
        """The protected unit in words."""
        if self.unit_key is None:
            return "one record"
        return f"all records with the same {self.unit_key!r}"

    @property
    def declared(self) -> Sizes | None:
        """Each label's declared number of units."""
        if self.sizes is None:
            return None
        return dict(zip(self.labels, self.sizes, strict=True))

    def rates(self, counted: Sizes | None = None) -> dict[str, float]:
        """Return each label's sampling rate M N / size.

        Args:
            counted: The labels' numbers of units, used where none are declared.

        Raises:
            InvalidParameterError: If there are no sizes, or groups are to hold more
                units than a label has.
        """
        sizes = self.declared or counted
        if not sizes:
            raise InvalidParameterError("Each label needs a number of units.")
        wanted = self.n_groups * self.records_per_group
        for label in self.labels:
            if wanted > sizes[label]:
                raise InvalidParameterError(
                    f"Label {label!r}: {self.n_groups} groups of "
                    f"{self.records_per_group:g} need {wanted:g} units, and the label "
                    f"has {sizes[label]}. Ask for fewer or smaller groups, bring more "
                    "records of this label, or leave it out."
                )
        return {label: wanted / sizes[label] for label in self.labels}

    def charge(self, rates: Mapping[str, float], per_label: int) -> Charge:
        """Return what one generation is charged: its labels, in parallel."""
        is_max = isinstance(self.mechanism, NoisyMax)
        made = next_token.max_charge if is_max else next_token.charge
        charges = [
            made(
                sampling_rate=rates[label],
                count=self.max_tokens * per_label,
                name=self.release,
            )
            for label in self.labels
        ]
        if len(charges) == 1:
            return charges[0]
        rule = json.dumps(["label", self.unit_key, self.labels]).encode()
        branches: Any = tuple(charge.parts for charge in charges)
        labels = Parallel(
            branches=branches,
            partition=f"label {hashlib.blake2b(rule, digest_size=8).hexdigest()}",
        )
        return Charge(name=self.release, parts=(labels,))

    def paid(self, events: Sequence[Event]) -> dict[str, TokenEvent]:
        """Return what each label's tokens were charged."""
        return paid_tokens(self.labels, events)

    def key(self, per_label: int) -> str:
        """Return the key under which generations of these terms are stored."""
        terms = json.dumps([self.model_dump(mode="json"), per_label], sort_keys=True)
        return f"few-shot {hashlib.blake2b(terms.encode(), digest_size=32).hexdigest()}"

    def record(self, per_label: int) -> dict[str, Any]:
        """Return a generation's record as far as it is known before the charge."""
        terms = self.model_dump(mode="json", exclude={"model", "unit_key", "is_seeded"})
        return release_record(
            kind="examples",
            status=Status.RELEASED.value,
            mechanism=self.release,
            parameters={**terms, "per_label": per_label},
            unit=self.unit,
            unit_key=self.unit_key,
            relation="replace",
            neighbors=NEIGHBORS,
            model=self.model,
            random=None,
        )

    def free_record(self, per_label: int) -> dict[str, Any]:
        """Return the record of examples that no private record had a part in."""
        free = {"unit": None, "unit_key": None, "relation": None, "neighbors": None}
        cost = {"status": "public", "epsilon": 0.0, "delta": 0.0}
        return {
            **self.record(per_label),
            **free,
            **cost,
            "mechanism": "few-shot/without-records",
        }


def paid_tokens(
    labels: Sequence[str], events: Sequence[Event]
) -> dict[str, TokenEvent]:
    """Return what the tokens of each label were charged.

    Raises:
        LedgerError: If it is no charge of a generation of these labels.
    """
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


def charged_record(
    record: Mapping[str, Any], events: tuple[Event, ...], delta: float
) -> dict[str, Any]:
    """Return a generation's record with what is charged for it."""
    known = record["parameters"]
    paid = paid_tokens(known["labels"], events)
    is_gaussian = record["mechanism"] == "few-shot/gaussian"
    tokens = known["max_tokens"] * known["per_label"]
    parameters = {
        **known,
        "sampling_rates": {name: event.sampling_rate for name, event in paid.items()},
        "noise_multipliers" if is_gaussian else "epsilons": {
            name: amount(event) for name, event in paid.items()
        },
        "tokens_charged": dict.fromkeys(known["labels"], tokens),
    }
    return {
        **record,
        "epsilon": compose(events, delta),
        "delta": delta,
        "events": [event.model_dump(mode="json") for event in events],
        "parameters": parameters,
    }
