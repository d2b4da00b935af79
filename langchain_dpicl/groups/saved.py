"""Saving an index to a directory and reading it back, without pickle.

```
manifest.json            revision, public parameters, secrets, checksums
documents-3-9f….jsonl    one document a line: id, page_content, metadata
vectors-3-9f….npy        float32, one row a document
```

A save is a *revision*. Its data files have names of their own, and nobody looks at them
before the manifest names them: replacing that one file makes the revision the current
one. Then the files of former revisions are deleted, also those that a crash has left.
So a directory holds one revision, whole, at any time; after a crash also files that
nobody reads, which the next save or erasure deletes.

The directory holds private records, and as `secrets` the salt of the groups, the key of
certificates' fingerprints, and the erasures so far. It is written for its owner only:
mode 0700, files 0600. The manifest's other fields are public parameters and the number
of documents.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import secrets as random_source
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from langchain_dpicl.common import files
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.base import HoldsRecords, RetrievalTerms
from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.records import (
    Lines,
    Rows,
    Vectors,
    check_document_ids,
    is_shallow,
    parsed_line,
)
from langchain_dpicl.groups.units import SALT_BYTES, unit_id_of
from langchain_dpicl.public import Public

FORMAT: Final = "langchain-dpicl/retrieved-groups"
VERSION: Final = 2

Path_ = str | os.PathLike[str]

_MANIFEST = "manifest.json"
_DOCUMENTS, _VECTORS = r"^documents-\w+-\w+\.jsonl$", r"^vectors-\w+-\w+\.npy$"
_DATA = re.compile(rf"{_DOCUMENTS}|{_VECTORS}|^\.\w+\.draft$")
_BLOCK = 1 << 20
_NORM_TOLERANCE = 1e-3
_HEARD = 1000  # Documents that a bar moves on by: drawing each would take longer.

Key = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * SALT_BYTES}}}$", repr=False)]


class Secrets(Public):
    """What of a manifest is secret."""

    salt: Key
    """The salt of the groups, in hexadecimal digits."""

    erasure_key: Key
    """The key of certificates' fingerprints."""

    erasures: tuple[dict[str, Any], ...] = Field(default=(), strict=False, repr=False)
    """What was erased: fingerprint, time, numbers."""


class Manifest(Public):
    """The file that names the current revision."""

    format: Literal["langchain-dpicl/retrieved-groups"] = FORMAT
    version: Literal[2] = VERSION
    revision: Annotated[int, Field(ge=1)]
    terms: RetrievalTerms
    embedding_batch_size: Annotated[int, Field(ge=1)] | None
    dimension: Annotated[int, Field(ge=0)]
    documents: Annotated[int, Field(ge=0)]
    documents_file: Annotated[str, Field(pattern=_DOCUMENTS)]
    vectors_file: Annotated[str, Field(pattern=_VECTORS)]
    blake2b: dict[str, str]
    secrets: Secrets


@dataclass(frozen=True, repr=False)
class Revision(HoldsRecords):
    """One revision of a saved index: what of it is not in the index. Private."""

    path: Path
    number: int  # 1 for the first save, and so on.
    stamp: bytes  # The manifest: equal for the same revision alone.
    secrets: Secrets
    memory_map: bool = False


def save(
    path: Path_, terms: RetrievalTerms, index: ShardIndex, base: Revision | None = None
) -> Revision:
    """Write an index, which comes from the revision `base`, to a directory."""
    with one_writer(path, create=True) as directory:
        return write(directory, terms, index, base)


def write(
    directory: Path,
    terms: RetrievalTerms,
    index: ShardIndex,
    base: Revision | None,
    advance: Advance = no_progress,
) -> Revision:
    """Write an index as the next revision; the caller is the one writer.

    `advance` hears how many documents are written.
    """
    is_there = (directory / _MANIFEST).exists()
    if base is not None and base.path == directory:
        if not is_there or read_stamp(directory) != base.stamp:
            raise InvalidParameterError(
                f"{directory} was saved anew by somebody else since these groups were "
                "loaded: saving them would bring back what was changed there, such as "
                "an erased person. Load it again, make the changes, and save."
            )
    elif is_there:
        base = read_revision(directory)
    else:
        key = random_source.token_hex(SALT_BYTES)
        secrets = Secrets(salt=index.salt.hex(), erasure_key=key)
        base = Revision(directory, 0, b"", secrets)
    number = base.number + 1
    name = f"{number}-{random_source.token_hex(8)}"
    notes, vectors = f"documents-{name}.jsonl", f"vectors-{name}.npy"
    try:
        with _private_file(directory / notes) as file:
            for shard in index.shards:
                file.writelines(shard.lines)
                advance(len(shard.lines))
        with _private_file(directory / vectors) as file:
            shape = (index.n_documents, index.dimension)
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for shard in index.shards:
                file.write(shard.vectors.astype("<f4", copy=False).tobytes())
        manifest = Manifest(
            revision=number,
            terms=terms,
            embedding_batch_size=index.batch_size,
            dimension=index.dimension,
            documents=index.n_documents,
            documents_file=notes,
            vectors_file=vectors,
            blake2b={name: _checksum(directory / name) for name in (notes, vectors)},
            secrets=base.secrets.model_copy(update={"salt": index.salt.hex()}),
        )
        stamp = manifest.model_dump_json(indent=2).encode()
        # The data files have their names on disk before the manifest names them.
        files.sync_directory(directory)
        files.put(stamp, directory / _MANIFEST, overwrite=True, mode=0o600)
    finally:
        sweep(directory)
    return replace(base, path=directory, number=number, stamp=stamp)


def load(
    path: Path_, *, advance: Advance = no_progress, memory_map: bool = False
) -> tuple[RetrievalTerms, ShardIndex, Revision]:
    """Read what `save` wrote; see `RetrievedGroups.load`.

    With `memory_map` vectors and documents stay in their files, which a later save
    deletes: the system frees their place when nobody has them mapped any more.
    """
    if memory_map and os.name == "nt":
        raise InvalidParameterError(
            "On Windows a mapped file could not be deleted for an erasure: leave "
            "memory_map=False."
        )
    directory = _absolute(path)
    while True:
        stamp = read_stamp(directory)
        try:
            manifest = _manifest(directory, stamp)
            revision = Revision(
                directory, manifest.revision, stamp, manifest.secrets, memory_map
            )
            return manifest.terms, _index(revision, manifest, advance), revision
        except (InvalidParameterError, FileNotFoundError):
            # Its files are gone where a newer revision came meanwhile.
            if read_stamp(directory) == stamp:
                raise


def read_stamp(directory: Path) -> bytes:
    """Return what tells a revision from others: cheap enough for every question."""
    try:
        return (directory / _MANIFEST).read_bytes()
    except OSError:
        pass
    raise _nothing_saved(directory)


def read_revision(path: Path_) -> Revision:
    """Return what of the current revision is not in the index."""
    directory = _absolute(path)
    stamp = read_stamp(directory)
    manifest = _manifest(directory, stamp)
    return Revision(directory, manifest.revision, stamp, manifest.secrets)


def sweep(directory: Path) -> int:
    """Delete the data files that the manifest does not name; return how many."""
    named: dict[str, str] = {}
    if (directory / _MANIFEST).exists():
        named = _manifest(directory, read_stamp(directory)).blake2b
    old = [file for file in _data_files(directory) if file.name not in named]
    for file in old:
        file.unlink(missing_ok=True)
    files.sync_directory(directory)
    return len(old)


@contextmanager
def one_writer(path: Path_, *, create: bool = False) -> Iterator[Path]:
    """Keep other writers of a directory waiting; make it if need be.

    A process that dies lets go of it. Where a directory can't be locked (Windows), it
    is for the operator to let one process write.
    """
    directory = _absolute(path)
    if directory.exists() and not directory.is_dir():
        raise InvalidParameterError(
            f"{directory} is a file; save() writes a directory."
        )
    is_new = not directory.exists()
    if not create:
        read_stamp(directory)
    directory.mkdir(parents=True, exist_ok=True)
    there = list(directory.iterdir())
    if not there:
        directory.chmod(0o700)
    elif len(_data_files(directory)) < len(there):
        # A first save that a crash has ended has left data files alone.
        _require_saved(directory)
    if os.name == "nt":
        yield directory
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(descriptor)
        if is_new:
            # Of a save that has failed nothing is left.
            with suppress(OSError):
                directory.rmdir()


def _index(revision: Revision, manifest: Manifest, advance: Advance) -> ShardIndex:
    """Read a revision's data files; `advance` hears how many documents are read."""
    notes = revision.path / manifest.documents_file
    vectors_file = revision.path / manifest.vectors_file
    for file in (notes, vectors_file):
        if _checksum(file) != manifest.blake2b.get(file.name):
            raise _damaged(
                file.name, "it is cut short or was changed after it was saved"
            )
    vectors = _read_vectors(vectors_file, mapped=revision.memory_map)
    lengths, unit_ids = [], []

    def document_ids() -> Iterator[str | None]:
        with notes.open("rb") as lines:
            for row, line in enumerate(lines):
                try:
                    document = parsed_line(line)
                except (KeyError, TypeError, ValueError, RecursionError):
                    document = None
                if document is None or not is_shallow(document.metadata):
                    raise _damaged(notes.name, f"line {row + 1} is not a document")
                key = manifest.terms.unit_key
                unit_ids.append(unit_id_of(document, key, position=row))
                lengths.append(len(line))
                if row % _HEARD == 0:
                    advance(min(_HEARD, manifest.documents - row))
                yield document.id

    check_document_ids(document_ids())
    expected = (manifest.documents, manifest.dimension)
    if vectors.shape != expected or len(unit_ids) != expected[0]:
        raise _damaged(_MANIFEST, "its counts are not those of the other files")
    buffer = _mapped(notes) if revision.memory_map else notes.read_bytes()
    return ShardIndex.of(
        Rows(vectors, Lines(buffer, lengths), unit_ids),
        n_shards=manifest.terms.n_groups,
        salt=bytes.fromhex(manifest.secrets.salt),
        batch_size=manifest.embedding_batch_size,
    )


def _manifest(directory: Path, stamp: bytes) -> Manifest:
    try:
        head = json.loads(stamp)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise _nothing_saved(directory)
    if head.get("version") != VERSION:
        raise InvalidParameterError(
            f"{directory} was saved in a format version that this release cannot "
            f"read (it reads version {VERSION})."
        )
    with suppress(InvalidParameterError):
        return Manifest.model_validate_json(stamp)
    raise _damaged(_MANIFEST, "its fields are not usable")


def _read_vectors(path: Path, *, mapped: bool) -> Vectors:
    """Read the vectors of a file, of norm 1."""
    try:
        vectors = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        vectors = None
    if vectors is None or vectors.ndim != 2 or vectors.dtype != np.dtype("<f4"):  # noqa: PLR2004  # a matrix
        raise _damaged(path.name, "it is not a matrix of float32")
    rows: Vectors = vectors
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # Written so that NaN fails as well.
    if not np.all(np.abs(norms - 1) < _NORM_TOLERANCE):
        raise _damaged(path.name, "a row does not have norm 1")
    return rows


def _mapped(path: Path) -> bytes | mmap.mmap:
    """Return a file's bytes, which are read from the file when they are used."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _checksum(path: Path) -> str:
    """Return a file's digest; an empty one where there is no file."""
    digest = hashlib.blake2b(digest_size=32)
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


@contextmanager
def _private_file(path: Path) -> Iterator[IO[bytes]]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _absolute(path: Path_) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  # resolve() follows links


def _data_files(directory: Path) -> list[Path]:
    return [file for file in directory.iterdir() if _DATA.match(file.name)]


def _require_saved(directory: Path) -> None:
    with suppress(InvalidParameterError):
        _manifest(directory, read_stamp(directory))
        return
    raise InvalidParameterError(
        f"{directory} holds something other than saved groups; choose another path."
    )


def _nothing_saved(directory: Path) -> InvalidParameterError:
    return InvalidParameterError(
        f"{directory} holds no saved groups: there is no {_MANIFEST} of the "
        f"format {FORMAT!r} in it."
    )


def _damaged(name: str, reason: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"The saved groups cannot be read: {name}: {reason}. Load a good copy, or "
        "build the groups from the documents again."
    )
