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
| `GDPTable` | one trusted place | noisy statistics of groups of rows |
| `LDPClient`, `LDPTable` | nobody: rows are randomized at home | reports of rows |

`TextRows` makes rows for both out of free text: a model fills in the schema.

Both give examples once and for any number of questions. Names are imported when they
are first used, so that `reconstruct` needs no LangChain.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dpicl.common.inferred import InferredTypeWarning
    from langchain_dpicl.tabular.gdp.counts import CountTable, Estimate
    from langchain_dpicl.tabular.gdp.mergeable import Tally, merge, tally
    from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
    from langchain_dpicl.tabular.gdp.table import GDPTable
    from langchain_dpicl.tabular.ldp.client import LDPClient
    from langchain_dpicl.tabular.ldp.reconstruction import reconstruct
    from langchain_dpicl.tabular.ldp.table import LDPTable
    from langchain_dpicl.tabular.rows.arrow import ArrowRows
    from langchain_dpicl.tabular.rows.sql import SQLRows
    from langchain_dpicl.tabular.rows.text_files import CSVRows, JSONRows
    from langchain_dpicl.tabular.schema.columns import CategoricalColumn
    from langchain_dpicl.tabular.schema.numeric import NumericColumn
    from langchain_dpicl.tabular.schema.table import TableSchema
    from langchain_dpicl.tabular.text.drafting import draft_schema
    from langchain_dpicl.tabular.text.rows import TextRows

__all__ = [
    "ArrowRows",
    "CSVRows",
    "CategoricalColumn",
    "CountTable",
    "Estimate",
    "GDPTable",
    "InferredTypeWarning",
    "JSONRows",
    "LDPClient",
    "LDPTable",
    "NoisyStatistics",
    "NumericColumn",
    "SQLRows",
    "TableSchema",
    "Tally",
    "TextRows",
    "draft_schema",
    "merge",
    "reconstruct",
    "tally",
]

_HOMES = {
    "ArrowRows": "rows.arrow",
    "CSVRows": "rows.text_files",
    "CategoricalColumn": "schema.columns",
    "CountTable": "gdp.counts",
    "Estimate": "gdp.counts",
    "GDPTable": "gdp.table",
    "InferredTypeWarning": "rows.frames",
    "JSONRows": "rows.text_files",
    "LDPClient": "ldp.client",
    "LDPTable": "ldp.table",
    "NoisyStatistics": "gdp.statistics",
    "NumericColumn": "schema.numeric",
    "SQLRows": "rows.sql",
    "TableSchema": "schema.table",
    "Tally": "gdp.mergeable",
    "TextRows": "text.rows",
    "draft_schema": "text.drafting",
    "merge": "gdp.mergeable",
    "reconstruct": "ldp.reconstruction",
    "tally": "gdp.mergeable",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
