"""No room to write a charge down: nothing is announced, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.crash import accounts, invariants
from support.crash.databases import SQLiteFile
from support.crash.nursery import Nursery

from langchain_dpicl.ledger import SQLLedger


@pytest.mark.parametrize("how", ["file size", "page count"])
@pytest.mark.parametrize("kind", ["zcdp", "unit"])
def test_a_full_disk_charges_nothing_and_forgets_nothing(
    tmp_path: Path, nursery: Nursery, kind: str, how: str
) -> None:
    database, name = SQLiteFile(tmp_path), f"{kind}-0"
    # Open beside the worker.
    ledger = SQLLedger(database.url)
    accounts.open_account(ledger, name)
    worker = nursery.start("fill_disk", url=database.url, name=name, how=how)
    assert nursery.wait(worker) == 0
    announced = nursery.announced()
    assert sum("refused" in said and "account" not in said for said in announced) == 5
    said = invariants.answers(announced)[name]
    before = [a for a in announced[: announced.index({"room": True})] if "account" in a]
    assert 1 < len(before) < len(said), "charges came before and after the full disk"
    journal = ledger.charges(name)
    assert ledger.verify(name).used == len(journal)
    invariants.journal_is_whole(journal)
    invariants.every_answer_is_charged(said, journal)
    invariants.budget_is_kept(ledger, name, journal)
    if kind == "unit":
        # A release may be charged, and its units then find no room to pay.
        invariants.units_are_kept(ledger, name, said, journal, interruptions=0)
    else:
        assert len(said) == len(journal), "a refused charge was written"
    ledger.dispose()
    database.check()
