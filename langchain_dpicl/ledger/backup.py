"""A copy of a SQLite ledger that is whole, made while the ledger is in use."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import URL

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.book import Transaction
from langchain_dpicl.ledger.engine import place_copy
from langchain_dpicl.ledger.ledger import Ledger


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
        forgotten every charge since: `docs/operate/run.md` says what to
        do then.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> url = f"sqlite:///{folder.name}/clinic.db"
        >>> Ledger(url).dispose()
        >>> backup_ledger(url, Path(folder.name, "clinic-1.db"))
        []
        >>> folder.cleanup()
    """
    ledger, to = Ledger(url, create=False), Path(target)
    accounts: list[str] = []

    def check(draft: Path) -> None:
        copy = Ledger(URL.create("sqlite", database=str(draft)), create=False)
        try:
            copy.verify()
            accounts.extend(copy.accounts())
        finally:
            copy.dispose()

    def copy(transaction: Transaction) -> str:
        driver = transaction.connection.connection.driver_connection
        try:
            place_copy(driver, to, check, mode=mode)
        except FileExistsError:
            return "something is there, and nothing is overwritten"
        except (OSError, sqlite3.Error) as error:
            return f"{type(error).__name__}: is there a folder, and room in it?"
        except LedgerError as error:
            return str(error)
        return ""

    try:
        if ledger.path is None:
            raise LedgerError(
                "Only a SQLite ledger is copied here. Let PostgreSQL make the copy: "
                "'pg_dump', or the archive of its log, which loses no charge."
            )
        mode = ledger.path.stat().st_mode & 0o777
        if why := ledger.run(copy, writes=False):
            raise LedgerError(f"No copy was made at {to}: {why}")
    finally:
        ledger.dispose()
    return accounts
