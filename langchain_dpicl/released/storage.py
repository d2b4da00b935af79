"""A file of released examples: JSON that people can read, without pickle.

```
{
  "format": "langchain-dpicl/released-examples",
  "version": 1,
  "record": {"status": "released", "unit": ..., "epsilon": ..., "delta": ..., ...},
  "examples": [{"text": ..., "label": ...}, ...],
  "sha256": the digest of examples and record
}
```

The file appears under its name when it is complete. Examples and record are public, and
so is the file. Compatibility promise: every later version of the library reads version
1; a field that means something else gets another version number.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from langchain_dpicl.common import files
from langchain_dpicl.exceptions import ReleaseError
from langchain_dpicl.released.checking import digest_of

FORMAT = "langchain-dpicl/released-examples"
VERSION = 1

MAX_BYTES = 1 << 26
"""Largest file, 64 MiB: some hundred thousand examples."""

_FIELDS = frozenset({"format", "version", "record", "examples", "sha256"})

Path_ = str | os.PathLike[str]


def write(
    path: Path_,
    examples: list[dict[str, str]],
    record: dict[str, Any],
    sha256: str,
    *,
    overwrite: bool,
) -> None:
    """Write a release to a file; see `ReleasedExamples.save`."""
    stored = {
        "format": FORMAT,
        "version": VERSION,
        "record": record,
        "examples": examples,
        "sha256": sha256,
    }
    data = (json.dumps(stored, indent=2, ensure_ascii=False) + "\n").encode()
    if len(data) > MAX_BYTES:
        raise ReleaseError(
            f"These examples make a file of {len(data)} bytes; at most {MAX_BYTES} can "
            "be read back. Nothing was written."
        )
    try:
        target = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() follows links
        if os.path.lexists(target) and not overwrite:
            _require_same(target, sha256)
            return
        files.put(data, target, overwrite=overwrite)
    except FileExistsError:
        raise _taken(path) from None
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{os.fspath(path)!r} can't be written ({_reason(error)}). The examples "
            "are still in memory: save them elsewhere."
        ) from error


def read(path: Path_) -> tuple[list[Any], dict[str, Any], str]:
    """Read what `write` wrote.

    Returns:
        Examples, record and digest, as the file says: nothing of it is checked.

    Raises:
        ReleaseError: If the file can't be read, is not of this format, or of a
            version that this release does not know.
    """
    value = _parsed(_content(path), path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _foreign(path, f"it is not of the format {FORMAT!r}")
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise _foreign(path, "its version is not a number")
    if version > VERSION:
        raise ReleaseError(
            f"{os.fspath(path)!r} was saved in format version {version}; this release "
            f"of langchain-dpicl reads versions up to {VERSION}. Upgrade it."
        )
    if value.keys() != _FIELDS:
        odd = sorted(_FIELDS.symmetric_difference(value))
        raise _foreign(path, f"the field {odd[0]!r:.40} is missing or too many")
    examples, record, sha256 = value["examples"], value["record"], value["sha256"]
    if not isinstance(examples, list):
        raise _foreign(path, "'examples' is not a list")
    if not isinstance(record, dict):
        raise _foreign(path, "'record' is not a dictionary")
    if not isinstance(sha256, str):
        raise _foreign(path, "'sha256' is not text")
    return examples, record, sha256


def _require_same(target: Path, sha256: str) -> None:
    try:
        examples, record, stated = read(target)
        same = stated == sha256 == digest_of(examples, record)
    except (ReleaseError, TypeError, ValueError):
        same = False
    if not same:
        raise _taken(target)


def _content(path: Path_) -> bytes:
    try:
        # Asked first: opening a pipe would wait for a writer.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise _foreign(path, "it is not a file")
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{os.fspath(path)!r} can't be read ({_reason(error)})."
        ) from error
    if len(data) > MAX_BYTES:
        raise _foreign(path, f"it is larger than {MAX_BYTES} bytes")
    return data


def _parsed(data: bytes, path: Path_) -> Any:
    try:
        return files.strict_json(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        reason = (
            "it is not JSON in UTF-8, is cut short, names a field twice, or holds a "
            "number out of range"
        )
    raise _foreign(path, reason)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


def _taken(path: Path_) -> ReleaseError:
    return ReleaseError(
        f"{os.fspath(path)!r} holds something else already; choose another path, or "
        "pass overwrite=True. Nothing was written."
    )


def _foreign(path: Path_, reason: str) -> ReleaseError:
    return ReleaseError(
        f"{os.fspath(path)!r} holds no released examples that can be trusted: "
        f"{reason}. Load a good copy, or generate the examples again."
    )
