"""Columns of texts, unit ids and vectors that were embedded elsewhere.

What is kept is float32 vectors, lines of JSON, and one number a row, in the order of
the shards.

Privacy:
    A row is read by itself: its vector is scaled, and its document written, from its
    own cells. An error names a row or a column, and holds no cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.ingest import Vectors, unit_rows
from langchain_dpicl.groups.lines import DocumentLines, LineIndex, line_of
from langchain_dpicl.groups.terms import RetrievalTerms, check_enough_units
from langchain_dpicl.groups.units import canonical_ids, keyed_slots

_BATCH = 8192
_MATRIX = 2
_TITLE = "Reading embedded records"


@dataclass(frozen=True)
class ColumnNames:
    """What each column of embedded records is."""

    unit_key: str  # The unit id; also the key of the document's metadata.
    text: str
    vector: str
    id: str | None  # The document's id.
    metadata: tuple[str, ...] | None  # Further metadata; None: every other column.

    def further(self, names: Sequence[str]) -> list[str]:
        """Return the columns of further metadata, among all."""
        own = {self.unit_key, self.text, self.vector, self.id}
        wanted = names if self.metadata is None else self.metadata
        return [name for name in dict.fromkeys(wanted) if name not in own]

    def check(self, names: Sequence[str]) -> None:
        """Refuse columns that are not there."""
        if self.unit_key not in names:
            raise UnitError(
                f"There is no column {self.unit_key!r}, which unit_key= names as the "
                "one that holds each record's unit id."
            )
        needed = [self.text, self.vector, *(self.metadata or ())]
        for name in [*needed, *([] if self.id is None else [self.id])]:
            if name not in names:
                raise InvalidParameterError(
                    f"There is no column {name!r}. text_column=, vector_column=, "
                    "id_column= and metadata_columns= name the columns."
                )


@dataclass(frozen=True, repr=False)
class Embedded:
    """Embedded records in the order of their shards. Private."""

    vectors: Vectors  # Norm 1, float32, one row a document.
    documents: DocumentLines
    unit_ids: list[str]  # One a document, canonical.


def read_embedded(
    columns: Mapping[str, Any],
    names: ColumnNames,
    terms: RetrievalTerms,
    *,
    salt: bytes,
    progress: bool,
) -> Embedded:
    """Read embedded records; see `RetrievedGroups.from_embeddings`."""
    _check_columns(columns)
    names.check(list(columns))
    unit_ids = list(
        canonical_ids(_listed(columns[names.unit_key]), "of the records", 0)
    )
    check_enough_units(len(set(unit_ids)), terms.n_groups)
    order = np.argsort(keyed_slots(salt, unit_ids, terms.n_groups), kind="stable")
    with progress_bar(_TITLE, len(unit_ids), shown=progress) as advance:
        parts: list[Vectors] = []
        for first in range(0, len(unit_ids), _BATCH):
            parts.append(_vectors(columns, names.vector, first, parts))
            advance(len(parts[-1]))
    return Embedded(
        np.concatenate(parts)[order],
        _documents(columns, names).take(order),
        [unit_ids[row] for row in order],
    )


def _check_columns(columns: Any) -> None:
    if not isinstance(columns, Mapping):
        raise InvalidParameterError(
            f"Embedded records cannot be a {type(columns).__name__}. Pass a mapping of "
            'column names to arrays or lists: {"text": [...], "embedding": array, ...}.'
        )
    for name, column in columns.items():
        if not isinstance(column, np.ndarray | Sequence) or isinstance(column, str):
            raise InvalidParameterError(
                f"Column {name!r} must be an array or a list, not a "
                f"{type(column).__name__}."
            )
    lengths = sorted({len(column) for column in columns.values()})
    if len(lengths) > 1:
        raise InvalidParameterError(
            "The columns have different numbers of rows: "
            f"{', '.join(map(str, lengths[:3]))}."
        )


def _vectors(
    columns: Mapping[str, Any], name: str, first: int, before: Sequence[Vectors]
) -> Vectors:
    """Return a batch of vectors, each scaled to norm 1."""
    batch = columns[name][first : first + _BATCH]
    matrix = None
    with suppress(TypeError, ValueError, OverflowError):
        # Each number by itself: with one row of words NumPy would make words of all.
        matrix = np.asarray(batch, np.float64)
    if matrix is None or matrix.ndim != _MATRIX:
        raise InvalidParameterError(
            f"Column {name!r} must hold one vector of numbers a row, all of one "
            f"dimension. It does not in rows {first} to {first + len(batch) - 1} "
            "(counted from 0)."
        )
    if before and matrix.shape[1] != before[0].shape[1]:
        raise InvalidParameterError(
            f"The vectors from row {first} on have {matrix.shape[1]} numbers, and "
            f"those before have {before[0].shape[1]}. Use one embedding."
        )
    return unit_rows(matrix, range(first, first + len(matrix)))


def _documents(columns: Mapping[str, Any], names: ColumnNames) -> DocumentLines:
    """Return the documents as lines, in the order of the rows."""
    index, lines, known = LineIndex(), bytearray(), set()
    further = names.further(list(columns))
    cells = {name: _listed(columns[name]) for name in further}
    texts, units = _listed(columns[names.text]), _listed(columns[names.unit_key])
    ids = [None] * len(texts) if names.id is None else _listed(columns[names.id])
    for row, (text, own, unit) in enumerate(zip(texts, ids, units, strict=True)):
        if not isinstance(text, str) or not (own is None or isinstance(own, str)):
            name = names.id if isinstance(text, str) else names.text
            raise InvalidParameterError(
                f"Column {name!r} holds no string in row {row} (counted from 0)."
            )
        if own is not None and own in known:
            raise InvalidParameterError(
                f"The id of row {row} (counted from 0) is taken by another row. "
                "Give each record an id of its own or none."
            )
        known.add(own)
        metadata = {names.unit_key: unit, **{k: cells[k][row] for k in further}}
        line = line_of(Document(text, metadata=metadata, id=own), row)
        index.add(line)
        lines += line
    return index.over(bytes(lines))


def _listed(column: Any) -> list[Any]:
    """Return a column's cells as Python objects."""
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
