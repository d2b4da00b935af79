"""Bringing the tables of an older version up to date, with alembic.

`dpicl_schema` says which version a ledger has; alembic's own table is made for the
upgrade and goes away with it. All of it is one transaction: a ledger is of the old
version or of the new one, whatever happens in between.
"""

from __future__ import annotations

from sqlalchemy import URL, Connection, event, text
from sqlalchemy.exc import SQLAlchemyError

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.sql.creation import (
    no_ledger,
    record_version,
    require_version,
    schema_version,
)
from langchain_dpicl.ledger.sql.engine import (
    lock_everything,
    open_engine,
    parse_url,
    shown,
)
from langchain_dpicl.ledger.sql.schema import SCHEMA_VERSION, UNREADABLE
from langchain_dpicl.ledger.sql.sqlite_file import sqlite_file

SCRIPTS = "langchain_dpicl.ledger.sql:migrations"
_VERSION_TABLE = "dpicl_migration"


def upgrade_ledger(url: str | URL) -> int:
    """Bring a ledger of an older library version up to date; return the version it had.

    Stop everything that uses the ledger, and make a copy, before.

    Raises:
        LedgerError: If there is no ledger, it is damaged or newer than this library, or
            it is in use. It is then as it was before.
    """
    parsed = parse_url(url)
    name = shown(parsed)
    file = sqlite_file(parsed)
    if file is not None and not file.exists():
        raise no_ledger(name)
    engine = open_engine(parsed, file)
    if engine.dialect.name == "sqlite":
        # Tables are copied to change a column; nothing may follow the old one's end.
        event.listen(
            engine, "connect", lambda c, _: c.execute("PRAGMA foreign_keys=OFF")
        )
    failure = ""
    try:
        with engine.connect() as connection, lock_everything(connection):
            version = schema_version(connection)
            if version is None:
                raise no_ledger(name)
            if version < SCHEMA_VERSION:
                run_migrations(connection, version)
                record_version(connection)
            require_version(max(version, SCHEMA_VERSION), name)
            return version
    except (SQLAlchemyError, OSError) as error:
        failure = type(getattr(error, "orig", None) or error).__name__
    except UNREADABLE as error:
        failure = str(error)
    finally:
        engine.dispose()
    # Raised here, outside the handlers: see `SQLLedger`.
    raise LedgerError(
        f"The ledger {name} can't be upgraded ({failure}) and is as it was. Is it in "
        "use, or damaged?"
    )


def run_migrations(connection: Connection, version: int, target: str = "head") -> None:
    """Run what leads from a schema version, 0 if empty, to another revision."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.attributes["connection"] = connection
    command.stamp(config, f"{version:04d}" if version else "base", purge=True)
    command.upgrade(config, target)
    connection.execute(text(f"DROP TABLE {_VERSION_TABLE}"))
