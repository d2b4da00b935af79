"""What is special about a file that outlives the process."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, MemoryLedger, Plan, SQLLedger

PLAN = Plan({"parts": []}, (Gaussian(noise_multiplier=0.1 + 0.2),))


def make(path: Path, queries: int = 5) -> SQLLedger:
    ledger = SQLLedger(f"sqlite:///{path}")
    ledger.open(AccountTerms("notes", 8.0, 1e-6, queries))
    ledger.fix_plan("notes", PLAN)
    return ledger


def test_what_was_charged_is_there_in_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = make(path)
    ledger.charge("notes")
    ledger.dispose()
    again = SQLLedger(f"sqlite:///{path}")
    state = again.open(AccountTerms("notes", 8.0, 1e-6, 5))
    assert state.used == 1
    assert state.plan == PLAN
    assert state.plan.events[0].noise_multiplier == 0.1 + 0.2
    again.dispose()


def test_a_killed_process_loses_no_charge_that_it_announced(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path, queries=100_000).dispose()
    program = textwrap.dedent(
        """
        import sys
        from langchain_dpicl.ledger import SQLLedger
        ledger = SQLLedger("sqlite:///" + sys.argv[1])
        while True:
            print(ledger.charge("notes").sequence, flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    announced = [int(process.stdout.readline()) for _ in range(25)]
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    process.stdout.close()
    process.wait()
    announced += [int(line) for line in rest.split("\n")[:-1]]
    ledger = SQLLedger(f"sqlite:///{path}")
    assert ledger.state("notes").used >= announced[-1]
    written = [record.charge.sequence for record in ledger.charges("notes")]
    assert written[: len(announced)] == announced
    ledger.dispose()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_gets_connections_of_its_own(tmp_path: Path) -> None:
    ledger = make(tmp_path / "a.db", queries=40)
    ledger.charge("notes")
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        for _ in range(15):
            ledger.charge("notes")
        os._exit(0)
    for _ in range(15):
        ledger.charge("notes")
    assert os.waitpid(child, 0)[1] == 0
    assert ledger.state("notes").used == 31
    ledger.dispose()


def test_a_forked_memory_ledger_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    ledger.open(AccountTerms("notes", 8.0, 1e-6, 5))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="fork"):
        ledger.charge("notes")


def test_a_memory_ledger_is_not_copied() -> None:
    with pytest.raises(LedgerError, match="copied"):
        pickle.dumps(MemoryLedger())


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a privacy ledger"):
        SQLLedger(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3"]
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        SQLLedger(f"sqlite:///{path}")


def test_a_truncated_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = make(path)
    ledger.charge("notes")
    ledger.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError):
        damaged = SQLLedger(f"sqlite:///{path}")
        damaged.charge("notes")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM dpicl_charge WHERE sequence = 2",
        "UPDATE dpicl_account SET used = 0",
        "UPDATE dpicl_account SET plan = '{}'",
        "UPDATE dpicl_account SET plan = 'x'",
        "UPDATE dpicl_account SET epsilon = 'much'",
        "DROP TABLE dpicl_charge",
        "UPDATE dpicl_schema SET version = 99",
        """UPDATE dpicl_account SET plan =
           '{"template": {}, "events": [{"kind": "from the future"}]}'""",
    ],
)
def test_a_ledger_that_was_tampered_with_releases_nothing(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "a.db"
    ledger = make(path)
    ledger.charge("notes")
    ledger.charge("notes")
    ledger.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(LedgerError):
        SQLLedger(f"sqlite:///{path}").charge("notes")


def test_a_missing_folder_is_named_as_a_ledger_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="folder"):
        SQLLedger(f"sqlite:///{tmp_path}/missing/a.db")


def test_a_read_only_ledger_charges_nothing(tmp_path: Path) -> None:
    make(tmp_path / "a.db").dispose()
    ledger = SQLLedger(f"sqlite:///file:{tmp_path / 'a.db'}?mode=ro&uri=true")
    with pytest.raises(LedgerError):
        ledger.charge("notes")
    ledger.dispose()


def test_a_password_never_shows() -> None:
    with pytest.raises(LedgerError) as caught:
        SQLLedger("postgresql+nosuchdriver://user:hunter2@localhost/db")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_sqlite_ledger_can_be_sent_to_another_process(tmp_path: Path) -> None:
    ledger = make(tmp_path / "a.db")
    copy = pickle.loads(pickle.dumps(ledger))
    copy.charge("notes")
    assert ledger.state("notes").used == 1
    ledger.dispose()
    copy.dispose()
