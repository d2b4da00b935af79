"""A record's unit as SQL sees it: one text, the same for the same value.

The text is a mark and the value: `s` for a text, `n` for an integer. Values are
compared as they are stored, byte for byte. Which spellings mean one person is decided
in Python, where each is assigned to its shard.

A record without a usable unit id has no mark. That must be decided for each record on
its own, in a time that its length bounds, and must not fail: one record that the
database can't read would fail every query, for everybody to see. JSON too large, or
nested too deeply, to be looked into holds no usable unit id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, case, cast, false, func, literal, or_, true
from sqlalchemy.dialects.postgresql import ARRAY, JSON

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

COLUMN_MARKS = {"text": "s", "varchar": "s", "int2": "n", "int4": "n", "int8": "n"}
"""Types of a column that can hold unit ids, and the mark of each."""

_INTEGER = "^(0|-?[1-9][0-9]*)$"

_PAIR = r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_KEPT = r"\\U\1\\U\2"
"""A surrogate pair, set aside: JSON has no escape with a capital letter."""

_UNREADABLE = r"\\u0000|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
"""The escapes of NUL and, without the pairs, of half a pair: the type json holds them,
and every function that looks into it fails. Patterns that look ahead or behind would
take a time that grows with the square of a record's length."""

_STAND_IN = "\ufdd0"
"""Takes their place; no character, so that no text holds it otherwise."""

_LARGEST = 2**24
"""Bytes of the JSON that is looked into: the server's functions have limits."""

_BRACKETS = 500
"""Fewer can't be nested so deeply that the server's stack overflows, which would fail
the query: not even with the least stack that a server can be given."""

_NO_BRACKETS = r'"[^"]*"|[^][{}"]+'
_DEPTH, _TIMES = 8, 4
"""With more brackets, JSON is read up to their product in depth."""


def unit_mark(value: Any) -> str | None:
    """Return how a value is marked, or None where no record can hold it.

    Example:
        >>> unit_mark(7), unit_mark("7"), unit_mark(7.0)
        ('n7', 's7', None)
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, int):
        try:
            return f"n{value}"
        except ValueError:  # Python refuses to print integers of thousands of digits.
            return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return None if "\0" in value else f"s{value}"


def unit_value(mark: str | None) -> str | int | None:
    """Return the value of a mark, None if it can be no unit's id.

    Example:
        >>> unit_value("n7"), unit_value("s7"), unit_value(None)
        (7, '7', None)
    """
    if mark is None:
        return None
    if mark.startswith("s"):
        return mark[1:]
    try:
        return int(mark[1:])
    except ValueError:
        return None


class UnitKey:
    """How a record's mark is read, in two steps: `value`, and `mark` of that.

    In two, so that a query can have the first computed once for each record: SQL
    computes an expression as often as it is written.

    Args:
        own: The column that holds the unit key, or JSON with it.
        kind: The column's type: one of `COLUMN_MARKS`, "json" or "jsonb".
        name: The unit key, for JSON.
    """

    def __init__(self, own: ColumnElement[Any], kind: str, name: str) -> None:
        self._kind = kind
        if kind in COLUMN_MARKS:
            self.value: ColumnElement[Any] = own
        else:
            key = cast(literal(name), Text)
            # The type json is text that nobody has read; jsonb has been read.
            self.value = (
                case((_can_be_read(own), _readable(own).op("->")(key)))
                if kind == "json"
                else own.op("->")(key)
            )

    def mark(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return the mark, NULL where the value is no unit's id.

        Args:
            value: `value`, as it is or as a query's column.
        """
        if self._kind in COLUMN_MARKS:
            return _bytewise(COLUMN_MARKS[self._kind], cast(value, Text))
        content = value.op("#>>")(cast(literal("{}"), ARRAY(Text)))
        if self._kind == "jsonb":
            kind = func.jsonb_typeof(value)
            is_text = kind == "string"
        else:
            kind = func.json_typeof(value)
            is_text = (kind == "string") & (func.strpos(content, _STAND_IN) == 0)
        is_integer = (kind == "number") & content.op("~")(_INTEGER)
        return case(
            (is_text, _bytewise("s", content)), (is_integer, _bytewise("n", content))
        )


def _can_be_read(metadata: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that JSON is neither too large nor too deep."""
    written = cast(metadata, Text)
    size = func.octet_length(written)
    without = func.replace(func.replace(written, "[", ""), "{", "")
    few = size - func.octet_length(without) <= _BRACKETS
    texts = func.replace(_plain(written), r"\"", "")
    brackets = func.regexp_replace(texts, _NO_BRACKETS, "", "g")
    left = func.translate(brackets, "{}", "[]")
    innermost = ""
    for _ in range(_DEPTH):
        innermost = rf"(?:\[{innermost}\])*"
    for _ in range(_TIMES):
        left = func.regexp_replace(left, innermost[:-1] + "+", "", "g")
    # A case, not an "or": the last is computed for the few that need it.
    return case(
        (size <= 2 * _BRACKETS, true()),
        (size > _LARGEST, false()),
        (few, true()),
        else_=left == "",
    )


def _plain(written: ColumnElement[Any]) -> ColumnElement[Any]:
    # Without escaped backslashes, what is left of backslashes begins an escape.
    plain: ColumnElement[Any] = func.replace(written, r"\\", r"\u005c")
    return plain


def _readable(metadata: ColumnElement[Any]) -> ColumnElement[Any]:
    written = cast(metadata, Text)
    escape = f"\\\\u{ord(_STAND_IN):04x}"
    paired = func.regexp_replace(_plain(written), _PAIR, _KEPT, "g")
    unpaired = func.regexp_replace(paired, _UNREADABLE, escape, "g")
    readable = func.replace(unpaired, r"\U", r"\u")
    suspicious = or_(
        *(func.strpos(written, start) > 0 for start in (r"\u0000", r"\ud", r"\uD"))
    )
    return case((suspicious, cast(readable, JSON)), else_=metadata)


def _bytewise(mark: str, content: ColumnElement[Any]) -> ColumnElement[Any]:
    # A collation may hold different texts to be equal.
    return literal(mark, Text).op("||")(content).collate("C")
