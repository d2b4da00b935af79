"""How often open columns' unlisted names occur; private but for what was released.

Privacy:
    Unit: a row. Neighbors: one row more or less. A row adds 1 to the counts of at most
    c = `GDPTerms.most_named` different pairs of column and name, by its own cells and
    names alone (`text.opened.names_of`, `rows.chunks.NamedRows`). So the counts are
    what `mechanisms.keyword_threshold` proves its release for, with c items an answer,
    under `ADD_REMOVE`: one threshold for all open columns together. Which names occur
    at all is private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.release.record import damaged
from langchain_dpicl.tabular.rows.chunks import Chunk
from langchain_dpicl.tabular.schema.cells import listed
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.text.opened import names_of


class NameCounts:
    """Counts what rows name outside the lists of open columns; private.

    Args:
        columns: The open columns.
    """

    def __init__(self, columns: Sequence[CategoricalColumn]) -> None:
        self._columns = columns
        self._counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    @property
    def exact(self) -> Mapping[str, int]:
        """How many rows name each: the column's place, a space, the name. Private."""
        return self._counts

    def add(self, chunk: Chunk) -> None:
        """Count a chunk's rows."""
        for place, column in enumerate(self._columns):
            for row, cell in enumerate(listed(chunk.columns[column.name])):
                named = chunk.named[row].get(column.name, ()) if chunk.named else ()
                # A set: a row adds 1 to a count.
                each = {f"{place} {one}" for one in names_of(column, cell, named)}
                self._counts.update(each)


def check_open(
    schema: TableSchema,
    opened: Sequence[CategoricalColumn],
    *,
    is_measured: bool,
    rows_are_units: bool,
) -> None:
    """Refuse open columns that can't be released.

    Args:
        schema: The columns.
        opened: The open columns that are measured.
        is_measured: Whether tables are asked for by name.
        rows_are_units: Whether each row is a unit.

    Raises:
        InvalidParameterError: If there are some.
    """
    for column in schema.columns:
        if not (isinstance(column, CategoricalColumn) and column.open):
            continue
        name = f"Column {column.name!r} is open"
        if not is_measured:
            raise InvalidParameterError(
                f"{name}: what nobody listed is released with the tables of measure=. "
                "Measure it, or take open=False."
            )
        if column.other is None and column.missing is None:
            raise InvalidParameterError(
                f"{name}: declare the value that cells outside its list count as "
                "(other=, missing=)."
            )
    if opened and not rows_are_units:
        raise InvalidParameterError(
            "Open columns need rows that are people: leave out unit_key=, or take "
            "open=False. TextRows makes one row of a person's records."
        )


def names_stored(
    columns: Sequence[CategoricalColumn], keys: Any
) -> dict[str, tuple[str, ...]]:
    """Return what was released of each open column, by the alphabet.

    Raises:
        LedgerError: If no release of these columns stores this.
    """
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise damaged()
    found: dict[str, list[str]] = {str(place): [] for place in range(len(columns))}
    for key in sorted(keys):
        place, _, name = key.partition(" ")
        if place not in found or not name:
            raise damaged()
        found[place].append(name)
    return {
        column.name: tuple(names)
        for column, names in zip(columns, found.values(), strict=True)
    }
