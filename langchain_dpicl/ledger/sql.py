"""A ledger in a SQL database, through SQLAlchemy; SQLite is the embedded default.

A charge is one transaction: lock the account's row, check, count, write the charge,
commit. SQLite takes the write lock at the start of it (`BEGIN IMMEDIATE`) and syncs
the disk at its end (`synchronous=FULL`), so that neither two processes nor a power cut
can spend a query twice. Databases with row locks use `SELECT ... FOR UPDATE`. Whatever
the isolation level, the unique (account, sequence) pair lets only one writer win.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import event_to_dict
from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger import statements
from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    ChargeRecord,
    Ledger,
    Plan,
)
from langchain_dpicl.ledger.refusals import (
    require_chargeable,
    require_name,
    unknown_account,
)
from langchain_dpicl.ledger.schema import (
    SCHEMA_VERSION,
    SQLITE_APPLICATION_ID,
    account_table,
    charge_table,
    metadata,
    version_table,
)

T = TypeVar("T")

SQLITE_WAIT_SECONDS = 60.0
"""How long a writer waits for another one's transaction, a millisecond each."""


class SQLLedger(Ledger):
    """Accounts in a SQL database that many threads, processes and hosts share.

    Args:
        url: A SQLAlchemy URL. `sqlite:///clinic.db` is a file beside the program.

    Raises:
        LedgerError: If the database can't be opened, is not a ledger, or was written
            by a newer version.

    Example:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name, "clinic.db")
        >>> ledger = SQLLedger(f"sqlite:///{path}")
        >>> ledger.open(AccountTerms("notes", 8.0, 1e-6, 20)).used
        0
        >>> ledger.dispose()
        >>> folder.cleanup()
    """

    def __init__(self, url: str | URL) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise LedgerError(
                "The ledger's URL can't be parsed. It looks like "
                "'sqlite:///clinic.db' or 'postgresql+psycopg://user@host/db'."
            ) from None
        if parsed.get_backend_name() == "sqlite" and parsed.database in (
            None,
            "",
            ":memory:",
        ):
            raise LedgerError(
                "'sqlite://' without a file forgets its charges. Name a file "
                "('sqlite:///clinic.db'), or pass ':memory:' if the account is to "
                "end with this process."
            )
        self._name = parsed.render_as_string(hide_password=True)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._engine = self._create_engine(parsed)
        # A handler that goes out of use must not leave open connections behind.
        weakref.finalize(self, _dispose, self._engine, self._pid)
        try:
            self._run(_require_ledger)
            if self._engine.dialect.name == "sqlite":
                self._use_write_ahead_log()
        except LedgerError:
            self._engine.dispose()
            raise

    def __repr__(self) -> str:
        return f"SQLLedger({self._name!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The password travels in a pickle of a ledger no more than in its repr.
        if self._engine.url.password is not None:
            raise LedgerError(
                "A ledger with a password in its URL is not pickled: build it anew in "
                "the other process."
            )
        return (SQLLedger, (self._name,))

    def dispose(self) -> None:
        """Close all pooled connections; the ledger stays usable."""
        self._engine.dispose()

    def open(self, terms: AccountTerms) -> AccountState:
        """Open an account, or find it open under the same terms."""
        require_name(terms.name)

        def find_or_create(connection: Connection) -> AccountState:
            if _find(connection, terms.name) is None:
                connection.execute(
                    insert(account_table).values(
                        name=terms.name,
                        epsilon=terms.epsilon.hex(),
                        delta=terms.delta.hex(),
                        queries=terms.queries,
                        plan=None,
                        used=0,
                        closed=False,
                        library=__version__,
                        created_at=datetime.now(timezone.utc),
                    )
                )
            _, state = _account(connection, terms.name)
            return state

        try:
            state = self._run(find_or_create)
        except _LostRaceError:
            # Another process created the account between our look and our insert.
            state = self._run(find_or_create)
        terms.require_same(state.terms)
        return state

    def fix_plan(self, name: str, plan: Plan) -> Plan:
        """Store the plan unless one is stored; return the one that holds."""

        def fix(connection: Connection) -> Plan:
            connection.execute(
                update(account_table)
                .where(account_table.c.name == name, account_table.c.plan.is_(None))
                .values(plan=json.dumps(plan.to_dict(), sort_keys=True))
            )
            _, state = _account(connection, name)
            if state.plan is None:
                raise LedgerError("The ledger did not store the plan.")
            return state.plan

        return self._run(fix)

    def charge(self, name: str) -> Charge:
        """Charge one query; the charge is on disk when this returns."""
        try:
            return self._run(lambda connection: _charge(connection, name))
        except _LostRaceError:
            raise LedgerError(
                f"Account {name!r} was charged by another process at the same moment "
                "and the database did not serialize the two; nothing was released. "
                "Ask again."
            ) from None

    def state(self, name: str) -> AccountState:
        """Return an account's state."""
        return self._run(lambda connection: _account(connection, name)[1], reads=True)

    def close_account(self, name: str) -> None:
        """Close an account for good."""

        def close(connection: Connection) -> None:
            _account(connection, name)
            connection.execute(
                update(account_table)
                .where(account_table.c.name == name)
                .values(closed=True)
            )

        self._run(close)

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        return self._run(
            lambda connection: sorted(
                connection.execute(select(account_table.c.name)).scalars()
            ),
            reads=True,
        )

    def charges(self, name: str) -> list[ChargeRecord]:
        """Return an account's charges, oldest first."""

        def read(connection: Connection) -> list[ChargeRecord]:
            number, state = _account(connection, name)
            rows = connection.execute(
                select(charge_table)
                .where(charge_table.c.account_id == number)
                .order_by(charge_table.c.sequence)
            )
            events = state.plan.events if state.plan else ()
            return [
                ChargeRecord(Charge(name, row.sequence, events), row.charged_at)
                for row in rows
            ]

        return self._run(read, reads=True)

    def _run(self, work: Callable[[Connection], T], *, reads: bool = False) -> T:
        """Run `work` in one transaction; every database error becomes `LedgerError`."""
        failure: str
        try:
            with self._connection(reads) as connection:
                return work(connection)
        except IntegrityError:
            lost_race = True
            failure = "IntegrityError"
        except SQLAlchemyError as error:
            lost_race = False
            original = getattr(error, "orig", None)
            failure = type(original or error).__name__
        except OSError as error:
            lost_race = False
            failure = type(error).__name__
        # Raised here, outside the handlers: a driver's message can hold SQL values and
        # passwords, and must not travel as the cause or context of ours.
        if lost_race:
            raise _LostRaceError
        raise LedgerError(
            f"The ledger {self._name} can't be used ({failure}); nothing was "
            "released. Check that the database is up, that "
            "its folder exists and can be written, and that the file is a ledger."
        )

    @contextmanager
    def _connection(self, reads: bool) -> Iterator[Connection]:  # noqa: FBT001 - internal
        if os.getpid() != self._pid:
            with self._lock:
                if os.getpid() != self._pid:
                    # Connections must not be shared across a fork; the parent still
                    # owns the old ones, so they are dropped without being closed.
                    self._engine.dispose(close=False)
                    self._pid = os.getpid()
        with (
            self._engine.connect() as connection,
            connection.execution_options(dpicl_reads=reads).begin(),
        ):
            yield connection

    def _use_write_ahead_log(self) -> None:
        # The mode stays with the file, so it is set once the file is known to be ours.
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode=WAL").close()
        finally:
            connection.close()

    @staticmethod
    def _create_engine(url: URL) -> Engine:
        try:
            if url.get_backend_name() != "sqlite":
                return create_engine(url, pool_pre_ping=True, hide_parameters=True)
            engine = create_engine(
                url,
                connect_args={"timeout": SQLITE_WAIT_SECONDS},
                hide_parameters=True,
            )
        except (SQLAlchemyError, ImportError) as error:
            raise LedgerError(
                f"No driver for the ledger's URL ({type(error).__name__}). Install "
                "one, for instance langchain-dpicl[postgres] for PostgreSQL."
            ) from None
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine


def _dispose(engine: Engine, pid: int) -> None:
    """Close what this process opened; a forked child leaves its parent's alone."""
    if os.getpid() == pid:
        engine.dispose()


class _LostRaceError(Exception):
    """A unique constraint refused a row that another writer wrote first."""


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions begin too late, at the first write: take them over.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A reader sees one snapshot without the lock, and waits for no writer.
    reads = connection.get_execution_options().get("dpicl_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _require_ledger(connection: Connection) -> None:
    """Create the tables in an empty database; refuse any but our own."""
    sqlite = connection.dialect.name == "sqlite"
    tables = set(inspect(connection).get_table_names())
    ours = version_table.name in tables
    if sqlite:
        application_id = connection.exec_driver_sql("PRAGMA application_id").scalar()
        if tables and (not ours or application_id != SQLITE_APPLICATION_ID):
            raise LedgerError(
                "The SQLite file is not a privacy ledger but some other database. "
                "Name a file of its own."
            )
    if not ours:
        metadata.create_all(connection)
        connection.execute(
            insert(version_table).values(
                version=SCHEMA_VERSION,
                library=__version__,
                created_at=datetime.now(timezone.utc),
            )
        )
        if sqlite:
            connection.exec_driver_sql(f"PRAGMA application_id={SQLITE_APPLICATION_ID}")
        return
    missing = {account_table.name, charge_table.name} - tables
    version = connection.execute(select(func.max(version_table.c.version))).scalar()
    if missing or version is None:
        raise LedgerError("The ledger is damaged: tables are missing. Restore it.")
    if version != SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger has schema version {version}, this library knows "
            f"{SCHEMA_VERSION}. Use the library version that wrote it, or newer."
        )


def _find(connection: Connection, name: str) -> Any:
    return connection.execute(statements.FIND_ACCOUNT, {"name": name}).one_or_none()


def _account(connection: Connection, name: str) -> tuple[int, AccountState]:
    row = _find(connection, name)
    if row is None:
        raise unknown_account(name)
    try:
        terms = AccountTerms(
            name=row.name,
            epsilon=float.fromhex(row.epsilon),
            delta=float.fromhex(row.delta),
            queries=int(row.queries),
        )
        plan = None if row.plan is None else Plan.from_dict(json.loads(row.plan))
        used = int(row.used)
    except (TypeError, ValueError, AttributeError):
        raise LedgerError(f"Account {name!r} is damaged: it can't be read.") from None
    last = connection.execute(statements.LAST_SEQUENCE, {"number": row.id}).scalar()
    if used != (last or 0) or used < 0:
        raise LedgerError(
            f"Account {name!r} is damaged: its counter says {used} charges, its "
            f"journal ends at {last or 0}. Restore the ledger; nothing is released "
            "from it."
        )
    return row.id, AccountState(terms, plan, used, bool(row.closed))


def _charge(connection: Connection, name: str) -> Charge:
    number, state = _account(connection, name)
    plan = require_chargeable(state)
    sequence = state.used + 1
    connection.execute(
        statements.COUNT_CHARGE, {"number": number, "seen": state.used, "now": sequence}
    )
    events = json.dumps([event_to_dict(e) for e in plan.events], sort_keys=True)
    connection.execute(
        statements.WRITE_CHARGE,
        {
            "account_id": number,
            "sequence": sequence,
            "events": events,
            "charged_at": datetime.now(timezone.utc),
        },
    )
    return Charge(account=name, sequence=sequence, events=plan.events)
