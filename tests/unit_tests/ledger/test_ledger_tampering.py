"""Whatever is edited in a ledger's file beside the ledger is seen.

The edits come from the file's own schema: each column of each table gets NULL, 0, one
more, another type and the value of the next row; a row is deleted, and doubled. After
each edit the database, `verify`, opening or charging refuses. One row of each kind is
edited; in the whole suite every row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from faces import (
    Charge,
    CorpusTerms,
    DPError,
    Exponential,
    Failure,
    Gaussian,
    close,
    open_account,
    open_ledger,
    verify,
)
from suite import WHOLE
from worlds import UNIT

CAP = CorpusTerms("clinic", UNIT, epsilon=40.0, delta=1e-5, window_days=30)
ACCOUNTS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "plan": ({"queries": 9, "purpose": "a study"}, ()),
    "filter": (
        {"accounting": "renyi", "order": 8.0, "delta0_share": 0.25},
        (Gaussian(9.0), Failure(1e-9)),
    ),
    "unit": ({"accounting": "zcdp", "scope": "unit"}, (Exponential(0.1),)),
    "closed": ({"queries": 9}, ()),
    "month": ({"queries": 9, "corpus": CAP, "period": "2020-01-01/2099-12-31"}, ()),
}


@pytest.fixture
def file(folder: Path) -> Path:
    """A ledger of all kinds of accounts, charged and drawn."""
    path = folder / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}")
    for name, (terms, events) in ACCOUNTS.items():
        account = open_account(ledger, name, **terms)
        for key in ("a question", None):
            charge = Charge(account, events, key)
            if name == "unit":
                charge.collect(["p-1", "p-2"][: charge.number])
            charge.once(lambda: f"yes, {charge.number}") if key else charge.give_up()  # noqa: B023
        if name == "closed":
            close(account)
    verify(ledger)
    ledger.dispose()
    return path


def connected(path: Path) -> Any:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    return closing(connection)


def values(value: Any, neighbor: Any) -> dict[str, Any]:
    """Return what a cell is edited to."""
    more = None if value is None else value + type(value)("1")
    other = b"blob" if isinstance(value, str) else "word"
    found = {"null": None, "zero": 0, "more": more, "other": other, "next": neighbor}
    return {
        how: new
        for how, new in found.items()
        if (new, type(new)) != (value, type(value))
    }


Edit = tuple[str, str, str, list[Any]]


def edits(path: Path) -> Iterator[Edit]:
    """Yield each edit: the cell or table, how, and the statement with its values."""
    with connected(path) as connection:
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            names, keys = [c[1] for c in columns], [c[1] for c in columns if c[5]]
            found = connection.execute(f"SELECT * FROM {table}").fetchall()
            rows = [dict(zip(names, row, strict=True)) for row in found]
            assert rows, f"no row of {table} is there to be edited"
            where = " AND ".join(f"{key} IS ?" for key in keys)
            kinds = set[Any]()
            for row, neighbor in zip(rows, rows[1:] + rows[:1], strict=True):
                # An account's own row has its terms; its entries are of a few kinds.
                kind = row.get("name", row.get("kind"))
                if kind in kinds and not WHOLE:
                    continue
                kinds.add(kind)
                key, place = [row[k] for k in keys], table
                yield place, "deleted", f"DELETE FROM {table} WHERE {where}", key
                for column, value in row.items():
                    edit = f"UPDATE {table} SET {column} = ? WHERE {where}"
                    for how, new in values(value, neighbor[column]).items():
                        yield f"{place}.{column}", how, edit, [new, *key]
                add = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
                for again in keys:
                    fresh = max(one[again] for one in rows)
                    fresh = fresh + 1 if isinstance(fresh, int) else fresh[::-1]
                    double = [*{**row, again: fresh}.values()]
                    yield place, f"doubled by {again}", add, double


def refuses(path: Path) -> bool:
    """Return whether verifying, opening or charging refuses a ledger."""
    ledger: Any = None
    try:
        ledger = open_ledger(f"sqlite:///{path}", create=False)
        verify(ledger)
        for name, (terms, events) in ACCOUNTS.items():
            account = open_account(ledger, name, **terms)
            if name != "closed":
                Charge(account, events).give_up()
    except DPError:
        return True
    finally:
        if ledger is not None:
            ledger.dispose()
    return False


def check(file: Path, refuses: Callable[[Path], bool]) -> None:
    """Make each edit in a copy; all are refused."""
    copy, whole, unseen = file.with_name("copy.db"), file.read_bytes(), set[str]()
    copy.write_bytes(whole)
    assert not refuses(copy)
    for cell, how, statement, parameters in edits(file):
        copy.write_bytes(whole)
        with connected(copy) as connection:
            try:
                connection.execute(statement, parameters)
            except sqlite3.IntegrityError:
                continue
        if not refuses(copy):
            unseen.add(f"{cell}: {how}")
    assert not unseen


@pytest.mark.promise("edits-are-seen")
def test_each_edit_beside_the_ledger_is_seen(file: Path) -> None:
    check(file, refuses)


@pytest.mark.promise("edits-are-seen", twin=True)
def test_twin_reading_alone_sees_no_edit(file: Path) -> None:
    def refuses_nothing(path: Path) -> bool:
        with connected(path) as connection:
            return connection.execute("PRAGMA integrity_check").fetchone() != ("ok",)

    with pytest.raises(AssertionError):
        check(file, refuses_nothing)
