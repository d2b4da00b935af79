"""Whatever is edited beside the ledger, in any database, is refused or changes nothing.

The edits come from the tables themselves: each column of each row gets NULL, 0, one
more, another type, and the value of the row before; each row is deleted, and doubled.
Foreign keys and constraints are switched off, as somebody who edits would do. Each edit
is taken back, since its transaction fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from ledger.book_parts import charge, draw, forget, opened, pay
from sqlalchemy.exc import SQLAlchemyError

from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.ledger import CorpusTerms, Ledger
from langchain_dpicl.ledger.book import NOTED, Transaction
from langchain_dpicl.ledger.schema import book_table, metadata, unit_table
from langchain_dpicl.ledger.verify import verify_ledger

CLINIC = CorpusTerms("clinic", "patient", epsilon=24, delta=1e-5, window_days=30)
Edit = tuple[str, Any]


class TakenBackError(DPError):
    """Ends a transaction that has edited something."""


def fill(ledger: Ledger) -> None:
    """Write entries of every kind."""
    opened(ledger)
    draw(ledger, charge(ledger, key="a question"), [1, 2])
    charge(ledger)

    def write(transaction: Transaction) -> None:
        held = transaction.load("account", "notes", "alone")
        held = transaction.append(held, "note", {"value": "so"}, charge=1, step=NOTED)
        transaction.append(held, "owner", {"owner": None}, charge=2)

    ledger.run(write)
    forget(ledger)
    opened(ledger, "units", scope="unit")
    for _ in range(2):
        pay(ledger, ["p1", "p2"], "units")
    ledger.close_account("units")
    opened(ledger, "a", CLINIC, period="2020-01-01/2099-12-31")
    charge(ledger, "a")
    opened(ledger, "filter", queries=None)
    charge(ledger, "filter")


def edits(transaction: Transaction, tables: Any) -> Iterator[Edit]:
    """Yield each edit: what it is, and a statement."""
    for table in tables:
        rows = transaction.execute(sa.select(table)).mappings().all()
        assert rows, f"no row of {table} is there to be edited"
        keys = [column.name for column in table.primary_key]
        for place, row in enumerate(rows):
            where = sa.and_(*(table.c[key] == row[key] for key in keys))
            for column in table.c:
                name = f"{table}[{place}].{column.name}"
                for how, new in _values(row[column.name], rows[place - 1][column.name]):
                    value = {column.name: sa.literal_column(new)}
                    yield f"{name}: {how}", sa.update(table).where(where).values(value)
            yield f"{table}[{place}]: deleted", sa.delete(table).where(where)
            for key in keys:
                twin = {**row, key: f"{row[key]}1" if key == "tag" else 10**6}
                if table is book_table:
                    twin["name"] += "1"
                yield f"{table}[{place}]: doubled", sa.insert(table).values(twin)


def _values(value: Any, near: Any) -> Iterator[tuple[str, str]]:
    is_text = isinstance(value, str)
    more = (value + "1" if is_text else value + 1) if value is not None else 1
    yield "NULL", "NULL"
    yield "0", "'0'" if is_text else "0"
    yield "more", _sql(more)
    yield "other type", "x'00'" if is_text else "'x'"
    yield "near", _sql(near)


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''").replace(":", "\\:") + "'"


def results(
    ledger: Ledger, check: Callable[[Transaction], object], tables: Any
) -> Counter[str]:
    """Make each edit and take it back; count what came of it."""
    found: Counter[str] = Counter()

    def attempt(transaction: Transaction, name: str, statement: Any) -> None:
        for freed in (
            ["PRAGMA defer_foreign_keys=ON", "PRAGMA ignore_check_constraints=ON"]
            if transaction.connection.dialect.name == "sqlite"
            else ["SET LOCAL session_replication_role = replica"]
        ):
            transaction.connection.exec_driver_sql(freed)
        before = contents(transaction)
        try:
            transaction.execute(statement)
        except SQLAlchemyError:
            found["refused by the database"] += 1
            raise TakenBackError from None
        if contents(transaction) == before:
            found["changes nothing"] += 1
            raise TakenBackError
        try:
            check(transaction)
        except LedgerError:
            found["refused by verify"] += 1
        else:
            found[name] += 1
        raise TakenBackError

    for name, statement in ledger.run(lambda t: list(edits(t, tables)), writes=False):
        with pytest.raises(TakenBackError):
            ledger.run(lambda t, n=name, s=statement: attempt(t, n, s))
    return found


def contents(transaction: Transaction) -> list[Counter[Any]]:
    tables = metadata.sorted_tables
    return [Counter(transaction.execute(sa.select(table)).all()) for table in tables]


def check(
    ledger: Ledger,
    verify: Callable[[Transaction], object] = verify_ledger,
    tables: Any = metadata.sorted_tables,
) -> int:
    """Make each edit; return how many were made."""
    fill(ledger)
    whole = ledger.verify()
    found = results(ledger, verify, tables)
    kinds = {"refused by the database", "refused by verify", "changes nothing"}
    assert {*found} <= kinds, {*found} - kinds
    assert ledger.verify() == whole
    return sum(found.values())


def test_each_edit_is_seen_or_changes_nothing() -> None:
    assert check(Ledger(":memory:")) > 1500


@pytest.mark.whole
def test_each_edit_of_a_server_is_seen_too(postgres: Any) -> None:
    ledger = Ledger(postgres.new_database())
    assert check(ledger) > 1500
    ledger.dispose()


def test_twin_heads_of_books_alone_show_no_edit_of_a_balance() -> None:
    def reads_heads(transaction: Transaction) -> None:
        rows = transaction.execute(sa.select(book_table.c.kind, book_table.c.name))
        for kind, name in rows.all():
            transaction.load(kind, name)

    with pytest.raises(AssertionError, match="dpicl_unit"):
        check(Ledger(":memory:"), reads_heads, [unit_table])
