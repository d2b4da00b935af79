"""The public card that a model fills in: columns, values, and what "unknown" is.

Everything here follows from the schema alone. "Unknown" is a value of every column, so
that a unit about which the model says nothing has a row like everybody else:

* a category's `missing` value, if the schema declares one; else the one value that says
  itself that nothing is told ("unknown", "not mentioned"); else the value `UNKNOWN`,
  which is added and declared as `missing`;
* a number's `missing`, which the schema must declare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading import declines
from langchain_dpicl.parsers.words import NEGATORS, form, words_of
from langchain_dpicl.tabular.columns import CategoricalColumn, NumericColumn
from langchain_dpicl.tabular.schema import Column, TableSchema
from langchain_dpicl.tabular.terms import require_schema

UNKNOWN = "unknown"
"""The value that is added to a column of categories without one of this meaning."""

DENIALS = (NEGATORS | {"nil", "zero"}) - {"cannot", "cant", "not"}
"""First words of a value, or of a reply, that says that there is none."""

_LONGEST_NAME = 200
_SIGNS = re.compile(r"[<>=+#%$&\u20ac\u00a3]|^-(?=\d)")


@dataclass(frozen=True)
class Field:
    """One column of the card.

    Attributes:
        column: The column, with its "unknown".
        unknown: The value that stands for "unknown".
    """

    column: Column
    unknown: Any

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The values of a column of categories, in the order of their codes."""
        return self.column.values if isinstance(self.column, CategoricalColumn) else ()

    @cached_property
    def aliases(self) -> dict[str, tuple[str, ...]]:
        """Further spellings of values: how they are shown."""
        texts = getattr(self.column, "texts", {})
        return {value: (text,) for value, text in texts.items()}

    @cached_property
    def none(self) -> str | None:
        """The one value that says that there is none, if there is one."""
        denials = [value for value in self.labels if is_denial(value)]
        bare = [value for value in denials if value.casefold() in DENIALS]
        found = bare or denials
        return found[0] if len(found) == 1 else None

    @property
    def line(self) -> str:
        """The column's line of the prompt."""
        column = self.column
        title = f" ({column.title})" if column.title != column.name else ""
        if isinstance(column, NumericColumn):
            kind = "a whole number" if column.kind == "integer" else "a number"
            unit = f" of {column.unit}" if column.unit else ""
            bounds = f"from {column.lower} to {column.upper}"
            return f'"{column.name}"{title}: {kind}{unit} {bounds}, or null'
        texts = {value: f" ({text})" for value, text in column.texts.items()}
        shown = (f'"{value}"{texts.get(value, "")}' for value in self.choices)
        other = column.other
        hint = f' ("{other}" for any other)' if other not in (None, UNKNOWN) else ""
        return f'"{column.name}"{title}: {", ".join(shown)}{hint}, or "{self.unknown}"'

    @property
    def choices(self) -> list[str]:
        """The values of a column of categories that tell something."""
        return [value for value in self.labels if value != self.unknown]

    @property
    def json_schema(self) -> dict[str, Any]:
        """What the model may fill in, as JSON Schema."""
        if isinstance(self.column, CategoricalColumn):
            return {"type": "string", "enum": list(self.labels)}
        kind = "integer" if self.column.kind == "integer" else "number"
        return {"type": [kind, "null"]}


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
        require_schema(schema)
        fields = tuple(map(_field, schema.columns))
        columns = [field.column for field in fields]
        names = [forms_of_name(column.name) for column in columns]
        for place, own in enumerate(names):
            if not own or own in names[:place]:
                raise InvalidParameterError(
                    f"Column {columns[place].name!r} can't be told from another one in "
                    "a reply, or its name has no word in it. Rename one."
                )
        return cls(schema.model_copy(update={"columns": tuple(columns)}), fields)

    @cached_property
    def names(self) -> dict[str, Iterable[str]]:
        """By column, what it may be called."""
        return {
            field.column.name: (field.column.name, field.column.title)
            for field in self.fields
        }

    @property
    def unknowns(self) -> dict[str, Any]:
        """The row of a unit about which nothing is known."""
        return {field.column.name: field.unknown for field in self.fields}

    @property
    def nones(self) -> dict[str, str | None]:
        """By column, its value that says that there is none."""
        return {field.column.name: field.none for field in self.fields}

    def fits(self, told: Mapping[str, Any]) -> bool:
        """Return whether what was told are values of these columns."""
        columns = {field.column.name: field for field in self.fields}
        for name, value in told.items():
            field = columns.get(name)
            if field is None or (field.labels and value not in field.labels):
                return False
            if not field.labels and not isinstance(value, int | float):
                return False
        return True

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


def column_named(name: str, names: Mapping[str, Iterable[str]]) -> str | None:
    """Return the column that a reply's name means: by all its words, or by some.

    `names` says, by column, what it may be called.

    Example:
        >>> names = {"drug": ["drug"], "side effect": ["side effect"]}
        >>> [column_named(name, names) for name in ("Side_Effects", "drug dose", "x")]
        ['side effect', 'drug', None]
    """
    said = set(forms_of_name(name[:_LONGEST_NAME]))
    known = [
        (column, set(forms_of_name(called)))
        for column, all_called in names.items()
        for called in all_called
    ]
    for fits in (
        {column for column, own in known if own == said},
        {column for column, own in known if said and said < own},
        {column for column, own in known if own < said},
    ):
        if fits:
            return fits.pop() if len(fits) == 1 else None
    return None


def forms_of_name(name: str) -> tuple[str, ...]:
    """Return the forms of a name's words, however it is written.

    Example:
        >>> {forms_of_name(name) for name in ("main_drugs", "Main Drug(s)", "mainDrug")}
        {('main', 'drug')}
    """
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name.replace("(s)", ""))
    return tuple(map(form, words_of(split)))


def value_key(value: str) -> tuple[Any, ...]:
    """Return what a value is known by in a reply.

    Example:
        >>> value_key("Weight-losses") == value_key("loss, weight")
        True
        >>> value_key("<5") == value_key("5")
        False
    """
    return (tuple(sorted(map(form, words_of(value)))), *_SIGNS.findall(value))


def is_denial(text: str) -> bool:
    """Return whether a text begins by saying that there is none.

    Example:
        >>> is_denial("No side effects."), is_denial("nausea")
        (True, False)
    """
    return bool(DENIALS.intersection(words_of(text)[:1]))


def _field(column: Column) -> Field:
    if isinstance(column, NumericColumn):
        if column.missing is None:
            raise InvalidParameterError(
                f"Column {column.name!r} needs missing=: the public number that stands "
                "for a person whose records tell none."
            )
        return Field(column, column.missing)
    unknown = column.missing
    if unknown is None:
        silent = [v for v in column.values if declines(v) or not words_of(v)]
        if len(silent) > 1:
            raise InvalidParameterError(
                f"Column {column.name!r}: {silent[0]!r} and {silent[1]!r} both say "
                "that nothing is known. Keep one of them, or declare it as missing=."
            )
        unknown = silent[0] if silent else UNKNOWN
        values = column.values if silent else (*column.values, UNKNOWN)
        column = column.model_copy(update={"values": values, "missing": unknown})
    known: dict[Any, str] = {}
    for value in column.values:
        other = known.setdefault(value_key(value), value)
        if other != value:
            raise InvalidParameterError(
                f"Column {column.name!r}: the values {other!r} and {value!r} can't be "
                "told apart in a reply (letter case, punctuation, inflection and the "
                "order of words don't count). Make one of them."
            )
    return Field(column, unknown)
