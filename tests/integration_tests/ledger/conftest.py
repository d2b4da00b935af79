"""Databases that several processes use: SQLite files, and one PostgreSQL server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.postgres import PostgresServer
from unit_tests.ledger.conftest import folder as folder  # noqa: PLC0414 - a fixture


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, folder: Path) -> Callable[[], str]:
    """Return the URLs of empty ledgers, one a call."""
    if request.param == "postgresql":
        new: Callable[[], str] = request.getfixturevalue("postgres").new_database
        return new
    numbers = itertools.count()
    return lambda: f"sqlite:///{folder}/{next(numbers)}.db"
