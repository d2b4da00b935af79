"""The databases that ledgers are tested on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.ledgers import Database, postgres_database, sqlite_database
from support.postgres import PostgresServer

from langchain_dpicl.ledger import Ledger, MemoryLedger, SQLLedger


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A new database, empty."""
    if request.param == "sqlite":
        return sqlite_database(tmp_path / "ledger.db")
    return postgres_database(request.getfixturevalue("postgres"))


@pytest.fixture
def connect(database: Database) -> Iterator[Callable[[], SQLLedger]]:
    """Open the database's ledger, as another process would."""
    opened: list[SQLLedger] = []

    def again() -> SQLLedger:
        opened.append(SQLLedger(database.url))
        return opened[-1]

    yield again
    for ledger in opened:
        ledger.dispose()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger()
        return
    if request.param == "sqlite":
        database = sqlite_database(tmp_path / "ledger.db")
    else:
        database = postgres_database(request.getfixturevalue("postgres"))
    ledger = SQLLedger(database.url)
    yield ledger
    ledger.dispose()


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder without slow syncs: what a kill leaves does not depend on them."""
    if not Path("/dev/shm").is_dir():  # noqa: S108 - only here, and only if it is there
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)
