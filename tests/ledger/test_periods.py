"""Periods: what is read, where they begin and end, and what follows."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger.periods import next_period, parse_period

DAYS = st.dates(date(2000, 1, 5), date(2990, 12, 25))


def forms(day: date) -> list[str]:
    """Return the periods of every kind that a day belongs to."""
    year, week, _ = day.isocalendar()
    quarter = (day.month + 2) // 3
    kinds = [f"{day.year}", f"{day.year}-Q{quarter}", f"{day:%Y-%m}", f"{day}"]
    return [*kinds, f"{year}-W{week:02d}", f"{day}/{day}"]


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026", "2026-01-01", "2027-01-01"),
        ("2026-Q1", "2026-01-01", "2026-04-01"),
        ("2026-Q4", "2026-10-01", "2027-01-01"),
        ("2026-02", "2026-02-01", "2026-03-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2026-W01", "2025-12-29", "2026-01-05"),
        ("2026-W53", "2026-12-28", "2027-01-04"),
        ("2028-02-29", "2028-02-29", "2028-03-01"),
        ("2026-12-01/2026-12-15", "2026-12-01", "2026-12-16"),
    ],
)
def test_a_period_holds_whole_days_in_utc(text: str, start: str, end: str) -> None:
    found = parse_period(text)
    assert found.start.isoformat() == f"{start}T00:00:00+00:00"
    assert found.end.isoformat() == f"{end}T00:00:00+00:00"


@pytest.mark.parametrize("year", [2026, 2027, 2028, 2999])
def test_months_and_quarters_end_where_the_next_one_begins(year: int) -> None:
    firsts = [f"{year}-{month:02d}-01" for month in range(1, 13)] + [
        f"{year + 1}-01-01"
    ]
    for month in range(12):
        found = parse_period(f"{year}-{month + 1:02d}")
        days = str(found.start.date()), str(found.end.date())
        assert days == (firsts[month], firsts[month + 1])
    for quarter in range(4):
        found = parse_period(f"{year}-Q{quarter + 1}")
        days = str(found.start.date()), str(found.end.date())
        assert days == (firsts[3 * quarter], firsts[3 * quarter + 3])
    found = parse_period(f"{year}")
    assert (str(found.start.date()), str(found.end.date())) == (firsts[0], firsts[12])
    assert found.text == f"{year}"


@pytest.mark.parametrize("length", [1, 2, 31, 400])
def test_days_are_followed_by_as_many_days(length: int) -> None:
    first = date(2027, 12, 20)
    at = [
        str(first + timedelta(days=n)) for n in (0, length - 1, length, 2 * length - 1)
    ]
    assert next_period(f"{at[0]}/{at[1]}") == f"{at[2]}/{at[3]}"
    period = parse_period(f"{at[0]}/{at[1]}")
    assert period.end - period.start == timedelta(days=length)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("2026-Q1", "2026-Q2"),
        ("2026-Q2", "2026-Q3"),
        ("2026-Q3", "2026-Q4"),
        ("2026-Q4", "2027-Q1"),
        ("2026-09", "2026-10"),
        ("2026-11", "2026-12"),
        ("2026-W09", "2026-W10"),
        ("2025-W52", "2026-W01"),
        ("2026-12-31", "2027-01-01"),
    ],
)
def test_a_period_is_followed_by_one_of_its_kind(text: str, after: str) -> None:
    assert next_period(text) == after


@given(DAYS)
def test_periods_follow_one_another_without_gap_or_overlap(day: date) -> None:
    for text in forms(day):
        period = parse_period(text)
        assert period.start.date() <= day < period.end.date()
        after = next_period(text)
        assert parse_period(after).start == period.end
        assert len(after) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "26", "2026-13", "2026-00", "2026-Q5", "2026-Q0", "2025-W53", "2026-W00"),
        *("2026-02-29", "2026-12-1", " 2026", "2026-12/2027-01", "9999", "1999-01"),
        *(
            "2026-12-02/2026-12-01",
            "2026-12-01/",
            "/",
            "2026-12-01/2026-12",
            "20\N{FULLWIDTH DIGIT TWO}6",
        ),
        *("2026-12-01/2026-12-02/2026-12-03", "2026-12-01T00:00"),
        "20\N{FULLWIDTH DIGIT TWO}6",
    ],
)
def test_whatever_else_is_no_period(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="is no period"):
        parse_period(text)


def test_what_is_no_period_is_named_by_its_beginning() -> None:
    text = "".join(chr(0x4E00 + n) for n in range(60))
    with pytest.raises(InvalidParameterError) as caught:
        parse_period(text)
    assert str(caught.value).startswith(f"'{text[:40]}' is no period. Write a year")
