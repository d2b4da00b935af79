"""A file that can't be written, trusted or found: a typed error, and nothing charged.

The faults are real: SQLite's own settings, another program's lock, another file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from faces import (
    Charge,
    LedgerError,
    backup_ledger,
    open_account,
    open_ledger,
    read,
    verify,
)
from unit_tests.ledger.faults import listening

LONGEST_WAIT_MS = 60_000


@contextmanager
def each_connection(*statements: str) -> Iterator[list[Any]]:
    """Run statements on each new connection to SQLite; yield what they return."""
    found: list[Any] = []

    def run(connection: Any, _record: object) -> None:
        found.extend(connection.execute(one).fetchone() for one in statements)

    with listening("connect", run):
        yield found


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "ledger.db"


@pytest.fixture
def account(path: Path) -> Iterator[Any]:
    """An account of a ledger in a file, charged twice."""
    account = open_account(f"sqlite:///{path}", queries=500)
    for _ in range(2):
        Charge(account).once(lambda: "a draw")
    yield account
    account.ledger.dispose()


def execute(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def tables(path: Path) -> list[str]:
    """Return a file's tables, those with the most rows first."""
    found = execute(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    return sorted(
        (name for (name,) in found),
        key=lambda name: -execute(path, f"SELECT count(*) FROM {name}")[0][0],
    )


def charge_often(account: Any, times: int = 60) -> tuple[dict[int, str], int]:
    """Charge and draw; return what was acknowledged, and how often it was refused."""
    draws, refused = dict[int, str](), 0
    for turn in range(times):
        try:
            charge = Charge(account, key=f"{turn}" + "long" * 200)
            draws[charge.number] = charge.once(lambda: f"draw {turn}")  # noqa: B023
        except LedgerError:
            refused += 1
    return draws, refused


@pytest.mark.promise("fail-closed", "acknowledged-is-stored")
@pytest.mark.parametrize("fault", ["max_page_count=1", "query_only=1"])
def test_a_full_disk_or_a_read_only_file_charges_nothing(
    account: Any, fault: str
) -> None:
    before = read(account)
    account.ledger.dispose()
    with each_connection(f"PRAGMA {fault}"):
        draws, refused = charge_often(account)
        assert refused > 40
    account.ledger.dispose()
    verify(account.ledger)
    book = read(account)
    assert book.draws == {**before.draws, **draws}
    after = Charge(account)
    assert after.number == len(book.charges) + 1
    assert after.once(lambda: "room again") == "room again"


@pytest.mark.promise("fail-closed")
def test_a_locked_file_is_waited_for_a_limited_time(account: Any, path: Path) -> None:
    account.ledger.dispose()
    with each_connection("PRAGMA busy_timeout", "PRAGMA busy_timeout=100") as waits:
        before = read(account)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            start = time.monotonic()
            with pytest.raises(LedgerError):
                Charge(account)
            assert time.monotonic() - start < 10
        assert 0 < waits[0][0] <= LONGEST_WAIT_MS
    assert read(account) == before
    assert Charge(account).number == 3


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.unlink()
    execute(path, "CREATE TABLE notes (text)")


def of_version(step: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        for table in tables(path):
            for column in ("version", "schema"):
                with suppress(sqlite3.OperationalError):
                    execute(path, f"UPDATE {table} SET {column} = {column} + {step}")

    return change


OTHERS = {
    "garbage": garbage,
    "emptied": emptied,
    "another database": foreign,
    "a newer version": of_version(1),
    "an older version": of_version(-1),
}


@pytest.mark.promise("fail-closed")
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_is_no_ledger_of_this_version_is_refused_and_left(
    account: Any, path: Path, change: Callable[[Path], None]
) -> None:
    account.ledger.dispose()
    change(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LedgerError):
            open_account(f"sqlite:///{path}", queries=500)
    assert path.read_bytes() == before


def replaced(path: Path, older: Path) -> None:
    older.replace(path)


def replaced_by_an_equal_copy(path: Path, older: Path) -> None:
    shutil.copy(path, older)
    older.replace(path)


def written_over(path: Path, older: Path) -> None:
    with (
        closing(sqlite3.connect(older)) as source,
        closing(sqlite3.connect(path)) as to,
    ):
        source.backup(to)


def moved(path: Path, older: Path) -> None:
    path.rename(older)


@pytest.mark.promise("forgotten-charges-are-noticed")
@pytest.mark.parametrize(
    "change", [replaced, replaced_by_an_equal_copy, written_over, moved]
)
def test_a_process_notices_that_its_ledger_is_another_one(
    account: Any, path: Path, folder: Path, change: Callable[[Path, Path], None]
) -> None:
    older = folder / "older.db"
    shutil.copy(path, older)
    Charge(account).give_up()
    change(path, older)
    for _ in range(3):
        with pytest.raises(LedgerError):
            Charge(account)
    assert path.exists() == (change is not moved), "no new file was begun"


@pytest.mark.promise("forgotten-charges-are-noticed")
def test_a_ledger_that_has_to_be_there_is_not_made(path: Path) -> None:
    with pytest.raises(LedgerError):
        open_ledger(f"sqlite:///{path}", create=False)
    assert not path.exists()


@pytest.mark.promise("a-copy-is-whole")
def test_charges_lie_in_the_file_and_not_in_a_log_beside_it(
    account: Any, path: Path, folder: Path
) -> None:
    account.ledger.dispose()
    execute(path, "PRAGMA journal_mode=WAL")
    with suppress(LedgerError):
        Charge(account).give_up()
    copy = folder / "copy.db"
    shutil.copy(path, copy)
    copied = open_account(f"sqlite:///{copy}", queries=500)
    assert read(copied) == read(account)
    copied.ledger.dispose()


@pytest.mark.promise("ledger-files-are-private")
def test_files_are_for_their_owner_alone(path: Path, folder: Path) -> None:
    before = os.umask(0)
    try:
        account = open_account(f"sqlite:///{path}", queries=5)
        Charge(account).once(lambda: "a draw")
        backup_ledger(f"sqlite:///{path}", folder / "copy.db")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    account.ledger.dispose()


@pytest.mark.promise("a-copy-is-whole")
def test_a_backup_is_whole_or_not_there(account: Any, path: Path, folder: Path) -> None:
    url, copy = f"sqlite:///{path}", folder / "copy.db"
    backup_ledger(url, copy)
    copied = open_account(f"sqlite:///{copy}", queries=500)
    assert read(copied) == read(account)
    copied.ledger.dispose()
    before = copy.read_bytes()
    with pytest.raises(LedgerError):
        backup_ledger(url, copy)
    assert copy.read_bytes() == before
    account.ledger.dispose()
    execute(path, f"DELETE FROM {tables(path)[0]}")
    with pytest.raises(LedgerError):
        backup_ledger(url, folder / "of damage.db")
    assert not (folder / "of damage.db").exists()


@pytest.mark.promise("stored-whatever-it-is")
@pytest.mark.parametrize("drawn", ["", "\0", "\ud800", "'\"\\\n", "long " * 50_000])
def test_what_is_drawn_is_stored_whatever_it_is(place: Any, drawn: str) -> None:
    account = open_account(place(), queries=5)
    assert Charge(account, key="a question").once(lambda: drawn) == drawn
    assert Charge(account, key="a question").once(lambda: "another") == drawn
