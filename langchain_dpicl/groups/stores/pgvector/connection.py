"""A connection of our own to the database in which a PGVectorStore keeps its records.

The store's engine is not used: its listeners, its `echo` and its event loop are the
application's, and would see unit ids and documents. Ours is a plain synchronous one
to the same database, silent, which hands out read-only transactions unless asked
otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.stores.contract import hiding_errors
from langchain_dpicl.ledger.engine import (
    POSTGRES_DRIVER,
    POSTGRES_LIMITS,
    POSTGRES_VALUES,
)

# Drivers whose URLs have the same form as ours.
_LIBPQ = ("postgresql", "psycopg", "psycopg_async", "psycopg2", "psycopg2cffi")
# What asyncpg's URLs may say, and libpq's words for it. The rest is tuning.
_ASYNCPG = {
    "host": "host",
    "port": "port",
    "passfile": "passfile",
    "ssl": "sslmode",
    "target_session_attrs": "target_session_attrs",
    "timeout": "connect_timeout",
}
_LOGGER = "langchain_dpicl"

_SAY_WHERE = (
    "Pass connection= the URL of the same database for psycopg 3, for instance "
    "'postgresql+psycopg://user@host/db', or an engine of your own for it that hides "
    "its parameters."
)

# A record's cells are texts in prompts and filters: they must not depend on what server
# or role say, and a sign that a role's encoding lacks must not fail a query.
_VALUES = f"SELECT {POSTGRES_VALUES}, set_config('client_encoding', 'UTF8', true)"
# Where the statistics are old, the planner expects few rows and compares each unit with
# each record; and it compiles for longer than the query takes.
_PLANNING = "set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true)"

_DATES = ("date", "timestamp", "timestamptz", "interval", "time", "timetz")


class Database:
    """The database of a store, through a pool of our own.

    It is that of the store's engine, a SQLAlchemy `Engine` or `AsyncEngine`, unless a
    URL or an engine is given as `connection`.
    """

    def __init__(self, engine: Any, connection: str | URL | Engine | None) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._parents: list[Engine] = []
        if isinstance(connection, Engine):
            self._make: Callable[[], Engine] | None = None
            self._engine = _checked(connection)
        else:
            url = _url_of(engine) if connection is None else _parsed(connection)
            self._make = lambda: _open(url)
            self._engine = self._make()
            self._disposing = weakref.finalize(self, self._engine.dispose)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open one read-only transaction that sees one snapshot."""
        with self._transaction(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        ) as connection:
            connection.execute(text(f"{_VALUES}, {_PLANNING}"))
            yield connection

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        """Give a connection for one look at the catalog, without a transaction.

        Each statement is a call of the server; a transaction would be three more.
        """
        with self._transaction(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open one transaction that is committed at the end."""
        with self._transaction(isolation_level="READ COMMITTED") as connection:
            connection.execute(text(_VALUES))
            yield connection

    def close(self) -> None:
        """Close the connections; another transaction opens new ones."""
        self._own_engine().dispose()

    @contextmanager
    def _transaction(self, **options: Any) -> Iterator[Connection]:
        engine = self._own_engine().execution_options(**options)
        with engine.begin() as connection:
            yield connection

    def _own_engine(self) -> Engine:
        with self._lock:
            if self._make is not None and self._pid != os.getpid():
                # A forked child must not close its parent's connections, which it
                # would do by forgetting them.
                self._disposing.detach()
                self._parents.append(self._engine)
                self._engine, self._pid = self._make(), os.getpid()
                self._disposing = weakref.finalize(self, self._engine.dispose)
            return self._engine


def _open(url: URL) -> Engine:
    try:
        engine = create_engine(
            url,
            connect_args={
                # Behind a pooler, a statement prepared here may run elsewhere.
                "prepare_threshold": None,
                **{
                    name: value
                    for name, value in POSTGRES_LIMITS.items()
                    if name not in url.query
                },
            },
            hide_parameters=True,
            pool_pre_ping=True,
            logging_name=_LOGGER,
            use_native_hstore=False,
        )
    except (ImportError, SQLAlchemyError) as error:
        refused = InvalidParameterError(
            f"The store's database can't be opened ({type(error).__name__}): this "
            "needs psycopg 3, pip install 'psycopg[binary]'."
        )
    else:
        # At DEBUG, SQLAlchemy would log the rows, whatever is hidden otherwise.
        logging.getLogger(f"sqlalchemy.engine.Engine.{_LOGGER}").setLevel(
            logging.WARNING
        )
        event.listen(engine, "connect", _read_everything)
        return engine
    raise refused


def _url_of(engine: Any) -> URL:
    """Return a store's URL, in our driver's words."""
    engine = getattr(engine, "sync_engine", engine)
    url = getattr(engine, "url", None)
    if not isinstance(url, URL):
        raise InvalidParameterError(
            f"The store's engine is a {type(engine).__name__} without a URL. "
            + _SAY_WHERE
        )
    creator = getattr(engine.pool, "_creator", None)
    if getattr(creator, "__module__", None) != "sqlalchemy.engine.create":
        raise InvalidParameterError(
            "The store's engine makes its connections by a function of its own, so "
            "that its URL does not say where the records are. " + _SAY_WHERE
        )
    return _libpq(url)


def _libpq(url: URL) -> URL:
    driver = url.drivername.rpartition("+")[2]
    if url.get_backend_name() == "postgresql" and driver in _LIBPQ:
        return url.set(drivername=POSTGRES_DRIVER)
    if url.get_backend_name() == "postgresql" and driver == "asyncpg":
        query = {
            _ASYNCPG[name]: value
            for name, value in url.query.items()
            if name in _ASYNCPG
        }
        return url.set(drivername=POSTGRES_DRIVER, query=query)
    # The URL itself is not shown: it can hold a password.
    raise InvalidParameterError(
        f"A store's database can't be opened through {url.drivername!r}. " + _SAY_WHERE
    )


def _parsed(connection: Any) -> URL:
    try:
        return _libpq(make_url(connection))
    except (ArgumentError, ValueError):
        refused = InvalidParameterError(
            "connection can't be parsed as a database's URL. " + _SAY_WHERE
        )
    raise refused


def _checked(engine: Engine) -> Engine:
    if engine.url.drivername != POSTGRES_DRIVER or not engine.hide_parameters:
        raise InvalidParameterError(
            "An engine passed as connection= must be for 'postgresql+psycopg' and "
            "made with hide_parameters=True: errors would show unit ids otherwise."
        )
    event.listen(engine, "connect", _read_everything)
    engine.dispose()  # Connections of before would read as the driver likes.
    return engine


def _failure(error: Exception) -> str:
    cause = getattr(error, "orig", None)
    state = getattr(cause, "sqlstate", None)
    name = type(error if cause is None else cause).__name__
    return (
        "The vector store's database could not be asked "
        f"({name}{f', SQLSTATE {state}' if state else ''}); nothing was released. Is "
        "it running, and may the URL's user read the store's table and write to "
        "langchain_dpicl_shards beside it? If the store's engine was made with "
        "connect_args, pass the same as connection=."
    )


private_errors = hiding_errors(_failure)
"""Turns a database's error into one of ours, which holds no private text."""


def _read_everything(connection: Any, _record: object) -> None:
    """Make the driver read values on which it would fail.

    One record that holds the date 'infinity' must not fail a query for everybody.
    """
    from psycopg.types.json import set_json_loads

    set_json_loads(_lenient_json, connection)
    for name in _DATES:
        kind = connection.adapters.types[name]
        loader = connection.adapters.get_loader(kind.oid, 0)
        connection.adapters.register_loader(kind.oid, _lenient(loader))


def _lenient_json(data: str | bytes) -> Any:
    try:
        # Of bytes, the parser would guess the encoding anew for each record.
        return json.loads(data.decode() if isinstance(data, bytes) else data)
    except (ValueError, RecursionError):
        return None


def _lenient(strict: Any) -> Any:
    from psycopg.adapt import Loader

    class Lenient(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._strict = strict(oid, context)

        def load(self, data: Any) -> Any:
            try:
                return self._strict.load(data)
            except Exception:  # noqa: BLE001  # The text, whatever is wrong with it.
                return bytes(data).decode()

    return Lenient
