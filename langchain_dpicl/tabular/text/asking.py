"""The prompt of a card, and what reading so many records takes: public throughout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, ChatPromptTemplate
from langchain_core.runnables import Runnable

from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.prompts import READING_PROMPT
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.sealed.calls import unwrap
from langchain_dpicl.tabular.text.card import Card

_VARIABLES = {"columns", "records"}
_NO_RECORDS = "(This is a test of the form. There are no records here.)"
_CHARACTERS = 4
"""Characters of a token, roughly."""
_TRIALS = 3
_MILLION = 1_000_000


@dataclass(frozen=True)
class ReadingForecast:
    """What reading so many units takes, roughly; computed from public numbers.

    Attributes:
        calls: Calls of the model, with the trial call.
        input_tokens: Tokens that are sent.
        output_tokens: Tokens that come back; a model that reasons writes many more.
        price: What they cost, in the prices' currency; None without prices.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    price: float | None

    def __str__(self) -> str:
        price = "" if self.price is None else f", for {self.price:,.2f}"
        return (
            f"{self.calls:,} calls, about {self.input_tokens:,} tokens in and "
            f"{self.output_tokens:,} out{price}"
        )


@dataclass(frozen=True)
class Asking:
    """How a card is asked for.

    Attributes:
        card: The public card.
        prompt: A template with `columns` and `records`.
    """

    card: Card
    prompt: BasePromptTemplate[Any]

    @classmethod
    def of(cls, card: Card, prompt: Any) -> Asking:
        """Return how a card is asked for.

        Raises:
            InvalidParameterError: If the prompt is no template of the two variables.
        """
        given = READING_PROMPT if prompt is None else prompt
        if isinstance(given, str):
            given = _template(given)
        names = getattr(given, "input_variables", ())
        if not isinstance(given, BasePromptTemplate) or set(names) != _VARIABLES:
            raise InvalidParameterError(
                "prompt must be a text or a prompt template with the variables "
                "{columns} and {records}, and no other. Write other braces twice."
            )
        return cls(card, given)

    def about(self, records: str) -> PromptValue:
        """Return the prompt about one unit's records."""
        value: PromptValue = self.prompt.format_prompt(
            columns=self.card.lines, records=records
        )
        return value

    def digest(self, model: Any) -> str:
        """Return a digest of what decides how a text is read, as far as it is known."""
        base, bound = unwrap(model)
        named = [getattr(base, name, None) for name in ("model_name", "model")]
        return file_format.digest(
            {
                "schema": self.card.schema.describe(),
                "prompt": self.about("").to_string(),
                "model": [type(base).__name__, *map(str, filter(None, named))],
                "bound": {
                    name: value
                    for name, value in bound.items()
                    if isinstance(value, str | int | float | bool)
                },
            }
        )

    def try_out(self, model: Runnable[Any, Any]) -> None:
        """Ask the model for the card of no records, in sight of every observer.

        Raises:
            PublicCallError: If it fails again and again: a key or an argument is wrong.
        """
        failure = ""
        for _ in range(_TRIALS):
            failure = _failure(model, self.about(_NO_RECORDS))
            if not failure:
                return
        raise PublicCallError(
            f"The model failed on the card alone ({failure}). No record was read. Call "
            "the model by itself, model.invoke('Hello'), to see what is wrong."
        )

    def forecast(
        self,
        n_units: int,
        *,
        tokens_per_record: int,
        records_per_unit: int,
        max_characters: int,
        price_in: float | None,
        price_out: float | None,
    ) -> ReadingForecast:
        """Return what reading takes; see `TextRows.forecast`."""
        units = parameters.count(n_units, "n_units")
        each = parameters.count(tokens_per_record, "tokens_per_record")
        records = parameters.count(records_per_unit, "records_per_unit")
        if (price_in is None) != (price_out is None):
            raise InvalidParameterError("Give both price_in and price_out, or none.")
        parts = math.ceil(each * records * _CHARACTERS / max_characters)
        calls = units * parts + 1
        fixed = _tokens(self.about(_NO_RECORDS).to_string())
        sent = calls * fixed + units * each * records
        longest = {
            field.column.name: max(
                map(str, getattr(field, "labels", ["00.00"])), key=len
            )
            for field in self.card.fields
        }
        received = calls * _tokens(str(longest))
        price: float | None = None
        if price_in is not None and price_out is not None:
            dear = parameters.extended("price_in", price_in)
            out = parameters.extended("price_out", price_out)
            price = (sent * dear + received * out) / _MILLION
        return ReadingForecast(calls, sent, received, price)


def _template(text: str) -> ChatPromptTemplate | None:
    try:
        return ChatPromptTemplate.from_template(text)
    except ValueError:
        return None


def _failure(model: Runnable[Any, Any], prompt: PromptValue) -> str:
    """Return the kind of error that a call ends with; empty where it answers."""
    try:
        model.invoke(prompt)
    except Exception as error:  # noqa: BLE001 - whatever a client raises
        return type(error).__name__
    return ""


def _tokens(text: str) -> int:
    return math.ceil(len(text) / _CHARACTERS)
