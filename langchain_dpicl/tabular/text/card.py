"""The public card that a model fills in: columns, values, and what "unknown" is.

Everything here follows from the schema alone. "Unknown" is a value of every column, so
that a unit about which the model says nothing has a row like everybody else:

* a category's `missing` value, if the schema declares one; else the one value that says
  itself that nothing is told ("unknown", "not mentioned"); else the value `UNKNOWN`,
  which is added and declared as `missing`;
* a number's `missing`, which the schema must declare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.text.fields import (
    UNKNOWN,
    CategoryField,
    Field,
    NumberField,
    stems_of,
    value_key,
)

_LONGEST_NAME = 200


class ColumnNames:
    """Columns' names as replies may spell them; public.

    Args:
        names: By column, what it is called.

    Example:
        >>> names = ColumnNames({"drug": ["drug"], "side effect": ["side effect"]})
        >>> [names.find(name) for name in ("Side_Effects", "effect", "drug dose", "x")]
        ['side effect', 'side effect', 'drug', None]
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._known = [
            (frozenset(stems_of(called)), column)
            for column, all_called in names.items()
            for called in all_called
        ]

    def find(self, name: str) -> str | None:
        """Return the column that a reply's name means: by all its words, or by some.

        Args:
            name: A name of one column, by fewer words or by more; private.
        """
        stems = frozenset(stems_of(name[:_LONGEST_NAME]))
        shorter = [
            (len(known), column) for known, column in self._known if known < stems
        ]
        most = max(shorter, default=(0, ""))[0]
        for fits in (
            {column for known, column in self._known if known == stems},
            {column for known, column in self._known if stems and known > stems},
            {column for length, column in shorter if length == most},
        ):
            if fits:
                return fits.pop() if len(fits) == 1 else None
        return None


@dataclass(frozen=True)
class Card:
    """A schema as a model fills it in.

    Attributes:
        schema: The effective public schema: each column of categories has its
            "unknown".
        fields: How each column is read.

    Example:
        >>> schema = TableSchema(
        ...     label="ill",
        ...     columns=[
        ...         CategoricalColumn(name="job", values=["clerk", "nurse"]),
        ...         CategoricalColumn(name="ill", values=["no", "yes", "not stated"]),
        ...     ],
        ... )
        >>> card = Card.of(schema)
        >>> card.unknowns, card.schema.column("job").values
        ({'job': 'unknown', 'ill': 'not stated'}, ('clerk', 'nurse', 'unknown'))
    """

    schema: TableSchema
    fields: tuple[Field, ...]

    @classmethod
    def of(cls, schema: Any) -> Card:
        """Return a schema's card.

        Raises:
            InvalidParameterError: If this is no schema, a column has no value for
                "unknown" and can't be given one, or two values or two names can't be
                told apart in a reply.
        """
        if not isinstance(schema, TableSchema):
            raise InvalidParameterError(
                f"schema must be a TableSchema, not {type(schema).__name__}: it says "
                "which values are public. draft_schema(model, about=...) drafts one."
            )
        fields = tuple(map(_field, schema.columns))
        columns = [field.column for field in fields]
        _require_distinct_names(columns)
        return cls(schema.model_copy(update={"columns": columns}), fields)

    @cached_property
    def names(self) -> ColumnNames:
        """The columns' names."""
        return ColumnNames(
            {
                field.column.name: (field.column.name, field.column.title)
                for field in self.fields
            }
        )

    @property
    def unknowns(self) -> dict[str, Any]:
        """The row of a unit about which nothing is known."""
        return {field.column.name: field.unknown for field in self.fields}

    @property
    def nones(self) -> dict[str, str | None]:
        """By column, its value that says that there is none."""
        return {
            field.column.name: getattr(field, "none", None) for field in self.fields
        }

    @cached_property
    def opened(self) -> dict[str, CategoryField]:
        """The open columns, by name."""
        return {
            field.column.name: field
            for field in self.fields
            if isinstance(field, CategoryField) and field.column.open
        }

    @property
    def lines(self) -> str:
        """The columns as lines of the prompt."""
        return "\n".join(f"- {field.line}" for field in self.fields)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The answer as JSON Schema, every column required."""
        found = {field.column.name: field.json_schema for field in self.fields}
        return {
            "type": "object",
            "properties": found,
            "required": list(found),
            "additionalProperties": False,
        }


def _field(column: CategoricalColumn | NumericColumn) -> Field:
    if isinstance(column, NumericColumn):
        if column.missing is None:
            raise InvalidParameterError(
                f"Column {column.name!r} needs missing=: the public number that stands "
                "for a person whose records tell none."
            )
        return NumberField(column, column.missing)
    unknown = column.missing
    if unknown is None:
        silent = [value for value in column.values if says_nothing(value)]
        if len(silent) > 1:
            raise InvalidParameterError(
                f"Column {column.name!r}: {silent[0]!r} and {silent[1]!r} both say "
                "that nothing is known. Keep one of them, or declare it as missing=."
            )
        unknown = silent[0] if silent else UNKNOWN
        values = column.values if silent else (*column.values, UNKNOWN)
        column = column.model_copy(update={"values": values, "missing": unknown})
    field = CategoryField(column, unknown)
    _require_distinct_values(field)
    return field


def _require_distinct_values(field: CategoryField) -> None:
    """Refuse values that differ in case, punctuation or inflection alone."""
    known: dict[Any, str] = {}
    for value in field.labels:
        other = known.setdefault(value_key(value), value)
        if other != value:
            raise InvalidParameterError(
                f"Column {field.column.name!r}: the values {other!r} and {value!r} "
                "can't be told apart in a reply (letter case, punctuation, inflection "
                "and the order of words don't count). Make one of them."
            )


def _require_distinct_names(columns: Iterable[Any]) -> None:
    names = [column.name for column in columns]
    keys = [stems_of(name) for name in names]
    for key, times in Counter(keys).items():
        if times > 1 or not key:
            name = names[keys.index(key)]
            raise InvalidParameterError(
                f"Column {name!r} can't be told from another one in a reply, or its "
                "name has no word in it. Rename one."
            )
