"""`TextRows`: rows for tables out of free text, read once by a model."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate
from typing_extensions import Self, override

from langchain_dpicl.common import parameters
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.common.hidden import Hidden, hiding
from langchain_dpicl.common.progress import Advance, is_watched, progress_bar
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.release.fan_out import Interrupted, fan_out
from langchain_dpicl.release.flow import Do, Flow, aresult, in_thread, result
from langchain_dpicl.sealed import SealedModel, attempt, sealed
from langchain_dpicl.sealed.calls import MOST_CALLS, calls_asynchronously
from langchain_dpicl.tabular.rows.chunks import NamedRows, Names
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.text.asking import Asking, ReadingForecast
from langchain_dpicl.tabular.text.card import Card
from langchain_dpicl.tabular.text.reading import read_named, read_reply
from langchain_dpicl.tabular.text.store import NAMED, Readings
from langchain_dpicl.tabular.text.units import Part, merged, units_of

MAX_CHARACTERS = 24_000
"""Most characters of one unit's records in one call, unless told otherwise."""

_LEAST_CHARACTERS = 100
_PATIENCE = 0.05


class TextRows(NamedRows, Frozen):
    """One row a unit, out of its free text: a model fills in a public schema.

    A unit's records are read in one call, by themselves. The model is asked for a JSON
    object of values that the schema lists, and its reply is read leniently. The rows
    are then counted by `GDPTable(rows, rows.schema)` or reported by `LDPTable`: each
    row is a unit, so neither needs a `unit_key`. `GDPTable` charges for the units that
    `unit_key` names, so that its account can stand in the corpus of the same people's
    questions. (`LDPTable` protects something else: what a row says, not that it is
    there.)

    Args:
        documents: The private records; those of one unit may stand anywhere.
        schema: The public columns and values. To each column of categories "unknown" is
            added, unless it has such a value; a column of numbers must declare
            `missing`. The result is `rows.schema`.
        model: A chat model or completion model, with bound arguments if you like.
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
        asked once for the card of no records, in public sight.

    Why JSON is asked for in words: `with_structured_output` puts a parser behind the
    model, which loses a whole reply for one wrong value, and tool calls hold no text; a
    model wrapped so can't be sealed. To have the server keep to the form, bind it:
    `model.bind(response_format={"type": "json_schema", "json_schema": {"name": "card",
    "schema": rows.json_schema}})`. The trial call shows whether it is taken.

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
        self._is_tried = self._is_read = False
        self._card = Card.of(schema)
        self._asking = Asking.of(self._card, prompt)
        self._most = parameters.count(
            max_characters,
            "max_characters",
            minimum=_LEAST_CHARACTERS,
        )
        self._at_once = MOST_CALLS
        if max_concurrency is not None:
            self._at_once = parameters.count(max_concurrency, "max_concurrency")
        self._sealed = SealedModel(model, max_concurrency)
        self._shown = is_watched() if progress is None else progress
        self._readings = Readings(self._card, file, self._asking.digest(model))
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

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, units in the order of their ids; reads them if need be."""
        return (row for row, _ in self._named_rows())

    @override
    def _named_rows(self) -> Iterator[tuple[dict[str, Any], Names]]:
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
        with self._reading:
            if not self._is_read:
                result(self._steps())
        return self

    @hiding
    async def aread(self) -> Self:
        """Have the model read what was not read yet; see `read`."""
        # A lock of threads: another thread may be reading.
        while not self._reading.acquire(blocking=False):  # noqa: ASYNC110 - no event
            await asyncio.sleep(_PATIENCE)
        try:
            if not self._is_read:
                await aresult(self._steps())
        finally:
            self._reading.release()
        return self

    def forecast(
        self,
        n_units: int,
        *,
        tokens_per_record: int,
        records_per_unit: int = 1,
        price_in: float | None = None,
        price_out: float | None = None,
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
        return self._asking.forecast(
            n_units,
            tokens_per_record=tokens_per_record,
            records_per_unit=records_per_unit,
            max_characters=self._most,
            price_in=price_in,
            price_out=price_out,
        )

    def _steps(self) -> Flow[None]:
        if not self._is_tried:
            # Also with all readings in a file: else a trial would tell of new people.
            yield in_thread(partial(self._asking.try_out, self._model))
            self._is_tried = True
        if next(self._pending(), None) is not None:
            yield sealed(self._ask)
        self._is_read = True

    def _ask(self) -> Flow[None]:
        self._failed.clear()
        pending = list(self._pending())
        with progress_bar("Reading records", len(pending), shown=self._shown) as done:
            yield fan_out(
                [self._call(part, done) for part in pending],
                self._at_once,
                name="dpicl-text",
                on_threads=not calls_asynchronously(self._sealed.model),
            )

    def _call(self, part: Part, done: Advance) -> Do:
        """Return the call that reads one part and keeps what it tells."""
        model = self._sealed

        def kept(slots: list[Slot]) -> None:
            self._keep(part, slots[0])
            done(1)

        async def awaiting() -> None:
            slots: list[Slot] = []
            # Out of a task, Ctrl-C would take the task's frames along.
            with suppress(KeyboardInterrupt):
                slots = await model.aanswer([self._about(part)])
            if not slots:
                raise Interrupted
            kept(slots)

        return Do(lambda: kept(model.answer([self._about(part)])), awaiting)

    def _about(self, part: Part) -> PromptValue | None:
        # A template that fails on one text fails its unit alone.
        return attempt(lambda: self._asking.about(part.text))

    def _keep(self, part: Part, slot: Slot) -> None:
        if slot.failed:
            self._failed.add(self._tag(part))
            return
        row = attempt(lambda: read_reply(slot.text or "", self._card)) or {}
        unknowns = self._card.unknowns
        told = {name: value for name, value in row.items() if value != unknowns[name]}
        named = attempt(lambda: read_named(slot.text or "", self._card))
        if named:
            told[NAMED] = named
        self._readings.keep(self._tag(part), told)

    def _pending(self) -> Iterator[Part]:
        for unit in self._units.value:
            for part in unit:
                if self._tag(part) not in self._readings:
                    yield part

    def _rows(self) -> list[tuple[dict[str, Any], Names]]:
        unknowns, nones = self._card.unknowns, self._card.nones
        rows: list[tuple[dict[str, Any], Names]] = []
        for unit in self._units.value:
            told = [self._readings.told(self._tag(part)) for part in unit]
            named = {
                name: [
                    one for part in told for one in part.get(NAMED, {}).get(name, ())
                ]
                for name in self._card.opened
            }
            rows.append(({**unknowns, **merged(told, nones)}, named))
        return rows

    def _tag(self, part: Part) -> str:
        return part.tag(self._readings.digest)
