"""32 processes on one account, killed at random, while the database crashes too.

`DPICL_CRASH_SECONDS=600 pytest tests/system/crash/test_crash_storm.py` lets the storm
last longer than the few seconds it has by default, on each of the two databases, and
`DPICL_CRASH_SEED=5` draws another schedule.

The schedule is drawn from the seed; where a process happens to be when the signal
comes is up to the machine. Nothing here depends on how fast that is: the storm ends
when its time is over *and* an account of each kind was exhausted in it.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.crash import accounts, invariants
from support.crash.databases import Database
from support.crash.nursery import DEADLINE_SECONDS, Nursery

from langchain_dpicl.ledger import SQLLedger

WORKERS = 32
SECONDS = float(os.environ.get("DPICL_CRASH_SECONDS", "10"))
SEED = int(os.environ.get("DPICL_CRASH_SEED", "1"))
HOUR = 3600


@dataclass
class Storm:
    """Workers on one database, and what happens to them."""

    nursery: Nursery
    database: Database
    draws: random.Random
    workers: list[int] = field(default_factory=list)
    interruptions: int = 0
    """How many charges may have been cut off between the ledger and the answer."""

    def start_all(self) -> None:
        self.workers = [self._new() for _ in range(WORKERS)]

    def kill_one(self) -> None:
        place = self.draws.randrange(WORKERS)
        self.interruptions += self.nursery.kill(self.workers[place])
        self.workers[place] = self._new()

    def kill_all(self) -> None:
        for worker in self.workers:
            self.interruptions += self.nursery.kill(worker)

    def disturb(self) -> None:
        self.interruptions += self.database.disturb(self.draws) * WORKERS

    def _new(self) -> int:
        return self.nursery.start(
            "charge_rounds",
            url=self.database.url,
            seed=self.draws.getrandbits(32),
            shift_seconds=self.draws.choice([0, 0, -HOUR, 1.5]),
        )


@pytest.mark.usefixtures("machine_to_itself")
def test_crashes_lose_no_charge_and_overspend_no_account(
    database: Database, nursery: Nursery
) -> None:
    storm = Storm(nursery, database, random.Random(SEED))
    _rage(storm)
    announced = nursery.announced()
    invariants.nobody_was_alarmed(announced)
    if not database.goes_down:
        invariants.nobody_was_refused(announced)
    said = invariants.answers(announced)
    ledger = SQLLedger(database.url)
    journals = {name: ledger.charges(name) for name in ledger.accounts()}
    for name, journal in journals.items():
        assert ledger.verify(name).used == len(journal)
        invariants.journal_is_whole(journal)
        invariants.every_answer_is_charged(said[name], journal)
        invariants.budget_is_kept(ledger, name, journal)
        invariants.callers_are_kept(journal)
        if accounts.kind_of(name) == "unit" and journal:
            invariants.units_are_kept(
                ledger, name, said[name], journal, storm.interruptions
            )
    invariants.steps_are_kept(announced, ledger)
    assert any("steps" in said for said in announced)
    charges = [record.charge for journal in journals.values() for record in journal]
    assert any(charge.caller_spent == accounts.ALLOWED for charge in charges)
    assert set(said) <= set(journals), "an answer's account is not in the ledger"
    invariants.few_are_lost(
        sum(map(len, said.values())),
        sum(map(len, journals.values())),
        storm.interruptions,
    )
    _go_on(ledger, announced)
    ledger.dispose()
    database.check()


def _rage(storm: Storm) -> None:
    start = now = time.monotonic()
    end, stuck = start + SECONDS, start + SECONDS + DEADLINE_SECONDS
    pause = min(max(SECONDS / 4, 2.5), 10.0)
    disturbance, massacre = start + pause, start + 2.5 * pause
    storm.start_all()
    while now < end or not _all_kinds_ended(storm.nursery):
        assert now < stuck, "the workers get nowhere"
        time.sleep(storm.draws.uniform(0.0, 0.3))
        storm.kill_one()
        # A slow machine that comes after the end is left some peace.
        if disturbance < now < end:
            storm.disturb()
            disturbance = time.monotonic() + pause
        if massacre < now < end:
            storm.kill_all()
            storm.start_all()
            massacre = time.monotonic() + 2.5 * pause
        now = time.monotonic()
    storm.kill_all()


def _all_kinds_ended(nursery: Nursery) -> bool:
    announced = nursery.announced()
    invariants.nobody_was_alarmed(announced)
    return _ended(announced) >= {
        accounts.account_of(turn) for turn in range(len(accounts.KINDS))
    }


def _ended(announced: list[dict[str, Any]]) -> set[str]:
    return {said["end"] for said in announced if "end" in said}


def _go_on(ledger: SQLLedger, announced: list[dict[str, Any]]) -> None:
    """Use every account up: those that were reported exhausted must have been."""
    ended = _ended(announced)
    for name in ledger.accounts():
        accounts.open_account(ledger, name)
        before = ledger.state(name).used
        invariants.limit_is_reached(ledger, name)
        after = ledger.state(name).used
        if name in ended and accounts.kind_of(name) != "unit":
            assert before == after, "an account was called exhausted and was not"
        assert ledger.verify(name).used == after
