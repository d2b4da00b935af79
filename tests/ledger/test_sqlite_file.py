"""The file that the URL names holds every charge, and is the one that was opened."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
from langchain_dpicl.accounting import GaussianEvent
from langchain_dpicl.exceptions import BudgetExhaustedError, DPError, LedgerError
from langchain_dpicl.ledger import (
    AccountTerms,
    Plan,
    SQLLedger,
    backup_ledger,
    open_ledger,
    upgrade_ledger,
)
from langchain_dpicl.ledger.creation import new_ledger
from langchain_dpicl.ledger.schema import SCHEMA_VERSION

QUERIES = 20
PLAN = Plan({"parts": []}, (GaussianEvent(0.1),))
MANY = AccountTerms("notes", 8.0, 1e-6, 1_000_000)


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder without slow syncs: what a kill leaves does not depend on them."""
    if not Path("/dev/shm").is_dir():  # noqa: S108 - only here, and only if it is there
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def made(path: Path, terms: AccountTerms = MANY) -> SQLLedger:
    ledger = SQLLedger(f"sqlite:///{path}")
    ledger.open(terms)
    ledger.fix_plan(terms.name, PLAN)
    return ledger


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


def used_in(path: Path) -> int | None:
    """Return the charges that a verified ledger holds; None if it is refused."""
    ledger = None
    try:
        ledger = SQLLedger(f"sqlite:///{path}")
        return ledger.verify("notes").used
    except LedgerError:
        return None
    finally:
        if ledger is not None:
            ledger.dispose()


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
    monkeypatch.setattr("langchain_dpicl.ledger.sqlite_file.SWITCH_SECONDS", 0.2)
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
    demand = VoteOutputParser(labels=["yes", "no"]).demand()
    paid = 0
    for _ in range(times):
        try:
            if wait:
                asyncio.run(handler.aadmit(demand))
            else:
                handler.admit(demand)
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
    [SQLLedger, new_ledger, upgrade_ledger, lambda url: backup_ledger(url, "x.db")],
    ids=["SQLLedger", "new_ledger", "upgrade_ledger", "backup_ledger"],
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
    context.set_forkserver_preload(["langchain_dpicl.ledger.sql"])
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
