"""Periods of accounts: days, months, years and ranges of days, in UTC."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone

from langchain_dpicl.errors import InvalidParameterError

_FORM = re.compile(
    r"(?P<year>2\d{3})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?)?", re.ASCII
)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Period:
    """A span of whole days.

    Attributes:
        text: The period as it was written.
        start: Its first moment, in UTC.
        end: The first moment after it.
    """

    text: str
    start: datetime
    end: datetime


@functools.lru_cache(maxsize=1024)
def parse_period(text: str) -> Period:
    """Read a period.

    Args:
        text: A year `2026`, a month `2026-12`, a day `2026-12-24`, or two days
            `2026-12-01/2026-12-15`, both of which belong to the period.

    Raises:
        InvalidParameterError: If it is none of these.

    Example:
        >>> parse_period("2026-12").end.date()
        datetime.date(2027, 1, 1)
    """
    first, slash, last = text.partition("/")
    try:
        start, after = _days(first)
        is_period = True
        if slash:
            final, after = _days(last)
            is_period = start <= final and {_kind(first), _kind(last)} == {"day"}
    except ValueError:
        is_period = False
    if not is_period:
        raise InvalidParameterError(
            f"{text[:40]!r} is no period. Write a year (2026), a month (2026-12), a "
            "day (2026-12-24), or its first and last day (2026-12-01/2026-12-15)."
        )
    return Period(text, _midnight(start), _midnight(after))


def next_period(text: str) -> str:
    """Return the period of the same kind that begins when this one ends.

    Two days are followed by as many days.

    Raises:
        InvalidParameterError: If `text` is no period.

    Example:
        >>> [next_period(one) for one in ("2026", "2026-12", "2026-12-31")]
        ['2027', '2027-01', '2027-01-01']
        >>> next_period("2026-12-01/2026-12-15")
        '2026-12-16/2026-12-30'
    """
    period = parse_period(text)
    after, length = period.end.date(), period.end - period.start
    if "/" in text:
        return f"{after}/{after + length - _DAY}"
    return str(after)[: len(text)]


def _days(text: str) -> tuple[date, date]:
    """Return the first day of a period without a slash, and the first day after it."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError
    year = int(found["year"])
    if found["day"]:
        start = date.fromisoformat(text)
        return start, start + _DAY
    first = int(found["month"] or 1)
    start = date(year, first, 1)
    after = first + (1 if found["month"] else 12)
    return start, date(year + (after > 12), (after - 1) % 12 + 1, 1)  # noqa: PLR2004 - months


def _kind(text: str) -> str | None:
    found = _FORM.fullmatch(text)
    return None if found is None else found.lastgroup


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), timezone.utc)
