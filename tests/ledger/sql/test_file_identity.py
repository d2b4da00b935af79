"""Which file a path names, how a connection is made to it, and how a copy appears."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import make_url
from support.ledgers import made

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.ledger.sql import sqlite_file
from langchain_dpicl.ledger.sql.sqlite_file import (
    JOURNALS,
    LedgerFile,
    place_copy,
    require_journal,
)


def file_of(path: Path | str) -> LedgerFile:
    return LedgerFile(make_url(f"sqlite:///{path}"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    made(path).dispose()
    return path


def connected(file: LedgerFile, **options: Any) -> sqlite3.Connection:
    return file.connect(None, None, None, options)


# -- the path --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "writes"),
    [("", True), ("?mode=rwc&uri=true", True), ("?mode=ro&uri=true", False)],
)
def test_a_url_says_whether_a_file_is_written(
    path: Path, query: str, writes: bool
) -> None:
    name = f"file:{path}{query}" if query else path
    file = file_of(name)
    assert file.path == path
    with closing(connected(file)) as connection:
        if writes:
            connection.execute("UPDATE dpicl_schema SET library = 'x'")
        else:
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute("UPDATE dpicl_schema SET library = 'x'")


def test_no_connection_makes_a_file(tmp_path: Path) -> None:
    for name in (tmp_path / "b.db", f"file:{tmp_path}/b.db?mode=rwc&uri=true"):
        with pytest.raises(LedgerError, match="is gone: it was deleted or moved"):
            connected(file_of(name))
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_kept_from_where_it_was_given(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    file = file_of("a.db")
    monkeypatch.chdir("/")
    assert file.path == path
    assert file.exists()
    (path.parent / "link.db").symlink_to(path)
    link = file_of(path.parent / "link.db")
    assert (link.path.name, link.target) == ("link.db", path.resolve())


def test_a_file_is_there_unless_it_is_known_to_be_missing(path: Path) -> None:
    assert file_of(path).exists()
    assert not file_of(path.parent / "b.db").exists()
    # Only connecting can tell: what is in its way is no folder.
    assert file_of(path / "b.db").exists()


def test_what_became_of_a_file_is_said(path: Path) -> None:
    file = file_of(path)
    file.require()
    connected(file).close()
    file.require()
    moved = path.rename(path.with_name("moved.db"))
    with pytest.raises(LedgerError, match="is gone: it was deleted or moved"):
        file.require()
    path.touch()
    with pytest.raises(LedgerError, match="is empty: it was emptied, or never was"):
        file.require()
    path.write_bytes(moved.read_bytes())
    with pytest.raises(LedgerError, match="it was replaced"):
        file.require()
    file_of(path).require()
    moved.replace(path)
    file.require()


# -- connecting ------------------------------------------------------------------------


class Time:
    """A clock that goes on by a second with each wait."""

    def __init__(self, most: list[float]) -> None:
        self.now, self.waited = 0.0, most

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += 1.0


def test_a_log_is_waited_for_ten_seconds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[sqlite3.Connection] = []
    waited: list[float] = []

    def never(connection: sqlite3.Connection) -> bool:
        tried.append(connection)
        return False

    monkeypatch.setattr(sqlite_file, "_switched", never)
    monkeypatch.setattr(sqlite_file, "time", Time(waited))
    monkeypatch.setattr(sqlite_file.secrets, "randbelow", lambda most: most - 1)
    with pytest.raises(LedgerError, match="has a write-ahead log"):
        connected(file_of(path))
    assert (len(tried), len(waited)) == (12, 11)
    assert set(waited) == {0.02}
    for connection in tried:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


@pytest.mark.parametrize("other", [(0, 0), (2**62, 0)])
@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_file_that_gets_another_number_when_it_is_opened_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int, other: tuple[int, int]
) -> None:
    file, numbers = file_of(path), [other] * times
    inner = file._number
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connecting(*given: Any, **named: Any) -> sqlite3.Connection:
        opened.append(connect(*given, **named))
        return opened[-1]

    monkeypatch.setattr(file, "_number", lambda: numbers.pop() if numbers else inner())
    monkeypatch.setattr(sqlite3, "connect", connecting)
    if times == 3:
        with pytest.raises(LedgerError, match="it was replaced"):
            connected(file)
    else:
        assert connected(file).execute("SELECT 1").fetchone() == (1,)
    assert len(opened) == min(times + 1, 3)
    for connection in opened[:times]:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    for connection in opened[times:]:
        connection.close()


def test_a_connection_that_fails_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[sqlite3.Connection] = []

    def broken(connection: sqlite3.Connection) -> bool:
        tried.append(connection)
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite_file, "_switched", broken)
    with pytest.raises(KeyboardInterrupt):
        connected(file_of(path))
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        tried[0].execute("SELECT 1")


@pytest.mark.parametrize(
    ("said", "raised"), [("database is locked", False), ("disk I/O error", True)]
)
def test_a_file_that_is_locked_is_asked_again(said: str, raised: bool) -> None:
    def execute(_statement: str) -> Any:
        raise sqlite3.OperationalError(said)

    connection: Any = SimpleNamespace(execute=execute)
    if raised:
        with pytest.raises(sqlite3.OperationalError, match="disk"):
            sqlite_file._switched(connection)
    else:
        assert sqlite_file._switched(connection) is False


@pytest.mark.parametrize(
    ("mode", "ours"), [("persist", True), ("wal", False), ("delete", False)]
)
def test_charges_are_in_the_file_and_nowhere_else_first(mode: str, ours: bool) -> None:
    answer = SimpleNamespace(fetchone=lambda: (mode,))
    connection: Any = SimpleNamespace(execute=lambda _: answer)
    assert sqlite_file._switched(connection) is ours
    if ours:
        require_journal(connection)
        return
    with pytest.raises(LedgerError, match="switched the ledger's file to a write-ahe"):
        require_journal(connection)


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


@pytest.fixture
def source(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


@pytest.mark.parametrize("mode", [0o640, 0o600])
def test_a_copy_appears_whole_with_its_permissions(
    source: sqlite3.Connection, tmp_path: Path, mode: int
) -> None:
    to = tmp_path / "b.db"
    seen: list[tuple[str, int, bool]] = []
    mask = os.umask(0o022)
    try:
        place_copy(
            source,
            to,
            lambda draft: seen.append(
                (draft.suffix, draft.stat().st_mode & 0o777, to.exists())
            ),
            mode=mode,
        )
    finally:
        os.umask(mask)
    assert seen == [(".draft", mode, False)]
    assert to.stat().st_mode & 0o777 == mode
    with closing(sqlite3.connect(to)) as copy:
        assert copy.execute("SELECT count(*) FROM dpicl_account").fetchone() == (1,)
    assert not [found for found in tmp_path.iterdir() if ".draft" in found.name]


def test_nobody_else_reads_a_draft_before_it_has_its_permissions(
    source: sqlite3.Connection, tmp_path: Path
) -> None:
    seen: list[int] = []

    class Watched:
        def backup(self, copy: sqlite3.Connection) -> None:
            (draft,) = tmp_path.glob(".*.draft")
            seen.append(draft.stat().st_mode & 0o777)
            assert copy.execute("PRAGMA synchronous").fetchone() == (2,)
            source.backup(copy)

    watched: Any = Watched()
    mask = os.umask(0o027)
    try:
        place_copy(watched, tmp_path / "b.db", lambda _: None, mode=0o640)
    finally:
        os.umask(mask)
    assert seen == [0o600]


def test_a_copy_that_is_not_whole_leaves_nothing(
    source: sqlite3.Connection, tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())

    def refuse(draft: Path) -> None:
        for suffix in JOURNALS:
            Path(f"{draft}{suffix}").touch()
        raise LedgerError("damaged")

    with pytest.raises(LedgerError, match="damaged"):
        place_copy(source, tmp_path / "b.db", refuse)
    assert set(tmp_path.iterdir()) == before


def test_a_copy_replaces_nothing(source: sqlite3.Connection, tmp_path: Path) -> None:
    to = tmp_path / "b.db"

    def faster(_draft: Path) -> None:
        to.write_text("of somebody else")

    with pytest.raises(FileExistsError):
        place_copy(source, to, faster)
    assert to.read_text() == "of somebody else"


@pytest.mark.parametrize("suffix", ["-journal", "-wal"])
@pytest.mark.parametrize("there", [True, False])
def test_a_copy_is_not_put_beside_the_journal_of_another(
    source: sqlite3.Connection, tmp_path: Path, suffix: str, there: bool
) -> None:
    to = tmp_path / "b.db"
    Path(f"{to}{suffix}").touch()
    if there:
        to.touch()
        with pytest.raises(FileExistsError):
            place_copy(source, to, lambda _: None)
        return
    with pytest.raises(LedgerError, match=rf"its journal b\.db{suffix}: the ledger wa"):
        place_copy(source, to, lambda _: None)
    assert not to.exists()
