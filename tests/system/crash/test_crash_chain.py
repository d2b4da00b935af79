"""A service that dies while it answers: nobody has seen an answer that wasn't paid."""

from __future__ import annotations

import random
import time
from pathlib import Path

from support.crash import invariants
from support.crash.answers import ACCOUNT, QUERIES
from support.crash.databases import SQLiteFile
from support.crash.nursery import DEADLINE_SECONDS, Nursery

from langchain_dpicl.ledger import SQLLedger

KILLS = 12
PROCESSES = 3


def test_every_answer_of_a_killed_service_was_paid_for(tmp_path: Path) -> None:
    database, draws = SQLiteFile(tmp_path), random.Random(1)
    deadline = time.monotonic() + DEADLINE_SECONDS
    folder = tmp_path / "announced"
    folder.mkdir()
    with Nursery(folder, "support.crash.answers") as nursery:

        def start() -> int:
            return nursery.start("answer_questions", url=database.url)

        workers, kills = [start() for _ in range(PROCESSES)], 0
        while kills < KILLS:
            # Not all of them are killed while they are starting.
            seen = len(nursery.announced())
            while len(nursery.announced()) <= seen:
                assert time.monotonic() < deadline, "nobody answers"
                time.sleep(0.01)
            time.sleep(draws.uniform(0.0, 0.1))
            place = draws.randrange(PROCESSES)
            kills += nursery.kill(workers[place])
            workers[place] = start()
        for worker in workers:
            kills += nursery.kill(worker)
        announced = nursery.announced()
    said = invariants.answers(announced)[ACCOUNT]
    assert len(said) >= KILLS
    assert "cough" in {what["answer"] for what in announced}
    ledger = SQLLedger(database.url)
    journal = ledger.charges(ACCOUNT)
    assert ledger.verify(ACCOUNT).used == len(journal) <= QUERIES
    invariants.journal_is_whole(journal)
    invariants.every_answer_is_charged(said, journal)
    invariants.few_are_lost(len(said), len(journal), interruptions=kills)
    assert ledger.charge(ACCOUNT).sequence == len(journal) + 1
    ledger.dispose()
    database.check()
