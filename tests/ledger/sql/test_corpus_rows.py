"""Corpora in databases: edited rows are found, and racing openings keep the cap."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from support.corpora import (
    CLINIC,
    DECEMBER,
    PER_UNIT,
    clock_for,
    of_month,
    opened_in,
    pay,
)
from support.ledgers import Database
from support.races import kept, race

from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import CorpusTerms, SQLLedger
from langchain_dpicl.ledger.sql import corpus_rows
from langchain_dpicl.ledger.sql.corpus_rows import corpus_state

Connect = Callable[[], SQLLedger]

NOW = datetime(2026, 12, 10, tzinfo=timezone.utc)
EDITS = {
    "a larger cap": "UPDATE dpicl_corpus SET epsilon = '0x1p6'",
    "a larger delta": "UPDATE dpicl_corpus SET delta = '0x1p-6'",
    "a shorter window": "UPDATE dpicl_corpus SET window_days = 30",
    "another unit": "UPDATE dpicl_corpus SET unit_key = 'note'",
    "an earlier time": "UPDATE dpicl_corpus SET last_at = '2026-11-01 00:00:00.000000'",
    "nonsense": "UPDATE dpicl_corpus SET epsilon = 'much'",
    "no corpus": "DELETE FROM dpicl_corpus",
    "another name": "UPDATE dpicl_corpus SET name = 'old clinic'",
}
ACCOUNT_EDITS = {
    "a later period": "UPDATE dpicl_account SET period = '2027-12'",
    "no period": "UPDATE dpicl_account SET period = NULL",
    "no corpus": "UPDATE dpicl_account SET corpus = NULL, period = NULL",
    "another purpose": "UPDATE dpicl_account SET purpose = 'research'",
    "an early closing": (
        "UPDATE dpicl_account SET closed_at = '2020-01-01 00:00:00.000000'"
    ),
    "no charges": "UPDATE dpicl_account SET used = 0",
    "another salt": "UPDATE dpicl_account SET salt = 'bb'",
}


@pytest.fixture
def clinic(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> SQLLedger:
    """A ledger with a corpus and an account that was charged."""
    clock_for(monkeypatch, "2026-12-10")
    ledger = connect()
    ledger.create_corpus(CLINIC)
    opened_in(ledger)
    pay(ledger)
    return ledger


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_corpus_opens_and_pays_for_nothing(
    database: Database, connect: Connect, clinic: SQLLedger, edit: str
) -> None:
    database.execute(EDITS[edit])
    for ledger in (clinic, connect()):
        with pytest.raises(LedgerError):
            pay(ledger)
        with pytest.raises(LedgerError):
            ledger.open(of_month("2027-01"))
        with pytest.raises(LedgerError):
            ledger.verify_accounts()
    with pytest.raises(LedgerError):
        connect().verify(DECEMBER.name)


@pytest.mark.parametrize("edit", ACCOUNT_EDITS)
def test_an_edited_account_counts_as_before_or_stops_everything(
    database: Database, connect: Connect, clinic: SQLLedger, edit: str
) -> None:
    database.execute(ACCOUNT_EDITS[edit])
    for ledger in (clinic, connect()):
        with pytest.raises(LedgerError):
            ledger.open(of_month("2027-01"))
        with pytest.raises(LedgerError):
            ledger.verify(DECEMBER.name)
        with pytest.raises(LedgerError):
            pay(ledger)


def test_a_corpus_that_is_made_again_with_a_larger_cap_is_found(
    database: Database, connect: Connect, clinic: SQLLedger
) -> None:
    """Its new row is whole; the list of accounts still holds the old cap."""
    assert clinic.corpora() == ["clinic"]
    database.execute("DELETE FROM dpicl_corpus")
    again = connect()
    again.create_corpus(replace(CLINIC, epsilon=1e6))
    with pytest.raises(LedgerError, match="not those that were opened"):
        again.open(of_month("2027-01"))
    with pytest.raises(LedgerError, match="not those that were opened"):
        again.verify_accounts()


def test_a_corpus_survives_the_process(
    database: Database, connect: Connect, clinic: SQLLedger
) -> None:
    clinic.close_account(DECEMBER.name)
    opened_in(clinic, replace(PER_UNIT))
    clinic.bind_salt("each", "aa")
    pay(clinic, PER_UNIT)
    clinic.dispose()
    ledger = connect()
    found = ledger.corpus("clinic")
    assert found.terms == CLINIC
    assert [one.closed_at for one in found.accounts] == [NOW, None]
    assert [one.salt for one in found.accounts] == [None, "aa"]
    assert found.committed == (16.0, 2e-6)
    ledger.verify_accounts()
    for name in ledger.accounts():
        ledger.verify(name)
    assert database.execute("SELECT count(*) FROM dpicl_corpus") == [(1,)]


CAP = 10


def _begin(url: str, turn: int) -> object:
    """Charge accounts of one corpus as fast as others do, a new one each time."""
    name = f"{os.getpid()}-{turn}"
    terms = replace(DECEMBER, name=name, period=None, epsilon=0.1, delta=1e-9)
    try:
        pay(kept(url), opened_in(kept(url), replace(terms, corpus="race")))
    except BudgetExhaustedError:
        return 0
    return 1


def test_processes_that_begin_at_once_never_pass_the_cap(
    database: Database, connect: Connect
) -> None:
    ledger = connect()
    ledger.create_corpus(CorpusTerms("race", "patient", CAP * 0.1, 1e-3))
    found = race(_begin, database.url)
    assert sum(found) == CAP
    assert len(ledger.corpus("race").counted) == CAP
    ledger.verify_accounts()


def test_twin_a_cap_that_is_read_before_the_lock_is_passed(
    database: Database,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both see room, then both write: what reading under the lock prevents."""
    clock_for(monkeypatch, "2026-12-10")
    first, second = connect(), connect()
    first.create_corpus(CLINIC)
    whole = replace(DECEMBER, epsilon=24.0, delta=3e-6)
    opened_in(first, whole)
    other = opened_in(second, replace(whole, name="second"))

    def before_the_lock(connection: Any, name: str, **more: Any) -> Any:
        return stale if stale is not None else corpus_state(connection, name, **more)

    stale: Any = first.corpus("clinic")
    monkeypatch.setattr(corpus_rows, "corpus_state", before_the_lock)
    pay(first, whole)
    pay(second, other)
    stale = None
    assert first.corpus("clinic").committed == (48.0, 6e-6)
    with pytest.raises(BudgetExhaustedError):
        second.open(replace(whole, name="third"))
    assert database.kind in ("sqlite", "postgres")
