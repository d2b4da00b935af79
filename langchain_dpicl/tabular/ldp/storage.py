"""A file of counted reports: arrays and a JSON header, without pickle.

It is a NumPy archive (`.npz`) of the arrays of `ReportCounts.to_arrays` and of
`header`, the bytes of a JSON text:

```
{
  "format": "langchain-dpicl/ldp-table",
  "version": 1,
  "schema": the schema's own JSON,
  "terms": {"epsilon", "split", "model", "unit_key", "rows_per_unit"},
  "record": the public record,
  "sha256": the digest of all arrays and of this header without it
}
```

Counts are functions of reports, so all of it is public. What is loaded is checked: the
digest, that counts, schema, terms and record agree, and that the events cost no more
than the record says, and no less than the reports did. The digest shows accidents and
careless edits; it is no signature.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common import files
from langchain_dpicl.common.parameters import ParameterError
from langchain_dpicl.exceptions import DPError, InvalidParameterError, ReleaseError
from langchain_dpicl.released.checking import (
    checked_record,
    events_of,
    pure_epsilon,
)
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.result import Collected, reconstructed
from langchain_dpicl.tabular.ldp.terms import (
    MECHANISM,
    RELATION,
    LDPTerms,
    same_epsilons,
)
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import TOLERANCE

FORMAT = "langchain-dpicl/ldp-table"
VERSION = 1

MAX_BYTES = 1 << 30
"""Largest file, unpacked or not."""

_HEADER = "header"
_UNFIT = (DPError, ParameterError, KeyError, OverflowError, TypeError, ValueError)

Path_ = str | os.PathLike[str]
_Arrays = Mapping[str, NDArray[Any]]


def copied(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of its own, in the types of JSON."""
    found: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    return found


def write(path: Path_, found: Collected, *, overwrite: bool) -> None:
    """Write what was collected to a file; see `LDPTable.save`."""
    terms = found.terms
    split = terms.split
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "schema": json.loads(terms.schema.to_json()),
        "terms": {
            "epsilon": terms.epsilon,
            "split": split
            if isinstance(split, str)
            else {name: float(part) for name, part in split.items()},
            "model": terms.model,
            "unit_key": terms.unit_key,
            "rows_per_unit": terms.rows_per_unit,
        },
        "record": found.record,
    }
    arrays: dict[str, Any] = {**found.counts.to_arrays()}
    header["sha256"] = _digest(arrays, header)
    text = json.dumps(header, allow_nan=False).encode()
    file = io.BytesIO()
    np.savez_compressed(file, header=np.frombuffer(text, np.uint8), **arrays)
    try:
        files.put(file.getvalue(), Path(path), overwrite=overwrite)
    except (OSError, ValueError) as error:
        if isinstance(error, FileExistsError) and not overwrite:
            raise ReleaseError(
                f"{os.fspath(path)!r} is there already; choose another path, or pass "
                "overwrite=True. Nothing was written."
            ) from None
        raise ReleaseError(
            f"{os.fspath(path)!r} can't be written ({type(error).__name__}). The table "
            "is still in memory: save it elsewhere."
        ) from None


def read(path: Path_, schema: TableSchema | None) -> Collected:
    """Read what `write` wrote, and check it; see `LDPTable.load`.

    Raises:
        ReleaseError: If it is no such file, was changed, or contradicts itself.
        InvalidParameterError: If it is of another schema.
    """
    arrays = _unpacked(path)
    header = _header(arrays.pop(_HEADER, None), path)
    stated = header.pop("sha256", None)
    if stated != _digest(arrays, header):
        raise _foreign(path, "it was changed after it was saved")
    reason = ""
    try:
        found = _collected(arrays, header)
    except _UNFIT as error:
        reason = str(error) if isinstance(error, DPError | ParameterError) else ""
        reason = reason or "a part of its header is missing or of another form"
    if reason:
        raise _foreign(path, reason)
    if schema is not None and schema.fingerprint() != found.terms.schema.fingerprint():
        raise InvalidParameterError(
            f"{os.fspath(path)!r} holds reports of another schema. Leave schema= out "
            "to take the file's."
        )
    return found


def _collected(arrays: _Arrays, header: Mapping[str, Any]) -> Collected:
    """Put a file's parts together, refusing those that contradict each other."""
    record = checked_record(header["record"])
    stored = header["terms"]
    terms = LDPTerms(
        schema=TableSchema.from_json(json.dumps(header["schema"])),
        epsilon=stored["epsilon"],
        split=stored["split"],
        model=stored["model"],
        unit_key=stored["unit_key"],
        rows_per_unit=stored["rows_per_unit"],
    )
    terms.check()
    counts = ReportCounts.from_arrays(arrays)
    own, said = terms.described(), record["parameters"]
    epsilons = said["epsilons"]
    agrees = (
        record["mechanism"] == MECHANISM
        and record["relation"] == RELATION
        and record["unit_key"] == terms.unit_key
        and record["delta"] == 0
        and said["rows_per_unit"] == terms.rows_per_unit
        and said["split"] == own["split"]
        and counts.domain_sizes == tuple(terms.sizes.values())
        and counts.n == said["n_reports"] > 0
        and said["schema"] == own["schema"]
        and said["epsilon"] == own["epsilon"] <= record["epsilon"]
        and own["epsilon"] <= pure_epsilon(events_of(record)) * (1 + TOLERANCE)
        and list(epsilons) == list(own["epsilons"])
        and same_epsilons(own["epsilons"], epsilons)
    )
    if not agrees:
        raise ReleaseError("its counts, schema and record contradict each other")
    distribution = reconstructed(terms, epsilons, counts)
    return Collected(terms, epsilons, counts, distribution, record)


def _digest(arrays: _Arrays, header: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _unpacked(path: Path_) -> dict[str, NDArray[Any]]:
    reason = ""
    try:
        # Asked first: opening a pipe would wait for a writer.
        if not Path(path).is_file():
            raise _foreign(path, "it can't be read (there is no such file)")
        if Path(path).stat().st_size > MAX_BYTES:
            raise _foreign(path, f"it is larger than {MAX_BYTES} bytes")
        with zipfile.ZipFile(path) as archive:
            if sum(part.file_size for part in archive.infolist()) > MAX_BYTES:
                raise _foreign(path, f"it unpacks to more than {MAX_BYTES} bytes")
        with np.load(path, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
    except OSError as error:
        reason = f"it can't be read ({type(error).__name__})"
    except (
        EOFError,
        KeyError,
        MemoryError,
        NotImplementedError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ):
        reason = "it is no archive of arrays, or is damaged"
    else:
        # NumPy hands on the bytes of a part that is no array.
        if all(isinstance(array, np.ndarray) for array in found.values()):
            return found
        reason = "a part of it is no array"
    raise _foreign(path, reason)


def _header(stored: NDArray[Any] | None, path: Path_) -> dict[str, Any]:
    value: Any = None
    if stored is not None and stored.dtype == np.uint8:
        with suppress(ValueError, RecursionError):
            value = json.loads(stored.tobytes())
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _foreign(path, f"it is not of the format {FORMAT!r}")
    version = value.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise _foreign(
            path,
            f"its format version is not one up to {VERSION}, which this release of "
            "langchain-dpicl reads",
        )
    return value


def _foreign(path: Path_, reason: str) -> ReleaseError:
    return ReleaseError(
        f"{os.fspath(path)!r} holds no collected table that can be trusted: "
        f"{reason.rstrip('.')}. Load a good copy, or collect again."
    )
