"""Documents as lines of JSON, in memory or in a mapped file; read one by one.

A document takes its line's bytes and 16 more, where a `Document` takes a thousand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.base import HoldsRecords

if TYPE_CHECKING:
    from mmap import mmap

    from numpy.typing import NDArray

_DEEPEST = 20
"""How deep the metadata of a line may be nested; see `require_stack`."""
_DEEPER = "[" * 2 * _DEEPEST + "]" * 2 * _DEEPEST


class DocumentLines(HoldsRecords):
    """Documents that are parsed when they are asked for, from a buffer of lines."""

    def __init__(
        self,
        buffer: bytes | mmap,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        self._buffer = buffer
        self._starts = starts
        self._ends = ends

    @classmethod
    def over(cls, buffer: bytes | mmap, lengths: Sequence[int]) -> DocumentLines:
        """Return the documents of a buffer, given the length of each of its lines."""
        ends = np.cumsum(np.asarray(lengths, np.int64))
        return cls(buffer, ends - np.asarray(lengths, np.int64), ends)

    def __iter__(self) -> Iterator[Document]:
        return (self[row] for row in range(len(self)))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> Document:
        return parsed_line(self.line(row))

    def line(self, row: int) -> bytes:
        """Return a document's line, with its end."""
        return self._buffer[self._starts[row] : self._ends[row]]

    def take(self, rows: NDArray[np.int64]) -> DocumentLines:
        """Return the documents of some rows, over the same buffer."""
        return DocumentLines(self._buffer, self._starts[rows], self._ends[rows])


Documents: TypeAlias = Sequence[Document] | DocumentLines
"""The documents of a shard, one a row."""


def require_stack() -> None:
    """Raise a `RecursionError` where the stack may be too full to read some line.

    Privacy:
        A draw must not fail because of one document, and the nesting that JSON's parser
        takes depends on the caller's stack. So this is called before a search, and
        fails or not, whatever lines there are: none is nested as deep
        (`require_shallow`).
    """
    json.loads(_DEEPER)


def require_shallow(metadata: dict[Any, Any], position: int) -> None:
    """Refuse metadata of JSON that is nested too deep for lines read in a draw."""
    level: list[Any] = [metadata]
    for _ in range(_DEEPEST):
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return
    raise InvalidParameterError(
        f"The metadata of document {position} (counted from 0) is nested more than "
        f"{_DEEPEST} levels deep. Keep plain values in it."
    )


def line_at(documents: Documents, row: int) -> bytes:
    """Return a document's line."""
    if isinstance(documents, DocumentLines):
        return documents.line(row)
    one = documents[row]
    return line_of(one.id, one.page_content, one.metadata, "a stored document")


def line_of(own: str | None, text: str, metadata: dict[Any, Any], what: str) -> bytes:
    """Return a document as a line of JSON: its id, text and metadata.

    Raises:
        InvalidParameterError: If JSON can't express the metadata; `what` names the
            document.
    """
    line = _line(own, text, metadata)
    if line is not None:
        return line
    culprit = next(
        (key for key in metadata if _line(own, text, {key: metadata[key]}) is None),
        None,
    )
    raise InvalidParameterError(
        f"Metadata key {culprit!r} of {what} holds what JSON cannot express. Keep "
        "strings, numbers, booleans, lists and mappings in metadata."
    )


def record_digest(documents: Documents, row: int) -> bytes:
    """Return a digest of a document's content: its id, text and metadata.

    Metadata that JSON cannot express does not count.
    """
    if isinstance(documents, DocumentLines):
        line: bytes | None = documents.line(row)
    else:
        one = documents[row]
        line = _line(one.id, one.page_content, one.metadata)
        line = line or _line(one.id, one.page_content, {})
    return hashlib.blake2b(line or b"", digest_size=16).digest()


def parsed_line(line: bytes) -> Document:
    """Return the document of a line; one that was not read before raises anything."""
    return Document(**json.loads(line))


def _line(own: str | None, text: str, metadata: dict[Any, Any]) -> bytes | None:
    line = {"id": own, "page_content": text, "metadata": metadata}
    try:
        # Pure ASCII, so that lone surrogates survive as escapes.
        return f"{json.dumps(line)}\n".encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []
