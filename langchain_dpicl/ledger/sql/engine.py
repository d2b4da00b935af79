"""Opening the database: how a transaction is made durable, serial and bounded in time.

The driver's own transactions are switched off, and every transaction begins with a
statement of ours that says what it must be. This holds whatever the defaults of file,
server, database and role are, and behind a connection pooler too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.sql.sqlite_file import LedgerFile, require_journal
from langchain_dpicl.mechanisms.random import durable_ledger_opened

SQLITE_WAIT_SECONDS = 60.0
"""How long a writer waits for another one's transaction, a millisecond each."""
_UNDONE = ("40001", "40P01")  # serialization failure, deadlock
_DISCONNECTED = ("08", "57P")  # connection exceptions, the server was shut down
SQLITE_JOURNAL_BYTES = 1 << 20
"""How much of a journal stays on disk for the next transaction."""
MODE = "dpicl_mode"  # The execution option that says which `Mode` a transaction has.
SQLITE_DRIVERS = ("sqlite", "sqlite+pysqlite")
POSTGRES_DRIVER = "postgresql+psycopg"
# When a connection is given up, in libpq's words; the URL may say otherwise.
POSTGRES_LIMITS: dict[str, int] = {
    "connect_timeout": 10,
    # A machine that is gone answers no probe: 15 + 3 * 5 seconds.
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
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
"""How values are written, for one transaction, whatever server and role say.

The driver reads no time in other styles, and what is read must not depend on them.
"""
_SECRETS = ("password", "sslpassword")
"""What libpq takes from a URL's query that nobody else may read."""


class Mode(str, Enum):
    """What a transaction is for."""

    READ = "read"  # One snapshot; nothing is written.
    # Serial among those that lock the same account; durable when it commits.
    WRITE = "write"
    CHARGE = "charge"
    """The same, but durable only after `FLUSH`: for rows that many wait for.

    PostgreSQL releases a row when its transaction is committed, and syncs the disk
    before that. With one account, every charge would wait for the syncs of all those
    before it. So the commit does not wait for the disk; `FLUSH` does, and there one
    sync serves all who wait.
    """

    FLUSH = "flush"
    """Everything that was committed before is on disk when this ends.

    The database's log is one sequence. A message behind the charge is written to it,
    and its commit waits until the log is on disk up to there. A crash in between may
    lose the charge; but whoever made it is still waiting, and is told that it failed.
    """


_SYNCHRONOUS = """
CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply'
ELSE 'on' END
"""
"""What server, database or role say, but nothing weaker than `on`.

With it a commit waits for this server's disk, and for those of the standbys that
`synchronous_standby_names` holds.
"""


def _begin_writing(synchronous_commit: str) -> tuple[str, str]:
    settings = (
        "SELECT set_config('lock_timeout', '30s', true), "
        "set_config('statement_timeout', '60s', true), "
        f"set_config('synchronous_commit', {synchronous_commit}, true), "
        f"{POSTGRES_VALUES}"
    )
    return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", settings


_FLUSH = (
    f"SELECT set_config('synchronous_commit', {_SYNCHRONOUS}, true), "
    "pg_logical_emit_message(true, 'dpicl', '')"
)

POSTGRES_BEGIN: dict[Mode, tuple[str, ...]] = {
    Mode.READ: (
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        f"SELECT set_config('statement_timeout', '600s', true), {POSTGRES_VALUES}",
    ),
    # Whatever the default of server, database and role is.
    Mode.WRITE: _begin_writing(_SYNCHRONOUS),
    Mode.CHARGE: _begin_writing("'off'"),
    Mode.FLUSH: ("BEGIN READ WRITE", _FLUSH, "COMMIT"),
}
"""The statements with which a transaction begins; a flush is over with them."""


def parse_url(url: str | URL) -> URL:
    """Return the URL of a database that keeps what it is given."""
    parsed = read_url(url)
    memory = (None, "", ":memory:")
    if parsed.get_backend_name() == "sqlite" and parsed.database in memory:
        raise LedgerError(
            "'sqlite://' without a file forgets its charges. Name a file "
            "('sqlite:///clinic.db'), or pass ':memory:' if the account is to "
            "end with this process."
        )
    return parsed


def open_engine(url: URL, file: LedgerFile | None = None) -> Engine:
    """Return an engine, of SQLite or PostgreSQL, whose transactions suit the ledger."""
    durable_ledger_opened()
    if url.drivername == "postgresql":
        url = url.set(drivername=POSTGRES_DRIVER)
    if url.drivername not in (*SQLITE_DRIVERS, POSTGRES_DRIVER):
        # The URL itself is not shown: it can hold a password.
        raise LedgerError(
            f"A ledger can't be kept in {url.drivername!r}: it needs SQLite "
            "('sqlite:///clinic.db') or PostgreSQL through psycopg 3 "
            "('postgresql+psycopg://user@host/db')."
        )
    try:
        if url.drivername in SQLITE_DRIVERS:
            engine = create_engine(
                url,
                connect_args={"timeout": SQLITE_WAIT_SECONDS},
                hide_parameters=True,
            )
            file = file or LedgerFile(url)
            event.listen(engine, "do_connect", file.connect)
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite(file))
            return engine
        engine = create_engine(
            url,
            connect_args={
                # Not per transaction: a pipeline encodes before the server answers.
                "client_encoding": "UTF8",
                **{
                    name: value
                    for name, value in POSTGRES_LIMITS.items()
                    if name not in url.query
                },
            },
            hide_parameters=True,
        )
    except (SQLAlchemyError, ImportError) as error:
        raise LedgerError(
            f"No driver for the ledger's URL ({type(error).__name__}). Install "
            "one: for PostgreSQL, pip install 'psycopg[binary]'."
        ) from None
    event.listen(engine, "connect", _prepare_postgres)
    event.listen(engine, "begin", _begin_postgres)
    return engine


def flush(connection: Connection) -> None:
    """Wait, outside a transaction, until what `Mode.CHARGE` commits is on disk."""
    if connection.dialect.name == "postgresql":
        with connection.execution_options(**{MODE: Mode.FLUSH}).begin():
            """The mode is all there is to it; SQLite's own commit has synced."""


@contextmanager
def lock_everything(connection: Connection) -> Iterator[None]:
    """Hold the whole ledger in one transaction, or fail if it is in use."""
    with connection.begin():
        if connection.dialect.name == "postgresql":
            tables = inspect(connection).get_table_names()
            ours = sorted(name for name in tables if name.startswith("dpicl_"))
            if ours:
                connection.exec_driver_sql(f"LOCK TABLE {', '.join(ours)}")
        yield


def was_undone(error: Exception, cause: Exception) -> bool:
    """Return whether the database itself said that the transaction left nothing."""
    return isinstance(error, IntegrityError) or _state(cause) in _UNDONE


def is_disconnected(error: Exception, cause: Exception) -> bool:
    """Return whether a connection of the pool has turned out to be broken."""
    if isinstance(error, SQLAlchemyError):
        return bool(getattr(error, "connection_invalidated", False))
    state = _state(cause)
    return not state or state.startswith(_DISCONNECTED)


def _state(cause: Exception) -> str:
    return getattr(cause, "sqlstate", None) or ""


def dispose(engine: Engine, pid: int) -> None:
    """Close what this process opened; a forked child leaves its parent's alone."""
    if os.getpid() == pid:
        engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions begin too late, at the first write: take them over.
    connection.isolation_level = None
    cursor = connection.cursor()
    # After a commit the journal is kept for the next one, without its beginning. With a
    # write-ahead log a commit is one sync instead of five, but the file alone then
    # lacks the last charges: a copy of it, or a log that is lost, would give them back.
    # A checkpoint after each charge is as many syncs as this, waits for readers too,
    # and is what SQLite before 3.51.3 may damage a file by (its "WAL-reset bug").
    cursor.execute("PRAGMA synchronous=EXTRA")
    cursor.execute(f"PRAGMA journal_size_limit={SQLITE_JOURNAL_BYTES}")
    cursor.execute("PRAGMA cache_size=-16384")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(file: LedgerFile) -> Callable[[Connection], None]:
    def begin(connection: Connection) -> None:
        # Before SQLite finds it out in words of its own, and again under the lock.
        file.require()
        # A reader sees one snapshot; a writer commits when the readers before it end.
        reads = _mode(connection) is Mode.READ
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
        file.require()
        if not reads:
            driver: Any = connection.connection.driver_connection
            require_journal(driver)

    return begin


def _prepare_postgres(connection: Any, _record: object) -> None:
    # The driver would send a BEGIN of its own; its commit and rollback stay in use.
    connection.autocommit = True
    # In a pipeline the driver hears of a transaction's own style when it is over.
    connection.execute("SET datestyle TO 'ISO, YMD'")


def _begin_postgres(connection: Connection) -> None:
    connection.exec_driver_sql("; ".join(POSTGRES_BEGIN[_mode(connection)]))


def _mode(connection: Connection) -> Mode:
    return Mode(connection.get_execution_options().get(MODE, Mode.WRITE))


def read_url(url: Any) -> URL:
    """Return the parts of a URL, or refuse it without showing anything of it.

    A password with an `@` that is not written as `%40` ends at the first `@`, and what
    is left of it would be taken, and shown, as the name of a host or a database.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError, TypeError, AttributeError):
        # A port that is no number is named in the error, and may be a password's end.
        parsed = None
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
