"""Private tables: rows that show what a table is like, and give nobody away.

```python
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    NumericColumn,
    TableSchema,
)

schema = TableSchema(
    label="income",
    columns=[
        NumericColumn(kind="integer", name="age", lower=17, upper=90, unit="years"),
        CategoricalColumn(name="sex", values=["female", "male"]),
        CategoricalColumn(name="income", values=["low", "high"]),
    ],
)
table = GDPTable(frame, schema, budget=budget)
chain = table.classification_chain(model, k=8)
chain.invoke({"age": 41, "sex": "female"})
```

| | who sees rows | what is released |
|---|---|---|
| `GDPTable` | one trusted place | noisy counts by columns and pairs, and means |
| `LDPClient`, `LDPTable` | nobody: rows are randomized at home | reports of rows |

`TextRows` makes rows for both out of free text: a model fills in the schema.

Both give examples once and for any number of questions. Names are imported when they
are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dpicl.tabular.columns import CategoricalColumn, NumericColumn
    from langchain_dpicl.tabular.discovery import discover
    from langchain_dpicl.tabular.gdp.statistics import (
        CountTable,
        Estimate,
        NoisyStatistics,
    )
    from langchain_dpicl.tabular.gdp.table import GDPTable
    from langchain_dpicl.tabular.gdp.tallies import Tally, merge, tally
    from langchain_dpicl.tabular.ldp.client import LDPClient
    from langchain_dpicl.tabular.ldp.table import LDPTable
    from langchain_dpicl.tabular.rows import csv_rows
    from langchain_dpicl.tabular.schema import TableSchema
    from langchain_dpicl.tabular.text.drafting import draft_schema
    from langchain_dpicl.tabular.text.rows import TextRows

_HOMES = {
    "CategoricalColumn": "columns",
    "CountTable": "gdp.statistics",
    "Estimate": "gdp.statistics",
    "GDPTable": "gdp.table",
    "LDPClient": "ldp.client",
    "LDPTable": "ldp.table",
    "NoisyStatistics": "gdp.statistics",
    "NumericColumn": "columns",
    "TableSchema": "schema",
    "Tally": "gdp.tallies",
    "TextRows": "text.rows",
    "csv_rows": "rows",
    "discover": "discovery",
    "draft_schema": "text.drafting",
    "merge": "gdp.tallies",
    "tally": "gdp.tallies",
}

__all__ = [
    "CategoricalColumn",
    "CountTable",
    "Estimate",
    "GDPTable",
    "LDPClient",
    "LDPTable",
    "NoisyStatistics",
    "NumericColumn",
    "TableSchema",
    "Tally",
    "TextRows",
    "csv_rows",
    "discover",
    "draft_schema",
    "merge",
    "tally",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
