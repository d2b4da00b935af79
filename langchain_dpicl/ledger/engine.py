"""The database: how a transaction is durable, serial, bounded in time, and in our file.

The driver's own transactions are switched off, and every transaction begins with a
statement of ours that says what it must be. This holds whatever the defaults of file,
server, database and role are, and behind a connection pooler too.

*A commit is durable.* SQLite takes the write lock at the start (`BEGIN IMMEDIATE`) and
syncs the disk at the end (`synchronous=EXTRA`). PostgreSQL confirms a commit when it is
on the server's own disk. It waits for a standby too only if `synchronous_standby_names`
names some. A standby that nobody waits for lags behind: when it takes the server's
place, it has forgotten the last charges, and what was spent can be spent again.

*A path names the file that the charges are in.* SQLite opens a file by its path and
then keeps to the file, whatever becomes of the path. If a ledger's file is deleted,
moved or replaced, a running process goes on with an account that nobody else sees, and
the next process begins from nothing: both spend the whole budget. So the path is
compared with the open file when a transaction begins and again after its commit, and no
connection makes a file: `place_copy` does, in one step.

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

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from langchain_dpicl.common.files import link, sync_directory
from langchain_dpicl.errors import LedgerError

IN_MEMORY = ":memory:"
WAIT_SECONDS = 60.0
"""How long a writer of SQLite waits for another one's transaction."""

POSTGRES_DRIVER = "postgresql+psycopg"
SQLITE_DRIVERS = ("sqlite", "sqlite+pysqlite")
POSTGRES_LIMITS: dict[str, int] = {
    "connect_timeout": 10,
    # A machine that is gone answers no probe: 15 + 3 * 5 seconds.
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""When a connection is given up, in libpq's words; the URL may say otherwise."""

POSTGRES_VALUES = ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in {
        "datestyle": "ISO, YMD",
        "intervalstyle": "postgres",
        "timezone": "UTC",
        "bytea_output": "hex",
        "extra_float_digits": "3",
    }.items()
)
"""How values are written, for one transaction, whatever server and role say."""

_READ = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
    "SELECT set_config('statement_timeout', '600s', true)"
)
# Whatever server, database or role say: nothing weaker than `on`. With it a commit
# waits for this server's disk, and for the standbys in `synchronous_standby_names`.
_WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    "SELECT set_config('lock_timeout', '30s', true), "
    "set_config('statement_timeout', '60s', true), "
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
)
_STANDBYS = "SELECT btrim(current_setting('synchronous_standby_names'))"
_SECRETS = ("password", "sslpassword")
"""What libpq takes from a URL's query that nobody else may read."""

_LEAST_SQLITE = (3, 37, 0)
_PAGE_BYTES = 1024  # A charge of many units touches a page each, each written whole.
_JOURNALS = ("-journal", "-wal")  # What SQLite keeps beside a file, under its name.
_JOURNAL_MODE = "persist"
_JOURNAL_BYTES = 1 << 20
_TRIES = 3
_WRITES, _GIVEN_UP = "dpicl_writes", "dpicl_given_up"


# ---- URLs ----------------------------------------------------------------------------


def read_url(url: Any) -> URL:
    """Return the parts of a URL, or refuse it without showing anything of it.

    A password with an `@` that is not written as `%40` ends at the first `@`, and what
    is left of it would be taken, and shown, as the name of a host or a database.
    """
    parsed = None
    # A port that is no number is named in the error, and may be a password's end.
    with suppress(ArgumentError, ValueError, TypeError, AttributeError):
        parsed = make_url(url)
    if parsed is None:
        raise LedgerError(
            "The ledger's URL can't be parsed. It looks like "
            "'sqlite:///clinic.db' or 'postgresql+psycopg://user@host/db'."
        )
    is_file = parsed.get_backend_name() == "sqlite"
    if is_file and (parsed.username or parsed.password or parsed.host or parsed.port):
        raise LedgerError(
            "A SQLite ledger is a file: three slashes and its path, as in "
            "'sqlite:///clinic.db', without user, password or host."
        )
    if not is_file and isinstance(url, str) and url.count("@") > 1:
        raise LedgerError(
            "The ledger's URL has an '@' too many, so that nobody can tell where its "
            "password ends. Write special characters of the password as "
            "urllib.parse.quote(password, safe='') does ('@' as '%40', '/' as '%2F')."
        )
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername=POSTGRES_DRIVER)
    if parsed.drivername not in (*SQLITE_DRIVERS, POSTGRES_DRIVER):
        # The URL itself is not shown: it can hold a password.
        raise LedgerError(
            f"A ledger can't be kept in {parsed.drivername!r}: it needs SQLite "
            "('sqlite:///clinic.db') or PostgreSQL through psycopg 3 "
            "('postgresql+psycopg://user@host/db')."
        )
    return parsed


def holds_password(url: URL) -> bool:
    """Return whether a URL gives a password, before the host or in its query."""
    return url.password is not None or any(name in url.query for name in _SECRETS)


def shown(url: URL) -> str:
    """Return a URL as messages may show it.

    Example:
        >>> shown(make_url("postgresql://ann:secret@host/db?sslpassword=secret"))
        'postgresql://ann:***@host/db'
    """
    public = url.difference_update_query(_SECRETS)
    return public.render_as_string(hide_password=True)


# ---- Engines -------------------------------------------------------------------------


def sqlite_engine(file: LedgerFile | None) -> Engine:
    """Return an engine of a SQLite file; None is a database of its own in memory."""
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        here = sqlite3.sqlite_version
        raise LedgerError(f"A ledger needs SQLite 3.37; this Python has {here}.")

    def connect() -> sqlite3.Connection:
        if file is not None:
            return file.connect(WAIT_SECONDS)
        connection = sqlite3.connect(IN_MEMORY, check_same_thread=False)
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        return connection

    engine = sa.create_engine(
        "sqlite://",
        creator=connect,
        poolclass=StaticPool if file is None else QueuePool,
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # The driver's own transactions begin too late, at the first write.
        connection.isolation_level = None
        # After a commit the journal is kept for the next one, without its beginning.
        # With a write-ahead log a commit is one sync instead of five, but the file
        # alone then lacks the last charges: a copy of it would give them back.
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA cache_size=-16384")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = _has_writes(connection)
        if file is not None:
            # Before SQLite finds it out in words of its own, and again under the lock.
            file.require()
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        if file is not None:
            file.require()
            if writes:
                require_journal(connection.connection.driver_connection)

    return engine


def postgres_engine(url: URL, *, require_synchronous: bool) -> Engine:
    """Return an engine of a PostgreSQL server.

    A failover ends all connections, so that the next server is looked at too.
    """
    limits = {k: v for k, v in POSTGRES_LIMITS.items() if k not in url.query}
    try:
        engine = sa.create_engine(
            url,
            # A statement that is prepared while its table is small keeps walking the
            # whole of it later: each is planned anew.
            connect_args={
                "client_encoding": "UTF8",
                "prepare_threshold": None,
                **limits,
            },
            hide_parameters=True,
            pool_pre_ping=True,
        )
    except (SQLAlchemyError, ImportError):
        engine = None
    if engine is None:
        raise LedgerError(
            "No driver for the ledger's URL. Install one: for PostgreSQL, "
            "pip install 'psycopg[binary]'."
        )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        # The driver would send a BEGIN of its own; its commit and rollback stay in use.
        connection.autocommit = True
        connection.add_notice_handler(lambda notice: _listen(notice, record))
        if not require_synchronous or connection.execute(_STANDBYS).fetchone() != ("",):
            return
        connection.close()
        raise LedgerError(
            f"The server of the ledger {shown(url)} waits for no standby, and "
            "require_synchronous=True asks for one that does: nothing was charged. "
            "Its setting 'synchronous_standby_names' is empty. Name the standbys "
            "there that may take its place."
        )

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(_WRITE if _has_writes(connection) else _READ)

    return engine


def set_writes(connection: Connection, *, writes: bool) -> Connection:
    """Say whether the next transaction of a connection writes."""
    return connection.execution_options(**{_WRITES: writes})


def require_confirmed(connection: Connection) -> None:
    """Refuse what was committed while the server gave up waiting for a standby.

    Canceling a commit that waits for a standby makes it succeed, with a warning: it is
    on the server's disk, and on no other.
    """
    if connection.info.pop(_GIVEN_UP, False):
        raise LedgerError(
            "Somebody canceled the wait for a standby: what was written is on the "
            "ledger's own server alone, and nothing was released. The charge, if it "
            "was one, stands. Is a standby of 'synchronous_standby_names' running?"
        )


def _listen(notice: Any, record: Any) -> None:
    # The text is in the server's language.
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate == "01000":
        record.info[_GIVEN_UP] = True


def _has_writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(_WRITES, True))


# ---- The file of a SQLite ledger -----------------------------------------------------


class LedgerFile:
    """Where a SQLite ledger is, and which file it was when it was first opened."""

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
        """Return which file the path names, if it is the one that was opened first."""
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
        """Open a connection that keeps its journal as the ledger needs it."""
        # Some file systems give a file another number when it is first opened to write.
        for _ in range(_TRIES):
            before = self.require()
            connection = sqlite3.connect(
                self._uri, uri=True, timeout=wait_seconds, check_same_thread=False
            )
            try:
                # An open file keeps its number: if the path has it now, this is it.
                status = self._stat()
                if status is not None and (status.st_dev, status.st_ino) == before:
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

    def _replaced(self) -> LedgerError:
        return LedgerError(
            f"The ledger's file {self.path} is not the one that this process has "
            "opened: it was replaced. Nothing was released. An older copy has "
            "forgotten what was charged since; if it was put there on purpose, start "
            "this process anew."
        )


def require_journal(connection: Any) -> None:
    """Refuse, in a transaction, a file whose charges would go elsewhere first."""
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

    `check` is called with its passing name before. SQLite gives its journals its mode.

    Raises:
        FileExistsError: If something is there, or came meanwhile.
        LedgerError: If a journal lies there, which SQLite would take for the copy's.
        OSError, sqlite3.Error: If it can't be written.
    """
    for suffix in _JOURNALS:
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
        for suffix in ("", *_JOURNALS):
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
