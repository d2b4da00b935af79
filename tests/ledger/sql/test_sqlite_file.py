"""The file that the URL names holds every charge, from its first moment on."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import made, used_in

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import (
    SQLLedger,
)
from langchain_dpicl.ledger.sql.schema import SCHEMA_VERSION

CHARGING = textwrap.dedent(
    """
    import sys
    from langchain_dpicl.ledger import SQLLedger
    ledger = SQLLedger("sqlite:///" + sys.argv[1])
    while True:
        print(ledger.charge("notes").sequence, flush=True)
    """
)


def charging(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHARGING, str(path)], stdout=subprocess.PIPE, text=True
    )


def killed(worker: subprocess.Popen[str], after: int) -> int:
    """Kill a worker after so many charges; return the last one that it announced."""
    assert worker.stdout is not None
    for _ in range(after):
        last = int(worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    rest = worker.stdout.read().split("\n")[:-1]
    worker.stdout.close()
    worker.wait()
    return int(rest[-1]) if rest else last


def test_the_file_alone_holds_a_thousand_charges_after_a_kill(
    memory_folder: Path,
) -> None:
    path = memory_folder / "a.db"
    made(path).dispose()
    announced = killed(charging(path), after=1_000)
    copy = memory_folder / "copy.db"
    shutil.copy(path, copy)
    found = used_in(copy)
    # A kill within a commit leaves a file that is not whole without its journal.
    assert found is None or found >= announced
    assert (used_in(path) or 0) >= announced >= 1_000


def test_copies_made_during_charges_forget_none_or_are_refused(
    memory_folder: Path,
) -> None:
    path = memory_folder / "a.db"
    made(path).dispose()
    worker = charging(path)
    assert worker.stdout is not None
    found = []
    try:
        for number in range(25):
            for _ in range(7):
                announced = int(worker.stdout.readline())
            copy = memory_folder / f"copy-{number}.db"
            shutil.copyfile(path, copy)
            used = used_in(copy)
            found.append(used)
            assert used is None or used >= announced
    finally:
        killed(worker, after=1)
    assert any(found), "every copy was refused"


def test_a_commit_that_is_torn_anywhere_forgets_nothing(tmp_path: Path) -> None:
    """A file whose last commit is there in part, without the journal."""
    path = tmp_path / "a.db"
    ledger = made(path)
    for _ in range(3):
        ledger.charge("notes")
    ledger.dispose()
    before = path.read_bytes()
    ledger.charge("notes")
    ledger.dispose()
    after = path.read_bytes()
    size = 1024
    changed = [
        at
        for at in range(0, len(after), size)
        if before[at:][:size] != after[at:][:size]
    ]
    assert 3 <= len(changed) <= 8
    seen = set()
    for chosen in range(2 ** len(changed)):
        torn = bytearray(before.ljust(len(after), b"\0"))
        for bit, at in enumerate(changed):
            if chosen >> bit & 1:
                torn[at : at + size] = after[at : at + size]
        copy = tmp_path / f"torn-{chosen}.db"
        copy.write_bytes(torn)
        seen.add(used_in(copy))
    assert {3, 4} <= seen <= {3, 4, None}


def test_a_ledger_with_a_log_is_switched_by_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    made(path).dispose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("UPDATE dpicl_account SET library = library")
        # Killed, so to say: the log stays.
        shutil.copy(path, tmp_path / "b.db")
        shutil.copy(f"{path}-wal", tmp_path / "b.db-wal")
    path = tmp_path / "b.db"
    with multiprocessing.get_context("spawn").Pool(6) as pool:
        found = pool.map(_charge_one, [str(path)] * 24)
    assert sorted(found) == list(range(1, 25))
    assert not Path(f"{path}-wal").exists()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() != ("wal",)


def _charge_one(path: str) -> int:
    ledger = SQLLedger(f"sqlite:///{path}", create=False)
    sequence = ledger.charge("notes").sequence
    ledger.dispose()
    return sequence


def test_a_log_that_others_keep_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_dpicl.ledger.sql.sqlite_file.SWITCH_SECONDS", 0.2)
    path = tmp_path / "a.db"
    made(path).dispose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("SELECT * FROM dpicl_account").fetchall()
        with pytest.raises(LedgerError, match="write-ahead log"):
            SQLLedger(f"sqlite:///{path}")
    assert used_in(path) == 0


def test_a_log_that_another_program_begins_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = made(path)
    ledger.charge("notes")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        with pytest.raises(LedgerError, match="write-ahead log"):
            ledger.charge("notes")
    ledger.dispose()
    assert ledger.charge("notes").sequence == 2
    ledger.dispose()


STARTS, TURNS = 4, 25


def _start_first(folder: str, ready: Any, results: Any) -> None:
    for turn in range(TURNS):
        path = Path(folder, f"{turn}.db")
        ready.wait()
        try:
            ledger = made(path)
            results.put(ledger.charge("notes").sequence)
            ledger.dispose()
        except Exception as error:  # noqa: BLE001 - the parent shows it
            results.put(repr(error))


def test_processes_that_start_first_at_once_make_one_ledger(
    memory_folder: Path,
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["langchain_dpicl.ledger.sql.ledger"])
    ready, results = context.Barrier(STARTS + 1), context.Queue()
    workers = [
        context.Process(target=_start_first, args=(str(memory_folder), ready, results))
        for _ in range(STARTS)
    ]
    for worker in workers:
        worker.start()
    empty = 0
    for turn in range(TURNS):
        path = memory_folder / f"{turn}.db"
        ready.wait()
        found: list[object] = []
        while len(found) < STARTS:
            if path.exists():
                empty += path.stat().st_size == 0
            if not results.empty():
                found.append(results.get())
        assert sorted(found, key=str) == list(range(1, STARTS + 1))
    for worker in workers:
        worker.join()
    assert not empty, "a ledger was there before it was whole"
    assert {path.suffix for path in memory_folder.iterdir()} == {".db", ".db-journal"}


def test_the_schema_of_a_new_file_is_of_this_version(tmp_path: Path) -> None:
    made(tmp_path / "a.db").dispose()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        (version,) = connection.execute("SELECT version FROM dpicl_schema").fetchone()
        assert version == SCHEMA_VERSION
        assert connection.execute("PRAGMA page_size").fetchone() == (1024,)
