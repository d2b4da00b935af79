"""The path of a SQLite ledger names the file that was opened, whole and not empty."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import MANY, PLAN, made, used_in

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
from langchain_dpicl.errors import BudgetExhaustedError, DPError, LedgerError
from langchain_dpicl.ledger import (
    SQLLedger,
    backup_ledger,
    open_ledger,
)
from langchain_dpicl.ledger.sql.creation import new_ledger

QUERIES = 20


def budget(path: Path, **options: Any) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=8,
        delta=1e-6,
        queries=QUERIES,
        ledger=f"sqlite:///{path}",
        account="notes",
        **options,
    )


def admitted(handler: PrivacyBudgetHandler, times: int, *, wait: bool) -> int:
    """Return how many of so many queries are paid for; all others end as they must."""
    shape = VoteOutputParser(labels=["yes", "no"]).charge()
    paid = 0
    for _ in range(times):
        try:
            if wait:
                asyncio.run(handler.acharge(shape))
            else:
                handler.charge(shape)
        except (LedgerError, BudgetExhaustedError):
            continue
        paid += 1
    return paid


def _delete(path: Path, _old: Path) -> None:
    path.unlink()


def _delete_all(path: Path, _old: Path) -> None:
    path.unlink()
    Path(f"{path}-journal").unlink()


def _move(path: Path, _old: Path) -> None:
    path.rename(path.with_name("moved.db"))


def _move_folder(path: Path, _old: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _empty(path: Path, _old: Path) -> None:
    os.truncate(path, 0)


def _cut(path: Path, _old: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 1024 * 1024)


def _replace(path: Path, old: Path) -> None:
    old.replace(path)


def _overwrite(path: Path, old: Path) -> None:
    path.write_bytes(old.read_bytes())


@pytest.mark.parametrize("wait", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("harm", "begins_anew"),
    [
        (_delete, False),
        (_delete_all, True),
        (_move, False),
        (_move_folder, False),
        (_empty, False),
        (_cut, False),
        (_replace, True),
        (_overwrite, True),
    ],
)
def test_a_handler_does_not_go_on_when_its_file_is_gone(
    tmp_path: Path, harm: Callable[[Path, Path], None], begins_anew: bool, wait: bool
) -> None:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    path, old = folder / "a.db", folder / "old.db"
    handler = budget(path)
    assert admitted(handler, 1, wait=wait) == 1
    shutil.copy(path, old)
    assert admitted(handler, 4, wait=wait) == 4
    harm(path, old)
    assert admitted(handler, QUERIES, wait=wait) == 0
    paid = 0
    for create in (False, True):
        try:
            another = budget(path, create=create)
        except LedgerError:
            continue
        paid += admitted(another, 2 * QUERIES, wait=wait)
    # What was deleted with all that showed it, or replaced, begins anew. The handler
    # that had the old one still does not go on.
    assert (paid > 0) == begins_anew
    assert paid <= QUERIES
    assert admitted(handler, QUERIES, wait=wait) == 0


def test_no_connection_of_a_pool_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = made(path)
    ready, gone = threading.Barrier(5), threading.Event()
    found: list[object] = []

    def work() -> None:
        ledger.charge("notes")
        ready.wait()
        gone.wait()
        try:
            found.append(ledger.charge("notes"))
        except LedgerError as error:
            found.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait()
    path.unlink()
    gone.set()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all("deleted or moved" in str(what) for what in found)
    ledger.dispose()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_does_not_take_a_new_file_for_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = made(path)
    ledger.charge("notes")
    path.rename(tmp_path / "moved.db")
    Path(f"{path}-journal").unlink()
    made(path).dispose()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        try:
            ledger.charge("notes")
        except LedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert used_in(path) == 0
    ledger.dispose()


def test_a_charge_is_not_announced_when_the_file_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    ledger = made(path)
    ledger.charge("notes")
    from sqlalchemy.engine.default import DefaultDialect

    inner = DefaultDialect.do_commit

    def commit(self: Any, connection: Any) -> None:
        inner(self, connection)
        path.rename(tmp_path / "moved.db")

    monkeypatch.setattr(DefaultDialect, "do_commit", commit)
    with pytest.raises(LedgerError, match="deleted or moved"):
        ledger.charge("notes")
    ledger.dispose()


def test_an_older_copy_in_its_place_is_refused_for_good(tmp_path: Path) -> None:
    path, old = tmp_path / "a.db", tmp_path / "old.db"
    ledger = made(path)
    ledger.charge("notes")
    shutil.copy(path, old)
    ledger.charge("notes")
    path.write_bytes(old.read_bytes())
    for _ in range(4):
        with pytest.raises(LedgerError, match="older copy"):
            ledger.charge("notes")
    ledger.dispose()


def test_an_older_copy_without_a_draw_gets_no_other_draw(tmp_path: Path) -> None:
    path, old = tmp_path / "a.db", tmp_path / "old.db"
    ledger = made(path)
    charge = ledger.charge("notes", starts=("kind", lambda _: "{}")).sequence
    ledger.store_step("notes", charge, 0, "[1]")
    shutil.copy(path, old)
    assert ledger.store_step("notes", charge, 1, "[2]") == "[2]"
    assert ledger.store_step("notes", charge, 0, "[3]") == "[1]"
    path.write_bytes(old.read_bytes())
    for number in (1, 0):
        with pytest.raises(LedgerError, match="older copy"):
            ledger.store_step("notes", charge, number, "[3]")
    assert [one.steps for one in ledger.releases("notes")] == [("[1]",)]
    with pytest.raises(LedgerError, match="older copy"):
        ledger.charge("notes")
    ledger.dispose()


def test_charges_of_many_threads_are_never_taken_for_older_ones(tmp_path: Path) -> None:
    ledger = made(tmp_path / "a.db")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(30):
                ledger.charge("notes")
        except DPError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert ledger.verify("notes").used == 120
    ledger.dispose()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("what", ["empty", "without tables"])
def test_an_empty_file_is_refused_and_left_alone(
    tmp_path: Path, what: str, create: bool
) -> None:
    path = tmp_path / "a.db"
    if what == "empty":
        path.touch()
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version=1")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="Restore it from a backup"):
        SQLLedger(f"sqlite:///{path}", create=create)
    assert path.read_bytes() == before


def test_a_ledger_is_not_begun_beside_the_journal_of_another(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    made(path).dispose()
    path.unlink()
    with pytest.raises(LedgerError, match=r"a\.db-journal"):
        SQLLedger(f"sqlite:///{path}")
    assert not path.exists()
    Path(f"{path}-journal").unlink()
    assert SQLLedger(f"sqlite:///{path}").accounts() == []


@pytest.mark.parametrize(
    "opening",
    [
        lambda url: SQLLedger(url, create=False),
        lambda url: open_ledger(url, create=False),
        lambda url: PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=2, ledger=url, create=False
        ),
    ],
    ids=["SQLLedger", "open_ledger", "PrivacyBudgetHandler"],
)
def test_a_missing_ledger_is_not_made_where_it_must_be_there(
    tmp_path: Path, opening: Callable[[str], object]
) -> None:
    path = tmp_path / "a.db"
    url = f"sqlite:///{path}"
    with pytest.raises(LedgerError, match=f"dpicl ledger create --ledger {url}"):
        opening(url)
    assert list(tmp_path.iterdir()) == []
    SQLLedger(url).dispose()
    opening(url)


@pytest.mark.parametrize(
    "use",
    [SQLLedger, new_ledger, lambda url: backup_ledger(url, "x.db")],
    ids=["SQLLedger", "new_ledger", "backup_ledger"],
)
def test_a_path_that_leads_nowhere_is_a_ledger_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[str], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    with pytest.raises(LedgerError):
        use("sqlite:///a file/a.db")


def test_a_ledger_in_memory_is_never_there_already() -> None:
    with pytest.raises(LedgerError, match="create=False"):
        open_ledger(":memory:", create=False)


def test_a_ledger_that_was_sent_does_not_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = made(path)
    sent = pickle.dumps(ledger)
    ledger.dispose()
    path.unlink()
    Path(f"{path}-journal").unlink()
    with pytest.raises(LedgerError, match="dpicl ledger create"):
        pickle.loads(sent)


@pytest.mark.parametrize("kind", ["symbolic link", "uri", "relative"])
def test_a_path_may_be_written_in_many_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    real = tmp_path / "real name %41 ?.db"
    url = f"sqlite:///{tmp_path / 'link.db'}"
    if kind == "symbolic link":
        (tmp_path / "link.db").symlink_to(real)
    else:
        real = tmp_path / "a.db"
        monkeypatch.chdir(tmp_path)
        url = "sqlite:///a.db"
        if kind == "uri":
            url = f"sqlite:///file:{tmp_path}/%61.db?mode=rwc&uri=true"
    ledger = SQLLedger(url)
    monkeypatch.chdir("/")
    ledger.open(MANY)
    ledger.fix_plan("notes", PLAN)
    ledger.charge("notes")
    assert real.stat().st_size
    real.unlink()
    with pytest.raises(LedgerError, match="deleted or moved"):
        ledger.charge("notes")
    ledger.dispose()


@pytest.mark.parametrize("name", ["file::memory:?uri=true", "file:a?mode=memory&uri=1"])
def test_a_uri_of_a_database_in_memory_is_refused(name: str) -> None:
    with pytest.raises(LedgerError, match="forgets its charges"):
        SQLLedger(f"sqlite:///{name}")


def test_a_file_system_without_links_gets_a_ledger_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(_source: object, _target: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", no_link)
    path = tmp_path / "a.db"
    ledger = made(path)
    ledger.charge("notes")
    again = SQLLedger(f"sqlite:///{path}")
    assert again.state("notes").used == 1
    names = {found.name for found in tmp_path.iterdir()}
    assert names == {"a.db", "a.db-journal"}
    ledger.dispose()
    again.dispose()
