"""A generator's public terms: checked once, then what every part reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_dpicl.accounting import Charge, Event, Parallel
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.few_shot.calibration import (
    Mechanism,
    TokenEvent,
    amount,
    release_name,
    sampling_rate,
    token_charge,
)
from langchain_dpicl.few_shot.decoding import Decoder, Greedy
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.records import RecordFields

MOST_LABELS = 10_000


@dataclass(frozen=True)
class GenerationSpec:
    """What is public about a generation, beside the prompts and the model.

    Attributes:
        labels: The labels, each once.
        fields: Where an example keeps what.
        max_tokens: Most tokens T of an example.
        top_k_public: Size K of the public vocabulary of a step; None: all tokens.
        decoder: What takes a token of a vector of probabilities.
        stop: Texts that end an example.
        n_groups: Groups M of a step.
        records_per_group: Units N in a group, on average.
        records_per_unit: Most records of a unit in one step.
        mechanism: How the groups' distributions become a token.
        noise_multiplier: Of a Gaussian step; None leaves it to the budget.
        epsilon: Of a noisy-max step before sampling; None leaves it to the budget.
        label_sizes: Each label's public number of units; None takes them as counted.
    """

    labels: tuple[str, ...]
    fields: RecordFields
    max_tokens: int
    top_k_public: int | None
    decoder: Decoder
    stop: tuple[str, ...]
    n_groups: int
    records_per_group: float
    records_per_unit: int
    mechanism: Mechanism
    noise_multiplier: float | None
    epsilon: float | None
    label_sizes: Mapping[str, int] | None

    def check(self) -> None:
        """Raise `InvalidParameterError` if terms are out of range, naming the one."""
        self._keep("max_tokens", parameters.count)
        if self.top_k_public is not None:
            self._keep("top_k_public", partial(parameters.count, minimum=2))
        _check_labels(self.labels)
        if not isinstance(self.decoder, Decoder):
            raise InvalidParameterError(
                "decoder must be few_shot.Greedy(), few_shot.Sampling(...) or another "
                "Decoder."
            )
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise InvalidParameterError("stop must be a list of non-empty texts.")
        self.fields.check()
        self._check_numbers()
        self._check_choices()

    def _keep(self, name: str, check: Callable[..., Any]) -> None:
        """Check a number and keep it as Python's own: NumPy's are no JSON."""
        number = check(getattr(self, name), name)
        object.__setattr__(self, name, number)

    @property
    def release(self) -> str:
        """The release's public name."""
        return release_name(self.mechanism)

    def rates(self, counted: Mapping[str, int]) -> dict[str, float]:
        """Return each label's sampling rate M N / size.

        `counted` are the labels' numbers of units, used where none are declared. A
        group that is to hold more than there is raises `InvalidParameterError`.
        """
        sizes = counted if self.label_sizes is None else self.label_sizes
        rates = {}
        for name in self.labels:
            message = ""
            try:
                rates[name] = sampling_rate(
                    sizes[name], self.n_groups, self.records_per_group
                )
            except InvalidParameterError as error:
                message = f"Label {name!r}: {error}"
            if message:
                raise InvalidParameterError(message)
        return rates

    def charge(self, rates: Mapping[str, float], per_label: int) -> Charge:
        """Return what one generation is charged: its labels, in parallel.

        Privacy:
            A label's examples are made of its own units' records alone, and a public
            rule puts each unit under one label, by its own records. So the account
            fills each branch by itself: each label has the least noise that the account
            allows it. The rule's name tells one partition from another.
        """
        charges = [
            token_charge(
                self.mechanism,
                self.noise_multiplier,
                self.epsilon,
                sampling_rate=rates[name],
                count=self.max_tokens * per_label,
            )
            for name in self.labels
        ]
        if len(charges) == 1:
            return charges[0]
        branches: Any = tuple(charge.parts for charge in charges)
        labels = Parallel(branches=branches, partition=self._partition())
        return Charge(name=self.release, parts=(labels,))

    def described(self) -> dict[str, Any]:
        """Return the terms as JSON-able values, for the record."""
        return {
            "labels": list(self.labels),
            "text_key": self.fields.text,
            "label_key": self.fields.label,
            "max_tokens": self.max_tokens,
            "top_k_public": self.top_k_public,
            "stop": list(self.stop),
            **self.decoder.described(),
            "n_groups": self.n_groups,
            "records_per_group": self.records_per_group,
            "records_per_unit": self.records_per_unit,
        }

    def fingerprint(
        self,
        prompting: FewShotPrompting,
        model: str,
        per_label: int,
        *,
        is_seeded: bool,
    ) -> str:
        """Return what tells generations apart that can't be continued by each other."""
        public = {
            **self.described(),
            "mechanism": self.mechanism,
            "unit_key": self.fields.unit,
            "prompts": prompting.templates(),
            "longest": prompting.longest,
            "noise": [self.noise_multiplier, self.epsilon],
            "model": model,
            "per_label": per_label,
            "is_seeded": is_seeded,
        }
        text = ""
        with suppress(TypeError, ValueError):
            text = json.dumps(public, sort_keys=True, allow_nan=False)
        if not text:
            raise InvalidParameterError(
                "The decoder's described() must hold what JSON can: texts and finite "
                "numbers."
            )
        data = text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, digest_size=32).hexdigest()

    def _partition(self) -> str:
        """Return the public name of the rule that puts each unit under one label."""
        rule = json.dumps([self.fields.label, self.fields.unit, self.labels])
        data = rule.encode(errors="surrogatepass")
        return f"label {hashlib.blake2b(data, digest_size=8).hexdigest()}"

    def _check_numbers(self) -> None:
        self._keep("n_groups", parameters.count)
        self._keep("records_per_group", _positive)
        self._keep("records_per_unit", parameters.count)
        if self.noise_multiplier is not None:
            self._keep("noise_multiplier", parameters.noise_multiplier)
        if self.epsilon is not None:
            self._keep("epsilon", parameters.epsilon)
        if self.label_sizes is None:
            return
        if not isinstance(self.label_sizes, Mapping):
            raise InvalidParameterError(
                "label_sizes is a mapping from each label to its number of units, not "
                f"{type(self.label_sizes).__name__}."
            )
        if set(self.label_sizes) != set(self.labels):
            raise InvalidParameterError(
                "label_sizes must give a number of units for each of "
                f"{list(self.labels)}, and for nothing else."
            )
        sizes = {
            name: parameters.count(size, "label_sizes")
            for name, size in self.label_sizes.items()
        }
        object.__setattr__(self, "label_sizes", sizes)

    def _check_choices(self) -> None:
        if self.mechanism not in ("gaussian", "noisy_max"):
            raise InvalidParameterError("mechanism must be 'gaussian' or 'noisy_max'.")
        if self.mechanism == "noisy_max":
            if not isinstance(self.decoder, Greedy):
                raise InvalidParameterError(
                    "mechanism='noisy_max' releases the winning token alone, so that "
                    "there is nothing to sample from: leave decoder= out, or use "
                    "mechanism='gaussian'."
                )
            if self.noise_multiplier is not None:
                raise InvalidParameterError(
                    "noise_multiplier= is for mechanism='gaussian'; give epsilon=."
                )
        elif self.epsilon is not None:
            raise InvalidParameterError(
                "epsilon= is for mechanism='noisy_max'; give noise_multiplier=."
            )


def _positive(value: Any, name: str) -> float:
    return parameters.positive(name, value)


@dataclass(frozen=True)
class PaidTokens:
    """What was charged for a generation.

    Attributes:
        events: What the account was charged.
        tokens: Of it, the event of each label's tokens.
    """

    events: tuple[Event, ...] = ()
    tokens: Mapping[str, TokenEvent] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: Sequence[str], events: tuple[Event, ...]) -> PaidTokens:
        """Return what the tokens of each label were charged.

        Raises:
            LedgerError: If it is no charge of a generation of these labels.
        """
        with suppress(AttributeError, IndexError, ValueError):
            first = events[0]
            branches = first.branches if isinstance(first, Parallel) else (events,)
            tokens: Any = [branch[0] for branch in branches]
            return cls(events, dict(zip(labels, tokens, strict=True)))
        raise LedgerError("A stored generation was charged for something else.")

    @property
    def rates(self) -> dict[str, float]:
        """Each label's sampling rate."""
        return {label: event.sampling_rate for label, event in self.tokens.items()}

    @property
    def noise(self) -> dict[str, float]:
        """Each label's noise multiplier, or epsilon of a noisy-max step."""
        return {label: amount(event) for label, event in self.tokens.items()}


def _check_labels(labels: Sequence[str]) -> None:
    if not 0 < len(labels) <= MOST_LABELS:
        raise InvalidParameterError(
            f"labels must hold 1 to {MOST_LABELS} labels; it holds {len(labels)}."
        )
    if any(not isinstance(label, str) or not label.strip() for label in labels):
        raise InvalidParameterError(
            "labels must be non-empty texts: the model reads them. If the records hold "
            "numbers, write the names in their place."
        )
    if len(set(labels)) < len(labels):
        raise InvalidParameterError("labels must hold each label once.")


def read_labels(labels: Any) -> tuple[str, ...]:
    """Return labels as a tuple; one string is refused, as it is no list of labels."""
    return _listed(labels, "labels")


def read_stop(stop: Any) -> tuple[str, ...]:
    """Return stop texts as a tuple; a single one may be given as it is."""
    return (stop,) if isinstance(stop, str) else _listed(stop, "stop")


def _listed(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidParameterError(
            f"{name} must be a list of texts, not {type(value).__name__}."
        )
    return tuple(value)
