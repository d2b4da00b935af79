"""Periods: what is read, where they begin and end, and what follows."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger.periods import next_period, parse_period

DAYS = st.dates(date(2000, 1, 5), date(2990, 12, 25))


def forms(day: date) -> list[str]:
    """Return the periods of every kind that a day belongs to."""
    return [f"{day.year}", f"{day:%Y-%m}", f"{day}", f"{day}/{day}"]


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026", "2026-01-01", "2027-01-01"),
        ("2026-02", "2026-02-01", "2026-03-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2028-02-29", "2028-02-29", "2028-03-01"),
        ("2026-12-01/2026-12-15", "2026-12-01", "2026-12-16"),
    ],
)
def test_a_period_holds_whole_days_in_utc(text: str, start: str, end: str) -> None:
    found = parse_period(text)
    assert found.start.isoformat() == f"{start}T00:00:00+00:00"
    assert found.end.isoformat() == f"{end}T00:00:00+00:00"


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
        *("", "26", "2026-13", "2026-00", "2026-Q4", "2026-W50"),
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
