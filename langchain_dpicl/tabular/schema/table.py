"""The schema of a table: everything that is known of it before anybody looks at it."""

from __future__ import annotations

import keyword
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)
from typing_extensions import Self, override

from langchain_dpicl.common import file_format
from langchain_dpicl.common.file_format import SCHEMA
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import validated
from langchain_dpicl.tabular.schema import wording
from langchain_dpicl.tabular.schema.columns import CategoricalColumn, TableColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn

if TYPE_CHECKING:
    from langchain_core.prompts import PromptTemplate

Column = Annotated[CategoricalColumn | NumericColumn, Field(discriminator="kind")]

_MIN_COLUMNS = 2
_KINDS: dict[Any, type[CategoricalColumn | NumericColumn]] = {
    "categorical": CategoricalColumn,
    "integer": NumericColumn,
    "number": NumericColumn,
}
# Jinja2's own words can't be variables.
_RESERVED = frozenset({"sentences", "true", "false", "none", "loop", "self"})


class TableSchema(BaseModel):
    """The public schema of a private table.

    Make it by hand, load it from a JSON file (`load`), or let `draft` list what has to
    be answered. The table itself is never asked: names and types of columns, their
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

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    label: str
    """The name of the column to predict, a categorical one."""

    columns: tuple[Column, ...]
    """All columns that are used, the label's among them."""

    template: str = wording.ROW
    """A Jinja2 template of a row's text. Its variables are `sentences`, a list of the
    features' sentences, and each feature's value by the column's name, if that is an
    identifier. By default the sentences, with spaces between them."""

    _by_name: dict[str, CategoricalColumn | NumericColumn] = PrivateAttr()
    _used: frozenset[str] = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        given = fields.get("columns")
        if isinstance(given, (list, tuple)):
            fields["columns"] = tuple(map(_column, given))
        names = {*type(self).model_fields, *map(str, fields)}
        validated(type(self).__name__, names, partial(super().__init__, **fields))
        self._by_name = {column.name: column for column in self.columns}
        self._used = self._check_template()

    @field_validator("columns", mode="after")
    @classmethod
    def _named_once(cls, columns: tuple[Column, ...], info: ValidationInfo) -> Any:
        names = [column.name for column in columns]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the column {twice!r} is there twice")
        if "label" not in info.data:
            return columns  # Refused already.
        label = info.data["label"]
        if label not in names:
            raise ValueError(
                f"the label {label!r} is none of the columns; add its column"
            )
        if columns[names.index(label)].kind != "categorical":
            raise ValueError(
                f"the label {label!r} is a column of numbers; make it "
                'kind="categorical" and give its values'
            )
        if getattr(columns[names.index(label)], "max_items", None) is not None:
            raise ValueError(
                f"the label {label!r} holds sets; a label is one value: leave out its "
                "max_items, or take another column"
            )
        if len(columns) < _MIN_COLUMNS:
            raise ValueError(f"there is no column besides the label {label!r}")
        return columns

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self._by_name)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """The columns of categories, with their declared values."""
        return {
            column.name: column.values
            for column in self.columns
            if isinstance(column, CategoricalColumn)
        }

    @property
    def features(self) -> tuple[CategoricalColumn | NumericColumn, ...]:
        """All columns but the label's."""
        return tuple(column for column in self.columns if column.name != self.label)

    @property
    def label_column(self) -> CategoricalColumn:
        """The label's column."""
        column = self._by_name[self.label]
        if not isinstance(column, CategoricalColumn):  # pragma: no cover
            raise TypeError
        return column

    @property
    def labels(self) -> tuple[str, ...]:
        """How the label's values are shown, in the order of their codes."""
        column = self.label_column
        return tuple(map(column.code_text, range(column.domain_size)))

    def column(self, name: str) -> CategoricalColumn | NumericColumn:
        """Return a column by its name.

        Raises:
            InvalidParameterError: If the schema has no such column.
        """
        if name not in self._by_name:
            raise self._unknown(name)
        return self._by_name[name]

    def text(self, row: Mapping[str, Any], *, binned: bool = False) -> str:
        """Write a row's features as text.

        Args:
            row: Columns' names and values, raw or as a release gives them. The label
                may be there or not; it is not shown.
            binned: Whether to show numbers by their bins, where they have some.

        Returns:
            The text.

        Raises:
            InvalidParameterError: If a feature is missing, a column unknown, or a value
                refused. The message names the column and holds no value.

        Example:
            >>> schema = TableSchema(
            ...     label="sick",
            ...     columns=[
            ...         {"name": "age", "kind": "number", "lower": 0, "upper": 99,
            ...          "bins": [40]},
            ...         {"name": "sick", "kind": "categorical", "values": [0, 1]},
            ...     ],
            ... )
            >>> schema.text({"age": 37}, binned=True)
            'The age is below 40.'
        """  # fmt: skip
        if not isinstance(row, Mapping):
            raise InvalidParameterError(
                "A row is a mapping from columns' names to values, not "
                f"{type(row).__name__}. Pass a dictionary."
            )
        for name in row:
            if name not in self._by_name:
                raise self._unknown(name)
        sentences, values = [], {}
        for column in self.features:
            if column.name not in row and column.missing is None:
                raise InvalidParameterError(
                    f"Column {column.name!r} is missing from the row. Give its value, "
                    "or declare what missing values count as (missing=)."
                )
            value = row.get(column.name)
            by_bin = binned and column.has_codes
            sentence = column.sentence(value, binned=by_bin)
            if sentence:  # A wording may say nothing about some values.
                sentences.append(sentence)
            if column.name in self._used:
                values[column.name] = column.value_text(value, binned=by_bin)
        return wording.render(
            self.template, "rows", {wording.ROW_VARIABLE: sentences, **values}
        )

    def label_text(self, value: Any) -> str:
        """Return how a value of the label is shown.

        Raises:
            InvalidParameterError: If the label can't have it.
        """
        return self.label_column.value_text(value)

    def prompt(self, name: str | None = None) -> PromptTemplate:
        """Return a template as LangChain's `PromptTemplate`, in Jinja2.

        Args:
            name: The column whose sentence it writes; None for the row's text.

        Returns:
            The template.

        Raises:
            InvalidParameterError: If the schema has no such column.
        """
        template = (
            self.template if name is None else self.column(name).sentence_template
        )
        return wording.prompt_template(template)

    def describe(self) -> dict[str, Any]:
        """Return the schema's fields, ready for JSON; `TableSchema` takes them."""
        return {
            "label": self.label,
            "columns": [column.describe() for column in self.columns],
            "template": self.template,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a JSON file; what was there is replaced.

        Raises:
            InvalidParameterError: If the file can't be written.
        """
        file_format.write(path, self.describe(), SCHEMA, overwrite=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a schema from a JSON file that `save` wrote, or somebody by hand.

        Its templates run in Jinja2's sandbox: take it from somebody you trust.

        Raises:
            InvalidParameterError: If the file can't be read or holds no schema.
        """
        return cls(**file_format.read(path, SCHEMA))

    def fingerprint(self) -> str:
        """Return a digest of the schema: equal for schemas that are equal.

        Example:
            >>> columns = [
            ...     CategoricalColumn(name="x", values=[0, 1]),
            ...     CategoricalColumn(name="y", values=[0, 1]),
            ... ]
            >>> one = TableSchema(label="y", columns=columns)
            >>> other = TableSchema(label="x", columns=columns)
            >>> one.fingerprint() == other.fingerprint()
            False
        """
        return file_format.digest(self.describe())

    @override
    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """Return a copy; what is updated is checked as in a new schema."""
        return type(self)(**{**dict(self), **(update or {})})

    def _check_template(self) -> frozenset[str]:
        """Refuse a bad template; return the variables that it uses."""
        names = [column.name for column in self.features if _is_variable(column.name)]
        sample: dict[str, Any] = dict.fromkeys(names, "value")
        sample[wording.ROW_VARIABLE] = ["A sentence."] * len(self.features)
        try:
            return wording.check(self.template, [wording.ROW_VARIABLE, *names], sample)
        except ValueError as error:
            reason = str(error)
        raise InvalidParameterError(f"TableSchema can't be made. template: {reason}.")

    def _unknown(self, name: Any) -> InvalidParameterError:
        return InvalidParameterError(
            f"Column {name!r:.80} is not in the schema. Leave it out, or declare it. "
            f"The schema has {', '.join(map(repr, self.names)):.400}."
        )


def _is_variable(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name not in _RESERVED


def _column(given: Any) -> Any:
    """Make a column from its JSON, so that its errors name it and not a position."""
    if not isinstance(given, Mapping):
        if isinstance(given, TableColumn):
            return given
        raise InvalidParameterError(
            "TableSchema can't be made. columns: each is a CategoricalColumn, a "
            "NumericColumn or a dictionary of one's fields, not "
            f"{type(given).__name__}."
        )
    fields = {str(key): value for key, value in given.items()}
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidParameterError(
            f"Column {fields.get('name')!r:.80} can't be made. kind: it must be "
            f"{', '.join(map(repr, _KINDS))}."
        )
    return _KINDS[kind](**fields)
