"""A schema that is not finished: what a table's names and types tell, and what to ask.

Only **names and types** are read. A frame's values, the categories of a pandas or
polars categorical (which are made from values), a database's rows and statistics are
never touched: a bound or a domain found there would not be public. What a *declared*
type says is part of the declaration, and is used: a truth value has two values, and an
`Enum` of SQLAlchemy or Python, or a `Literal`, lists its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from langchain_dpicl.common import file_format
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema.columns import TableColumn
from langchain_dpicl.tabular.schema.declared import Kind, kind_of, values_of
from langchain_dpicl.tabular.schema.table import TableSchema

_PUBLIC = "(from public knowledge, not from the table)"
_QUESTIONS: dict[str, str] = {
    "integer": (
        f"lower and upper bound? {_PUBLIC} If the numbers are codes, answer "
        "{'values': [...]}."
    ),
    "number": f"lower and upper bound? {_PUBLIC}",
    "categorical": f"which values can it have? {_PUBLIC}",
    "text": (
        "this is text. Leave it out (None), or give the values that it can have? "
        f"{_PUBLIC}"
    ),
    "unknown": (
        "its type is neither a number nor text. Leave it out (None), or give its kind, "
        f"and its bounds or values? {_PUBLIC}"
    ),
}
_BOUNDS = 2


class ColumnDraft(BaseModel):
    """What a column's name and declared type tell."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The column's name."""

    kind: Kind
    """What its type is like."""

    values: tuple[str, ...] | None = None
    """The values that the type itself declares."""


class SchemaDraft(BaseModel):
    """What is known of a table from names and types, and what somebody must answer.

    Example:
        >>> draft = TableSchema.draft({"age": int, "smokes": bool}, label="smokes")
        >>> print(draft)  # doctest: +ELLIPSIS
        A schema of 2 columns, the label is 'smokes'. To answer:
        - age: lower and upper bound? (from public knowledge, not from the table) If...
        >>> draft.complete({"age": (0, 120)}).text({"age": 37})
        'The age is 37.'
    """

    model_config = ConfigDict(frozen=True)

    columns: tuple[ColumnDraft, ...]
    """The table's columns."""

    label: str | None = None
    """The column to predict, if it was named."""

    def questions(self) -> list[str]:
        """Return what must be answered before there is a schema, in plain words."""
        asked = [
            f"{column.name}: {_QUESTIONS[column.kind]}"
            for column in self.columns
            if column.values is None
        ]
        if self.label is None:
            asked.append("Which column is the label, the one to predict? (label=)")
        return asked

    def complete(
        self,
        answers: Mapping[str, Any] | None = None,
        *,
        label: str | None = None,
        template: str | None = None,
    ) -> TableSchema:
        """Make the schema from what was answered.

        Args:
            answers: By column: `(lower, upper)` for numbers, a list of values for
                categories, a dictionary of a column's fields (or the column) for
                anything else, or None to leave the column out.
            label: The column to predict, unless the draft knows it.
            template: The row's template, if not the default.

        Returns:
            The schema.

        Raises:
            InvalidParameterError: If an answer is missing, of no known form, or refused
                by the schema. It names the column.
        """
        if answers is not None and not isinstance(answers, Mapping):
            raise InvalidParameterError(
                "answers is a mapping from columns' names to answers, not "
                f"{type(answers).__name__}."
            )
        given = dict(answers or {})
        names = [column.name for column in self.columns]
        for name in given:
            if name not in names:
                raise InvalidParameterError(
                    f"Column {name!r:.80} is not in the table. Answer for its columns: "
                    f"{', '.join(map(repr, names)):.400}."
                )
        label = self.label if label is None else label
        columns, open_questions = [], []
        for column in _with_label(self.columns, label):
            if column.name not in given and column.values is None:
                open_questions.append(f"{column.name}: {_QUESTIONS[column.kind]}")
            elif column.name not in given:
                columns.append(_declared_fields(column))
            elif given[column.name] is not None:
                columns.append(_fields(column, given[column.name]))
        if label is None:
            open_questions.append("which column is the label (label=)?")
        if open_questions:
            raise InvalidParameterError(
                "The schema can't be made yet. To answer: " + " ".join(open_questions)
            )
        fields: dict[str, Any] = {"label": label, "columns": columns}
        return TableSchema(
            **fields, **({} if template is None else {"template": template})
        )

    def to_json(self) -> str:
        """Return JSON to fill in: a schema's, with null for what must be answered.

        Columns of text, and of types that are neither numbers nor text, are in it as
        categories; take out those to leave out. `TableSchema.from_json` and
        `TableSchema.load` read it when it is filled in.
        """
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            if column.kind in ("integer", "number"):
                bounds = {"lower": None, "upper": None}
                columns.append({"name": column.name, "kind": column.kind, **bounds})
            else:
                columns.append(_declared_fields(column))
        content = {"label": self.label, "columns": columns}
        return file_format.dumped(content, file_format.SCHEMA)

    @override
    def __str__(self) -> str:
        label = "no label yet" if self.label is None else f"the label is {self.label!r}"
        lines = [f"- {question}" for question in self.questions()]
        head = f"A schema of {len(self.columns)} columns, {label}."
        return "\n".join(
            [f"{head} To answer:" if lines else f"{head} Complete.", *lines]
        )


def draft(source: Any, *, label: str | None = None) -> SchemaDraft:
    """Draft a schema; see `TableSchema.draft`."""
    types = _types(source)
    columns = tuple(_column(name, type_) for name, type_ in types)
    names = [column.name for column in columns]
    if not names:
        raise InvalidParameterError("A table without columns has no schema.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidParameterError(f"Column {twice!r} is there twice. Rename one.")
    if label is not None and label not in names:
        raise InvalidParameterError(
            f"The label {label!r:.80} is none of the columns: "
            f"{', '.join(map(repr, names)):.400}."
        )
    return SchemaDraft(columns=_with_label(columns, label), label=label)


def _with_label(
    columns: tuple[ColumnDraft, ...], label: str | None
) -> tuple[ColumnDraft, ...]:
    """The columns, the label's as categories: also labels 0 and 1 are named values."""
    return tuple(
        ColumnDraft(name=label, kind="categorical", values=column.values)
        if column.name == label
        else column
        for column in columns
    )


def _types(source: Any) -> list[tuple[Any, Any]]:
    """Names and types, from whatever has them; nothing else is touched."""
    if isinstance(source, Mapping):
        return list(source.items())
    collect = getattr(source, "collect_schema", None)
    if callable(collect):  # polars, also a lazy frame
        return list(collect().items())
    dtypes = getattr(source, "dtypes", None)
    if dtypes is not None and hasattr(dtypes, "items"):  # pandas
        return list(dtypes.items())
    table = getattr(source, "__table__", source)  # a mapped class of SQLAlchemy
    columns = getattr(table, "columns", None)
    if columns is not None:
        found = [
            (getattr(column, "name", None), getattr(column, "type", None))
            for column in columns
        ]
        if found and all(type_ is not None for _, type_ in found):
            return found
    raise InvalidParameterError(
        "Names and types can't be read from this. Pass a mapping from names to types, "
        "a frame of pandas or polars, or a SQLAlchemy table, not "
        f"{type(source).__name__}."
    )


def _column(name: Any, type_: Any) -> ColumnDraft:
    if not isinstance(name, str) or not name.strip():
        raise InvalidParameterError(
            "A column's name must be text that is not blank, not "
            f"{type(name).__name__}. Rename the column."
        )
    return ColumnDraft(name=name, kind=kind_of(type_), values=values_of(type_))


def _declared_fields(column: ColumnDraft) -> dict[str, Any]:
    values = None if column.values is None else list(column.values)
    return {"name": column.name, "kind": "categorical", "values": values}


def _fields(column: ColumnDraft, answer: Any) -> dict[str, Any]:
    """A column's fields, from one of the forms that an answer has."""
    numeric = column.kind in ("integer", "number")
    if isinstance(answer, TableColumn):
        return {**answer.describe(), "name": column.name}
    if isinstance(answer, Mapping):
        # The bounds of a number column, or values that make it a categorical one.
        kind = column.kind if numeric and "values" not in answer else "categorical"
        if column.kind in ("text", "unknown") and "lower" in answer:
            kind = "number"
        declared = {} if column.values is None else {"values": column.values}
        fields = {"kind": kind, **declared, **answer, "name": column.name}
        return fields if fields["kind"] == "categorical" else _without_values(fields)
    if isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)):
        if not numeric:
            return {"name": column.name, "kind": "categorical", "values": answer}
        if len(answer) == _BOUNDS and not any(isinstance(one, str) for one in answer):
            lower, upper = answer
            bounds = {"lower": lower, "upper": upper}
            return {"name": column.name, "kind": column.kind, **bounds}
    form = (
        "(lower, upper), with {'values': [...]} if the numbers are codes"
        if numeric
        else "a list of values"
    )
    raise InvalidParameterError(
        f"Column {column.name!r}: answer with {form}, with a dictionary of the "
        "column's fields, or with None to leave it out."
    )


def _without_values(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != "values"}
