"""Which file a path names, how a connection is made to it, and how a copy appears."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.ledgers import made

from langchain_dpicl.ledger import SQLLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    made(path).dispose()
    return path


# -- the path --------------------------------------------------------------------------


# -- connecting ------------------------------------------------------------------------


# -- permissions ----------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_new_ledger_and_its_journal_are_its_owners_alone(
    tmp_path: Path, umask: int
) -> None:
    path = tmp_path / "new.db"
    before = os.umask(umask)
    try:
        ledger = made(path)
        ledger.charge("notes")
        # What another program's log would be.
        with closing(sqlite3.connect(path)) as other:
            journals = [name.name for name in tmp_path.iterdir()]
            other.execute("PRAGMA journal_mode=wal")
            other.execute("SELECT * FROM dpicl_account").fetchall()
            modes = {
                found.name: found.stat().st_mode & 0o777 for found in tmp_path.iterdir()
            }
    finally:
        os.umask(before)
    assert "new.db-journal" in journals
    assert {"new.db", "new.db-wal", "new.db-shm"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    ledger.dispose()


def test_an_existing_ledger_keeps_the_permissions_that_it_was_given(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shared.db"
    made(path).dispose()
    path.chmod(0o660)
    ledger = SQLLedger(f"sqlite:///{path}")
    ledger.charge("notes")
    ledger.dispose()
    assert path.stat().st_mode & 0o777 == 0o660


# -- copies ----------------------------------------------------------------------------
