"""The data files of a saved index: documents and vectors, in the clear or encrypted."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

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


class OpenPermissionsWarning(UserWarning):
    """A saved index that is not encrypted can be read by its group."""


@runtime_checkable
class Cipher(Protocol):
    """Encrypts a saved index at rest; `cryptography.fernet.Fernet` is one.

    It should authenticate: what was changed must not decrypt. Each file is encrypted
    as a whole, in memory.
    """

    def encrypt(self, data: bytes, /) -> bytes:
        """Return the ciphertext."""

    def decrypt(self, token: bytes, /) -> bytes:
        """Return what was encrypted, or raise."""


def write_documents(
    path: Path,
    index: ShardIndex,
    cipher: Cipher | None,
    advance: Advance = no_progress,
) -> None:
    """Write the documents, one a line, shard by shard; `advance` hears how many."""
    first = 0
    with _private_file(path, cipher) as file:
        for shard in index.shards:
            file.writelines(lines_of(shard.documents, first))
            first += len(shard.documents)
            advance(len(shard.documents))


def write_vectors(path: Path, index: ShardIndex, cipher: Cipher | None) -> None:
    """Write the vectors, one a row, in the order of the documents."""
    header = {
        "descr": "<f4",
        "fortran_order": False,
        "shape": (index.n_documents, index.dimension),
    }
    with _private_file(path, cipher) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for shard in index.shards:
            file.write(shard.vectors().astype("<f4", copy=False).tobytes())


def read_documents(
    path: Path, cipher: Cipher | None, advance: Advance = no_progress
) -> Iterator[tuple[bytes, Document]]:
    """Yield the lines that `write_documents` wrote, each with its document.

    `advance` hears how many.
    """
    number = 0
    with _content(path, cipher) as file:
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


def read_vectors(path: Path, cipher: Cipher | None) -> Vectors:
    """Read what `write_vectors` wrote, of norm 1."""
    try:
        if cipher is None:
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with _content(path, cipher) as file:
                vectors = np.load(file, allow_pickle=False)
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


def encrypted(data: bytes, cipher: Cipher) -> bytes:
    """Return the ciphertext; whatever a cipher raises is not passed on."""
    with suppress(Exception):
        return bytes(cipher.encrypt(data))
    raise InvalidParameterError("The cipher can't encrypt; nothing was saved.")


def decrypted(token: bytes, cipher: Cipher, name: str) -> bytes:
    """Return what was encrypted; whatever a cipher raises is not passed on."""
    with suppress(Exception):
        return bytes(cipher.decrypt(token))
    raise damaged(name, "this cipher can't decrypt it; is it the one of the save?")


@contextmanager
def _content(path: Path, cipher: Cipher | None) -> Iterator[IO[bytes]]:
    try:
        file = path.open("rb")
    except OSError:
        file = None
    if file is None:
        raise damaged(path.name, "it can't be opened")
    with file:
        if cipher is None:
            yield file
        else:
            yield io.BytesIO(decrypted(file.read(), cipher, path.name))


@contextmanager
def _private_file(path: Path, cipher: Cipher | None) -> Iterator[IO[bytes]]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if cipher is None:
            yield file
        else:
            clear = io.BytesIO()
            yield clear
            file.write(encrypted(clear.getvalue(), cipher))
        file.flush()
        os.fsync(file.fileno())


def check_permissions(directory: Path, names: Sequence[str]) -> None:
    """Refuse private files that everybody can read; warn where a group can.

    A group's right is how containers share a volume; the rights of all others have no
    such use.

    Raises:
        InvalidParameterError: If everybody can.
    """
    if os.name == "nt":
        return
    modes = [stat.S_IMODE((directory / name).stat().st_mode) for name in names]
    around = stat.S_IMODE(directory.stat().st_mode)
    # A folder that others can't enter closes its files, too.
    reach = 0
    for mode in modes:
        reach |= mode & (around & 0o011) << 2
    way_out = f"'chmod -R go= {directory}' closes it; cipher= encrypts it."
    if reach & 0o004:
        raise InvalidParameterError(
            f"The saved groups in {directory} are private records in the clear, and "
            f"every user of this machine can read them. {way_out}"
        )
    if reach:
        warnings.warn(
            f"The saved groups in {directory} are private records in the clear, and "
            f"their group can read them. {way_out}",
            OpenPermissionsWarning,
            stacklevel=4,
        )
