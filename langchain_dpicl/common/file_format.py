"""The one format of files: of what was released, of a table's schema, of audits.

```
{
  "format": "langchain-dpicl", or "langchain-dpicl/erasure-certificate",
  "version": 1,
  "kind": "examples", "corpus", "schema", "topics", "insights",
    "audit" or "erasure_certificate",
  the fields of that kind,
  "sha256": the digest of these fields; what people write (a schema, topics) has none
}
```

It is strict JSON in UTF-8: no field is named twice, every number is one. All of it is
public, but for an audit, which is the operator's, and a certificate, which says that
somebody was in a corpus. A file appears under its name when it is complete. The digest
shows accidents and careless edits; it is no signature.

Compatibility promise: every later version of the library reads version 1; a field that
means something else gets another version number.

Counts are plain lists. A joint table's 2^20 counts of a million reports are 2 MB,
written or read in 0.4 s; the largest, 2^25 counts of pairs, were 116 MB and 12 s on a
slow core. In base64 they would be 11 and 358 MB.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_dpicl.common import files
from langchain_dpicl.errors import DPError, InvalidParameterError

FORMAT = "langchain-dpicl"
VERSION = 1

Path_ = str | os.PathLike[str]


@dataclass(frozen=True)
class Kind:
    """What a file can hold: its fields with their types, and what messages say.

    `most` is the largest file in bytes, `signed` whether it has a digest.
    """

    name: str
    words: str
    reader: str
    fields: Mapping[str, type]
    most: int
    way_out: str
    error: type[DPError] = InvalidParameterError
    signed: bool = True
    optional: frozenset[str] = frozenset()
    format: str = FORMAT


EXAMPLES = Kind(
    "examples",
    "released examples that can be trusted",
    "ReleasedExamples.load",
    {"record": dict, "examples": list},
    1 << 26,
    "Load a good copy, or generate the examples again.",
)
CORPUS = Kind(
    "corpus",
    "released facts that can be trusted",
    "ReleasedCorpus.load",
    {"record": dict, "documents": list},
    1 << 28,
    "Load a good copy, or take the documents of the table's release again.",
)
SCHEMA = Kind(
    "schema",
    "table schema",
    "TableSchema.load",
    {"label": object, "columns": object, "template": object},
    1 << 24,
    "TableSchema.save shows how one looks.",
    signed=False,
    optional=frozenset({"template"}),
)
TOPICS = Kind(
    "topics",
    "list of topics",
    "Topics.load",
    {"about": str, "topics": object},
    1 << 22,
    "Topics.save shows how one looks.",
    signed=False,
    optional=frozenset({"about"}),
)
INSIGHTS = Kind(
    "insights",
    "released insights that can be trusted",
    "Insights.load",
    {"record": dict, "counts": list, "words": dict},
    1 << 26,
    "Load a good copy, or take the release again with resume=True.",
)


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's own fields, as canonical JSON.

    Keys sorted, no spaces, ASCII with escapes: anybody can compute it again.

    Example:
        >>> digest({"record": {}, "examples": [{"text": "a"}]})[:16]
        '47bdcf0b275b21bd'
    """
    canonical = json.dumps(
        content, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def dumped(content: Mapping[str, Any], kind: Kind) -> str:
    """Return the text of a file.

    Example:
        >>> parsed(dumped({"label": "y", "columns": []}, SCHEMA), SCHEMA)
        {'label': 'y', 'columns': []}
    """
    stored = {"format": kind.format, "version": VERSION, "kind": kind.name, **content}
    if kind.signed:
        stored["sha256"] = digest(content)
    text = json.dumps(
        stored,
        indent=2,
        separators=(",", ": "),
        ensure_ascii=False,
        allow_nan=False,
    )
    return text + "\n"


def parsed(data: str | bytes, kind: Kind, name: str = "This text") -> dict[str, Any]:
    """Return the fields of a file's text; of them, only type and digest are checked.

    What is no such text, or of a later version, is the kind's `error`, under `name`.
    """
    value: Any = None
    way_out = kind.way_out
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = files.strict_json(text)
        reason, way_out = _other(value, kind) or (_misfit(value, kind), way_out)
    except (ValueError, TypeError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        reason = (
            "it is not JSON in UTF-8, is cut short, names a field twice, or holds a "
            f"number out of range{'' if line is None else f', at line {line}'}"
        )
    if reason:
        raise kind.error(f"{name} holds no {kind.words}: {reason}. {way_out}")
    return {field: value[field] for field in kind.fields if field in value}


def write(
    path: Path_, content: Mapping[str, Any], kind: Kind, *, overwrite: bool
) -> None:
    """Write a file, which appears when it is complete.

    One that holds the same content is left as it is. If something else is there and is
    not to be overwritten, or the file can't be written, it is the kind's `error`, and
    nothing was written.
    """
    is_taken = False
    try:
        data = dumped(content, kind).encode()
        reason = ""
        if len(data) > kind.most:
            reason = f"of {len(data)} bytes at most {kind.most} could be read back"
        else:
            files.put(data, Path(path), overwrite=overwrite)
    except (OSError, TypeError, ValueError) as error:
        is_taken = isinstance(error, FileExistsError) and not overwrite
        reason = _reason(error)
    if is_taken:
        with suppress(DPError):
            if digest(read(path, kind)) == digest(content):
                return
        raise kind.error(
            f"{str(path)!r} holds something else already; choose another path, or pass "
            "overwrite=True. Nothing was written."
        )
    if reason:
        raise kind.error(
            f"{str(path)!r} can't be written ({reason}). What it was to hold is still "
            "in memory: choose another path."
        )


def read(path: Path_, kind: Kind) -> dict[str, Any]:
    """Return the fields of a file that `write` wrote; see `parsed`."""
    reason, data = "", b""
    try:
        # Asked first: opening a pipe would wait for a writer.
        if not Path(path).is_file():
            reason = "there is no such file"
        else:
            with Path(path).open("rb") as file:
                data = file.read(kind.most + 1)
            if len(data) > kind.most:
                reason = f"it is larger than {kind.most} bytes"
    except (OSError, TypeError, ValueError) as error:
        reason = _reason(error)
    if reason:
        raise kind.error(f"{str(path)!r} can't be read ({reason}). {kind.way_out}")
    return parsed(data, kind, repr(str(path)))


def _other(value: Any, kind: Kind) -> tuple[str, str] | None:
    """Return what a value is instead of a kind, and the way out; None if it is one."""
    if not isinstance(value, dict) or value.get("format") != kind.format:
        return f'it has no "format": "{kind.format}"', kind.way_out
    version, found = value.get("version"), value.get("kind")
    if type(version) is not int or version < 1:
        return "its version is not a number", kind.way_out
    if version > VERSION:
        reason = f"it is of format version {version}, this release reads up to"
        return f"{reason} {VERSION}", "Upgrade langchain-dpicl."
    if found == kind.name:
        return None
    for other in (EXAMPLES, CORPUS, SCHEMA, TOPICS, INSIGHTS):
        if found == other.name:
            return f"it is of kind {found!r}", f"{other.reader} reads it."
    return f'it has no "kind": "{kind.name}"', kind.way_out


def _misfit(value: Mapping[str, Any], kind: Kind) -> str:
    """Return what is wrong with the fields of a kind; empty where nothing is."""
    given = value.keys() - {"format", "version", "kind", *["sha256"] * kind.signed}
    if unknown := sorted(given - kind.fields.keys()):
        return f"the field {unknown[0]!r:.40} is unknown"
    if missing := sorted(kind.fields.keys() - given - kind.optional):
        return f"the field {missing[0]!r} is missing"
    for name in given:
        if not isinstance(value[name], kind.fields[name]):
            return f"the field {name!r} is of another form"
    if kind.signed and value.get("sha256") != digest({n: value[n] for n in given}):
        return "it was changed after it was saved, for its 'sha256' does not fit"
    return ""


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
