"""What is public about a table: columns with domains or bounds, and wording."""

from __future__ import annotations

from langchain_dpicl.tabular.schema.columns import CategoricalColumn, TableColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.table import Column, TableSchema

__all__ = [
    "CategoricalColumn",
    "Column",
    "NumericColumn",
    "TableColumn",
    "TableSchema",
]
