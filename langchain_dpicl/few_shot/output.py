"""What is written: the public terms of examples, with records or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.common.validation import checked
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.few_shot.decoding import Decoder
from langchain_dpicl.few_shot.records import RecordFields

MOST_LABELS = 10_000


@dataclass(frozen=True)
class OutputSpec:
    """What examples are written, and how a token is chosen.

    Attributes:
        labels: The labels, each once.
        fields: Where an example keeps what.
        max_tokens: Most tokens T of an example.
        top_k_public: Size K of the public vocabulary of a step; None: all tokens.
        decoder: What takes a token of a vector of probabilities.
        stop: Texts that end an example.
    """

    labels: tuple[str, ...]
    fields: RecordFields
    max_tokens: int
    top_k_public: int | None
    decoder: Decoder
    stop: tuple[str, ...]

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

    def _keep(self, name: str, check: Callable[..., Any]) -> None:
        """Check a number and keep it as Python's own: NumPy's are no JSON."""
        number = checked(check, getattr(self, name), name)
        object.__setattr__(self, name, number)

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
        }


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
