"""`CSVRows` and `JSONRows`: files whose cells are read one by one, and never guessed.

A reader that infers types looks at a whole column, or a chunk of it, to say what one
cell is. Then one person's text turns everybody's 1234 into "01234", or the ids 1000 and
01000 into one, and no sensitivity holds.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import IO, Any

from langchain_dpicl.common import files
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.rows.lines import Invalid, Lines, TextSource
from langchain_dpicl.tabular.schema.cells import TextCells

PathOrFile = str | os.PathLike[str] | IO[str] | IO[bytes]

Row = list[str]

_BLOCK = 512

_QUOTED = (
    "Quotes must stand around each cell that holds a delimiter, a quote or a line "
    "break. To leave such rows out, one by one, pass multiline=False, invalid='drop'."
)
_OBJECTS = "To leave such lines out, one by one, pass invalid='drop'."


class _FileRows:
    """What files of rows have in common: a source, and what to do with bad rows."""

    def __init__(self, source: TextSource, invalid: Any) -> None:
        if invalid not in ("refuse", "drop"):
            raise InvalidParameterError("invalid must be 'refuse' or 'drop'.")
        self._source = source
        self._invalid: Invalid = invalid
        self._dropped = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r})"

    @property
    def come_once(self) -> bool:
        """Whether the rows can be read only once: the file can't be wound back."""
        return self._source.come_once

    @property
    def dropped(self) -> int:
        """How many rows the last pass has left out so far. Private."""
        return self._dropped

    def _kept(
        self, lines: Lines, parse: Callable[[str], Any], way_out: str
    ) -> Iterator[Any]:
        self._dropped = 0
        for row in lines.rows(parse, invalid=self._invalid, way_out=way_out):
            if row is None:
                self._dropped += 1
            else:
                yield row
            del row


class CSVRows(_FileRows):
    r"""The rows of a CSV file, each cell by itself.

    Cells are text. What one means is said by its column of the schema and by nothing
    else: a column of categories takes the text ("01234" stays "01234"), a column of
    numbers reads digits with a point ("37", "-2.50", "1e3") and refuses the rest, an id
    is text ("01000" and "1000" are two people). A blank cell is missing. Types are
    never inferred. The file is read in chunks, so that memory does not grow with it.

    Both tables take it as data, and a `DPFewShotGenerator` as records: iterated over,
    it gives a mapping from column to text for each row.

    Args:
        path_or_file: A path, which is opened anew for each pass. Or an open file: one
            that can be wound back is read from where it stands now, again and again;
            any other one comes only once (`come_once`), and a second pass is refused.
            It is not closed. gzip is known by its first two bytes.
        dialect: A name or class of the `csv` module, which says how cells are divided
            and quoted.
        delimiter: What divides cells, instead of the dialect's.
        quotechar: What quotes them, instead of the dialect's.
        encoding: Of a path or binary file: UTF-8, or another one in which a line break
            is one byte (not UTF-16). Byte order marks before a line are left out.
        header: The columns' names, if the file has no row of them.
        missing: Texts that stand for a missing cell, besides blank ones ("NA").
        multiline: Whether a quoted cell may hold line breaks. `False`: each line is a
            row, and a quote that is not closed on its line makes that row invalid.
        invalid: What to do about a row that can't be read: `refuse` the file, or `drop`
            the row, which needs `multiline=False`.

    Raises:
        InvalidParameterError: If an argument can't be used, and, while rows are read,
            if the file can't be opened or read to its end, or a row is refused. The
            message has the row's place, and no text of it.

    Example:
        >>> from io import StringIO
        >>> file = StringIO('age,ward,id\n37,"01234",01000\n,x,1000\n')
        >>> for row in CSVRows(file):
        ...     print(row)
        {'age': '37', 'ward': '01234', 'id': '01000'}
        {'age': None, 'ward': 'x', 'id': '1000'}

    Privacy:
        Assumed is that the file is well-formed: its writer quotes cells that hold a
        delimiter, a quote or a line break (RFC 4180, as every CSV library does). Then
        the text of a row ends where the row ends, whatever others hold, and what is
        read of it is a function of that row and of the arguments.

        A row is invalid if it has more or fewer cells than there are columns, quotes
        that do not match, a cell longer than `csv.field_size_limit()` (131,072
        characters, unless the process says otherwise), a line of more than 2^24, a
        character of code 0, or bytes that are no text. By default it refuses the
        file, like any bad cell: before the charge. What can't be seen is a writer that
        does not quote, where one person's two quotes swallow the rows between them.
        `multiline=False` rules that out: then nothing that stands in one line changes
        how another one is read, and a bad row may be dropped alone. (Dropping takes a
        unit's row away by that row alone. An `LDPTable` then has fewer reports, whose
        number is public.)
    """

    said = "The CSV file"

    def __init__(  # noqa: PLR0913 - how a file is written, one by one
        self,
        path_or_file: PathOrFile,
        *,
        dialect: str | csv.Dialect | type[csv.Dialect] = "excel",
        delimiter: str | None = None,
        quotechar: str | None = None,
        encoding: str = "utf-8",
        header: Sequence[str] | None = None,
        missing: Collection[str] = (),
        multiline: bool = True,
        invalid: Invalid = "refuse",
    ) -> None:
        super().__init__(TextSource(path_or_file, encoding, "CSV file"), invalid)
        if multiline and invalid == "drop":
            raise InvalidParameterError(
                "invalid='drop' needs multiline=False: where cells may hold line "
                "breaks, nobody knows where a row ends that can't be read."
            )
        if isinstance(missing, str) or not all(isinstance(m, str) for m in missing):
            raise InvalidParameterError("missing must be a list of texts.")
        self._dialect = _dialect(dialect, delimiter, quotechar)
        self._header = None if header is None else _names(header)
        self._missing = frozenset(missing)
        self._multiline = multiline

    def __iter__(self) -> Iterator[dict[str, str | None]]:
        """Yield each row as a mapping from column to text; None where it is missing."""
        for chunk in self.columns(_BLOCK):
            for cells in zip(*chunk.value.values(), strict=True):
                yield {
                    name: cell if cell and cell.strip() else None
                    for name, cell in zip(chunk.value, cells, strict=True)
                }
                del cells
            del chunk

    def columns(
        self, size: int, check: Callable[[Sequence[str]], object] | None = None
    ) -> Generator[Hidden[dict[str, TextCells]], None, None]:
        """Read the file and yield its rows, column by column, in chunks.

        Args:
            size: Most rows of a chunk.
            check: Called with the columns' names before the first row is read; raises
                if they are not right.

        Yields:
            For each chunk, the cells of each column.

        Raises:
            InvalidParameterError: See the class.
        """
        with self._source.open() as lines:
            names = Hidden(self._header or self._first(lines))
            if names.value is None:
                return
            _require(names.value, check or _names)
            width = len(names.value)
            rows = self._kept(lines, self._parser(lines, width), _QUOTED)
            while True:
                chunk = Hidden({name: TextCells() for name in names.value})
                # Turned into columns few by few: faster than all of them at once.
                for start in range(0, size, _BLOCK):
                    block = Hidden(list(islice(rows, min(_BLOCK, size - start))))
                    cells = zip(*block.value, strict=True)
                    for column, more in zip(chunk.value.values(), cells, strict=False):
                        column.extend(map(self._cell, more) if self._missing else more)
                        del column, more
                    if not block.value:
                        break
                if not chunk.value[names.value[0]]:
                    return
                yield chunk
                del chunk

    def _first(self, lines: Lines) -> Row | None:
        """Return the names in the file's first row; None: there is nothing in it."""
        parse = self._parser(lines, None)
        found = lines.rows(parse, invalid="refuse", way_out="It names the columns.")
        return next(found, None)

    def _parser(self, lines: Lines, width: int | None) -> Callable[[str], Row | None]:
        """Return what makes a row of a line, and of those that its quotes go on in."""
        multiline, pending = self._multiline, list[str]()

        def following() -> str:
            return next(lines) if multiline and not pending else pending.pop()

        # It begins each row afresh, also after one that it gave up.
        reader = csv.reader(iter(following, None), self._dialect)

        def parse(line: str) -> Row | None:
            pending.append(line)
            try:
                row = next(reader, None)
            except (csv.Error, IndexError) as error:
                lines.problem = lines.problem or _reason(str(error))
                return None
            if row and width is not None and len(row) != width:
                count = "more" if len(row) > width else "fewer"
                lines.problem = lines.problem or f"it has {count} cells than columns"
            return row or None

        return parse

    def _cell(self, text: str) -> str | None:
        return None if text.strip() in self._missing else text


class JSONRows(_FileRows):
    r"""The rows of a file of JSON lines: an object a line, each line by itself.

    Values have the types that their own line gives them: `"01"` is text, `1` a number,
    `null` missing. A column of numbers refuses text. Every line must have every column.

    Both tables take it as data, and a `DPFewShotGenerator` as records: iterated over,
    it gives each line's object.

    Args:
        path_or_file: As of `CSVRows`.
        encoding: As of `CSVRows`.
        invalid: What to do about a line that can't be read: `refuse` the file, or
            `drop` the line.

    Raises:
        InvalidParameterError: As `CSVRows`.

    Example:
        >>> from io import StringIO
        >>> file = StringIO('{"age": 37, "id": "01000"}\n{"age": null, "id": "1"}\n')
        >>> [row["age"] for row in JSONRows(file)]
        [37, None]

    Privacy:
        JSON writes line breaks in text as two characters, so that a line is a row
        whatever is in it, and nothing in one line changes how another one is read. A
        line is invalid if it is no JSON object, names a field twice, holds a number
        that is none or has more than 40 digits, is longer than 2^24 characters, or
        holds bytes that are no text. What is done about it is as in `CSVRows`.
    """

    def __init__(
        self,
        path_or_file: PathOrFile,
        *,
        encoding: str = "utf-8",
        invalid: Invalid = "refuse",
    ) -> None:
        source = TextSource(path_or_file, encoding, "file of JSON lines")
        super().__init__(source, invalid)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each line's object."""
        with self._source.open() as lines:

            def parse(line: str) -> dict[str, Any] | None:
                if not line.strip():
                    return None
                found: Any = None
                with suppress(ValueError, RecursionError):
                    found = files.strict_json(line)
                if isinstance(found, dict):
                    return found
                lines.problem = lines.problem or "it is no JSON object"
                return None

            yield from self._kept(lines, parse, _OBJECTS)


def _dialect(dialect: Any, delimiter: str | None, quotechar: str | None) -> Any:
    given = {"delimiter": delimiter, "quotechar": quotechar}
    changed: Any = {key: value for key, value in given.items() if value is not None}
    # Of anything else `csv` makes its default.
    is_dialect = isinstance(dialect, str) or hasattr(dialect, "delimiter")
    reason = ""
    try:
        quoting = csv.reader((), dialect if is_dialect else "").dialect.quoting
        if quoting != csv.QUOTE_NONE:
            # Some kinds of quoting make numbers of cells.
            quoting = csv.QUOTE_MINIMAL
        return csv.reader((), dialect, quoting=quoting, strict=True, **changed).dialect
    except (csv.Error, TypeError, ValueError) as error:
        reason = str(error)
    raise InvalidParameterError(
        f"dialect, delimiter and quotechar can't be used: {reason}. A dialect is "
        f"{', '.join(csv.list_dialects())} or a csv.Dialect; the others are one "
        "character each."
    )


def _names(given: Sequence[str]) -> list[str]:
    """Return the columns' names; that two are alike may mean that a row is shown."""
    names = [] if isinstance(given, str) else list(given)
    is_text = names and all(isinstance(name, str) for name in names)
    if not is_text or len(set(names)) < len(names):
        raise InvalidParameterError(
            "The columns' names must be texts, each once. If the file has no row of "
            "names, give them as header=."
        )
    return names


def _require(names: Sequence[str], check: Callable[[Sequence[str]], object]) -> None:
    message = ""
    try:
        check(names)
    except InvalidParameterError as error:
        message = str(error)
    # Raised anew: names of a file without a header are cells, and no frame shows them.
    del names
    if message:
        raise InvalidParameterError(message)


def _reason(error: str) -> str:
    if "limit" in error:
        return "it has a cell of more than csv.field_size_limit() characters"
    if "new-line" in error:
        return "a carriage return stands outside of quotes"
    return "its quotes do not match"
