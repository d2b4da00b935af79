"""Rows as text, in the form that a table's examples have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.tabular.schema.table import TableSchema


@dataclass(frozen=True)
class RowText:
    """Writes rows as text; it holds what is public of a table, and no row.

    Attributes:
        schema: The public schema.
        binned: Whether numbers are shown by their bins.
        unit_key: A column that is left out, unless the schema has it.
        ignores_others: Whether columns that the schema doesn't have are left out.

    Example:
        >>> from langchain_dpicl.tabular import CategoricalColumn, TableSchema
        >>> columns = [
        ...     CategoricalColumn(name="job", values=["clerk", "nurse"]),
        ...     CategoricalColumn(name="ill", values=["no", "yes"]),
        ... ]
        >>> text = RowText(TableSchema(label="ill", columns=columns), False, "id")
        >>> text({"id": 7, "job": "nurse"})
        'The job is nurse.'
    """

    schema: TableSchema
    binned: bool
    unit_key: str | None = None
    ignores_others: bool = False

    def __call__(self, row: Mapping[str, Any]) -> str:
        """Return a row's features as text.

        Raises:
            InvalidParameterError: If it is no row of this schema.
        """
        if isinstance(row, Mapping):
            ignores = self.ignores_others
            row = {
                name: value
                for name, value in row.items()
                if name in self.schema.names or not (ignores or name == self.unit_key)
            }
        return self.schema.text(row, binned=self.binned)
