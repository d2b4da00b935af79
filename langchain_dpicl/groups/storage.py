"""Saving an index to a directory and reading it back, without pickle.

```
manifest.json     format, version, public parameters, secret salt, checksums
documents.jsonl   one document a line: id, page_content, metadata
vectors.npy       float32, one row a document
```

The directory holds private records and the salt in the clear. It is readable by its
owner only, and appears under its name when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.files import sync_directory
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.groups.ingest import Vectors, check_document_ids
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.groups.units import SALT_BYTES, unit_id_of

FORMAT = "langchain-dpicl/retrieved-groups"
VERSION = 1

_MANIFEST = "manifest.json"
_DOCUMENTS = "documents.jsonl"
_VECTORS = "vectors.npy"
_BLOCK = 1 << 20
_NORM_TOLERANCE = 1e-3


def save(
    path: str | os.PathLike[str], terms: RetrievalTerms, index: ShardIndex
) -> None:
    """Write an index to a directory; see `RetrievedGroups.save`."""
    target = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() follows links
    replaces = _check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the rename stays on one file system. mkdtemp makes
    # a directory of mode 0700.
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        checksums = {
            _DOCUMENTS: _write_documents(draft / _DOCUMENTS, index),
            _VECTORS: _write_vectors(draft / _VECTORS, index),
        }
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "terms": terms.to_dict(),
            "dimension": index.dimension,
            "documents": index.n_documents,
            "salt": index.salt.hex(),
            "blake2b": checksums,
        }
        with _private_file(draft / _MANIFEST) as file:
            file.write(json.dumps(manifest, indent=2).encode())
        _put_in_place(draft, target, replaces=replaces)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> tuple[RetrievalTerms, ShardIndex]:
    """Read what `save` wrote; see `RetrievedGroups.load`."""
    directory = Path(path)
    manifest = _read_manifest(directory)
    terms, salt = _read_terms(manifest)
    for name in (_DOCUMENTS, _VECTORS):
        if _checksum(directory / name) != manifest["blake2b"].get(name):
            raise _damaged(name, "it is cut short or was changed after it was saved")
    documents = _read_documents(directory / _DOCUMENTS)
    vectors = _read_vectors(directory / _VECTORS)
    expected = (manifest["documents"], manifest["dimension"])
    if vectors.shape != expected or len(documents) != expected[0]:
        raise _damaged(_MANIFEST, "its counts are not those of the other files")
    check_document_ids(documents, frozenset())
    unit_ids = [
        unit_id_of(document, terms.unit_key, position=position)
        for position, document in enumerate(documents)
    ]
    index = ShardIndex.from_vectors(
        vectors, documents, unit_ids, n_shards=terms.n_shards, salt=salt
    )
    return terms, index


def _check_target(target: Path) -> bool:
    if not target.exists():
        return False
    if not target.is_dir():
        raise InvalidParameterError(f"{target} is a file; save() writes a directory.")
    if not any(target.iterdir()):
        return False
    try:
        _read_manifest(target)
    except InvalidParameterError:
        foreign = True
    else:
        foreign = False
    if foreign:
        raise InvalidParameterError(
            f"{target} holds something other than saved groups; choose another path."
        )
    return True


def _put_in_place(draft: Path, target: Path, *, replaces: bool) -> None:
    if not replaces:
        draft.rename(target)
        sync_directory(target.parent)
        return
    # A directory cannot be renamed over a full one. Should the process die between
    # the two renames, the earlier save is still there under its hidden name.
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    old = aside / target.name
    target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        old.rename(target)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)
    sync_directory(target.parent)


def _write_documents(path: Path, index: ShardIndex) -> str | None:
    documents = (document for shard in index.shards for document in shard.documents)
    with _private_file(path) as file:
        for position, document in enumerate(documents):
            line = {"id": document.id, "page_content": document.page_content}
            metadata = _metadata_json(document.metadata, position)
            # Pure ASCII, so that lone surrogates survive as escapes.
            file.write(f'{json.dumps(line)[:-1]}, "metadata": {metadata}}}\n'.encode())
    return _checksum(path)


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


def _write_vectors(path: Path, index: ShardIndex) -> str | None:
    header = {
        "descr": "<f4",
        "fortran_order": False,
        "shape": (index.n_documents, index.dimension),
    }
    with _private_file(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for shard in index.shards:
            file.write(shard.vectors().astype("<f4", copy=False).tobytes())
    return _checksum(path)


def _read_manifest(directory: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((directory / _MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InvalidParameterError(
            f"{directory} holds no saved groups: there is no {_MANIFEST} of the "
            f"format {FORMAT!r} in it."
        )
    if manifest.get("version") != VERSION:
        raise InvalidParameterError(
            f"{directory} was saved in a format version that this release cannot "
            f"read (it reads version {VERSION})."
        )
    if not isinstance(manifest.get("blake2b"), dict):
        raise _damaged(_MANIFEST, "the checksums are missing")
    for name in ("documents", "dimension"):
        if not isinstance(manifest.get(name), int) or manifest[name] < 0:
            raise _damaged(_MANIFEST, f"{name!r} is not a count")
    return manifest


def _read_terms(manifest: dict[str, Any]) -> tuple[RetrievalTerms, bytes]:
    try:
        terms = RetrievalTerms.from_dict(manifest["terms"])
        salt = bytes.fromhex(manifest["salt"])
    except (KeyError, TypeError, ValueError):
        terms, salt = None, b""
    if terms is None or len(salt) != SALT_BYTES:
        raise _damaged(_MANIFEST, "the parameters or the salt are not usable")
    return terms, salt


def _read_documents(path: Path) -> list[Document]:
    documents = []
    with path.open(encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                document = Document(
                    page_content=record["page_content"],
                    metadata=record["metadata"],
                    id=record["id"],
                )
            except (KeyError, TypeError, ValueError, RecursionError):
                document = None
            if document is None:
                raise _damaged(_DOCUMENTS, f"line {number} is not a document")
            documents.append(document)
    return documents


def _read_vectors(path: Path) -> Vectors:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        vectors = None
    if vectors is None or vectors.ndim != 2 or vectors.dtype != np.dtype("<f4"):  # noqa: PLR2004  # a matrix
        raise _damaged(_VECTORS, "it is not a matrix of float32")
    rows: Vectors = vectors
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # Written so that NaN fails as well.
    if not np.all(np.abs(norms - 1) < _NORM_TOLERANCE):
        raise _damaged(_VECTORS, "a row does not have norm 1")
    return rows


def _damaged(name: str, reason: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"The saved groups cannot be read: {name}: {reason}. Load a good copy, or "
        "build the groups from the documents again."
    )


def _checksum(path: Path) -> str | None:
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
