"""What was read so far: in memory, and in a private file if there is one.

```
{"format": "langchain-dpicl", "version": 1, "kind": "private readings", "of": digest}
{"id": a part's tag, "told": {column: value}}
...
```

A line is added when a call has ended, so that whatever ends the program loses no more
than the calls in flight. The digest is of the schema, the prompt and the model. A last
line that is cut off, and any other that can't be read, is as if it were not there.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from langchain_dpicl.common.file_format import FORMAT, VERSION
from langchain_dpicl.common.files import strict_json
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError

KIND = "private readings"

_MARK = "private"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Readings:
    """What parts tell, by their tags. Private: the repr shows nothing.

    `fits` says whether what a file tells is of the form that is asked for. Without a
    path they are kept in memory alone.

    Raises:
        InvalidParameterError: If the path does not say that the file is private, others
            may read it, or it holds readings of something else.
    """

    def __init__(
        self, fits: Callable[[Mapping[str, Any]], bool], path: Any, digest: str
    ) -> None:
        self.digest = digest
        self._fits = fits
        self._told: Hidden[dict[str, dict[str, Any]]] = Hidden({})
        self._lock = threading.Lock()
        self._path = None if path is None else _private(path)
        self._is_begun = False
        if self._path is not None and self._path.exists():
            self._load(self._path)

    def __repr__(self) -> str:
        return "Readings(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private readings are not pickled.")

    def __contains__(self, tag: str) -> bool:
        return tag in self._told.value

    def told(self, tag: str) -> Mapping[str, Any]:
        """Return what a part tells; nothing where its call failed or was not made."""
        return self._told.value.get(tag, {})

    def keep(self, tag: str, told: Mapping[str, Any]) -> None:
        """Keep what a part tells, unless there is something already.

        Raises:
            InvalidParameterError: If the file can't be written.
        """
        with self._lock:
            if tag in self._told.value:
                return
            if self._path is not None:
                if not self._is_begun:
                    self.begin()
                _append(self._path, {"id": tag, "told": dict(told)})
            self._told.value[tag] = dict(told)

    def begin(self) -> None:
        """Begin the file, or see that it goes on: before anything is paid.

        Raises:
            InvalidParameterError: If it can't be written.
        """
        if self._path is not None:
            _append(self._path, *(() if self._is_begun else (self._header(),)))
            self._is_begun = True

    def _header(self) -> dict[str, Any]:
        kind = {"format": FORMAT, "version": VERSION, "kind": KIND}
        return {**kind, "of": self.digest}

    def _load(self, path: Path) -> None:
        problem, data = "", b""
        try:
            if os.name != "nt" and path.stat().st_mode & _OTHERS:
                problem = "others than its owner may read it: chmod 600"
            else:
                data = path.read_bytes()
        except OSError as error:
            problem = error.strerror or type(error).__name__
        first, *lines = data.split(b"\n")
        if data and not problem and _read(first) != self._header():
            problem = (
                "it holds no readings of this schema (these topics), prompt and model, "
                "and readings of two can't be mixed. Choose another path"
            )
        if problem:
            raise InvalidParameterError(f"file {str(path)!r} can't be used: {problem}.")
        self._is_begun = bool(data)
        for line in lines:
            found = _read(line)
            if isinstance(found, dict) and isinstance(found.get("id"), str):
                told = found.get("told")
                if isinstance(told, dict) and self._fits(told):
                    self._told.value.setdefault(found["id"], told)


def _private(path: Any) -> Path:
    """Return a path whose name says that the file is private."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidParameterError(f"file must be a path, not {type(path).__name__}.")
    found = Path(path)
    if _MARK not in found.name.casefold():
        raise InvalidParameterError(
            f"file {str(found)!r} is to hold what is private: its name must say so, as "
            f"'{_MARK}-{found.name}' does."
        )
    return found


def _append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Add lines to a file that its owner alone may read. No error holds a line."""
    reason = ""
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode("ascii")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                # A line that a full disk has cut must not take the next one with it.
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            while data:
                data = data[file.write(data) or 0 :]
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason:
        raise InvalidParameterError(
            f"file {str(path)!r} can't be written ({reason}). What it holds is kept: "
            "begin again when it can be written."
        )


def _read(line: bytes) -> Any:
    try:
        return strict_json(line.decode())
    except (ValueError, RecursionError):
        return None
