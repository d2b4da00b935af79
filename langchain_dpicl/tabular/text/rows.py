"""`TextRows`: rows for tables out of free text, read once by a model."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, ChatPromptTemplate
from typing_extensions import Self, override

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden, hiding
from langchain_dpicl.common.progress import is_watched
from langchain_dpicl.common.prompts import READING_PROMPT
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Frozen
from langchain_dpicl.sealed import SealedModel, sealed
from langchain_dpicl.tabular.rows import UnitRows
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.text.asking import (
    MAX_CHARACTERS,
    Asking,
    ReadingForecast,
    reading_digest,
)
from langchain_dpicl.tabular.text.card import Card
from langchain_dpicl.tabular.text.reply import read_reply
from langchain_dpicl.tabular.text.store import Readings
from langchain_dpicl.tabular.text.units import merged, units_of
from langchain_dpicl.threads import on_question_thread

_LEAST_CHARACTERS = 100
_NO_RECORDS = "(This is a test of the form. There are no records here.)"


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
        terms = {
            "schema": self.schema.describe(),
            "prompt": self._about("").to_string(),
        }
        self._asking = Asking(
            self._sealed,
            self._about,
            self._told,
            Readings(self._card.fits, file, reading_digest(model, terms)),
            shown=is_watched() if progress is None else progress,
        )
        self._units = Hidden(
            units_of(
                documents,
                unit_key=unit_key,
                order_key=order_key,
                max_characters=self._most,
            )
        )
        self._reading = threading.Lock()

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
        return len(self._asking.failed)

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
        longest = [max((*f.labels, "00.00"), key=len) for f in self._card.fields]
        return ReadingForecast.of(
            units,
            sent,
            prompt=self._about(_NO_RECORDS).to_string(),
            reply=str(dict(zip(self.schema.names, longest, strict=True))),
            most=self._most,
            price_in=price_in,
            price_out=price_out,
        )

    def _read(self, canceled: threading.Event) -> None:
        with self._reading:
            if self._is_read or canceled.is_set():
                return
            # Also with all readings in a file: else a trial would tell of new people.
            self._sealed.probe(self._about(_NO_RECORDS))
            units = self._units.value
            if next(self._asking.pending(units), None) is not None:
                sealed(partial(self._asking.ask, units, canceled))
            self._is_read = not canceled.is_set()

    def _about(self, records: str) -> PromptValue:
        """Return the prompt about one unit's records."""
        value: PromptValue = self._prompt.format_prompt(
            columns=self._card.lines, records=records
        )
        return value

    def _told(self, reply: str) -> dict[str, Any]:
        """Return what a reply tells, without what is unknown."""
        row, unknowns = read_reply(reply, self._card) or {}, self._card.unknowns
        return {name: value for name, value in row.items() if value != unknowns[name]}

    def _rows(self) -> list[dict[str, Any]]:
        unknowns, nones = self._card.unknowns, self._card.nones
        return [
            {**unknowns, **merged(self._asking.readings(unit), nones)}
            for unit in self._units.value
        ]


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
