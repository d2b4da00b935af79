"""The file of a SQLite ledger: its path names the file that the charges are in.

SQLite opens a file by its path and then keeps to the file, whatever becomes of the
path. If a ledger's file is deleted, moved or replaced, a running process goes on with
an account that nobody else sees, and the next process begins from nothing: both spend
the whole budget. So the path is compared with the open file when a transaction begins
and again after its commit, and no connection makes a file: `place_copy` does, in one
step.

A POSIX trap: closing *any* descriptor of a file gives up all locks of the process on
it. The file is therefore never opened here, only asked about by its path.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from sqlalchemy import URL
from sqlalchemy.dialects.sqlite import pysqlite

from langchain_dpicl.common.files import link, sync_directory
from langchain_dpicl.errors import LedgerError

PAGE_BYTES = 1024
"""Small pages: a charge of many units touches one page each, each written whole."""

JOURNALS = ("-journal", "-wal")
"""What SQLite keeps beside a file, under the file's name."""

_JOURNAL_MODE = "persist"
_JOURNAL_BYTES = 1 << 20
_TRIES = 3


class LedgerFile:
    """Where a SQLite ledger is, and which file it was when it was first opened.

    Raises:
        LedgerError: If the URL names no file.
    """

    def __init__(self, url: URL) -> None:
        (name,), options = pysqlite.dialect().create_connect_args(url)
        query = {}
        if options.get("uri"):
            parts = urlsplit(name)
            name, query = unquote(parts.path), dict(parse_qsl(parts.query))
        if name in ("", ":memory:") or query.get("mode") == "memory":
            raise LedgerError(
                "A SQLite URL without a file forgets its charges. Name a file "
                "('sqlite:///clinic.db'), or pass ':memory:' if the account is to end "
                "with this process."
            )
        self.path = Path(os.path.abspath(name))  # noqa: PTH100 - links stay links
        # SQLite itself must make no file: others would see it empty.
        mode = "ro" if query.get("mode") == "ro" else "rw"
        self._uri = f"{self.path.as_uri()}?{urlencode({**query, 'mode': mode})}"
        self._opened: tuple[int, int] | None = None

    @property
    def target(self) -> Path:
        """The path without symbolic links: SQLite's journals lie beside it."""
        return Path(os.path.realpath(self.path))

    def exists(self) -> bool:
        """Return whether there is a file; True where only connecting can tell."""
        try:
            return self._stat() is not None
        except OSError:
            return True

    def require(self) -> tuple[int, int]:
        """Return which file the path names, if it is the one that was opened first.

        Raises:
            LedgerError: If it is another one, is empty, or is gone.
        """
        status = self._stat()
        if status is None:
            raise LedgerError(
                f"The ledger's file {self.path} is gone: it was deleted or moved. "
                "Nothing was released. Put it back, then start this process anew; a "
                "new file would forget every charge."
            )
        if not status.st_size:
            raise LedgerError(
                f"The ledger's file {self.path} is empty: it was emptied, or never was "
                "a ledger. Nothing was released. Restore it from a backup; delete it "
                "only if there never was a ledger at this place."
            )
        number = status.st_dev, status.st_ino
        if self._opened not in (None, number):
            raise self._replaced()
        return number

    def connect(self, wait_seconds: float) -> sqlite3.Connection:
        """Open a connection that keeps its journal as the ledger needs it.

        Raises:
            LedgerError: If the file is another one, or has a write-ahead log that can't
                be switched over now.
        """
        # Some file systems give a file another number when it is first opened to write.
        for _ in range(_TRIES):
            before = self.require()
            connection = sqlite3.connect(
                self._uri, uri=True, timeout=wait_seconds, check_same_thread=False
            )
            try:
                # An open file keeps its number: if the path has it now, this is it.
                if self._number() == before:
                    _switch_journal(connection, self.path)
                    self._opened = before
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()
        raise self._replaced()

    def _stat(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None

    def _number(self) -> tuple[int, int] | None:
        status = self._stat()
        return None if status is None else (status.st_dev, status.st_ino)

    def _replaced(self) -> LedgerError:
        return LedgerError(
            f"The ledger's file {self.path} is not the one that this process has "
            "opened: it was replaced. Nothing was released. An older copy has "
            "forgotten what was charged since; if it was put there on purpose, start "
            "this process anew."
        )


def require_journal(connection: Any) -> None:
    """Refuse, in a transaction, a file whose charges would go elsewhere first.

    Raises:
        LedgerError: If another program has given it a write-ahead log.
    """
    if connection.execute("PRAGMA journal_mode").fetchone() != (_JOURNAL_MODE,):
        raise LedgerError(
            "Another program has switched the ledger's file to a write-ahead log, in "
            "which charges lie outside the file. Nothing was released. Stop that "
            "program, then start this process anew."
        )


def place_copy(
    source: Any,
    target: Path,
    check: Callable[[Path], None] | None = None,
    *,
    mode: int = 0o600,
) -> None:
    """Write a copy of a database that appears under its name when it is complete.

    Args:
        source: A connection to the database, which may be in use.
        target: The copy's path.
        check: Called with the copy's passing name before it gets its own.
        mode: Its permissions, whatever the umask; SQLite gives its journals the same.

    Raises:
        FileExistsError: If something is there, or came meanwhile.
        LedgerError: If a journal lies there, which SQLite would take for the copy's.
        OSError, sqlite3.Error: If it can't be written.
    """
    for suffix in JOURNALS:
        beside = Path(f"{target}{suffix}")
        if os.path.lexists(beside):
            # It is made after the file: where it is seen, the file is seen, too.
            if os.path.lexists(target):
                raise FileExistsError
            raise LedgerError(
                f"There is no file {target}, but there is its journal {beside.name}: "
                "the ledger was deleted or moved, and a new one would forget its "
                "charges. Put it back, or restore a backup. Only if a new promise is "
                "really to begin here, move the journal away, too."
            )
    draft = target.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        draft.touch(mode=0o600, exist_ok=False)
        with closing(sqlite3.connect(draft)) as copy:
            copy.execute("PRAGMA synchronous=FULL")
            source.backup(copy)
        draft.chmod(mode)
        if check is not None:
            check(draft)
        link(draft, target)
    finally:
        for suffix in ("", *JOURNALS):
            with suppress(FileNotFoundError):
                Path(f"{draft}{suffix}").unlink()
    sync_directory(target.parent)


def _switch_journal(connection: sqlite3.Connection, path: Path) -> None:
    """Choose the journal of a connection, and of the file if it had a log."""
    mode = f"PRAGMA journal_mode={_JOURNAL_MODE}"
    try:
        switched = connection.execute(mode).fetchone() == (_JOURNAL_MODE,)
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        switched = False
    if not switched:
        raise LedgerError(
            f"The ledger's file {path} has a write-ahead log, which holds charges that "
            "the file does not, and can't be switched over: other programs use it, or "
            "it can't be written. Stop them first. Nothing was released."
        )
    connection.execute(f"PRAGMA journal_size_limit={_JOURNAL_BYTES}")
