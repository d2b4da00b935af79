"""Patients' visits as Parquet files, for the recipes of engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from langchain_dpicl.tabular import TableSchema, Tally, tally
from support.table_parts import people, people_schema

ROWS = 600


def make_visits(folder: Path) -> tuple[list[dict[str, Any]], TableSchema]:
    """Write files of visits and the schema; return the rows and the schema.

    Visits of one patient are in several files, and some patients have more than the
    three that take part.
    """
    rows = [
        {**row, "patient": f"p{number * number % 151}"}
        for number, row in enumerate(people(ROWS))
    ]
    (folder / "visits").mkdir()
    for part in range(4):
        table = pa.Table.from_pylist(rows[part::4])
        pq.write_table(table, folder / "visits" / f"{part}.parquet")
    schema = people_schema()
    schema.save(folder / "schema.json")
    return rows, schema


def exact(found: Tally) -> list[Any]:
    """Return a tally's sums, and how many rows there are."""
    return [*found.exact, found.n_rows]


def whole(rows: list[dict[str, Any]], schema: TableSchema, key: bytes) -> list[Any]:
    """Return what the recipes must come to."""
    return exact(tally(rows, schema, key, unit_key="patient", rows_per_unit=3))
