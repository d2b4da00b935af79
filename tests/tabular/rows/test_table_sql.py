"""Tables in a database: streamed, hidden, and left as they were."""

from __future__ import annotations

import logging
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    Engine,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    select,
    text,
    union_all,
)
from support.postgres import PostgresServer

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.rows import SQLRows, read_chunks

CANARY = "Wilhelmina"
ALL = "SELECT age, job FROM people ORDER BY age"
N = 1000


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with a table of 1000 people."""
    if request.param == "sqlite":
        found = f"sqlite:///{tmp_path / 'people.db'}"
    else:
        found = request.getfixturevalue("postgres").new_database()
    engine = create_engine(found)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE people (age INTEGER, job TEXT)"))
        connection.execute(
            text("INSERT INTO people VALUES (:age, :job)"),
            [{"age": i, "job": CANARY} for i in range(N)],
        )
    engine.dispose()
    return found


def ages(rows: SQLRows, size: int = 64, **options: Any) -> list[int]:
    chunks = read_chunks(rows, ["age", "job"], chunk_size=size, **options)
    return [age for chunk in chunks for age in chunk.columns["age"]]


def count_open(engine: Engine) -> list[int]:
    opened = [0, 0]

    def add(*_: Any) -> None:
        opened[0] += 1

    def remove(*_: Any) -> None:
        opened[1] += 1

    event.listen(engine, "connect", add)
    event.listen(engine, "close", remove)
    return opened


def test_a_table_is_read_again_and_again(url: str) -> None:
    rows = SQLRows(url, ALL)
    opened = count_open(rows._engine)
    for size in (1, 64, N, 2 * N):
        assert ages(rows, size) == list(range(N))
    # Nothing of ours stays connected.
    assert opened == [4, 4]


def test_statements_of_every_kind(url: str) -> None:
    people = Table("people", MetaData(), Column("age"), Column("job", Text))
    young = select(people).where(people.c.age < 3).order_by(people.c.age)
    assert ages(SQLRows(url, young)) == [0, 1, 2]
    assert ages(SQLRows(url, text(f"{ALL} LIMIT 2"))) == [0, 1]
    some = "SELECT * FROM people WHERE age < :most AND job = :job"
    assert len(ages(SQLRows(url, some, {"most": 7, "job": CANARY}))) == 7
    both = union_all(select(people), select(people))
    assert len(ages(SQLRows(url, both))) == 2 * N
    assert ages(SQLRows(url, f"{ALL} LIMIT 0")) == []


def test_an_engine_of_the_callers_stays_open(url: str) -> None:
    engine = create_engine(url)
    opened = count_open(engine)
    assert len(ages(SQLRows(engine, ALL))) == N
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined] # a queue
    assert opened == [1, 0]
    engine.dispose()


def test_rows_are_not_fetched_all_at_once(url: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        # 10 million rows, none of which is ever stored.
        endless = (
            "WITH RECURSIVE many(age) AS "
            "(SELECT 1 UNION ALL SELECT age + 1 FROM many WHERE age < 10000000) "
            "SELECT age, 'x' AS job FROM many"
        )
        if engine.dialect.name == "postgresql":
            endless = "SELECT generate_series(1, 10000000) AS age, 'x' AS job"
        assert connection.execute(text(f"{endless} LIMIT 1")).fetchone() is not None
    fetched: list[Any] = []

    def note(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("SET"):
            fetched.append(cursor)

    event.listen(engine, "after_cursor_execute", note)
    chunks = read_chunks(SQLRows(engine, endless), ["age", "job"], chunk_size=100)
    assert next(chunks).columns["age"] == tuple(range(1, 101))
    if engine.dialect.name == "postgresql":
        # A server-side cursor has a name; another one has the whole result.
        assert all(getattr(cursor, "name", None) for cursor in fetched)
    chunks.close()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined] # a queue
    engine.dispose()


@pytest.mark.parametrize("style", ["SQL,DMY", "German", "Postgres,MDY"])
def test_times_are_read_in_whatever_style_a_server_shows_them(
    postgres: PostgresServer, style: str
) -> None:
    url = f"{postgres.new_database()}%20-cdatestyle%3D{style}"
    statement = "SELECT timestamptz '2026-04-05 06:07:08+00' AS age, 'x' AS job"
    [age] = ages(SQLRows(url, statement))
    assert age == datetime(2026, 4, 5, 6, 7, 8, tzinfo=timezone.utc)
    # What a date in the statement means is the server's to say.
    (day,) = ages(SQLRows(url, "SELECT date '04/05/2026' AS age, 'x' AS job"))
    assert day == (date(2026, 4, 5) if style.endswith("MDY") else date(2026, 5, 4))


def test_what_a_statement_writes_is_undone(url: str) -> None:
    with pytest.raises(InvalidParameterError):
        ages(SQLRows(url, "DELETE FROM people"))
    with pytest.raises(InvalidParameterError):
        ages(SQLRows(url, "UPDATE people SET age = 0 RETURNING age"))
    assert ages(SQLRows(url, ALL)) == list(range(N))


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ("age", "no column 'job'"),
        ("age, job, age", "'age' more than once"),
        ("age, job, job AS person", "column 'person', unknown to the schema"),
    ],
)
@pytest.mark.parametrize("where", ["", " WHERE age < 0"])
def test_columns_are_checked(url: str, columns: str, where: str, match: str) -> None:
    rows = SQLRows(url, f"SELECT {columns} FROM people{where}")
    opened = count_open(rows._engine)
    with pytest.raises(InvalidParameterError, match=match):
        ages(rows)
    assert opened == [1, 1]


def test_extra_columns_and_units(url: str) -> None:
    rows = SQLRows(url, "SELECT job, age, job AS other, age AS person FROM people")
    [chunk] = read_chunks(
        rows, ["job"], unit_key="person", extra_columns="ignore", chunk_size=N
    )
    assert sorted(chunk.units or ()) == list(range(N))
    assert set(chunk.columns) == {"job"}


def _shown(error: BaseException) -> str:
    """What a traceback with its locals shows of the library's own frames."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames.stack[:] = [f for f in frames.stack if "langchain_dpicl" in f.filename]
    return "".join(frames.format())


BROKEN = {
    "cast": "SELECT CAST(job AS INTEGER) AS age, job FROM people",
    "no table": f"SELECT age, job FROM {CANARY}",
    "no sense": f"SELEKT '{CANARY}'",
    "no parameter": "SELECT age, job FROM people WHERE job = :job",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_statement_that_fails_quotes_nothing(
    postgres: PostgresServer, broken: str
) -> None:
    url = postgres.new_database()
    with postgres.connect(url) as connection:
        connection.execute("CREATE TABLE people (age INTEGER, job TEXT)")
        connection.execute("INSERT INTO people VALUES (1, 'Wilhelmina')")
    with pytest.raises(InvalidParameterError, match=r"can't be (run|read)") as no:
        ages(SQLRows(url, BROKEN[broken]))
    assert no.value.__context__ is None
    assert CANARY not in _shown(no.value).replace(f"FROM {CANARY}", "")


def test_a_cell_that_can_not_be_read_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE people (age TEXT, job TEXT)")
        rows = [("1", "x")] * 5 + [
            (CANARY, f"{CANARY}\udcff".encode("utf-8", "surrogateescape"))
        ]
        connection.executemany("INSERT INTO people VALUES (?, CAST(? AS TEXT))", rows)
    url = f"sqlite:///{path}"
    # The driver's own message quotes the text, and so does SQLAlchemy's type's.
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.Error) as raw,
    ):
        connection.execute("SELECT job FROM people").fetchall()
    assert CANARY in str(raw.value)
    table = Table("people", MetaData(), Column("age", DateTime), Column("job"))
    for statement in ("SELECT * FROM people", select(table.c.age, text("'x' AS job"))):
        with pytest.raises(InvalidParameterError, match="read to their end") as no:
            ages(SQLRows(url, statement), 2)
        assert CANARY not in _shown(no.value)
        assert no.value.__context__ is None


def test_nothing_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    engine = create_engine(url, echo="debug")
    assert len(ages(SQLRows(engine, ALL))) == N
    assert len(ages(SQLRows(url, ALL))) == N
    assert CANARY not in caplog.text
    with engine.connect() as connection:
        connection.execute(text(ALL)).fetchall()
    # So it is ours to switch off.
    assert CANARY in caplog.text
    engine.dispose()


def test_the_password_is_not_shown() -> None:
    url = f"postgresql://user:{CANARY}@localhost:1/db?connect_timeout=1"
    rows = SQLRows(url, ALL)
    assert repr(rows) == "SQLRows(postgresql+psycopg)"
    with pytest.raises(InvalidParameterError, match="can't be reached") as caught:
        ages(rows)
    assert CANARY not in _shown(caught.value)
    for wrong in (f"nosuch://user:{CANARY}@h/db", f"no url {CANARY}", ""):
        with pytest.raises(InvalidParameterError, match="the URL can't be used") as no:
            SQLRows(wrong, ALL)
        assert CANARY not in str(no.value)
        assert no.value.__context__ is None


@pytest.mark.parametrize(
    ("source", "statement", "parameters", "match"),
    [
        (3, ALL, None, "source must be"),
        ("sqlite://", "  ", None, "not blank"),
        ("sqlite://", 3, None, "not int"),
        ("sqlite://", Table("people", MetaData()), None, "not Table"),
        ("sqlite://", ALL, [1], "parameters must be a mapping"),
        ("postgresql+psycopg_async://u@h/d", ALL, None, "asynchronous driver"),
    ],
)
def test_wrong_arguments_of_a_database(
    source: Any, statement: Any, parameters: Any, match: str
) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        SQLRows(source, statement, parameters)
