"""A column of a table as everybody may know it, and the column of categories.

Everything here is **public**: a domain of values, bounds, edges of bins are known
before anybody looks at the table, from what the column means, a code book, or the law.
Nothing is computed from data, and categories are never added: a category that stands in
the domain because one person has it tells that the person is in the table, and no noise
added later takes that back. The same goes for bounds at the smallest and largest value
and for bins at the quantiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)
from typing_extensions import Self, override

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import validated
from langchain_dpicl.tabular.schema import cells, wording

_MIN_VALUES = 2
_NOTHING = "nothing"
_TRUTH = ({"False", "True"}, {"0", "1"})


class TableColumn(BaseModel, ABC):
    """What every column has: a name, and how its values are said.

    Raises:
        InvalidParameterError: If a field is wrong. It names the column and the field.

    Example:
        >>> column = CategoricalColumn(name="blood_type", values=["A", "B", "AB", "0"])
        >>> isinstance(column, TableColumn), column.sentence("AB")
        (True, 'The blood type is AB.')
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    """The column's name in the table."""

    shown: str | None = None
    """Its name in sentences; by default `name`, with spaces for underscores."""

    wording: str | None = None
    """A Jinja2 sentence with `column`, `value` and `unit`; by default
    "The {{ column }} is {{ value }}." with the unit behind the value."""

    def __init__(self, **fields: Any) -> None:
        name = fields.get("name")
        owner = f"Column {name!r}" if isinstance(name, str) else type(self).__name__
        names = {*type(self).model_fields, *map(str, fields)}
        validated(owner, names, partial(super().__init__, **fields))

    @field_validator("name", "shown", "wording", mode="after")
    @classmethod
    def _not_blank(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise ValueError("give a text that is not blank")
        return text

    @property
    @abstractmethod
    def domain_size(self) -> int:
        """How many codes there are."""

    @property
    @abstractmethod
    def has_codes(self) -> bool:
        """Whether `codes` works: a numeric column needs bins."""

    @abstractmethod
    def codes(self, values: Any) -> NDArray[np.int64]:
        """Encode cells as integers from 0 to `domain_size - 1`."""

    @abstractmethod
    def code_text(self, code: int) -> str:
        """Return how a code's value is shown."""

    @abstractmethod
    def code_value(self, code: int) -> Any:
        """Return the value that a code stands for."""

    @abstractmethod
    def parts(self, value: Any, *, binned: bool) -> tuple[str, str | None]:
        """Return how a value is shown, and the unit to put behind it."""

    def value_text(self, value: Any, *, binned: bool = False) -> str:
        """Return how one public value is shown, with its unit.

        Args:
            value: A value of the column, raw, or as a release gives it.
            binned: Whether to show a number by its bin.

        Returns:
            Its text.

        Raises:
            InvalidParameterError: If the column can't have this value. The message
                does not hold it: a query is somebody's data too.
        """
        return " ".join(filter(None, self.parts(value, binned=binned)))

    def sentence(self, value: Any, *, binned: bool = False) -> str:
        """Return the column's sentence for one public value; see `value_text`."""
        text, unit = self.parts(value, binned=binned)
        return wording.render(
            self.sentence_template, self.owner, self._variables(text, unit)
        )

    @property
    def title(self) -> str:
        """The column's name in sentences."""
        return self.name.replace("_", " ") if self.shown is None else self.shown

    @property
    def sentence_template(self) -> str:
        """The Jinja2 template of the column's sentence."""
        return wording.SENTENCE if self.wording is None else self.wording

    @property
    def owner(self) -> str:
        """The column as messages call it."""
        return f"column {self.name!r}"

    def describe(self) -> dict[str, Any]:
        """Return the column as JSON, without what was left to its default."""
        fields = self.model_dump(mode="json")
        kept = {key: value for key, value in fields.items() if value not in (None, [])}
        return {key: value for key, value in kept.items() if value != {}}

    @override
    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """Return a copy; what is updated is checked as in a new column."""
        return type(self)(**{**dict(self), **(update or {})})

    def _variables(self, text: str, unit: str | None) -> dict[str, str]:
        return {"column": self.title, "value": text, "unit": unit or ""}

    def _check_wording(self, text: str, unit: str | None) -> None:
        sample = self._variables(text, unit)
        try:
            used = wording.check(
                self.sentence_template, wording.SENTENCE_VARIABLES, sample
            )
            if "value" in used:
                return
            reason = "it does not say the value: {{ value }}"
        except ValueError as error:
            reason = str(error)
        raise self._refusal(f"wording: {reason}")

    def _refusal(self, rule: str) -> InvalidParameterError:
        """An error that names the column and the rule, and no cell, row or count."""
        return InvalidParameterError(f"Column {self.name!r}: {rule}.")

    def _checked_code(self, code: int) -> int:
        if not 0 <= code < self.domain_size:
            raise self._refusal(
                f"its codes are 0 to {self.domain_size - 1}; this is none of them"
            )
        return int(code)


class CategoricalColumn(TableColumn):
    """A column whose values are named: its public domain.

    Values and cells are compared as text, by the rules of `schema.cells`: 1 and "1" are
    one value, "01" is another; white space at the ends does not count, upper and lower
    case do. A float is refused: it was a whole number before the reader guessed.

    Privacy:
        The domain must be known without the table. Values found in the table tell who
        is in it: a category that one person alone has is there or not there with that
        person, with certainty, whatever noise its count gets. A value outside the
        domain is refused, which tells that there is one; where even that must not be
        seen, declare the category that such cells count as (`other`, `missing`).

    Raises:
        InvalidParameterError: If a field is wrong. It names the column and the field.

    Example:
        >>> job = CategoricalColumn(
        ...     name="job", values=["clerk", "nurse", "?"], other="?"
        ... )
        >>> job.codes(["nurse", "clerk ", "diver"]).tolist()
        [1, 0, 2]
        >>> job.sentence("nurse")
        'The job is nurse.'
        >>> allergies = CategoricalColumn(
        ...     name="allergies", values=["nuts", "milk", "pollen"], max_items=2
        ... )
        >>> allergies.item_codes(["milk", ["pollen", "milk", "nuts"], []]).tolist()
        [[1, -1], [0, 1], [-1, -1]]
    """

    kind: Literal["categorical"] = "categorical"

    values: tuple[str, ...]
    """The public domain, at least two; the order is that of the codes."""

    texts: dict[str, str] = {}
    """How values are shown, where not as they are."""

    missing: str | None = None
    """The category that missing cells count as; None refuses them."""

    other: str | None = None
    """The category that cells outside the domain count as; None refuses them."""

    max_items: int | None = None
    """How many different values of one cell count, where a cell is a list, tuple or set
    of values, or one value: the first ones in the order of `values`. An empty list
    counts for nothing, or as `missing`. None: a cell is one value."""

    _index: dict[str, int] = PrivateAttr()
    _shown: tuple[str, ...] = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._index = {value: code for code, value in enumerate(self.values)}
        if set(self.values) in _TRUTH:
            # Databases without truth values (SQLite) keep them as 0 and 1.
            first = int(self.values[0] in ("True", "1"))
            self._index.update({"False": first, "0": first})
            self._index.update({"True": 1 - first, "1": 1 - first})
        # A line break would begin another line of the prompt.
        self._shown = tuple(
            " ".join(self.texts.get(value, value).splitlines()) for value in self.values
        )
        if len(set(self._shown)) < len(self._shown):
            raise self._refusal(
                "texts: two values have the same text, and could not be told apart"
            )
        self._check_wording(self._shown[0], None)

    @field_validator("values", mode="before")
    @classmethod
    def _domain(cls, given: Any) -> tuple[str, ...]:
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            # The order of a set is another in every process.
            raise ValueError(  # noqa: TRY004  # Pydantic takes ValueError.
                "give the column's values as a list, from public knowledge"
            )
        values = tuple(map(cells.declared, given))
        if len(values) < _MIN_VALUES:
            raise ValueError(
                "a domain has at least two values; leave a column out that has one"
            )
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ValueError(f"{twice!r} is there twice (values are compared as text)")
        return values

    @field_validator("texts", mode="before")
    @classmethod
    def _named_texts(cls, given: Any, info: ValidationInfo) -> dict[str, str]:
        if not isinstance(given, Mapping):
            raise ValueError(  # noqa: TRY004
                "give a dictionary from values to texts"
            )
        values = info.data.get("values")
        texts = {cells.declared(value): text for value, text in given.items()}
        for value, text in texts.items():
            if values is not None and value not in values:
                raise ValueError(f"{value!r} is none of the column's values")
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"the text of {value!r} must be text, not blank")
        return texts

    @field_validator("missing", "other", mode="before")
    @classmethod
    def _category(cls, given: Any, info: ValidationInfo) -> str | None:
        if given is None:
            return None
        value = cells.declared(given)
        if value not in info.data.get("values", (value,)):
            raise ValueError(
                f"{value!r} is none of the column's values; add it to them: the "
                "category must be public like the others"
            )
        return value

    @field_validator("max_items", mode="after")
    @classmethod
    def _some_items(cls, given: int | None, info: ValidationInfo) -> int | None:
        most = len(info.data.get("values", ()))
        if given is not None and most and not 1 <= given <= most:
            raise ValueError(
                f"give a whole number from 1 to {most}, the number of values"
            )
        return given

    @property
    def is_set(self) -> bool:
        """Whether a cell may hold several values."""
        return self.max_items is not None

    def lists(self, text: str) -> bool:
        """Return whether a text, spelled as cells are, is one of the values."""
        return text in self._index

    @property
    @override
    def domain_size(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    @override
    def has_codes(self) -> bool:
        """Always true."""
        return True

    @override
    def codes(self, values: Any) -> NDArray[np.int64]:
        """Encode cells as the positions of their values in the domain.

        Each cell's code depends on that cell alone. Missing cells and cells outside the
        domain become the categories declared for them.

        Args:
            values: A list, array or series of cells.

        Returns:
            Integers from 0 to `domain_size - 1`, in the cells' order.

        Raises:
            InvalidParameterError: If a cell is missing or outside the domain and no
                category is declared for that, or the column holds sets. The message
                holds no cell.
        """
        if self.is_set:
            raise self._refusal(
                "it holds sets of values (max_items=), which only GDPTable counts"
            )
        return self._codes(values)

    def item_codes(self, values: Any) -> NDArray[np.int64]:
        """Encode cells that hold sets: the codes of each cell's counted values.

        Each row of the result depends on its own cell alone.

        Args:
            values: A list, array or series of cells.

        Returns:
            Shape (cells, max_items): codes in ascending order, -1 beyond the last.

        Raises:
            InvalidParameterError: As for `codes`, of any value of a cell.
        """
        try:
            given, places = cells.distinct_cells(values)
        except cells.UnreadableError:
            given, places = "", None
        if isinstance(given, str):
            raise self._refusal("its cells must be a list, array or series of one axis")
        held = [self._items(cell) for cell in given]
        if places is not None:
            held = [held[place] if place >= 0 else [None] for place in places.tolist()]
        flat = self._codes([item for items in held for item in items])
        row = np.repeat(np.arange(len(held)), [len(items) for items in held])
        distinct = np.unique(row * self.domain_size + flat)
        row, code = np.divmod(distinct, self.domain_size)
        rank = np.arange(row.size) - np.searchsorted(row, row)
        kept = rank < (self.max_items or 1)
        counted = np.full((len(held), self.max_items or 1), -1, dtype=np.int64)
        counted[row[kept], rank[kept]] = code[kept]
        return counted

    def _items(self, cell: Any) -> list[Any]:
        """Return the values of one cell."""
        if not isinstance(cell, (list, tuple, set, frozenset, np.ndarray)):
            return [cell]
        items = list(cell)
        return items if items or self.missing is None else [None]

    def _codes(self, values: Any) -> NDArray[np.int64]:
        try:
            found = cells.codes(values, self._index)
        except cells.UnreadableError:
            found = None
        if found is None:
            raise self._refusal("its cells must be a list, array or series of one axis")
        smallest = int(found.min(initial=0))
        if smallest >= 0:
            return found
        if smallest == cells.UNREADABLE:
            raise self._unreadable()
        replacement = np.arange(len(self.values) + 2, dtype=np.int64)
        for mark, code in (
            (cells.MISSING, self._missing_code),
            (cells.FOREIGN, self._other_code),
        ):
            if (found == mark).any():
                replacement[mark] = code()
        return replacement[found]

    @override
    def code_text(self, code: int) -> str:
        """Return the text of a value.

        Raises:
            InvalidParameterError: If there is no such code.
        """
        return self._shown[self._checked_code(code)]

    @override
    def code_value(self, code: int) -> str:
        """Return the value of a code.

        Raises:
            InvalidParameterError: If there is no such code.
        """
        return self.values[self._checked_code(code)]

    @override
    def parts(self, value: Any, *, binned: bool = False) -> tuple[str, str | None]:
        """Return the text of a value, and no unit."""
        if self.is_set:
            items = self.item_codes([value])[0]
            shown = [self._shown[code] for code in items.tolist() if code >= 0]
            return ", ".join(shown) or _NOTHING, None
        try:
            text = cells.spelled(value)
        except cells.UnreadableError:
            text = None
            readable = False
        else:
            readable = True
        if not readable:
            raise self._unreadable()
        if text is None:
            return self._shown[self._missing_code()], None
        code = self._index.get(text)
        return self._shown[self._other_code() if code is None else code], None

    def _missing_code(self) -> int:
        if self.missing is None:
            raise self._refusal(
                "a cell is missing. Declare the value that such cells count as "
                "(missing=), or leave out the rows without one"
            )
        return self._index[self.missing]

    def _other_code(self) -> int:
        if self.other is None:
            raise self._refusal(
                "a cell is none of the declared values. Declare every value that the "
                "column can have (values=), or the value that all others count as "
                '(other=); with TextRows, pass rows.schema, which has "unknown"'
            )
        return self._index[self.other]

    def _unreadable(self) -> InvalidParameterError:
        return self._refusal(
            "a cell is neither text nor a whole number. Read the column as text "
            "(csv_rows; pandas dtype=str; polars infer_schema=False), or declare a "
            "NumericColumn"
        )
