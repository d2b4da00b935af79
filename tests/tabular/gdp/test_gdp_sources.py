"""The same release from frames, mappings, iterators and databases; and no row leaks."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from support.table_parts import CANARY, account, people, people_schema

from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.tabular import GDPTable, SQLRows

EXACT = 1e5

Rows = list[dict[str, Any]]


def generated(rows: Rows) -> Iterator[dict[str, Any]]:
    yield from rows


def table_in(path: Path, rows: Rows) -> str:
    """Return the URL of a new database with the rows in a table."""
    url = f"sqlite:///{path / 'people.db'}"
    engine = sa.create_engine(url)
    pd.DataFrame(rows).to_sql("people", engine, index=False)
    engine.dispose()
    return url


def test_a_database_is_read_in_chunks(tmp_path: Path) -> None:
    url = table_in(tmp_path, people(600))
    statement = sa.text("SELECT age, pay, job, ill FROM people WHERE age >= :least")
    data = SQLRows(url, statement, {"least": 0})
    found = GDPTable(data, people_schema(), budget=account(EXACT)).release()
    assert [round(size.value) for size in found.statistics.sizes] == [
        sum(row["ill"] == ill for row in people(600)) for ill in ("0", "1")
    ]


def test_what_is_left_of_an_iterator_is_not_the_table() -> None:
    rows = people(20)
    rows[7] = {**rows[7], "age": CANARY}
    table = GDPTable(generated(rows), people_schema(), budget=account())
    with pytest.raises(InvalidParameterError, match="'age'"):
        table.release()
    with pytest.raises(InvalidParameterError, match="iterator"):
        table.release()
    again = GDPTable(rows, people_schema(), budget=account())
    for _ in range(2):
        with pytest.raises(InvalidParameterError, match="'age'"):
            again.release()


def test_a_column_that_the_schema_does_not_know() -> None:
    rows = [{**row, "note": CANARY} for row in people(50)]
    with pytest.raises(InvalidParameterError, match="note"):
        GDPTable(rows, people_schema(), budget=account()).release()
    GDPTable(rows, people_schema(), budget=account(), extra_columns="ignore").release()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("age", CANARY),
        ("pay", CANARY),
        ("job", CANARY),
        ("ill", CANARY),
        ("age", None),
        ("pay", float("nan")),
        ("job", None),
        ("ill", [CANARY]),
        ("job", {CANARY: CANARY}),
    ],
)
def test_errors_name_the_column_and_hold_nothing_of_the_row(
    column: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rows = [{**row, "job": row["job"]} for row in people(20)]
    rows[7] = {**rows[7], column: value}
    table = GDPTable(rows, people_schema(), budget=account())
    with pytest.raises(DPError, match=repr(column)) as caught:
        table.release()
    shown = "".join(
        traceback.TracebackException.from_exception(
            caught.value, capture_locals=True
        ).format()
    )
    # Our frames and what lies between; not this test's own.
    ours = shown.split("langchain_dpicl", 1)[1]
    assert CANARY not in str(caught.value)
    assert CANARY not in ours
    assert CANARY not in caplog.text
    assert CANARY not in repr(table)


def test_the_ledger_holds_nothing_of_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    rows = [{**row, "who": f"{CANARY}-{place}"} for place, row in enumerate(people(90))]
    table = GDPTable(
        rows,
        people_schema(),
        budget=account(ledger=f"sqlite:///{path}"),
        unit_key="who",
        small_groups="keep",
    )
    examples = table.examples(3)
    assert CANARY.encode() not in path.read_bytes()
    assert CANARY not in repr(examples.record)
    assert CANARY not in repr(vars(table))
