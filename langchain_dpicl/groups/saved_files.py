"""The data files of a saved index: documents and vectors."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.ingest import Vectors
from langchain_dpicl.groups.lines import lines_of, parsed_line
from langchain_dpicl.groups.shards import ShardIndex

_BLOCK = 1 << 20
_NORM_TOLERANCE = 1e-3
_HEARD = 1000  # Documents that a bar moves on by: drawing each would take longer.


def write_documents(
    path: Path, index: ShardIndex, advance: Advance = no_progress
) -> None:
    """Write the documents, one a line, shard by shard; `advance` hears how many."""
    first = 0
    with _private_file(path) as file:
        for shard in index.shards:
            file.writelines(lines_of(shard.documents, first))
            first += len(shard.documents)
            advance(len(shard.documents))


def write_vectors(path: Path, index: ShardIndex) -> None:
    """Write the vectors, one a row, in the order of the documents."""
    header = {
        "descr": "<f4",
        "fortran_order": False,
        "shape": (index.n_documents, index.dimension),
    }
    with _private_file(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for shard in index.shards:
            file.write(shard.vectors().astype("<f4", copy=False).tobytes())


def read_documents(
    path: Path, advance: Advance = no_progress
) -> Iterator[tuple[bytes, Document]]:
    """Yield the lines that `write_documents` wrote, each with its document.

    `advance` hears how many.
    """
    number = 0
    try:
        file = path.open("rb")
    except OSError:
        file = None
    if file is None:
        raise damaged(path.name, "it can't be opened")
    with file:
        for number, line in enumerate(file, 1):
            try:
                document = parsed_line(line)
            except (KeyError, TypeError, ValueError, RecursionError):
                document = None
            if document is None:
                raise damaged(path.name, f"line {number} is not a document")
            yield line, document
            if number % _HEARD == 0:
                advance(_HEARD)
    advance(number % _HEARD)


def mapped(path: Path) -> bytes | mmap.mmap:
    """Return a file's bytes, which are read from the file when they are used."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_vectors(path: Path) -> Vectors:
    """Read what `write_vectors` wrote, of norm 1."""
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        vectors = None
    if vectors is None or vectors.ndim != 2 or vectors.dtype != np.dtype("<f4"):  # noqa: PLR2004  # a matrix
        raise damaged(path.name, "it is not a matrix of float32")
    rows: Vectors = vectors
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # Written so that NaN fails as well.
    if not np.all(np.abs(norms - 1) < _NORM_TOLERANCE):
        raise damaged(path.name, "a row does not have norm 1")
    return rows


def damaged(name: str, reason: str) -> InvalidParameterError:
    """Return the error for a saved index that can't be trusted."""
    return InvalidParameterError(
        f"The saved groups cannot be read: {name}: {reason}. Load a good copy, or "
        "build the groups from the documents again."
    )


def checksum(path: Path) -> str | None:
    """Return a file's digest; None where there is no file."""
    digest = hashlib.blake2b(digest_size=32)
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


@contextmanager
def _private_file(path: Path) -> Iterator[IO[bytes]]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
