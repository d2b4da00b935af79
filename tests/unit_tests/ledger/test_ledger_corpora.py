"""Caps of corpora: whatever is opened and charged, nobody loses more in a window.

The check knows nothing of how accounts are counted. It looks at the charges alone: the
accounts that were charged within any window may together release no more than the cap.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from faces import (
    BudgetExhaustedError,
    Charge,
    CorpusTerms,
    DPError,
    LedgerError,
    PlanMismatchError,
    at,
    close,
    open_account,
    open_ledger,
    read,
    renew,
    verify,
)
from suite import WHOLE
from worlds import UNIT

START = datetime(2026, 12, 10, tzinfo=timezone.utc)
NEVER = datetime.min.replace(tzinfo=timezone.utc)
WINDOW = 5
CAP = CorpusTerms("few", UNIT, epsilon=3.0, delta=3e-6, window_days=WINDOW)
ALL_TIME = CorpusTerms("few", UNIT, epsilon=3.0, delta=3e-6)
Step = tuple[str, int, float]


def play(url: str, corpus: Any, steps: list[Step]) -> list[tuple[datetime, str, float]]:
    """Do what can be done; return each charge's time, account and epsilon."""
    # A ledger's time is the clock's, or that of its last event if that is later.
    ledger, now, last = open_ledger(url), START, NEVER
    accounts, closed = list[Any](), list[Any]()
    charged = list[tuple[datetime, str, float]]()
    for what, number, epsilon in steps:
        if what == "wait":
            now += timedelta(days=number)
        account = accounts[number % len(accounts)] if accounts else None
        with at(now):
            try:
                if what == "open":
                    end = now + timedelta(days=max(number, 0))
                    period = f"{now.date()}/{end.date()}" if number > 0 else None
                    terms = {"epsilon": epsilon, "delta": epsilon / 1e6, "queries": 9}
                    terms |= {"corpus": corpus, "period": period}
                    name = f"account {len(accounts)}"
                    accounts.append(open_account(ledger, name, **terms))
                elif what == "charge" and account:
                    Charge(account).give_up()
                    charged.append((max(last, now), account.account, account.epsilon))
                elif what == "close" and account and account not in closed:
                    close(account)
                    closed.append(account)
                else:
                    continue
                last = max(last, now)
            except DPError:
                pass
    verify(ledger)
    return charged


def check(charged: list[tuple[datetime, str, float]], window: int | None) -> None:
    """For each window, the accounts charged in it are together within the cap."""
    for start, _, _ in charged:
        length = timedelta(days=10_000 if window is None else window)
        within = {(n, e) for when, n, e in charged if start <= when <= start + length}
        assert sum(Fraction(str(epsilon)) for _, epsilon in within) <= CAP.epsilon


def histories() -> list[list[Step]]:
    """Return histories in which much happens; clocks may go back."""
    draws = random.Random(5)
    kinds = ["open", "open", "charge", "charge", "charge", "charge", "close", "wait"]
    return [
        [
            (kind, draws.randint(-3, 9), draws.choice([1.0, 1.0, 2.0, 0.1]))
            for kind in draws.choices(kinds, k=60)
        ]
        for _ in range(300 if WHOLE else 6)
    ]


@pytest.mark.promise("caps-are-kept")
@pytest.mark.parametrize(("corpus", "window"), [(CAP, WINDOW), (ALL_TIME, None)])
def test_within_any_window_nobody_loses_more_than_the_cap(
    place: Callable[[], str], corpus: Any, window: int | None
) -> None:
    charged = [play(place(), corpus, steps) for steps in histories()]
    assert sum(map(len, charged)) > 40
    for history in charged:
        check(history, window)


@pytest.mark.promise("caps-are-kept", twin=True)
def test_twin_a_promise_for_twice_the_window_is_broken() -> None:
    with pytest.raises(AssertionError):
        for steps in histories():
            check(play(":memory:", CAP, steps), 2 * WINDOW)


@pytest.fixture
def ledger(place: Callable[[], str]) -> Any:
    return open_ledger(place())


MONTH = {"epsilon": 1.0, "queries": 2, "corpus": CAP}


@pytest.mark.promise("periods-begin-and-end")
@pytest.mark.parametrize(
    ("period", "first", "after"),
    [
        ("2026", (2026, 1, 1), (2027, 1, 1)),
        ("2026-12", (2026, 12, 1), (2027, 1, 1)),
        ("2026-02", (2026, 2, 1), (2026, 3, 1)),
        ("2028-02-29", (2028, 2, 29), (2028, 3, 1)),
        ("2026-12-24/2027-01-02", (2026, 12, 24), (2027, 1, 3)),
    ],
)
def test_an_account_pays_in_its_period_alone(
    ledger: Any, period: str, first: Any, after: Any
) -> None:
    start, end = (datetime(*day, tzinfo=timezone.utc) for day in (first, after))
    moment = timedelta(microseconds=1)
    with at(start - moment):
        account = open_account(ledger, period=period, **MONTH)
        with pytest.raises(BudgetExhaustedError):
            Charge(account)
    for now in (start, end - moment):
        with at(now):
            Charge(account).give_up()
    with at(end):
        with pytest.raises(BudgetExhaustedError):
            Charge(account)
        with pytest.raises(BudgetExhaustedError):
            open_account(ledger, "another", period=period, **MONTH)
    assert len(read(account).charges) == 2


@pytest.mark.promise("periods-begin-and-end")
def test_a_clock_that_goes_back_opens_no_period_again(ledger: Any) -> None:
    with at(START):
        early = open_account(ledger, "early", period="2026-12-10", **MONTH)
        late = open_account(ledger, "late", **MONTH)
        Charge(early).give_up()
    with at(START + timedelta(days=1)):
        Charge(late).give_up()
    with at(START), pytest.raises(BudgetExhaustedError):
        Charge(early)


@pytest.mark.promise("a-renewal-is-the-next-period")
def test_a_renewed_account_has_the_next_period_and_the_same_terms(ledger: Any) -> None:
    with at(START):
        account = open_account(ledger, "few/2026-12", period="2026-12", **MONTH)
        Charge(account).give_up()
        names = [renew(account)] * 2
        assert names == [renew(account)] * 2 == ["few/2027-01"] * 2
        following = open_account(ledger, names[0], period="2027-01", **MONTH)
        with pytest.raises(BudgetExhaustedError):
            Charge(following)
    with at(datetime(2027, 1, 31, tzinfo=timezone.utc)):
        Charge(following).give_up()
        with pytest.raises(BudgetExhaustedError):
            Charge(account)


@pytest.mark.promise("terms-are-fixed")
def test_a_corpus_and_its_accounts_keep_their_terms(ledger: Any) -> None:
    account = open_account(ledger, **MONTH)
    other = {
        "cap": CorpusTerms("few", UNIT, epsilon=4.0, delta=3e-6, window_days=WINDOW),
        "window": ALL_TIME,
        "unit": CorpusTerms("few", "visit", epsilon=3.0, delta=3e-6, window_days=5),
        "corpus": CorpusTerms("others", UNIT, epsilon=3.0, delta=3e-6),
        "none": None,
    }
    for corpus in other.values():
        with pytest.raises(PlanMismatchError):
            open_account(ledger, **{**MONTH, "corpus": corpus})
    with pytest.raises(LedgerError):
        open_account(ledger, "new", **{**MONTH, "corpus": "unknown"})
    visits = CorpusTerms("visits", "visit", epsilon=3.0, delta=3e-6)
    with pytest.raises(PlanMismatchError):
        Charge(open_account(ledger, "new", **{**MONTH, "corpus": visits}))
    Charge(account).give_up()
