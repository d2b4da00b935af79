"""Caps of corpora and periods: the cases of the proof, one by one.

`tests/unit_tests/ledger/test_ledger_corpora.py` plays random histories.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpora import Clock
from support.ledgers import VOTE

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
)
from langchain_dpicl.ledger import CorpusTerms, Ledger, next_period
from langchain_dpicl.ledger.terms import moment, span_of

FEW = CorpusTerms("few", "patient", epsilon=3, delta=3e-6, window_days=5)
ARCHIVE = CorpusTerms("archive", "patient", epsilon=3, delta=3e-6)


def opened(ledger: Ledger, name: str, corpus: CorpusTerms = FEW, **terms: Any) -> Any:
    """Open an account of a corpus; return what charges it."""
    terms = {"epsilon": 1.0, "delta": 1e-6, "queries": 5, **terms}
    account = PrivacyBudgetHandler(ledger=ledger, account=name, corpus=corpus, **terms)
    return lambda: account.buy(VOTE, unit_key=corpus.unit_key).leave()


# ---- The cap -------------------------------------------------------------------------


def test_an_account_counts_from_its_first_charge_on(ledger: Ledger) -> None:
    charges = [opened(ledger, name, ARCHIVE) for name in "abcd"]
    for charge in charges[:3]:
        charge()
    with pytest.raises(BudgetExhaustedError, match=r"'d' .* has no room: corpus 'arch"):
        charges[3]()
    charges[0]()
    assert [book.name for book in ledger.corpus("archive").counted] == ["a", "b", "c"]
    assert ledger.corpus("archive").committed == (3.0, 3e-6)
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, "e", ARCHIVE)
    ledger.verify()


def test_sums_are_those_of_decimals(ledger: Ledger) -> None:
    cap = CorpusTerms("tenths", None, epsilon=0.3, delta=1e-5)
    for name in "abc":
        opened(ledger, name, cap, epsilon=0.1)()
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, "d", cap, epsilon=0.1)


def test_an_account_counts_a_window_beyond_its_last_possible_charge(
    ledger: Ledger, clock: Clock
) -> None:
    for name in ("a", "b"):
        opened(ledger, name, period="2026-12-10")()
    opened(ledger, "closed")()
    ledger.close_account("closed")
    clock.set("2026-12-15")
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, "d")
    clock.wait(microseconds=1)
    opened(ledger, "d")()
    clock.set("2026-12-16")
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, "e", epsilon=2.0)
    clock.wait(microseconds=1)
    opened(ledger, "e", epsilon=2.0)


def test_a_corpus_without_one_of_its_accounts_pays_for_nothing(file: Ledger) -> None:
    opened(file, "a")()
    charge = opened(file, "b")
    file.dispose()
    with closing(sqlite3.connect(str(file.path), isolation_level=None)) as beside:
        beside.execute("DELETE FROM dpicl_book WHERE name = 'a'")
    for action in (charge, lambda: opened(file, "c")):
        with pytest.raises(LedgerError, match="an account of it is missing"):
            action()


# ---- Periods -------------------------------------------------------------------------

DAYS = st.dates(date(2000, 1, 5), date(2990, 12, 25))


@given(DAYS)
def test_periods_follow_one_another_without_gap_or_overlap(day: date) -> None:
    inside = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    for text in (f"{day.year}", f"{day:%Y-%m}", f"{day}", f"{day}/{day}"):
        start, end = span_of(text)
        assert moment(start) <= inside < moment(end)
        after = next_period(text)
        assert span_of(after)[0] == end
        assert len(after) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "26", "2026-13", "2026-00", "2026-Q4", "2026-W50", "9999", "1999-01"),
        *("2026-02-29", "2026-12-1", " 2026", "2026-12/2027-01", "2026-12-01/"),
        *("2026-12-02/2026-12-01", "/", "2026-12-01/2026-12", "2026-12-01T00:00"),
        *("2026-12-01/2026-12-02/2026-12-03", "20\N{FULLWIDTH DIGIT TWO}6"),
    ],
)
def test_anything_else_is_no_period(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="is no period"):
        span_of(text)


def test_a_renewal_skips_periods_that_are_over(ledger: Ledger, clock: Clock) -> None:
    opened(ledger, "few/2026-12", period="2026-12")
    opened(ledger, "open")
    clock.set("2027-03-31")
    assert ledger.renew("few/2026-12").account.period == "2027-03"
    assert ledger.renew("few/2026-12").name == "few/2027-03"
    with pytest.raises(InvalidParameterError, match="has no period"):
        ledger.renew("open")
