"""The databases that ledgers are tested on, and their clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.corpora import Clock, clock_for
from support.postgres import PostgresServer
from unit_tests.ledger.conftest import folder as folder  # noqa: PLC0414 - a fixture

from langchain_dpicl.ledger import Ledger


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, folder: Path) -> Callable[[], str]:
    """Return the URLs of empty ledgers, one a call."""
    if request.param == "postgresql":
        new: Callable[[], str] = request.getfixturevalue("postgres").new_database
        return new
    numbers = itertools.count()
    if request.param == "memory":
        return lambda: ":memory:"
    return lambda: f"sqlite:///{folder}/{next(numbers)}.db"


@pytest.fixture
def ledger(place: Callable[[], str]) -> Iterator[Ledger]:
    ledger = Ledger(place())
    yield ledger
    ledger.dispose()


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "ledger.db"


@pytest.fixture
def file(path: Path) -> Iterator[Ledger]:
    """A ledger in a file."""
    ledger = Ledger(f"sqlite:///{path}")
    yield ledger
    ledger.dispose()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_for(monkeypatch, "2026-12-10")
