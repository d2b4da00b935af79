"""Hosts whose clocks disagree: the journal's time stands still, but never turns."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from support.crash import accounts, invariants
from support.crash.databases import Database
from support.crash.nursery import Nursery

from langchain_dpicl.ledger import SQLLedger

HOUR = 3600


def test_a_clock_that_goes_backwards_is_refused_nothing(
    database: Database, nursery: Nursery
) -> None:
    name = "zcdp-0"
    shifts = [-24 * HOUR, 0, -HOUR, HOUR, 0, -24 * HOUR]
    for shift in shifts:
        worker = nursery.start(
            "charge_few", url=database.url, name=name, times=2, shift_seconds=shift
        )
        assert nursery.wait(worker) == 0
    ledger = SQLLedger(database.url)
    journal = ledger.charges(name)
    assert ledger.verify(name).used == len(journal) == 2 * len(shifts)
    invariants.journal_is_whole(journal)
    said = invariants.answers(nursery.announced())[name]
    invariants.every_answer_is_charged(said, journal)
    assert len(said) == len(journal)
    now = datetime.now(timezone.utc)
    assert journal[0].at < now - timedelta(hours=23), "the clocks were not wrong"
    # From the fastest clock on, time stands still until the others have caught up.
    assert now < journal[7].at == journal[-1].at
    assert ledger.charge(name, accounts.MIXES["zcdp"][0]).sequence == len(journal) + 1
    ledger.dispose()
