"""Databases that crash, and the processes that crash with them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crash.databases import Database, PostgresDatabase, SQLiteFile
from support.crash.nursery import Nursery
from support.postgres import PostgresServer


@pytest.fixture(scope="session")
def crash_server() -> Iterator[PostgresServer]:
    """A server of these tests' own: nobody else should see it crash."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database."""
    if request.param == "sqlite":
        return SQLiteFile(tmp_path)
    return PostgresDatabase(request.getfixturevalue("crash_server"))


@pytest.fixture(scope="session")
def crash_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("workers"), "support.crash.workers") as found:
        yield found


@pytest.fixture
def nursery(crash_workers: Nursery, tmp_path: Path) -> Iterator[Nursery]:
    """Workers of `crash_workers`, none running yet."""
    folder = tmp_path / "announced"
    folder.mkdir()
    crash_workers.move_to(folder)
    yield crash_workers
    crash_workers.move_to(folder)


@pytest.fixture
def machine_to_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two tests with dozens of processes don't run side by side."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "crash.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
