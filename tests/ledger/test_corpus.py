"""Caps of corpora and periods: the cases of the proof, and counts that are too small.

`tests/unit_tests/ledger/test_ledger_corpora.py` plays random histories by the public
face. Here stand the single steps, and twins of the count.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.book_parts import Clock, charge, opened, terms_of

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import CorpusState, CorpusTerms, Ledger, next_period
from langchain_dpicl.ledger.corpus import renewed
from langchain_dpicl.ledger.terms import DAY, moment, span_of

WINDOW = 5
FEW = CorpusTerms("few", "patient", epsilon=3, delta=3e-6, window_days=WINDOW)
FOR_EVER = CorpusTerms("archive", "patient", epsilon=3, delta=3e-6)
ONE = {"epsilon": 1.0, "delta": 1e-6, "corpus": FEW}


def in_archive(**terms: Any) -> dict[str, Any]:
    return {**ONE, "corpus": FOR_EVER, **terms}


# ---- The cap -------------------------------------------------------------------------


def test_an_account_counts_from_its_first_charge_on(
    ledger: Ledger, clock: Clock
) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        opened(ledger, name, **in_archive())
    for name in names[:3]:
        charge(ledger, name)
    with pytest.raises(BudgetExhaustedError, match=r"'d' .* has no room: corpus 'arch"):
        charge(ledger, "d")
    charge(ledger, "a")
    assert [book.name for book in ledger.corpus("archive").counted] == names[:3]
    assert ledger.corpus("archive").committed == (3.0, 3e-6)
    with pytest.raises(BudgetExhaustedError, match="There will never be room"):
        opened(ledger, "e", **in_archive())
    with pytest.raises(BudgetExhaustedError, match="It alone is more than the cap"):
        opened(ledger, "e", **in_archive(epsilon=4.0))
    ledger.verify()


def test_sums_are_those_of_decimals(ledger: Ledger) -> None:
    cap = CorpusTerms("tenths", None, epsilon=0.3, delta=1e-5)
    for name in "abc":
        opened(ledger, name, cap, epsilon=0.1)
        charge(ledger, name)
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, "d", cap, epsilon=0.1)


def test_an_account_counts_a_window_beyond_its_last_possible_charge(
    ledger: Ledger, clock: Clock
) -> None:
    for name in ("a", "b"):
        opened(ledger, name, **ONE, period="2026-12-10")
        charge(ledger, name)
    opened(ledger, "closed", **ONE)
    charge(ledger, "closed")
    ledger.close_account("closed")
    clock.set("2026-12-15")
    with pytest.raises(BudgetExhaustedError, match="room after 2026-12-15 00:00 UTC"):
        opened(ledger, "d", **ONE)
    clock.wait(microseconds=1)
    opened(ledger, "d", **ONE)
    charge(ledger, "d")
    clock.set("2026-12-16")
    with pytest.raises(BudgetExhaustedError, match="room after 2026-12-16 00:00 UTC"):
        opened(ledger, "e", **{**ONE, "epsilon": 2.0})
    clock.wait(microseconds=1)
    opened(ledger, "e", **{**ONE, "epsilon": 2.0})


def test_time_never_goes_back_in_a_corpus(ledger: Ledger, clock: Clock) -> None:
    opened(ledger, "early", **ONE, period="2026-12-10")
    opened(ledger, "late", **ONE)
    charge(ledger, "early")
    clock.wait(days=1)
    charge(ledger, "late")
    clock.wait(days=-1)
    with pytest.raises(BudgetExhaustedError, match=r"is over\. .dpicl ledger renew"):
        charge(ledger, "early")
    charge(ledger, "late")
    times = [entry["at"] for entry in ledger.entries("late")]
    assert times == sorted(times)
    ledger.verify()


def test_an_account_of_another_unit_is_refused() -> None:
    with pytest.raises(PlanMismatchError, match="protects 'patient'"):
        FEW.require_unit_key("notes", "visit")
    FEW.require_unit_key("notes", "patient")


def test_a_corpus_without_one_of_its_accounts_pays_for_nothing(file: Ledger) -> None:
    import sqlite3

    opened(file, "a", **in_archive())
    opened(file, "b", **in_archive())
    charge(file, "a")
    file.dispose()
    with sqlite3.connect(str(file.path)) as beside:
        beside.execute("DELETE FROM dpicl_book WHERE name = 'a'")
    beside.close()
    for action in (
        lambda: charge(file, "b"),
        lambda: opened(file, "c", **in_archive()),
    ):
        with pytest.raises(LedgerError, match="an account of it is missing"):
            action()


# ---- The promise, for random histories -----------------------------------------------


class BrokenPromiseError(AssertionError):
    """The promise was not kept."""


def play(actions: list[tuple[str, int]], clock: Clock, corpus: CorpusTerms) -> int:
    """Do what can be done, check the promise; return the number of charges."""
    ledger, charged = Ledger(":memory:"), list[tuple[int, str]]()
    clock.set("2026-12-10")
    for action, number in actions:
        names = ledger.accounts()
        name = names[number % len(names)] if names else ""
        try:
            if action == "wait":
                clock.wait(hours=12 * number)
            elif action == "open":
                first = clock.now.date()
                last = first + timedelta(days=number - 1)
                terms = {**ONE, "corpus": corpus, "queries": 9}
                terms["period"] = f"{first}/{last}" if number > 0 else None
                opened(ledger, f"account {len(names):04d}", **terms)
            elif action == "close":
                ledger.close_account(name)
            else:
                charge(ledger, name)
                charged.append((ledger.state(name).at, name))
        except DPError:
            continue
    ledger.verify()
    times = [at for at, _ in charged]
    if times != sorted(times):
        raise BrokenPromiseError("a later charge has an earlier time")
    length = (corpus.window_days or 10**6) * DAY
    for start in times:
        within = {name for at, name in charged if start <= at <= start + length}
        if Fraction(len(within)) > corpus.epsilon:
            raise BrokenPromiseError(f"epsilon {len(within)} within a window")
    return len(charged)


def histories() -> list[list[tuple[str, int]]]:
    """Return the same histories for each test, in which much happens."""
    draws = random.Random(5)
    kinds = ["open", "open", "charge", "charge", "charge", "charge", "close", "wait"]
    return [
        [(kind, draws.randint(-4, 12)) for kind in draws.choices(kinds, k=70)]
        for _ in range(16)
    ]


@pytest.mark.parametrize("corpus", [FEW, FOR_EVER], ids=["window", "all time"])
def test_within_any_window_nobody_loses_more_than_the_cap(
    clock: Clock, corpus: CorpusTerms
) -> None:
    assert sum(play(actions, clock, corpus) for actions in histories()) > 100


def forget_closed(right: Any) -> Any:
    return lambda self, book: book.is_open and right(self, book)


def forget_ended(right: Any) -> Any:
    return lambda self, book: book.account.span[1] > self.at and right(self, book)


def forget_the_window(right: Any) -> Any:
    def counts(self: CorpusState, book: Any) -> bool:
        end = self.counts_until(book)
        return right(self, book) and (end is None or self.at <= end - DAY)

    return counts


@pytest.mark.parametrize("twin", [forget_closed, forget_ended, forget_the_window])
def test_twin_a_count_that_is_too_small_is_found(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, twin: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(CorpusState, "_counts", twin(CorpusState._counts))
    with pytest.raises(BrokenPromiseError):
        for actions in histories():
            play(actions, clock, FEW)


def test_twin_openings_alone_are_compared_with_the_cap(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts that are open at the same time all find room, and then are charged."""
    right = CorpusState.require_room

    def require_room(self: CorpusState, terms: Any) -> None:
        if terms.name not in {book.name for book in self.accounts}:
            right(self, terms)

    monkeypatch.setattr(CorpusState, "require_room", require_room)
    with pytest.raises(BrokenPromiseError):
        for actions in histories():
            play(actions, clock, FEW)


# ---- Periods -------------------------------------------------------------------------

DAYS = st.dates(date(2000, 1, 5), date(2990, 12, 25))


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
    found = [moment(time).isoformat() for time in span_of(text)]
    assert found == [f"{day}T00:00:00+00:00" for day in (start, end)]


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
    opened(ledger, "few/2026-12", **ONE, period="2026-12")
    clock.set("2027-03-31")
    assert ledger.renew("few/2026-12").account.period == "2027-03"
    assert ledger.renew("few/2026-12").name == "few/2027-03"
    terms = terms_of("few", corpus="few", period="2026-12")
    assert renewed(terms, 0).name == "few/2027-01"
    with pytest.raises(InvalidParameterError, match="has no period"):
        renewed(terms_of("few"), 0)
