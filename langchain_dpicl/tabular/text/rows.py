"""`TextRows`: rows for tables out of free text, read once by a model."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, ChatPromptTemplate
from typing_extensions import Self, override

from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.hidden import Hidden, hiding
from langchain_dpicl.common.progress import is_watched, progress_bar
from langchain_dpicl.common.prompts import READING_PROMPT
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Frozen
from langchain_dpicl.sealed import SealedModel, attempt, sealed, unwrap
from langchain_dpicl.tabular.rows import UnitRows
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.text.card import Card
from langchain_dpicl.tabular.text.reply import read_reply
from langchain_dpicl.tabular.text.store import Readings
from langchain_dpicl.tabular.text.units import Part, merged, units_of
from langchain_dpicl.threads import on_question_thread

MAX_CHARACTERS = 24_000
"""Most characters of one unit's records in one call, unless told otherwise."""

_LEAST_CHARACTERS = 100
_CHARACTERS = 4  # Of a token, roughly.
_NO_RECORDS = "(This is a test of the form. There are no records here.)"


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

    def __str__(self) -> str:
        price = f", for {self.price:,.2f}" if self.price else ""
        return (
            f"{self.calls:,} calls, about {self.input_tokens:,} tokens in and "
            f"{self.output_tokens:,} out{price}"
        )


class TextRows(UnitRows, Frozen):
    """One row a unit, out of its free text: a model fills in a public schema.

    A unit's records are read in one call, by themselves. The model is asked for a JSON
    object of values that the schema lists, and its reply is read leniently. The rows
    are then counted by `GDPTable(rows, rows.schema)` or reported by `LDPTable`: each
    row is a unit, so neither needs a `unit_key`. Both charge for the units that
    `unit_key` names (an `LDPTable` with `invited=`), so that their account can stand in
    the corpus of the same people's questions.

    Args:
        documents: The private records; those of one unit may stand anywhere.
        schema: The public columns and values. To each column of categories "unknown" is
            added, unless it has such a value; a column of numbers must declare
            `missing`. The result is `rows.schema`.
        model: A chat model or completion model, with bound arguments if you like. To
            have a server keep to the form, bind `rows.json_schema` as its response
            format. (`with_structured_output` would lose a whole reply for one wrong
            value, and can't be sealed.)
        unit_key: The metadata key that holds the unit id.
        prompt: A text or template with `{columns}` and `{records}`; None: the library's
            own.
        max_characters: Most characters of a call. Units with more are read in parts,
            cut between records where they fit. Of each column the first value that a
            part tells counts, and "none" only where no part tells another one.
        order_key: The metadata key by which a unit's records are ordered (a date);
            None: by their texts. Their order in `documents` does not count.
        max_concurrency: Most calls at once; None: 32, or one where the model seems to
            compute in this process.
        progress: Whether to show a bar; None: where somebody looks. How many units
            there are is private: it is for people with access to the records.
        file: A path that keeps what was read, so that an interrupted reading goes on
            in another process. "private" must be in its name; only its owner can read
            it, and it is not encrypted.

    Raises:
        InvalidParameterError: If an argument can't be used: values or columns that a
            reply can't tell apart, a number without `missing`, a file of other
            readings.
        UnitError: If there are no documents, or one has no usable unit id.
        UnsealableModelError: If the model is wrapped so that its calls can't be sealed.

    Privacy:
        Unit: all documents with one unit id. A row is a function of its own unit's
        documents, the public schema and prompt, and the model's answers to them. No
        prompt holds two units' text; a call that fails, is refused or can't be read
        makes its own unit's row "unknown" and touches no other; whether a unit *has* a
        row does not depend on the model. So one unit more is one row more, and a
        table's sensitivity is that of one row. Assumed is that the model answers one
        prompt without regard to others (no shared memory or cache of answers).

        Rows, replies and this file are private: no log, trace, callback or error has
        them. The model's provider sees the records. Before the first call, the model is
        asked once for the card of no records.

    Example:
        >>> from langchain_dpicl.demo import RecordedReader
        >>> from langchain_dpicl.demo import visit_note_schema, visit_notes
        >>> notes = visit_notes()[:3]
        >>> rows = TextRows(
        ...     notes, visit_note_schema(), RecordedReader(), unit_key="patient_id"
        ... )
        >>> [row["drug"] for row in rows]
        ['losartan', 'propranolol', 'montelukast']
        >>> rows.schema.column("drug").values[-1]
        'unknown'
    """

    @hiding
    def __init__(  # noqa: PLR0913 - how records are read, one by one
        self,
        documents: Iterable[Document],
        schema: TableSchema,
        model: Any,
        *,
        unit_key: str,
        prompt: str | BasePromptTemplate[Any] | None = None,
        max_characters: int = MAX_CHARACTERS,
        order_key: str | None = None,
        max_concurrency: int | None = None,
        progress: bool | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._unit_key, self._model = unit_key, model
        self._is_read = False
        self._card = Card.of(schema)
        self._prompt = _template(prompt)
        self._most = parameters.count(
            max_characters,
            "max_characters",
            minimum=_LEAST_CHARACTERS,
        )
        if max_concurrency is not None:
            parameters.count(max_concurrency, "max_concurrency")
        self._sealed = SealedModel(model, max_concurrency)
        self._shown = is_watched() if progress is None else progress
        self._readings = Readings(self._card, file, self._digest())
        self._units = Hidden(
            units_of(
                documents,
                unit_key=unit_key,
                order_key=order_key,
                max_characters=self._most,
            )
        )
        self._reading = threading.Lock()
        self._failed: set[str] = set()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(unit_key={self._unit_key!r}, "
            f"columns={list(self.schema.names)}, model={type(self._model).__name__}, "
            f"read={self._is_read})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private rows are not pickled.")

    @property
    @override
    def unit_key(self) -> str:
        """The metadata key that holds the unit id."""
        return self._unit_key

    @property
    def schema(self) -> TableSchema:
        """The effective public schema: each column has its "unknown"."""
        return self._card.schema

    @property
    def json_schema(self) -> dict[str, Any]:
        """What the model is asked for, as JSON Schema; public."""
        return self._card.json_schema

    @property
    def failed(self) -> int:
        """How many calls of the last reading failed. Private."""
        return len(self._failed)

    @override
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, units in the order of their ids; reads them if need be."""
        self.read()
        return iter(self._rows())

    @hiding
    def read(self) -> Self:
        """Have the model read what was not read yet.

        What has been read stays read, whatever ends this: an error, Ctrl-C, a
        cancellation. A unit whose call failed is asked again by the next object or
        process (with `file=`), and not by this one, once it has read all.

        Returns:
            These rows.

        Raises:
            InvalidParameterError: If the file can't be written.
            PublicCallError: If the model fails on a card without records.
        """
        self._read(threading.Event())
        return self

    @hiding
    async def aread(self) -> Self:
        """Have the model read what was not read yet; see `read`.

        Canceled, it makes no further call; what those in flight tell is kept.
        """
        canceled = threading.Event()
        try:
            await on_question_thread(partial(self._read, canceled))
        finally:
            canceled.set()
        return self

    def forecast(
        self,
        n_units: int,
        *,
        tokens_per_record: int,
        records_per_unit: int = 1,
        price_in: float = 0.0,
        price_out: float = 0.0,
    ) -> ReadingForecast:
        """Return roughly what reading so many units takes; no record is looked at.

        How many units there are, and how long their records, is private: give public
        guesses.

        Args:
            n_units: Units.
            tokens_per_record: Tokens of a record.
            records_per_unit: Records of a unit.
            price_in: Of a million tokens sent.
            price_out: Of a million tokens that come back.

        Raises:
            InvalidParameterError: If a number is out of its range.
        """
        units = parameters.count(n_units, "n_units")
        each = parameters.count(tokens_per_record, "tokens_per_record")
        sent = each * parameters.count(records_per_unit, "records_per_unit")
        calls = units * math.ceil(sent * _CHARACTERS / self._most) + 1
        tokens_in = calls * _tokens(self._about(_NO_RECORDS)) + units * sent
        longest = [max((*f.labels, "00.00"), key=len) for f in self._card.fields]
        tokens_out = calls * _tokens(dict(zip(self.schema.names, longest, strict=True)))
        price = tokens_in * parameters.extended("price_in", price_in)
        price += tokens_out * parameters.extended("price_out", price_out)
        return ReadingForecast(calls, tokens_in, tokens_out, price / 1e6)

    def _read(self, canceled: threading.Event) -> None:
        with self._reading:
            if self._is_read or canceled.is_set():
                return
            # Also with all readings in a file: else a trial would tell of new people.
            self._sealed.probe(self._about(_NO_RECORDS))
            if next(self._pending(), None) is not None:
                sealed(partial(self._ask, canceled))
            self._is_read = not canceled.is_set()

    def _ask(self, canceled: threading.Event) -> None:
        self._failed.clear()
        pending = list(self._pending())
        with progress_bar("Reading records", len(pending), shown=self._shown) as done:

            def read(part: Part) -> None:
                if not canceled.is_set():
                    # A template that fails on one text fails its unit alone.
                    prompt = attempt(partial(self._about, part.text))
                    (slot,) = self._sealed.ask([prompt])
                    self._keep(part, slot)
                    done(1)

            self._sealed.pool.map([partial(read, part) for part in pending])

    def _about(self, records: str) -> PromptValue:
        """Return the prompt about one unit's records."""
        value: PromptValue = self._prompt.format_prompt(
            columns=self._card.lines, records=records
        )
        return value

    def _digest(self) -> str:
        """Return a digest of what decides how a text is read, as far as it is known."""
        base, bound = unwrap(self._model)
        named = [getattr(base, name, None) for name in ("model_name", "model")]
        plain = (str, int, float, bool)
        return file_format.digest(
            {
                "schema": self.schema.describe(),
                "prompt": self._about("").to_string(),
                "model": [type(base).__name__, *map(str, filter(None, named))],
                "bound": {k: v for k, v in bound.items() if isinstance(v, plain)},
            }
        )

    def _keep(self, part: Part, slot: Slot) -> None:
        if slot.failed:
            self._failed.add(self._tag(part))
            return
        row = attempt(lambda: read_reply(slot.text or "", self._card)) or {}
        unknowns = self._card.unknowns
        told = {name: value for name, value in row.items() if value != unknowns[name]}
        self._readings.keep(self._tag(part), told)

    def _pending(self) -> Iterator[Part]:
        for unit in self._units.value:
            for part in unit:
                if self._tag(part) not in self._readings:
                    yield part

    def _rows(self) -> list[dict[str, Any]]:
        unknowns, nones = self._card.unknowns, self._card.nones
        tell, tag = self._readings.told, self._tag
        return [
            {**unknowns, **merged([tell(tag(part)) for part in unit], nones)}
            for unit in self._units.value
        ]

    def _tag(self, part: Part) -> str:
        return part.tag(self._readings.digest)


def _template(prompt: Any) -> BasePromptTemplate[Any]:
    given = READING_PROMPT if prompt is None else prompt
    if isinstance(given, str):
        try:
            given = ChatPromptTemplate.from_template(given)
        except ValueError:
            given = None
    names = set(getattr(given, "input_variables", ()))
    if not isinstance(given, BasePromptTemplate) or names != {"columns", "records"}:
        raise InvalidParameterError(
            "prompt must be a text or a prompt template with the variables {columns} "
            "and {records}, and no other. Write other braces twice."
        )
    return given


def _tokens(text: Any) -> int:
    said = text.to_string() if isinstance(text, PromptValue) else str(text)
    return math.ceil(len(said) / _CHARACTERS)
