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
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, insert, make_url, select, update
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from langchain_dpicl._version import __version__
from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    ChargeRecord,
    Ledger,
    Plan,
)
from langchain_dpicl.ledger.engine import dispose, open_engine, use_write_ahead_log
from langchain_dpicl.ledger.refusals import require_name
from langchain_dpicl.ledger.rows import (
    find_account,
    read_account,
    read_events,
    require_ledger,
    write_charge,
)
from langchain_dpicl.ledger.schema import account_table, answer_table, charge_table

T = TypeVar("T")


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
        self._engine = open_engine(parsed)
        # A handler that goes out of use must not leave open connections behind.
        weakref.finalize(self, dispose, self._engine, self._pid)
        try:
            self._run(require_ledger)
            if self._engine.dialect.name == "sqlite":
                use_write_ahead_log(self._engine)
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
            if find_account(connection, terms.name) is None:
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
            _, state = read_account(connection, terms.name)
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
            _, state = read_account(connection, name)
            if state.plan is None:
                raise LedgerError("The ledger did not store the plan.")
            return state.plan

        return self._run(fix)

    def charge(self, name: str) -> Charge:
        """Charge one query; the charge is on disk when this returns."""
        try:
            return self._run(lambda connection: write_charge(connection, name))
        except _LostRaceError:
            raise LedgerError(
                f"Account {name!r} was charged by another process at the same moment "
                "and the database did not serialize the two; nothing was released. "
                "Ask again."
            ) from None

    def state(self, name: str) -> AccountState:
        """Return an account's state."""
        return self._run(
            lambda connection: read_account(connection, name)[1], reads=True
        )

    def close_account(self, name: str) -> None:
        """Close an account for good."""

        def close(connection: Connection) -> None:
            read_account(connection, name)
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
            number, _ = read_account(connection, name)
            rows = connection.execute(
                select(charge_table)
                .where(charge_table.c.account_id == number)
                .order_by(charge_table.c.sequence)
            )
            return [
                ChargeRecord(
                    Charge(name, row.sequence, read_events(row.events)), row.charged_at
                )
                for row in rows
            ]

        return self._run(read, reads=True)

    def store_answer(self, name: str, key: str, answer: str) -> None:
        """Keep a released answer of an account; the first one under a key stays."""

        def store(connection: Connection) -> None:
            number, _ = read_account(connection, name)
            kept = select(answer_table.c.key).where(
                answer_table.c.account_id == number, answer_table.c.key == key
            )
            if connection.execute(kept).first() is None:
                connection.execute(
                    insert(answer_table).values(
                        account_id=number, key=key, answer=answer
                    )
                )

        # Whoever came first with the same key has stored as good an answer.
        with suppress(_LostRaceError):
            self._run(store)

    def stored_answer(self, name: str, key: str) -> str | None:
        """Return the answer kept under a key, or None."""

        def find(connection: Connection) -> str | None:
            number, _ = read_account(connection, name)
            found = connection.execute(
                select(answer_table.c.answer).where(
                    answer_table.c.account_id == number, answer_table.c.key == key
                )
            ).scalar()
            return None if found is None else str(found)

        return self._run(find, reads=True)

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


class _LostRaceError(Exception):
    """A unique constraint refused a row that another writer wrote first."""
