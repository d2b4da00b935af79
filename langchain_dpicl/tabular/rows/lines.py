"""A text file line by line: of a path or an open file, plain or gzip, in any encoding.

Privacy:
    Nothing here looks at two lines at once. In UTF-8, and in the other encodings in
    which a line break is one byte, a byte that is no text spoils the line that it
    stands in, and no other: encodings of two or four bytes, and those in which a byte
    changes what later ones mean, are refused. Byte order marks are left out at the
    beginning of each line: whether a record is the first of its file depends on others.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from typing_extensions import Self, override

from langchain_dpicl.errors import InvalidParameterError

Invalid = Literal["refuse", "drop"]

T = TypeVar("T")

MAX_LINE = 1 << 24
"""Most characters of a line; longer ones are not read, and never held."""

_GZIP = b"\x1f\x8b"
_BUFFER = 1 << 16
_UNDECODED = re.compile("[\ud800-\udfff]")
_MARK = "\ufeff"
_STATEFUL = ("utf-7", "hz", "iso2022")
_BROKEN = (OSError, EOFError, ValueError, zlib.error)


class TextSource:
    """A text file that is read from its start, once or again and again.

    Args:
        path_or_file: A path, which is opened for each pass; or an open file, binary or
            text, which is read from where it stands and stays the caller's to close.
        encoding: Of a path or binary file; a text file has its own.
        kind: What the file is, for messages.

    Raises:
        InvalidParameterError: If it is neither, there is no such encoding, or it does
            not keep lines apart.
    """

    def __init__(self, path_or_file: Any, encoding: str, kind: str) -> None:
        self._file: Any = None
        self._path: Path | None = None
        self._start: int | None = None
        self._is_read = False
        self._encoding = encoding
        self.kind = kind
        if isinstance(path_or_file, (str, os.PathLike)):
            self._path = Path(path_or_file)
        elif callable(getattr(path_or_file, "read", None)):
            self._file = path_or_file
            self._start = _place(path_or_file)
        else:
            raise InvalidParameterError(
                "path_or_file must be a path or an open file, not "
                f"{type(path_or_file).__name__}."
            )
        if not _is_encoding(encoding):
            raise InvalidParameterError(
                "encoding must be the name of a text encoding, such as 'utf-8' or "
                f"'cp1252', not {encoding!r:.40}."
            )
        for name in (encoding, getattr(self._file, "encoding", None)):
            if isinstance(name, str) and not _keeps_lines_apart(name):
                raise InvalidParameterError(
                    f"A {kind} can't be read in the encoding {name!r:.40}: there one "
                    "byte can change how later lines are read. Save it in UTF-8, and "
                    "pass encoding='utf-8'."
                )

    @property
    def come_once(self) -> bool:
        """Whether its lines can be read only once."""
        return self._path is None and self._start is None

    def __repr__(self) -> str:
        return repr(str(self._path)) if self._path else type(self._file).__name__

    def open(self) -> Lines:
        """Begin a pass.

        Raises:
            InvalidParameterError: If the file is not there, or was read already and
                can't be read again.
        """
        if self.come_once and self._is_read:
            raise InvalidParameterError(
                f"The {self.kind} comes only once, and was read already. Pass its path "
                "where it is read twice."
            )
        self._is_read = True
        reason = ""
        try:
            if self._path is not None:
                # Asked first: opening a pipe would wait for a writer.
                if self._path.is_file():
                    return Lines(self._decoded(self._path.open("rb")), self.kind)
                reason = "there is no such file; pass a pipe as an open file"
            else:
                if self._start is not None:
                    self._file.seek(self._start)
                if isinstance(self._file.read(0), str):
                    return Lines(_Kept(self._file), self.kind)
                raw = io.BufferedReader(_Raw(self._file), _BUFFER)
                return Lines(self._decoded(raw), self.kind)
        except _BROKEN as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidParameterError(f"The {self.kind} can't be opened ({reason}).")

    def _decoded(self, file: Any) -> io.TextIOWrapper:
        if file.peek(2)[:2] == _GZIP:
            file = _Gzip(file)
        # A line ends with "\n" alone: writers of CSV leave a "\r" in a cell unquoted.
        return io.TextIOWrapper(
            file, encoding=self._encoding, errors="surrogateescape", newline="\n"
        )


class Lines:
    """One pass over a file's lines, each with its end.

    Attributes:
        problem: What is wrong with a line that came since this was emptied. It names no
            part of it.
    """

    def __init__(self, file: Any, kind: str) -> None:
        self._file = file
        self._kind = kind
        self._failed = ""
        self.problem = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line: str = self._file.readline(MAX_LINE)
            if len(line) == MAX_LINE:
                self._skip(line)
        except _BROKEN as error:
            self._failed = type(error).__name__
            line = ""
        if not line:
            raise StopIteration
        line = line.lstrip(_MARK)
        if "\0" in line:
            self.problem = (
                "it holds a character of code 0 (if the file is in UTF-16, save it in "
                "UTF-8)"
            )
        elif not line.isascii() and _UNDECODED.search(line):
            self.problem = "it holds bytes that are no text in this encoding"
        return line

    def rows(
        self, parse: Callable[[str], T | None], *, invalid: Invalid, way_out: str
    ) -> Iterator[T | None]:
        """Yield what is made of each line.

        Args:
            parse: Makes a row of a line, or None where there is none in it. What is
                wrong with it goes into `problem`.
            invalid: What to do about a line that something is wrong with: `refuse` the
                file, or yield None for it.
            way_out: What the refusal ends with.

        Raises:
            InvalidParameterError: If a line is refused, or the file can't be read to
                its end. The message holds no text of it.
        """
        place = 0
        for line in self:
            row = parse(line)
            if self._failed or (self.problem and invalid == "refuse"):
                break
            if self.problem:
                self.problem, row = "", None
                yield None
            elif row is not None:
                yield row
            else:
                continue  # No row at all.
            place += 1
        line, row = "", None  # Tracebacks show this frame.
        if self._failed:
            raise InvalidParameterError(
                f"The {self._kind} can't be read to its end ({self._failed})."
            )
        if self.problem:
            raise InvalidParameterError(
                f"Row {place} (counted from 0) of the {self._kind} can't be read: "
                f"{self.problem}. {way_out}"
            )

    def _skip(self, line: str) -> None:
        """Go to the end of a line that is too long."""
        while line and not line.endswith("\n"):
            self.problem = f"it has a line of more than {MAX_LINE} characters"
            line = self._file.readline(MAX_LINE)


def _is_encoding(name: Any) -> bool:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=name)
    except (LookupError, TypeError, ValueError):
        return False
    return isinstance(name, str)  # None is what the machine happens to prefer.


def _keeps_lines_apart(encoding: str) -> bool:
    """Return whether a line break is one byte, whatever stands before it."""
    try:
        name = codecs.lookup(encoding).name
        length = len("\n".encode(name.removesuffix("-sig")))
    except (LookupError, ValueError):
        return False
    return length == 1 and not name.startswith(_STATEFUL)


def _place(file: Any) -> int | None:
    """Where a file stands, if it can be brought back there."""
    try:
        return file.tell() if file.seekable() else None
    except (AttributeError, OSError, ValueError):
        return None


class _Kept:
    """A text file of the caller's, which closing this leaves open."""

    def __init__(self, file: Any) -> None:
        self.readline = file.readline

    def close(self) -> None:
        pass


class _Raw(io.RawIOBase):
    """A binary file of the caller's, which closing this leaves open."""

    def __init__(self, file: Any) -> None:
        self._file = file

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        if data is None:
            raise BlockingIOError
        buffer[: len(data)] = data
        return len(data)


class _Gzip(gzip.GzipFile):
    """A compressed file, which closes what it reads from."""

    def __init__(self, file: Any) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._compressed = file

    @override
    def close(self) -> None:
        super().close()
        self._compressed.close()
