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
certificates' fingerprints, and the erasures so far. It is written for its owner only.
The manifest's other fields are public parameters and the number of documents.
"""

from __future__ import annotations

import json
import os
import re
import secrets as random_source
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.common import files
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.ingest import check_document_ids
from langchain_dpicl.groups.lines import LineIndex
from langchain_dpicl.groups.saved_files import (
    checksum,
    damaged,
    mapped,
    read_documents,
    read_vectors,
    write_documents,
    write_vectors,
)
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.groups.units import (
    SALT_BYTES,
    new_salt,
    salt_fingerprint,
    unit_id_of,
)

FORMAT = "langchain-dpicl/retrieved-groups"
VERSION = 1

Path_ = str | os.PathLike[str]

_MANIFEST = "manifest.json"
_DATA = re.compile(r"(documents-\w+-\w+\.jsonl|vectors-\w+-\w+\.npy|\.\w+\.draft)")
_KINDS = ("documents-", "vectors-")


@dataclass(frozen=True, repr=False)
class Revision:
    """One revision of a saved index: what of it is not in the index. Private.

    Attributes:
        path: The directory.
        number: 1 for the first save, and so on.
        stamp: The manifest's bytes: equal for the same revision alone.
        salt_fingerprint: What tells its salt from others.
        erasure_key: The key of certificates' fingerprints.
        erasures: What was erased: fingerprint, time, numbers.
        memory_map: Whether its files are mapped.
    """

    path: Path
    number: int
    stamp: bytes
    salt_fingerprint: str
    erasure_key: bytes
    erasures: tuple[dict[str, Any], ...] = ()
    memory_map: bool = False


def save(
    path: Path_,
    terms: RetrievalTerms,
    index: ShardIndex,
    *,
    base: Revision | None = None,
) -> Revision:
    """Write an index to a directory; see `RetrievedGroups.save`.

    `base` is the revision that the index comes from.
    """
    with one_writer(path, create=True) as directory:
        return write(directory, terms, index, base=base)


def write(
    directory: Path,
    terms: RetrievalTerms,
    index: ShardIndex,
    *,
    base: Revision | None,
    advance: Advance = no_progress,
) -> Revision:
    """Write an index as the next revision; the caller is the one writer."""
    is_there = (directory / _MANIFEST).exists()
    if base is not None and base.path == directory:
        if not is_there or read_stamp(directory) != base.stamp:
            raise InvalidParameterError(
                f"{directory} was saved anew by somebody else since these groups were "
                "loaded: saving them would bring back what was changed there, such as "
                "an erased person. Load it again, make the changes, and save."
            )
    elif is_there:
        base = _read_revision(directory, read_stamp(directory))
    else:
        base = Revision(directory, 0, b"", "", new_salt())
    number = base.number + 1
    name = f"{number}-{random_source.token_hex(8)}"
    names = f"documents-{name}.jsonl", f"vectors-{name}.npy"
    try:
        write_documents(directory / names[0], index, advance)
        write_vectors(directory / names[1], index)
        private = {
            "salt": index.salt.hex(),
            "erasure_key": base.erasure_key.hex(),
            "erasures": list(base.erasures),
        }
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "revision": number,
            "terms": terms.to_dict(),
            "dimension": index.dimension,
            "documents": index.n_documents,
            "secrets": private,
            "blake2b": {name: checksum(directory / name) for name in names},
        }
        stamp = json.dumps(manifest, indent=2).encode()
        # The data files have their names on disk before the manifest names them.
        files.sync_directory(directory)
        files.put(stamp, directory / _MANIFEST, overwrite=True, mode=0o600)
    finally:
        sweep(directory)
    return replace(
        base,
        path=directory,
        number=number,
        stamp=stamp,
        salt_fingerprint=salt_fingerprint(index.salt),
    )


def load(
    path: Path_,
    *,
    advance: Advance = no_progress,
    memory_map: bool = False,
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
            return _load(directory, stamp, memory_map=memory_map, advance=advance)
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
    return _read_revision(directory, read_stamp(directory))


def sweep(directory: Path) -> int:
    """Delete the data files that the manifest does not name; return how many."""
    named: set[str] = set()
    with suppress(InvalidParameterError):
        named = set(_manifest(directory, read_stamp(directory))["blake2b"])
    old = [one for one in _data_files(directory) if one.name not in named]
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
    if not any(directory.iterdir()):
        directory.chmod(0o700)
    elif len(_data_files(directory)) < len(list(directory.iterdir())):
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


def _absolute(path: Path_) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  # resolve() follows links


def _data_files(directory: Path) -> list[Path]:
    return [one for one in directory.iterdir() if _DATA.fullmatch(one.name)]


def _require_saved(directory: Path) -> None:
    try:
        _manifest(directory, read_stamp(directory))
    except InvalidParameterError:
        foreign = True
    else:
        foreign = False
    if foreign:
        raise InvalidParameterError(
            f"{directory} holds something other than saved groups; choose another path."
        )


def _load(
    directory: Path,
    stamp: bytes,
    *,
    memory_map: bool,
    advance: Advance,
) -> tuple[RetrievalTerms, ShardIndex, Revision]:
    manifest = _manifest(directory, stamp)
    revision = _read_revision(directory, stamp)
    terms = None
    with suppress(KeyError, TypeError, ValueError):
        terms = RetrievalTerms.from_dict(manifest["terms"])
    if terms is None:
        raise damaged(_MANIFEST, "the parameters are not usable")
    names = sorted(manifest["blake2b"])
    for name in names:
        if checksum(directory / name) != manifest["blake2b"][name]:
            raise damaged(name, "it is cut short or was changed after it was saved")
    vectors = read_vectors(directory / names[1])
    documents: list[Document] = []
    unit_ids: list[str] = []
    lines = LineIndex()
    known: dict[str, str] = {}  # Each id once in memory.

    def read() -> Iterator[Document]:
        for line, document in read_documents(directory / names[0], advance):
            own = unit_id_of(document, terms.unit_key, position=len(unit_ids))
            unit_ids.append(known.setdefault(own, own))
            lines.add(line, document) if memory_map else documents.append(document)
            yield document

    check_document_ids(read(), frozenset())
    expected = (manifest["documents"], manifest["dimension"])
    if vectors.shape != expected or len(unit_ids) != expected[0]:
        raise damaged(_MANIFEST, "its counts are not those of the other files")
    index = ShardIndex.from_vectors(
        vectors,
        lines.over(mapped(directory / names[0])) if memory_map else documents,
        unit_ids,
        n_shards=terms.n_groups,
        salt=_secrets(manifest)["salt"],
        shared=memory_map,
    )
    return terms, index, replace(revision, memory_map=memory_map)


def _read_revision(directory: Path, stamp: bytes) -> Revision:
    manifest = _manifest(directory, stamp)
    found = _secrets(manifest)
    return Revision(
        directory,
        manifest["revision"],
        stamp,
        salt_fingerprint(found["salt"]),
        found["erasure_key"],
        found["erasures"],
    )


def _manifest(directory: Path, stamp: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(stamp)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _nothing_saved(directory)
    if manifest.get("version") != VERSION:
        raise InvalidParameterError(
            f"{directory} was saved in a format version that this release cannot "
            f"read (it reads version {VERSION})."
        )
    names = manifest.get("blake2b")
    if not isinstance(names, dict) or [
        bool(_DATA.fullmatch(name)) and name.startswith(kind)
        for name, kind in zip(sorted(names), _KINDS, strict=False)
    ] != [True, True]:
        raise damaged(_MANIFEST, "the checksums are missing")
    for name in ("documents", "dimension", "revision"):
        if not isinstance(manifest.get(name), int) or manifest[name] < 0:
            raise damaged(_MANIFEST, f"{name!r} is not a count")
    return manifest


def _nothing_saved(directory: Path) -> InvalidParameterError:
    return InvalidParameterError(
        f"{directory} holds no saved groups: there is no {_MANIFEST} of the "
        f"format {FORMAT!r} in it."
    )


def _secrets(manifest: dict[str, Any]) -> dict[str, Any]:
    found: Any = manifest.get("secrets")
    try:
        parts = ("salt", "erasure_key")
        keys = {name: bytes.fromhex(found[name]) for name in parts}
        erasures = tuple(map(dict, found["erasures"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        keys, erasures = {}, ()
    if [len(key) for key in keys.values()] != [SALT_BYTES, SALT_BYTES]:
        raise damaged(_MANIFEST, "the salt or another secret is not usable")
    return {**keys, "erasures": erasures}
