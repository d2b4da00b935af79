"""Copies of a ledger that is in use."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.ledgers import (
    ALL_TERMS,
    UNIT_FILTERED,
    Database,
    opened,
    postgres_database,
    spend,
)
from support.postgres import PostgresServer

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, SQLLedger, backup_ledger

MANY = AccountTerms("many", 8.0, 1e-6, 1_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with accounts of every kind, each charged."""
    path = tmp_path / "a.db"
    ledger = SQLLedger(f"sqlite:///{path}")
    for number, terms in enumerate([*ALL_TERMS, MANY]):
        named = AccountTerms(**{**vars(terms), "name": f"account {number}"})
        charge = spend(opened(ledger, named), named)
        if terms.scope == "unit":
            ledger.charge_units(charge, ["p-1", "p-2"])
        ledger.start_release(named.name, 1, "kind", "header")
        ledger.store_step(named.name, 1, 0, "kept")
    ledger.dispose()
    return path


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_copy_is_the_whole_ledger(path: Path) -> None:
    path.chmod(0o640)
    to = path.with_name("b.db")
    names = [f"account {number}" for number in range(len(ALL_TERMS) + 1)]
    assert backup_ledger(f"sqlite:///{path}", to) == names
    assert dump(to) == dump(path)
    assert to.stat().st_mode & 0o777 == 0o640
    ledger = SQLLedger(f"sqlite:///{to}", create=False)
    ledger.verify_accounts()
    assert ledger.charge("account 5").sequence == 2
    assert ledger.releases("account 5")[0].steps == ("kept",)
    ledger.dispose()
    left = {found.name for found in path.parent.iterdir()}
    assert left == {"a.db", "a.db-journal", "b.db", "b.db-journal"}


def test_copies_made_while_others_charge_are_whole(path: Path) -> None:
    ledger, stop = SQLLedger(f"sqlite:///{path}"), threading.Event()
    last = 1

    def work() -> None:
        nonlocal last
        while not stop.is_set():
            last = ledger.charge("account 5").sequence

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(8):
            before = last
            to = path.with_name(f"copy-{number}.db")
            backup_ledger(f"sqlite:///{path}", to)
            copy = SQLLedger(f"sqlite:///{to}", create=False)
            assert before <= copy.state("account 5").used <= last + 1
            copy.dispose()
    finally:
        stop.set()
        worker.join()
    ledger.dispose()


def _there(path: Path, to: Path) -> str:
    to.write_text("something else")
    return "nothing is overwritten"


def _damaged(path: Path, to: Path) -> str:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE dpicl_charge SET cost_loss = 0 WHERE id = 2")
    return "damaged at charge 1"


def _balances(path: Path, to: Path) -> str:
    assert UNIT_FILTERED in ALL_TERMS
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM dpicl_unit")
    return "units' balances"


def _renamed(path: Path, to: Path) -> str:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM dpicl_registry")
    return "dpicl ledger verify"


def _journal(path: Path, to: Path) -> str:
    Path(f"{to}-journal").touch()
    return "b.db-journal"


def _gone(path: Path, to: Path) -> str:
    path.unlink()
    return "There is no ledger"


@pytest.mark.parametrize(
    "harm", [_there, _damaged, _balances, _renamed, _journal, _gone]
)
def test_what_is_not_whole_is_not_kept(
    path: Path, harm: Callable[[Path, Path], str]
) -> None:
    to = path.with_name("b.db")
    match = harm(path, to)
    before = {found: found.read_bytes() for found in path.parent.iterdir()}
    with pytest.raises(LedgerError, match=match):
        backup_ledger(f"sqlite:///{path}", to)
    assert {found: found.read_bytes() for found in path.parent.iterdir()} == before


def test_a_folder_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(LedgerError, match="is there a folder"):
        backup_ledger(f"sqlite:///{path}", path.parent / "missing" / "b.db")


def test_a_server_makes_its_own_copies(postgres: PostgresServer, path: Path) -> None:
    database: Database = postgres_database(postgres)
    with pytest.raises(LedgerError, match="pg_dump"):
        backup_ledger(database.url, path.with_name("b.db"))
