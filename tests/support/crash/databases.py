"""Databases that crash."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import time
from pathlib import Path

from support.crash.nursery import DEADLINE_SECONDS, POSTGRES_NAME
from support.postgres import PostgresServer


class SQLiteFile:
    """A database without a server."""

    goes_down = False

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, 0
        self.url = self.fresh()

    def fresh(self) -> str:
        """Go over to an empty database; return its URL."""
        self._files += 1
        self.path = self._folder / f"ledger-{self._files}.db"
        self.url = f"sqlite:///{self.path}"
        return self.url

    def disturb(self, draws: random.Random) -> int:
        """Lock everybody out for a while; return how many charges that may lose."""
        connection = sqlite3.connect(self.path, timeout=DEADLINE_SECONDS)
        try:
            connection.isolation_level = None
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(draws.uniform(0.3, 1.0))
        finally:
            connection.close()
        return 0

    def settle(self) -> None:
        """Nobody goes on where the worker has ended."""

    def check(self) -> None:
        """Let SQLite check its file."""
        connection = sqlite3.connect(self.path)
        try:
            found = connection.execute("PRAGMA integrity_check").fetchall()
        finally:
            connection.close()
        assert found == [("ok",)], f"the database file is damaged: {found}"


class PostgresDatabase:
    """A database with a server that can be stopped."""

    goes_down = True

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = server.new_database()

    def fresh(self) -> str:
        """Go over to an empty database; return its URL."""
        self.url = self._server.new_database()
        return self.url

    def disturb(self, draws: random.Random) -> int:
        """Crash and start the server; every connection may lose one charge."""
        self.stop()
        time.sleep(draws.uniform(0.0, 0.5))
        self.start()
        return 1

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                self._server.start()
            except (OSError, subprocess.SubprocessError):
                # It gives a loaded machine ten seconds, and starts anyway.
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.5)
            else:
                return

    def settle(self) -> None:
        """Wait until the server has ended what dead workers had sent to it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        find = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s"
        with self._server.connect(self.url) as connection:
            while connection.execute(find, [POSTGRES_NAME]).fetchone():
                assert time.monotonic() < deadline, "the server does not end"
                time.sleep(0.005)

    def check(self) -> None:
        """PostgreSQL has checked its log when it started."""


Database = SQLiteFile | PostgresDatabase
