"""Transactions on one database: run, run again where they were undone, or refused.

A transaction is run again only when the database said that it was undone: a deadlock, a
conflict of two, a row that another writer wrote first. When a connection breaks while
the transaction commits, nobody knows whether it did: that is an error, the charge may
stand, and nothing is released. Losing budget is allowed, losing a charge is not.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL, Connection
from sqlalchemy.exc import SQLAlchemyError

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.sql.engine import (
    MODE,
    Mode,
    dispose,
    flush,
    is_disconnected,
    open_engine,
    shown,
    was_undone,
)
from langchain_dpicl.ledger.sql.schema import UNREADABLE
from langchain_dpicl.ledger.sql.sqlite_file import sqlite_file
from langchain_dpicl.ledger.sql.standbys import require_confirmed

T = TypeVar("T")


_TRIES = 6
_FIRST_WAIT_MS = 20


class Transactions:
    """A ledger's database, reached by threads, and by processes after a fork."""

    def __init__(self, url: URL) -> None:
        self.name = shown(url)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.file = sqlite_file(url)
        self.engine = open_engine(url, self.file)
        driver: Any = self.engine.dialect.loaded_dbapi
        self._driver_error: type[Exception] = driver.Error
        # A handler that goes out of use must not leave open connections behind.
        weakref.finalize(self, dispose, self.engine, self._pid)

    def run(self, work: Callable[[Connection], T], *, mode: Mode = Mode.WRITE) -> T:
        """Run `work` in one transaction, again if it was undone."""

        def transaction(connection: Connection, begun: Callable[[], None]) -> T:
            with connection.execution_options(**{MODE: mode}).begin():
                begun()
                done = work(connection)
            if mode is Mode.CHARGE:
                flush(connection)
            if mode is not Mode.READ and self.file is not None:
                # What was written is worth nothing in a file that others don't find.
                self.file.require()
            require_confirmed(connection)
            return done

        return self.attempt(transaction)

    def attempt(self, use: Callable[[Connection, Callable[[], None]], T]) -> T:
        """Call `use` with a connection; every database error becomes `LedgerError`.

        `use` also takes a function to call when its transaction stands: before that, a
        connection from the pool may turn out to be broken, and nothing was done with
        it.
        """
        failure = ""
        for trial in range(_TRIES):
            begun = threading.Event()
            try:
                with self._connected() as connection:
                    return use(connection, begun.set)
            except (SQLAlchemyError, self._driver_error) as error:
                cause = getattr(error, "orig", None) or error
                again = was_undone(error, cause)
                if not begun.is_set() and is_disconnected(error, cause):
                    # Its neighbors in the pool are broken too.
                    self.engine.dispose()
                    again = True
                failure = type(cause).__name__
            except (OSError, *UNREADABLE) as error:
                again = False
                failure = type(error).__name__
            if not again:
                break
            # Those that collided must not come back at the same moment.
            time.sleep(secrets.randbelow(_FIRST_WAIT_MS << trial) / 1000)
        # Raised here, outside the handlers: a driver's message can hold SQL values and
        # passwords, and must not travel as the cause or context of ours.
        raise self.unusable(failure)

    def unusable(self, failure: str) -> LedgerError:
        """Return the error for a database that can't be used."""
        return LedgerError(
            f"The ledger {self.name} can't be used ({failure}); nothing was "
            "released. Check that the database is up, that "
            "its folder exists and can be written, and that the file is a ledger "
            "that nobody has edited."
        )

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if os.getpid() != self._pid:
            with self._lock:
                if os.getpid() != self._pid:
                    # Connections must not be shared across a fork; the parent still
                    # owns the old ones, so they are dropped without being closed.
                    self.engine.dispose(close=False)
                    self._pid = os.getpid()
        with self.engine.connect() as connection:
            yield connection
