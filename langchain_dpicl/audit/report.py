"""What an audit found: to print, to save, and to show in a browser."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from langchain_dpicl._version import __version__
from langchain_dpicl.common import file_format, files, pages
from langchain_dpicl.common.pages import Cell, shown
from langchain_dpicl.errors import InvalidParameterError

PRIVATE = "Private: for the operator of the records alone."


def _versions() -> dict[str, str]:
    return {"langchain-dpicl": __version__, "python": platform.python_version()}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, repr=False)
class AuditReport:
    """What an audit found. It is private: only its verdict shows in its repr.

    Attributes:
        kind: Which audit: `snapshot`.
        title: What was audited, in a few words.
        summary: What was found, in a sentence or two.
        is_sound: False where something exceeds what is claimed.
        claimed: What the account claims, by name; such as `epsilon` and `delta`.
        measured: What was measured, by name.
        columns: The names of the columns of `rows`.
        rows: What was measured one by one: texts, numbers, truth values or None.
        notes: How to read it, and what it doesn't show.
        parameters: How the audit was run.
        versions: Of this library and of Python.
        created: When, in UTC.

    Example:
        >>> report = AuditReport(
        ...     kind="snapshot",
        ...     title="One release",
        ...     summary="The release keeps its claim.",
        ...     is_sound=True,
        ...     claimed={"epsilon": 1.0},
        ...     measured={"epsilon": 0.99},
        ...     columns=("release", "epsilon"),
        ...     rows=(("vote", 0.99),),
        ... )
        >>> report
        AuditReport(kind='snapshot', is_sound=True)
        >>> AuditReport.from_dict(report.to_dict()) == report
        True
    """

    kind: str
    title: str
    summary: str
    is_sound: bool
    claimed: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    notes: Sequence[str] = ()
    parameters: Mapping[str, Cell] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=_versions)
    created: str = field(default_factory=_now)

    def __repr__(self) -> str:
        return f"AuditReport(kind={self.kind!r}, is_sound={self.is_sound})"

    def __str__(self) -> str:
        lines = [self.title, "=" * len(self.title), self.summary, ""]
        for words, numbers in (("claimed", self.claimed), ("measured", self.measured)):
            lines += [f"{words} {name}: {shown(v)}" for name, v in numbers.items()]
        if self.rows:
            lines += ["", *_aligned([self.columns, *self.rows])]
        lines += ["", *(f"* {note}" for note in self.notes)] if self.notes else []
        return "\n".join([*lines, "", PRIVATE])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values; an infinite number is a text."""
        return {
            "kind_of_audit": self.kind,
            "title": self.title,
            "summary": self.summary,
            "is_sound": self.is_sound,
            "claimed": _plain(self.claimed),
            "measured": _plain(self.measured),
            "columns": list(self.columns),
            "rows": [[_plain_cell(cell) for cell in row] for row in self.rows],
            "notes": list(self.notes),
            "parameters": _plain(self.parameters),
            "versions": dict(self.versions),
            "created": self.created,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AuditReport:
        """Return the report of what `to_dict` gave."""
        values = dict(content)
        values["kind"] = values.pop("kind_of_audit")
        for name in ("claimed", "measured"):
            values[name] = {k: float(v) for k, v in values[name].items()}
        values["columns"] = tuple(values["columns"])
        values["rows"] = tuple(tuple(map(_read_cell, row)) for row in values["rows"])
        values["notes"] = tuple(values["notes"])
        return cls(**values)

    def to_html(self) -> str:
        """Return a page that needs no other file, for a browser or for print."""
        return pages.rendered("audit/page.html", report=self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report, by the path's ending: `.json`, or `.html` for people.

        What was there is replaced. On POSIX systems only the file's owner may read it.

        Raises:
            InvalidParameterError: If the path has another ending, or can't be written.
        """
        target = Path(path)
        if target.suffix not in {".json", ".html"}:
            raise InvalidParameterError(
                f"An audit is saved as .json or .html, not as {target.suffix!r}."
            )
        text = self.to_html()
        if target.suffix == ".json":
            text = file_format.dumped(self.to_dict(), file_format.AUDIT)
        reason = ""
        try:
            files.put(text.encode(), target, overwrite=True, mode=0o600)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if reason:
            raise InvalidParameterError(
                f"{str(path)!r} can't be written ({reason}): choose another path."
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuditReport:
        """Read a report that `save` wrote as JSON.

        Raises:
            InvalidParameterError: If it is none, or was changed after it was saved.
        """
        return cls.from_dict(file_format.read(path, file_format.AUDIT))


def _aligned(rows: Sequence[Sequence[Cell]]) -> list[str]:
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_cell(value) for name, value in numbers.items()}


def _plain_cell(value: Any) -> Any:
    # JSON has no infinity; `float` reads these texts back.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _read_cell(value: Any) -> Any:
    if value in ("inf", "-inf", "nan"):
        with suppress(ValueError):
            return float(value)
    return value
