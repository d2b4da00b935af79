"""The schema of a table: everything that is known of it before anybody looks at it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from langchain_dpicl.common import file_format
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Public
from langchain_dpicl.tabular.columns import (
    CategoricalColumn,
    NumericColumn,
    filled,
    names_in,
)

Column = CategoricalColumn | NumericColumn

SENTENCES = "sentences"
"""The name of all sentences in a row's template."""


class TableSchema(Public):
    """The public schema of a private table.

    Make it by hand, load it from a JSON file (`load`), or let a model draft it
    (`draft_schema`). The table itself is never asked: names and types of columns, their
    domains, bounds, bins and wording come from here.

    Privacy:
        Every field is public, and must have been so without the table. Bounds,
        thresholds and categories taken from the table are functions of single rows
        that no noise protects. What is in here can go to models, logs and files.

    Raises:
        InvalidParameterError: If a field is wrong. It names the column and the way out.

    Example:
        >>> schema = TableSchema(
        ...     label="income",
        ...     columns=[
        ...         NumericColumn(
        ...             name="age", kind="integer", lower=17, upper=90, unit="years"
        ...         ),
        ...         CategoricalColumn(name="job", values=["clerk", "nurse"]),
        ...         CategoricalColumn(name="income", values=["low", "high"]),
        ...     ],
        ... )
        >>> schema.text({"age": 37, "job": "clerk"})
        'The age is 37 years. The job is clerk.'
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)

    label: str
    """The name of the column to predict, a categorical one."""

    columns: tuple[Annotated[Column, Field(discriminator="kind")], ...]
    """All columns that are used, the label's among them."""

    template: str = "{sentences}"
    """A row's text: `{sentences}` are the features' sentences, and a feature's name in
    braces is its value."""

    @field_validator("columns", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return tuple(given) if isinstance(given, list) else given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = self.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"columns: the column {twice!r} is there twice")
        label = next((c for c in self.columns if c.name == self.label), None)
        if not isinstance(label, CategoricalColumn) or label.max_items is not None:
            raise ValueError(
                f"label: {self.label!r} must be one of the columns, a categorical one "
                "without max_items="
            )
        if not self.features:
            raise ValueError(f"columns: there is none besides the label {self.label!r}")
        features = [column.name for column in self.features]
        names_in(self.template, (SENTENCES, *features))
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """The columns of categories, with their declared values."""
        return {
            column.name: column.values
            for column in self.columns
            if isinstance(column, CategoricalColumn)
        }

    @property
    def features(self) -> tuple[Column, ...]:
        """All columns but the label's."""
        return tuple(column for column in self.columns if column.name != self.label)

    @property
    def label_column(self) -> CategoricalColumn:
        """The label's column."""
        column = self.column(self.label)
        assert isinstance(column, CategoricalColumn)  # noqa: S101 - by `_consistent`
        return column

    @property
    def labels(self) -> tuple[str, ...]:
        """How the label's values are written, in the order of their codes."""
        return tuple(map(self.label_column.text, self.label_column.values))

    def column(self, name: str) -> Column:
        """Return a column by its name.

        Raises:
            InvalidParameterError: If the schema has no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidParameterError(
            f"Column {name!r:.80} is not in the schema. Leave it out, or declare it. "
            f"The schema has {', '.join(map(repr, self.names)):.400}."
        )

    def text(self, row: Mapping[str, Any], *, binned: bool = False) -> str:
        """Write a row's features as text.

        Args:
            row: Columns' names and values, raw or as a release gives them. The label
                may be there or not; it is not shown.
            binned: Whether to write numbers by their bins, where they have some.

        Raises:
            InvalidParameterError: If a feature is missing, a column unknown, or a value
                refused. The message names the column and holds no value.

        Example:
            >>> age = {"name": "age", "kind": "number", "lower": 0, "upper": 99}
            >>> schema = TableSchema(
            ...     label="sick",
            ...     columns=[
            ...         {**age, "bins": [40]},
            ...         {"name": "sick", "kind": "categorical", "values": [0, 1]},
            ...     ],
            ... )
            >>> schema.text({"age": 37}, binned=True)
            'The age is below 40.'
        """
        if not isinstance(row, Mapping):
            raise InvalidParameterError(
                "A row is a mapping from columns' names to values, not "
                f"{type(row).__name__}. Pass a dictionary."
            )
        for name in row:
            self.column(name)
        sentences, values = [], {}
        for column in self.features:
            if column.name not in row and column.missing is None:
                raise InvalidParameterError(
                    f"Column {column.name!r} is missing from the row. Give its value, "
                    "or declare what missing values count as (missing=)."
                )
            value, by_bin = row.get(column.name), binned and bool(column.domain_size)
            sentences.append(column.sentence(value, binned=by_bin))
            values[column.name] = column.text(value, binned=by_bin)
        return filled(self.template, {**values, SENTENCES: " ".join(sentences)})

    def label_text(self, value: Any) -> str:
        """Return how a value of the label is written.

        Raises:
            InvalidParameterError: If the label can't have it.
        """
        return self.label_column.text(value)

    def describe(self) -> dict[str, Any]:
        """Return the schema's fields, ready for JSON; `TableSchema` takes them."""
        return self.model_dump(mode="json", exclude_none=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a JSON file; what was there is replaced.

        Raises:
            InvalidParameterError: If the file can't be written.
        """
        file_format.write(path, self.describe(), file_format.SCHEMA, overwrite=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a schema from a JSON file that `save` wrote, or somebody by hand.

        Raises:
            InvalidParameterError: If the file can't be read or holds no schema.
        """
        return cls(**file_format.read(path, file_format.SCHEMA))

    def fingerprint(self) -> str:
        """Return a digest of the schema: equal for schemas that are equal."""
        return file_format.digest(self.describe())
