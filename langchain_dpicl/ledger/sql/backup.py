"""A copy of a SQLite ledger that is whole, made while the ledger is in use."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.sql.creation import open_tables
from langchain_dpicl.ledger.sql.engine import Mode, parse_url
from langchain_dpicl.ledger.sql.ledger import SQLLedger
from langchain_dpicl.ledger.sql.sqlite_file import place_copy, sqlite_file
from langchain_dpicl.ledger.sql.transactions import Transactions


def backup_ledger(url: str | URL, target: str | os.PathLike[str]) -> list[str]:
    """Copy a SQLite ledger to a new file, and check every account of the copy.

    Charges wait while the file is copied. The copy appears under its name when it is
    complete, checked and on disk; others may read it if they may read the ledger.

    Args:
        url: The ledger's SQLAlchemy URL.
        target: The copy's path; its folder exists, and nothing is there yet.

    Returns:
        The names of the accounts, each of which was verified in the copy.

    Raises:
        LedgerError: If there is no ledger, it is not a SQLite file, something is at
            `target`, the copy can't be written, or an account is damaged. No copy is
            left.

    Privacy:
        A copy is as private as the ledger. One that is put in the ledger's place has
        forgotten every charge since: `docs/operate/backup-and-restore.md` says what to
        do then.

    Example:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> url = f"sqlite:///{pathlib.Path(folder.name, 'clinic.db')}"
        >>> SQLLedger(url).dispose()
        >>> backup_ledger(url, pathlib.Path(folder.name, "clinic-1.db"))
        []
        >>> folder.cleanup()
    """
    parsed, to = parse_url(url), Path(target)
    file = sqlite_file(parsed)
    if file is None:
        raise LedgerError(
            "Only a SQLite ledger is copied here. Let PostgreSQL make the copy: "
            "'pg_dump', or the archive of its log, which loses no charge."
        )
    database = Transactions(parsed)
    mode = 0o600
    accounts: list[str] = []

    def check(draft: Path) -> None:
        accounts.extend(_verified(draft))

    def copy(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        try:
            place_copy(driver, to, check, mode=mode)
        except FileExistsError:
            why = "something is there, and nothing is overwritten"
        except (OSError, sqlite3.Error) as error:
            why = f"{type(error).__name__}: is there a folder, and room in it?"
        except LedgerError as error:
            why = str(error)
        else:
            return
        raise LedgerError(f"No copy was made at {to}: {why}")

    try:
        open_tables(database, create=False)
        mode = file.path.stat().st_mode & 0o777
        database.run(copy, mode=Mode.READ)
    finally:
        database.engine.dispose()
    return accounts


def _verified(path: Path) -> list[str]:
    ledger = SQLLedger(URL.create("sqlite", database=str(path)), create=False)
    try:
        ledger.verify_accounts()
        return [ledger.verify(name).terms.name for name in ledger.accounts()]
    finally:
        ledger.dispose()
