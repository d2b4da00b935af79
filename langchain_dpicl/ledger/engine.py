"""Opening the database: how a transaction is made durable, serial and bounded in time.

The driver's own transactions are switched off, and every transaction begins with a
statement of ours that says what it must be. This holds whatever the defaults of file,
server, database and role are, and behind a connection pooler too.

A commit is durable. SQLite takes the write lock at the start (`BEGIN IMMEDIATE`) and
syncs the disk at the end (`synchronous=EXTRA`). PostgreSQL confirms a commit when it is
on the server's own disk. It waits for a standby too only if `synchronous_standby_names`
names some. A standby that nobody waits for lags behind: when it takes the server's
place, it has forgotten the last charges, and what was spent can be spent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.sqlite_file import (
    PAGE_BYTES,
    LedgerFile,
    require_journal,
)

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
_WRITES, _GIVEN_UP = "dpicl_writes", "dpicl_given_up"


# ---- URLs ----------------------------------------------------------------------------


def read_url(url: Any) -> URL:
    """Return the parts of a URL, or refuse it without showing anything of it.

    A password with an `@` that is not written as `%40` ends at the first `@`, and what
    is left of it would be taken, and shown, as the name of a host or a database.

    Raises:
        LedgerError: If it can't be parsed, or is of no database that keeps a ledger.
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


def memory_engine() -> Engine:
    """Return an engine of one connection to a database of its own."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(IN_MEMORY, check_same_thread=False)
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        return connection

    return _sqlite_engine(connect, None)


def file_engine(file: LedgerFile) -> Engine:
    """Return an engine of a SQLite file."""
    return _sqlite_engine(lambda: file.connect(WAIT_SECONDS), file)


def postgres_engine(url: URL, *, require_synchronous: bool) -> Engine:
    """Return an engine of a PostgreSQL server.

    Args:
        url: The server's.
        require_synchronous: Whether to refuse each server that waits for no standby. A
            failover ends all connections, so that the next server is looked at too.

    Raises:
        LedgerError: If there is no driver.
    """
    limits = {k: v for k, v in POSTGRES_LIMITS.items() if k not in url.query}
    try:
        engine = sa.create_engine(
            url,
            connect_args={"client_encoding": "UTF8", **limits},
            hide_parameters=True,
            pool_pre_ping=True,
        )
    except (SQLAlchemyError, ImportError) as error:
        failure = type(error).__name__
    else:
        failure = ""
    if failure:
        raise LedgerError(
            f"No driver for the ledger's URL ({failure}). Install one: for PostgreSQL, "
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

    Raises:
        LedgerError: If it was.
    """
    if connection.info.pop(_GIVEN_UP, False):
        raise LedgerError(
            "Somebody canceled the wait for a standby: what was written is on the "
            "ledger's own server alone, and nothing was released. The charge, if it "
            "was one, stands. Is a standby of 'synchronous_standby_names' running?"
        )


def _sqlite_engine(
    connect: Callable[[], sqlite3.Connection], file: LedgerFile | None
) -> Engine:
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        raise LedgerError(
            f"A ledger needs SQLite 3.37 or newer; this Python has "
            f"{sqlite3.sqlite_version}."
        )
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


def _listen(notice: Any, record: Any) -> None:
    # The text is in the server's language.
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate == "01000":
        record.info[_GIVEN_UP] = True


def _has_writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(_WRITES, True))
