"""Each part of each unit's records, read by a model in one sealed call; kept."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.prompt_values import PromptValue

from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.hidden import hidden_repr
from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.common.replies import ABSTAIN, Slot
from langchain_dpicl.sealed import SealedModel, attempt, unwrap
from langchain_dpicl.tabular.text.store import Readings
from langchain_dpicl.tabular.text.units import Part

MAX_CHARACTERS = 24_000
"""Most characters of one unit's records in one call, unless told otherwise."""

_CHARACTERS = 4  # Of a token, roughly.


@dataclass(frozen=True)
class ReadingForecast:
    """What reading so many units takes, roughly; computed from public numbers.

    Attributes:
        calls: Calls of the model, with the trial call.
        input_tokens: Tokens that are sent.
        output_tokens: Tokens that come back; a model that reasons writes many more.
        price: What they cost, in the prices' currency.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    price: float

    @classmethod
    def of(
        cls,
        units: int,
        tokens: int,
        *,
        prompt: str,
        reply: str,
        most: int = MAX_CHARACTERS,
        price_in: float,
        price_out: float,
    ) -> ReadingForecast:
        """Return the forecast of calls with `tokens` of records a unit.

        A call has `most` characters of records, at most; `prompt` has none; prices are
        of a million tokens.
        """
        calls = units * math.ceil(tokens * _CHARACTERS / most) + 1
        sent = calls * math.ceil(len(prompt) / _CHARACTERS) + units * tokens
        back = calls * math.ceil(len(reply) / _CHARACTERS)
        price = sent * parameters.extended("price_in", price_in)
        price += back * parameters.extended("price_out", price_out)
        return cls(calls, sent, back, price / 1e6)

    def __str__(self) -> str:
        price = f", for {self.price:,.2f}" if self.price else ""
        return (
            f"{self.calls:,} calls, about {self.input_tokens:,} tokens in and "
            f"{self.output_tokens:,} out{price}"
        )


class Asking:
    """Asks a model about parts, and keeps what the replies tell. Private.

    `prompt` makes the prompt about the text of one part; `read` says what one reply
    tells, ready for JSON: a rule on it alone.

    Attributes:
        failed: The tags of the parts whose calls failed in the last reading.
    """

    def __init__(
        self,
        model: SealedModel,
        prompt: Callable[[str], PromptValue],
        read: Callable[[str], Mapping[str, Any]],
        readings: Readings,
        *,
        shown: bool,
    ) -> None:
        self.failed: set[str] = set()
        self._model, self._prompt, self._read = model, prompt, read
        self._readings, self._shown = readings, shown

    def __repr__(self) -> str:
        return hidden_repr(self)

    def ask(
        self,
        units: Iterable[Iterable[Part]],
        canceled: threading.Event,
        called: Callable[[], Any] = lambda: None,
    ) -> None:
        """Ask about what was not read yet, inside the wall, until this is canceled.

        A reply is read and kept when its call ends; then `called` runs. A call that
        fails leaves nothing: another object or process asks again.
        """
        self.failed.clear()
        pending = list(self.pending(units))
        with progress_bar("Reading records", len(pending), shown=self._shown) as done:

            def read(part: Part) -> None:
                if not canceled.is_set():
                    # A template that fails on one text fails its unit alone.
                    prompt = attempt(partial(self._prompt, part.text))
                    slots = [ABSTAIN] if prompt is None else self._model.ask([prompt])
                    self._keep(part, slots[0])
                    done(1)
                    called()

            self._model.pool.map([partial(read, part) for part in pending])

    def pending(self, units: Iterable[Iterable[Part]]) -> Iterator[Part]:
        """Yield the parts that were not read yet."""
        for unit in units:
            for part in unit:
                if self._tag(part) not in self._readings:
                    yield part

    def readings(self, unit: Iterable[Part]) -> list[Mapping[str, Any]]:
        """Return what each part of a unit tells; nothing where its call failed."""
        return [self._readings.told(self._tag(part)) for part in unit]

    def _keep(self, part: Part, slot: Slot) -> None:
        if slot.failed:
            self.failed.add(self._tag(part))
            return
        told = attempt(lambda: self._read(slot.text or ""))
        self._readings.keep(self._tag(part), told or {})

    def _tag(self, part: Part) -> str:
        return part.tag(self._readings.digest)


def model_name(model: Any) -> str:
    """Return a model's public name."""
    base, _ = unwrap(model)
    return f"{type(base).__name__} {getattr(base, 'model_name', '')}".strip()


def reading_digest(model: Any, terms: Mapping[str, Any]) -> str:
    """Return a digest of what decides how a text is read, as far as it is known.

    That is the model, with its bound arguments, and the terms in which it is asked.
    """
    base, bound = unwrap(model)
    named = [getattr(base, name, None) for name in ("model_name", "model")]
    plain = (str, int, float, bool)
    return file_format.digest(
        {
            **terms,
            "model": [type(base).__name__, *map(str, filter(None, named))],
            "bound": {k: v for k, v in bound.items() if isinstance(v, plain)},
        }
    )
