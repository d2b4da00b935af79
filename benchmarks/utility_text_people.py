"""A table of people as text: read by the stand-in, released, compared with the rows.

    python benchmarks/utility_text_people.py --rows adult/train.csv.gz [--people N]

Each person's row is written in the schema's sentences, one document a person. The
offline stand-in fills in five categories of it; a language model takes its own time.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import resource
import time
from collections import Counter
from typing import Any

from langchain_core.documents import Document
from rich import box
from rich.console import Console
from rich.table import Table
from utility_tabular_schemas import adult

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema, TextRows

COLUMNS = ("workclass", "marital_status", "occupation", "relationship", "sex")
PAIRS = [
    ("occupation", "sex"),
    ("occupation", "workclass"),
    ("marital_status", "sex"),
    ("relationship", "sex"),
]
EPSILON, DELTA = 1.0, 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", required=True)
    parser.add_argument("--people", type=int)
    parser.add_argument("--model", default="offline", help="or provider:name")
    options = parser.parse_args()
    with gzip.open(options.rows, "rt") as file:
        people = list(csv.DictReader(file))[: options.people]
    whole = adult().schema()
    columns = [column for column in whole.columns if column.name in COLUMNS]
    schema = TableSchema(label="sex", columns=[_plain(column) for column in columns])
    documents = [
        Document(
            " ".join(column.sentence(row[column.name]) for column in schema.columns),
            metadata={"person": number},
        )
        for number, row in enumerate(people)
    ]
    took: dict[str, float] = {}
    start = time.perf_counter()
    rows = TextRows(documents, schema, load_model(options.model), unit_key="person")
    read = list(rows)
    took["reading"] = time.perf_counter() - start
    # Rows come in an order of their own.
    true = Counter(tuple(row[name] for name in COLUMNS) for row in people)
    same = Counter(tuple(one[name] for name in COLUMNS) for one in read) & true
    start = time.perf_counter()
    budget = PrivacyBudgetHandler(
        epsilon=EPSILON, delta=DELTA, queries=1, ledger=":memory:"
    )
    table = GDPTable(rows, rows.schema, measure=PAIRS, budget=budget).release()
    took["release"] = time.perf_counter() - start
    start = time.perf_counter()
    corpus = table.documents()
    took["documents"] = time.perf_counter() - start
    _show(len(people), same.total() / len(people), took, rows, len(corpus))
    for one in list(corpus)[:12]:
        print(f"  {one.page_content}")


def _plain(column: Any) -> CategoricalColumn:
    return CategoricalColumn(name=column.name, values=column.values)


def _show(
    people: int, same: float, took: dict[str, float], rows: TextRows, documents: int
) -> None:
    console = Console(width=120)
    shown = Table(box=box.MARKDOWN)
    shown.add_column("")
    shown.add_column("", justify="right")
    shown.add_row("people", f"{people:,}")
    shown.add_row("rows read as they are", f"{100 * same:.1f} %")
    for name, seconds in took.items():
        shown.add_row(f"{name}, seconds", f"{seconds:.1f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    shown.add_row("peak memory, MiB", f"{peak:.0f}")
    forecast = rows.forecast(people, tokens_per_record=40, price_in=0.15, price_out=0.6)
    shown.add_row("a model at 0.15 and 0.60 a million tokens", str(forecast))
    shown.add_row("documents", str(documents))
    console.print(shown)


if __name__ == "__main__":
    main()
