"""Documents as lines of JSON, in memory or in a mapped file; read one by one."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.errors import InvalidParameterError

if TYPE_CHECKING:
    from mmap import mmap

    from numpy.typing import NDArray

_DEEP = 100
"""Brackets from which on a line is not parsed again; see `DocumentLines`."""
_DEEPER = "[" * 2 * _DEEP + "]" * 2 * _DEEP


class DocumentLines(Sequence[Document]):
    """Documents that are parsed when they are asked for, from a buffer of lines.

    A document takes its line's bytes and 16 more, where a `Document` takes a thousand.

    Privacy:
        A draw must not fail because of one document. Every line was parsed once before,
        so that it parses again; but the nesting that JSON's parser takes depends on the
        caller's stack. Documents with many brackets are therefore kept parsed. Which
        ones these are is a function of the line alone.
    """

    def __init__(
        self,
        buffer: bytes | mmap,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        parsed: dict[int, Document],
    ) -> None:
        self._buffer = buffer
        self._starts = starts
        self._ends = ends
        self._parsed = parsed  # Those kept, by where their line starts.

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, row: int) -> Document: ...
    @overload
    def __getitem__(self, row: slice) -> DocumentLines: ...
    def __getitem__(self, row: int | slice) -> Document | DocumentLines:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        kept = self._parsed.get(int(self._starts[row]))
        return kept or parsed_line(self.line(row))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def line(self, row: int) -> bytes:
        """Return a document's line, with its end."""
        return self._buffer[self._starts[row] : self._ends[row]]

    def take(self, rows: NDArray[np.int64]) -> DocumentLines:
        """Return the documents of some rows, over the same buffer."""
        return DocumentLines(
            self._buffer, self._starts[rows], self._ends[rows], self._parsed
        )


class LineIndex:
    """Where lines end, noted while they are read or written one after another."""

    def __init__(self) -> None:
        self._ends = array("q", [0])
        self._parsed: dict[int, Document] = {}

    def add(self, line: bytes, document: Document | None = None) -> None:
        """Note the next line, and its document where it was parsed already."""
        start = self._ends[-1]
        self._ends.append(start + len(line))
        if line.count(b"[") + line.count(b"{") > _DEEP:
            self._parsed[start] = parsed_line(line) if document is None else document

    def over(self, buffer: bytes | mmap) -> DocumentLines:
        """Return the documents of a buffer that holds the lines."""
        ends = np.asarray(self._ends, np.int64)
        return DocumentLines(buffer, ends[:-1], ends[1:], self._parsed)


def require_stack() -> None:
    """Raise a `RecursionError` where the stack may be too full to read some line.

    It does so, or not, whatever lines there are.
    """
    json.loads(_DEEPER)


def taken(documents: Sequence[Document], rows: NDArray[np.int64]) -> Sequence[Document]:
    """Return the documents of some rows, as lines where they are lines."""
    if isinstance(documents, DocumentLines):
        return documents.take(rows)
    return tuple(documents[row] for row in rows)


def line_of(document: Document, position: int) -> bytes:
    """Return a document as a line of JSON; `position` is for the message."""
    line = {"id": document.id, "page_content": document.page_content}
    metadata = _metadata_json(document.metadata, position)
    # Pure ASCII, so that lone surrogates survive as escapes.
    return f'{json.dumps(line)[:-1]}, "metadata": {metadata}}}\n'.encode()


def lines_of(documents: Sequence[Document], first: int) -> Iterable[bytes]:
    """Yield each document's line; `first` is the position of the first of them."""
    if isinstance(documents, DocumentLines):
        return map(documents.line, range(len(documents)))
    return (line_of(one, first + row) for row, one in enumerate(documents))


def parsed_line(line: bytes) -> Document:
    """Return the document of a line; one that was not read before raises anything."""
    record = json.loads(line)
    return Document(
        page_content=record["page_content"],
        metadata=record["metadata"],
        id=record["id"],
    )


def _metadata_json(metadata: dict[Any, Any], position: int) -> str:
    text = _as_json(metadata)
    if text is not None:
        return text
    culprit = next(
        (key for key, value in metadata.items() if _as_json({key: value}) is None),
        None,
    )
    raise InvalidParameterError(
        f"Metadata key {culprit!r} of stored document {position} (counted from 0) "
        "holds what JSON cannot express. Keep strings, numbers, booleans, lists and "
        "mappings in metadata."
    )


def _as_json(value: Any) -> str | None:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None
