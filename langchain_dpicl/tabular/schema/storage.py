"""A file of a table's schema: JSON that people can read and write.

```
{
    "format": "langchain-dpicl/table-schema",
    "version": 1,
    "label": "income",
    "columns": [
        {"name": "age", "kind": "integer", "lower": 17, "upper": 90, "unit": "years"},
        {"name": "income", "kind": "categorical", "values": ["low", "high"]},
    ],
    "template": ...,
}
```

A schema is public, and so is its file. Compatibility promise: every later version of
the library reads version 1; a field that means something else gets another version
number.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from langchain_dpicl.common import files
from langchain_dpicl.exceptions import InvalidParameterError

FORMAT = "langchain-dpicl/table-schema"
VERSION = 1

MAX_BYTES = 1 << 24
"""Largest file, 16 MiB."""

_FIELDS = frozenset({"format", "version", "label", "columns", "template"})

Path_ = str | os.PathLike[str]


def dumped(fields: dict[str, Any]) -> str:
    """Write a schema's fields as JSON, with format and version.

    Args:
        fields: Label, columns and template; null where a draft leaves something open.

    Returns:
        The JSON.

    Example:
        >>> parsed(dumped({"label": "y", "columns": []}))
        {'label': 'y', 'columns': []}
    """
    stored = {"format": FORMAT, "version": VERSION, **fields}
    return json.dumps(stored, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parsed(text: str) -> dict[str, Any]:
    """Read what `dumped` wrote.

    Args:
        text: The JSON.

    Returns:
        The schema's fields, as the text says: nothing of them is checked.

    Raises:
        InvalidParameterError: If this is no JSON, is not of this format, or of a
            version that this release does not know.
    """
    value = _json(text)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _foreign(f'it has no "format": "{FORMAT}"')
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise _foreign("its version is not a number")
    if version > VERSION:
        raise InvalidParameterError(
            f"This schema is of format version {version}; this release of "
            f"langchain-dpicl reads versions up to {VERSION}. Upgrade it."
        )
    if unknown := sorted(value.keys() - _FIELDS):
        raise _foreign(f"the field {unknown[0]!r:.40} is unknown")
    if missing := sorted({"label", "columns"} - value.keys()):
        raise _foreign(f"the field {missing[0]!r} is missing")
    return {key: value[key] for key in ("label", "columns", "template") if key in value}


def write(path: Path_, text: str) -> None:
    """Write a schema's JSON to a file, which appears when it is complete.

    Args:
        path: The file; what was there is replaced.
        text: The JSON.

    Raises:
        InvalidParameterError: If the file can't be written.
    """
    reason = ""
    try:
        files.put(text.encode(), Path(path), overwrite=True)
    except (OSError, ValueError, TypeError) as error:
        reason = _reason(error)
    if reason:
        raise InvalidParameterError(
            f"{path!r} can't be written ({reason}). Choose another path."
        )


def read(path: Path_) -> str:
    """Read a schema's JSON from a file.

    Args:
        path: The file.

    Returns:
        The JSON, not looked at.

    Raises:
        InvalidParameterError: If the file can't be read.
    """
    reason, data = "", b""
    try:
        # Asked first: opening a pipe would wait for a writer.
        if not Path(path).is_file():
            reason = "there is no such file"
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                reason = f"it is larger than {MAX_BYTES} bytes"
            else:
                return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    except (OSError, ValueError, TypeError) as error:
        reason = _reason(error)
    raise InvalidParameterError(
        f"{path!r} can't be read ({reason}). Give the path of a file that "
        "TableSchema.save wrote, or of one written like it."
    )


def _json(text: str) -> Any:
    try:
        return files.strict_json(text)
    except (ValueError, TypeError, RecursionError) as error:
        line = getattr(error, "lineno", None)
    where = "" if line is None else f", at line {line}"
    raise _foreign(
        f"it is not JSON, names a field twice, or holds a number out of range{where}"
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


def _foreign(reason: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"This is no table schema: {reason}. TableSchema.to_json and "
        "TableSchema.draft(...).to_json show how one looks."
    )
