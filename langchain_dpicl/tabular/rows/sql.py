"""`SQLRows`: a table that stays in its database and is read in chunks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, NullPool, TextClause, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.selectable import SelectBase

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError

_T = TypeVar("_T")

_PSYCOPG = "postgresql+psycopg"


class SQLRows:
    """The rows that a statement finds, read through SQLAlchemy.

    Every pass runs the statement anew, in a transaction of its own that is rolled
    back, and streams the result: on PostgreSQL through a server-side cursor, on SQLite
    as the file is read. In memory is one chunk.

    Args:
        source: A database's URL (`"sqlite:///clinic.db"`,
            `"postgresql+psycopg://user@host/db"`), or an `Engine` of the caller's,
            which stays the caller's to dispose of.
        statement: A SELECT as text, with parameters as `:name`, or a Core `select`.
        parameters: The values of the statement's parameters.

    Raises:
        InvalidParameterError: If an argument can't be used. The URL is not shown: it
            may hold a password.

    Example:
        >>> from sqlalchemy import create_engine
        >>> rows = SQLRows("sqlite://", "SELECT 37 AS age, 'clerk' AS job")
        >>> rows
        SQLRows(sqlite+pysqlite)
        >>> [chunk.value for chunk in rows.columns(100)]
        [{'age': (37,), 'job': ('clerk',)}]

    Privacy:
        A database decides in which order rows come, and a statement may join, sort,
        number or limit them. That is all before the privacy unit: the statement must
        yield each unit's rows whatever the other units are. A `LIMIT`, a `DISTINCT`
        over units, a window function or a subquery that aggregates over everybody
        ties units together, and no sensitivity holds. SQLAlchemy logs rows at level
        DEBUG; here it runs sealed, so that it does not.
    """

    said = "The statement's result"

    def __init__(
        self,
        source: str | URL | Engine,
        statement: str | SelectBase | TextClause,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        if parameters is not None and not isinstance(parameters, Mapping):
            raise InvalidParameterError(
                "parameters must be a mapping of names to values, not "
                f"{type(parameters).__name__}."
            )
        self._parameters = dict(parameters or {})
        self._statement = _statement(statement)
        self._is_ours = not isinstance(source, Engine)
        self._engine = source if isinstance(source, Engine) else _engine(source)
        if self._engine.dialect.is_async:
            raise InvalidParameterError(
                f"source: {self._engine.dialect.driver} is an asynchronous driver, and "
                "rows are read synchronously. Name another one, for instance "
                f"'{_PSYCOPG}://' or 'sqlite://'."
            )

    def __repr__(self) -> str:
        dialect = self._engine.dialect
        return f"SQLRows({dialect.name}+{dialect.driver})"

    def columns(
        self, size: int, check: Callable[[Sequence[str]], None] | None = None
    ) -> Generator[Hidden[dict[str, tuple[Any, ...]]], None, None]:
        """Run the statement and yield its rows, column by column, in chunks.

        Args:
            size: Most rows of a chunk.
            check: Called with the columns' names before the first row is read; raises
                if they are not right.

        Yields:
            For each chunk, the cells of each column.

        Raises:
            InvalidParameterError: If the statement can't be run or read to its end.
                What the driver says is not shown, since it may quote cells.
        """
        reading = _Pass(self._engine, size)
        try:
            names = reading.begin(self._statement, self._parameters)
            if check is not None:
                check(names)
            while True:
                chunk: Hidden[dict[str, tuple[Any, ...]]] = Hidden({})
                for name, cells in zip(names, reading.columns().value, strict=False):
                    chunk.value[name] = cells
                    del cells
                if not chunk.value:
                    return
                yield chunk
                del chunk
        finally:
            reading.end()
            if self._is_ours:
                self._engine.dispose()


class _Pass:
    """One run of the statement, sealed; the driver's errors stay inside."""

    def __init__(self, engine: Engine, size: int) -> None:
        # Loads LangChain, whose observers are switched off as well.
        from langchain_dpicl.sealed.region import sealed_context

        self._context: Context = sealed_context()
        self._engine = engine
        self._size = size
        self._connection: Any = None
        self._result: Any = None
        self._partitions: Any = None

    def begin(self, statement: Any, parameters: dict[str, Any]) -> list[str]:
        """Send the statement; return the names of the result's columns."""
        hidden = Hidden(parameters)
        del parameters

        def connect() -> None:
            self._connection = self._engine.connect()
            if self._engine.dialect.name == "postgresql":
                # psycopg reads times in this style alone. The order of day and month
                # stays: the statement may hold dates.
                self._connection.exec_driver_sql("SET LOCAL datestyle TO ISO")
            self._connection = self._connection.execution_options(
                stream_results=True, yield_per=self._size
            )

        def execute() -> list[str]:
            self._result = self._connection.execute(statement, hidden.value)
            if not self._result.returns_rows:
                return []
            self._partitions = self._result.partitions(self._size)
            return list(self._result.keys())

        self._attempt(connect, "The database can't be reached")
        names = self._attempt(execute, "The statement can't be run").value
        if not names:
            raise InvalidParameterError(
                "statement yields no rows: it must be a SELECT. What it did is undone."
            )
        return names

    def columns(self) -> Hidden[list[tuple[Any, ...]]]:
        """Return the next rows, column by column; empty after the last one."""

        def fetch() -> list[tuple[Any, ...]]:
            return list(zip(*next(self._partitions, ()), strict=True))

        return self._attempt(fetch, "The rows can't be read to their end")

    def end(self) -> None:
        """Roll back and give the connection up; what fails here changes nothing."""

        def close() -> None:
            if self._result is not None:
                self._result.close()
            if self._connection is not None:
                self._connection.close()

        with suppress(Exception):
            self._context.run(close)
        self._partitions = self._result = self._connection = None

    def _attempt(self, step: Callable[[], _T], failed: str) -> Hidden[_T]:
        kind = ""
        try:
            return Hidden(self._context.run(step))
        except Exception as error:  # noqa: BLE001 - drivers and types raise anything
            kind = _kind(error)
        raise InvalidParameterError(
            f"{failed} ({kind}). The driver's own message may quote rows and is not "
            "shown: run the statement by itself to see it."
        )


def _statement(given: Any) -> Any:
    if isinstance(given, str) and given.strip():
        return text(given)
    if isinstance(given, (SelectBase, TextClause)):
        return given
    raise InvalidParameterError(
        "statement must be the text of a SELECT or a SQLAlchemy select(), not "
        f"{type(given).__name__ if not isinstance(given, str) else 'blank'}."
    )


def _engine(source: Any) -> Engine:
    if not isinstance(source, (str, URL)):
        raise InvalidParameterError(
            "source must be a database's URL or a SQLAlchemy Engine (not an "
            f"AsyncEngine), not {type(source).__name__}."
        )
    kind = ""
    try:
        url = make_url(source)
        if url.drivername == "postgresql":
            url = url.set(drivername=_PSYCOPG)
        # Without a pool no connection outlives its pass.
        return create_engine(url, poolclass=NullPool, hide_parameters=True)
    except (SQLAlchemyError, ImportError, ValueError, TypeError) as error:
        kind = type(error).__name__
    raise InvalidParameterError(
        f"source: the URL can't be used ({kind}). It looks like 'sqlite:///clinic.db' "
        f"or '{_PSYCOPG}://user@host/db', and its driver must be installed: "
        "for PostgreSQL, pip install 'psycopg[binary]'."
    )


def _kind(error: BaseException) -> str:
    """Return the name of an error, and of the driver's error in it."""
    original = getattr(error, "orig", None)
    names = [type(error).__name__]
    if original is not None and type(original).__name__ != names[0]:
        names.append(type(original).__name__)
    return ": ".join(names)
