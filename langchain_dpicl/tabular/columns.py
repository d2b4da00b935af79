"""Columns of a table as everybody may know them: of categories, and of numbers.

Everything here is **public**: a domain of values, bounds and edges of bins are known
before anybody looks at the table, from what the column means, a code book, or the law.
Nothing is computed from data, and categories are never added: a category that stands in
the domain because one person has it tells that the person is in the table, and no noise
added later takes that back. The same goes for bounds at the smallest and largest value
and for bins at the quantiles.

Means are computed on a grid of integers, because noise can be exact on integers and is
not on floats (Mironov, *On Significance of the Least Significant Bits for Differential
Privacy*, CCS 2012). The grid is centered: a value that is clipped to bounds l and u and
counted from their middle lies within (u - l) / 2 of zero, half of what counting from l
would give.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from string import Formatter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self, override

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Public, validated
from langchain_dpicl.tabular import cells

Codes = NDArray[np.int64]
Number = int | float

GRID_STEPS = 1 << 20
"""Steps from the middle of a number column's bounds to either end."""

MAX_SPAN = 1 << 30
"""Largest distance of an integer column's bounds: a value fits 32 bits, and the sum of
2^31 rows fits 64."""

_EXACT = 1 << 53
_MAX_BINS = 1 << 20
_DIGITS = 4
_TRUTH = ({"False", "True"}, {"0", "1"})


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with values in place of its names in braces; see `names_in`.

    Example:
        >>> filled("Aged {value}, {{so}}.", {"value": "{37}"})
        'Aged {37}, {so}.'
    """
    parts = Formatter().parse(template)
    return "".join(
        text + (values[name] if name is not None else "") for text, name, *_ in parts
    )


def names_in(template: str, allowed: Collection[str]) -> set[str]:
    """Return the names in a template's braces.

    Raises:
        ValueError: If one is not allowed, there is none, or braces don't match.
    """
    parts = list(Formatter().parse(template))  # Refuses braces that don't match.
    names = {name for _, name, *_ in parts if name is not None}
    if any(form or conversion for *_, form, conversion in parts):
        raise ValueError("names stand in braces alone, without a format")
    if not names or not names.issubset(allowed):
        known = ", ".join(f"{{{name}}}" for name in allowed)
        raise ValueError(f"the template uses names in braces, and only {known}")
    return names


class TableColumn(Public, ABC):
    """What every column has: a name, and how its values are written.

    Raises:
        InvalidParameterError: If a field is wrong. It names the column and the field.
    """

    name: str
    """The column's name in the table."""

    shown: str | None = None
    """Its name in sentences; by default `name`, with spaces for underscores."""

    wording: str = "The {column} is {value}."
    """Its sentence: `{column}` is the name in sentences, `{value}` a value with its
    unit."""

    def __init__(self, **fields: Any) -> None:
        name = fields.get("name")
        owner = f"Column {name!r}" if isinstance(name, str) else type(self).__name__
        validated(
            owner, type(self).model_fields, partial(BaseModel.__init__, self, **fields)
        )

    @field_validator("name", "shown", "unit", check_fields=False)
    @classmethod
    def _not_blank(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise ValueError("give a text that is not blank")
        return text

    @field_validator("wording")
    @classmethod
    def _has_value(cls, template: str) -> str:
        if "value" not in names_in(template, ("column", "value")):
            raise ValueError("it does not have the value: {value}")
        return template

    @property
    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The values by their codes: categories, or texts of bins."""

    @property
    def domain_size(self) -> int:
        """How many codes there are; 0 for a column of numbers without bins."""
        return len(self.options)

    @abstractmethod
    def codes(self, values: Any) -> Codes:
        """Return cells as codes: each is that of its cell alone.

        Args:
            values: A list of cells, or an array of pyarrow.

        Returns:
            Integers from 0 to `domain_size - 1`, in the cells' order. Of a column that
            holds sets, shape (cells, max_items): codes in ascending order, -1 beyond
            the last.

        Raises:
            InvalidParameterError: If a cell is refused. The message holds no cell.
        """

    @abstractmethod
    def code_of(self, value: Any) -> int:
        """Return the code of one public value, which counts for no other one.

        Raises:
            InvalidParameterError: If it is none of the column's own.
        """

    @abstractmethod
    def text(self, value: Any, *, binned: bool = False) -> str:
        """Return how one value is written, with its unit.

        Args:
            value: A value of the column, raw, or as a release gives it.
            binned: Whether to write a number by its bin.

        Raises:
            InvalidParameterError: If the column can't have this value. The message
                does not hold it: a query is somebody's data too.
        """

    def sentence(self, value: Any, *, binned: bool = False) -> str:
        """Return the column's sentence for one value; see `text`."""
        text = self.text(value, binned=binned)
        return filled(self.wording, {"column": self.title, "value": text})

    @property
    def title(self) -> str:
        """The column's name in sentences."""
        return self.name.replace("_", " ") if self.shown is None else self.shown

    def _refusal(self, rule: str) -> InvalidParameterError:
        """An error that names the column and the rule, and no cell, row or count."""
        return InvalidParameterError(f"Column {self.name!r}: {rule}.")

    def _not_missing(self, missing: Any) -> Any:
        if missing is None:
            raise self._refusal(
                "a cell is missing. Declare what such cells count as (missing=), or "
                "leave out the rows without a value"
            )
        return missing


class CategoricalColumn(TableColumn):
    """A column whose values are named: its public domain.

    Values and cells are compared as text, by the rules of `tabular.cells`: 1 and "1"
    are one value, "01" is another; white space at the ends does not count, upper and
    lower case do. A float is refused: it was a whole number before the reader guessed.

    Privacy:
        The domain must be known without the table. Values found in the table tell who
        is in it: a category that one person alone has is there or not there with that
        person, with certainty, whatever noise its count gets. A value outside the
        domain is refused, which tells that there is one; where even that must not be
        seen, declare the category that such cells count as (`other`, `missing`).

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
        >>> allergies.codes(["milk", ["pollen", "milk", "nuts"], []]).tolist()
        [[1, -1], [0, 1], [-1, -1]]
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)

    kind: Literal["categorical"] = "categorical"

    values: tuple[str, ...]
    """The public domain, at least two; the order is that of the codes."""

    texts: dict[str, str] = Field(default_factory=dict)
    """How values are written, where not as they are."""

    missing: str | None = None
    """The category that missing cells count as; None refuses them."""

    other: str | None = None
    """The category that cells outside the domain count as; None refuses them."""

    max_items: int | None = None
    """How many different values of one cell count, where a cell is a list, tuple or set
    of values, or one value: the first ones in the order of `values`. An empty list
    counts for nothing, or as `missing`. None: a cell is one value."""

    @field_validator("values", mode="before")
    @classmethod
    def _domain(cls, given: Any) -> tuple[str, ...]:
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            # The order of a set is another in every process.
            raise ValueError("give the column's values as a list")  # noqa: TRY004
        values = tuple(map(cells.declared, given))
        if len(values) < 2:  # noqa: PLR2004
            raise ValueError("a domain has at least two values; leave the column out")
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ValueError(f"{twice!r} is there twice (values are compared as text)")
        return values

    @field_validator("texts", mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {cells.declared(value): text for value, text in given.items()}

    @field_validator("missing", "other", mode="before")
    @classmethod
    def _category(cls, given: Any) -> str | None:
        return None if given is None else cells.declared(given)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for value in filter(None, (self.missing, self.other, *self.texts)):
            if value not in self.values:
                raise ValueError(
                    f"{value!r} is none of the column's values; add it to them: it "
                    "must be public like the others"
                )
        if len(set(self._shown)) < len(self.values) or "" in self._shown:
            raise ValueError("texts: each value needs a text of its own, not blank")
        most = self.max_items
        if most is not None and not 1 <= most <= len(self.values):
            raise ValueError(
                f"max_items: give a whole number from 1 to {len(self.values)}, the "
                "number of values"
            )
        return self

    @property
    @override
    def options(self) -> tuple[str, ...]:
        return self.values

    @cached_property
    def _shown(self) -> tuple[str, ...]:
        # A line break would begin another line of the prompt.
        shown = (self.texts.get(value, value) for value in self.values)
        return tuple(" ".join(text.splitlines()).strip() for text in shown)

    @cached_property
    def _index(self) -> dict[str, int]:
        index = {value: code for code, value in enumerate(self.values)}
        if set(self.values) in _TRUTH:
            # Databases without truth values (SQLite) keep them as 0 and 1.
            first = int(self.values[0] in ("True", "1"))
            index |= {"False": first, "0": first, "True": 1 - first, "1": 1 - first}
        return index

    @override
    def codes(self, values: Any) -> Codes:
        if self.max_items is None:
            return self._codes(values)
        found, places = cells.distinct_cells(values)
        held = [self._items(cell) for cell in found]
        if places is not None:
            held = [held[place] if place >= 0 else [None] for place in places.tolist()]
        flat = self._codes([item for items in held for item in items])
        row = np.repeat(np.arange(len(held)), [len(items) for items in held])
        distinct = np.unique(row * self.domain_size + flat)
        row, code = np.divmod(distinct, self.domain_size)
        rank = np.arange(row.size) - np.searchsorted(row, row)
        kept = rank < self.max_items
        counted = np.full((len(held), self.max_items), -1, dtype=np.int64)
        counted[row[kept], rank[kept]] = code[kept]
        return counted

    @override
    def code_of(self, value: Any) -> int:
        try:
            code = self._index.get(cells.spelled(value) or "")
        except cells.UnreadableError:
            code = None
        if code is None:
            raise self._refusal(f"{value!r:.100} is none of its values")
        return code

    @override
    def text(self, value: Any, *, binned: bool = False) -> str:
        codes = self.codes([value]).ravel().tolist()
        return ", ".join(self._shown[code] for code in codes if code >= 0) or "nothing"

    def _items(self, cell: Any) -> list[Any]:
        """Return the values of one cell."""
        if not isinstance(cell, (list, tuple, set, frozenset, np.ndarray)):
            return [cell]
        items = list(cell)
        return items if items or self.missing is None else [None]

    def _codes(self, values: Any) -> Codes:
        found = cells.codes(values, self._index)
        smallest = int(found.min(initial=0))
        if smallest >= 0:
            return found
        if smallest == cells.UNREADABLE:
            raise self._refusal(
                "a cell is neither text nor a whole number. Read the column as text "
                "(csv_rows; pandas dtype=str; polars infer_schema=False), or declare a "
                "NumericColumn"
            )
        if (found == cells.MISSING).any():
            code = self._index[self._not_missing(self.missing)]
            found = np.where(found == cells.MISSING, code, found)
        if (found == cells.FOREIGN).any():
            if self.other is None:
                raise self._refusal(
                    "a cell is none of the declared values. Declare every value that "
                    "the column can have (values=), or the value that all others count "
                    'as (other=); with TextRows, pass rows.schema, which has "unknown"'
                )
            code = self._index[self.other]
            found = np.where(found == cells.FOREIGN, code, found)
        return found


class NumericColumn(TableColumn):
    """A column of numbers between public bounds.

    `kind="integer"` keeps integers exact; `kind="number"` takes all numbers. Truth
    values are 0 and 1. Text is read where it writes a number plainly: "3", "2.5".

    Privacy:
        Bounds, bins and the value of missing cells must be known without the table.
        The largest value of a table as its bound tells one person's value exactly, and
        moves with that person, so that the sensitivity computed from it is not one;
        bins at the table's quantiles do the same. Clipping is what makes the
        sensitivity finite: it is done to each cell alone, and `grid` does it again
        after rounding, so that `bound` holds whatever the floats did.

    Example:
        >>> age = NumericColumn(
        ...     name="age", kind="integer", lower=17, upper=90, bins=[30], unit="years"
        ... )
        >>> age.codes([29, 30, 120]).tolist(), age.grid([17, 90, 120]).tolist()
        ([0, 1, 1], [-73, 73, 73])
        >>> age.options, age.sentence(37), age.sentence(37, binned=True)
        (('below 30 years', '30 or more years'), 'The age is 37 years.', \
'The age is 30 or more years.')
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)

    kind: Literal["number", "integer"] = "number"

    lower: Number
    """The public lower bound, a value of the column."""

    upper: Number
    """The public upper bound, a value of the column."""

    bins: tuple[Number, ...] = ()
    """Inner edges of the public bins, increasing, inside the bounds. An integer n makes
    n bins of one width. A bin holds its lower edge; values at an edge are in the bin
    above it. Without bins the column has no codes."""

    unit: str | None = None
    """What stands behind a value: "years"."""

    missing: Number | None = None
    """The public number that missing cells count as; None refuses them."""

    @field_validator("lower", "upper", "missing", mode="before")
    @classmethod
    def _finite(cls, given: Any, info: ValidationInfo) -> Number | None:
        if given is None and info.field_name == "missing":
            return None
        number = parameters.finite("it", given)
        if info.data.get("kind") != "integer":
            return number
        if not number.is_integer() or abs(number) >= _EXACT:
            raise ValueError(
                'give an integer below 2^53, or make the column kind="number"'
            )
        return int(given)

    @field_validator("upper")
    @classmethod
    def _above(cls, upper: Number, info: ValidationInfo) -> Number:
        lower, whole = info.data.get("lower"), info.data.get("kind") == "integer"
        if lower is None:
            return upper
        if lower >= upper or not (whole or lower < lower / 2 + upper / 2 < upper):
            raise ValueError(f"it must lie above lower={lower!r}, with room between")
        if whole and upper - lower > MAX_SPAN:
            raise ValueError(
                'the bounds are more than 2^30 apart; make the column kind="number"'
            )
        return upper

    @field_validator("bins", mode="before")
    @classmethod
    def _edges(cls, given: Any, info: ValidationInfo) -> tuple[Number, ...]:
        lower, upper = info.data.get("lower"), info.data.get("upper")
        if lower is None or upper is None:
            return ()  # Refused already.
        whole = info.data.get("kind") == "integer"
        if not isinstance(given, (list, tuple)):
            given = _equal_edges(given, lower, upper, whole=whole)
        edges = [parameters.finite("an edge", edge) for edge in given]
        # The upper bound of an integer column is a bin of its own if it is an edge.
        if any(not (lower < x < upper or (whole and x == upper)) for x in edges):
            raise ValueError("give inner edges only, between the bounds")
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError("the edges must increase")
        return tuple(int(edge) if edge.is_integer() else edge for edge in edges)

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.missing is not None and not self.lower <= self.missing <= self.upper:
            raise ValueError("missing: give a public number within the bounds")
        return self

    @cached_property
    def _options(self) -> tuple[str, ...]:
        if not self.bins:
            return ()
        texts = [self._figure(edge, more=2) for edge in self.bins]
        if len(set(texts)) < len(texts):  # Edges that look alike are written in full.
            texts = [np.format_float_positional(edge, trim="-") for edge in self.bins]
        between = [f"{low} to {high}" for low, high in pairwise(texts)]
        names = (f"below {texts[0]}", *between, f"{texts[-1]} or more")
        return tuple(map(self._with_unit, names))

    @property
    @override
    def options(self) -> tuple[str, ...]:
        return self._options

    @property
    def bound(self) -> int:
        """Grid steps from the middle of the bounds to either end."""
        return int(self.upper - self.lower) if self.kind == "integer" else GRID_STEPS

    @override
    def codes(self, values: Any) -> Codes:
        if not self.bins:
            raise self._refusal(
                "it has no bins. Give bins=, public edges or a number of bins"
            )
        edges = np.array(self.bins, dtype=np.float64)
        found = np.searchsorted(edges, self._clipped(values), side="right")
        return found.astype(np.int64)

    def grid(self, values: Any) -> Codes:
        """Clip cells to the bounds and put them on a public grid of integers.

        An integer column's x becomes 2x - lower - upper, exactly; a number column's x
        the whole number nearest to `GRID_STEPS` (x - middle) / (upper - middle).

        Args:
            values: A list of cells, or an array of pyarrow.

        Returns:
            Integers from `-bound` to `bound`, in the cells' order.

        Raises:
            InvalidParameterError: If a cell is refused. The message holds no cell.

        Privacy:
            Each entry depends on its cell alone and never leaves [-bound, bound], so
            that adding or removing a row changes a sum of entries by at most `bound`.
        """
        clipped = self._clipped(values)
        if self.kind == "integer":
            steps = 2 * clipped.astype(np.int64) - (int(self.lower) + int(self.upper))
        else:
            steps = np.rint((clipped - self.middle) / self.half * GRID_STEPS).astype(
                np.int64
            )
        # Again, after rounding: the sensitivity must not hang on float arithmetic.
        bounded: Codes = np.clip(steps, -self.bound, self.bound)
        return bounded

    # Halves, because the distance of the bounds may be too large for a float.
    @property
    def half(self) -> float:
        """Half the distance of the bounds."""
        return self.upper / 2 - self.lower / 2

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return self.lower / 2 + self.upper / 2

    @override
    def code_of(self, value: Any) -> int:
        if isinstance(value, str) and value in self.options:
            return self.options.index(value)
        try:
            number = cells.number(value)
        except cells.UnreadableError:
            number = math.nan
        if not self.lower <= number <= self.upper:
            raise self._refusal(
                f"{value!r:.100} is no bin and no number within the bounds"
            )
        return int(self.codes([number])[0])

    @override
    def text(self, value: Any, *, binned: bool = False) -> str:
        if isinstance(value, str) and value in self.options:
            return value  # A release knows the bin alone.
        if binned:
            return self.options[int(self.codes([value])[0])]
        return self._with_unit(self._figure(self._clipped([value]).item()))

    def _figure(self, value: float, more: int = 0) -> str:
        """Write a number so that the bounds' distance has four digits, or more."""
        decimals = 0
        if self.kind == "number":
            size = math.floor(math.log10(self.half) + math.log10(2))
            decimals = min(max(_DIGITS - 1 - size, 0), 15)
        # Zero has no sign.
        rounded = round(float(value), decimals + more) + 0.0
        return np.format_float_positional(rounded, trim="-")

    def _with_unit(self, text: str) -> str:
        return text if self.unit is None else f"{text} {self.unit}"

    def _clipped(self, values: Any) -> NDArray[np.float64]:
        """Return cells as numbers within the bounds, none of them missing."""
        try:
            found = cells.numbers(values)
        except cells.UnreadableError:
            found = None
        if found is None:
            raise self._refusal(
                "a cell is not a number. Turn text into numbers first, or make the "
                "column categorical"
            )
        absent = np.isnan(found)
        if absent.any():
            found = np.where(absent, self._not_missing(self.missing), found)
        if self.kind == "integer" and (found != np.rint(found)).any():
            raise self._refusal(
                'a cell is no integer. Make the column kind="number", or round it first'
            )
        clipped: NDArray[np.float64] = np.clip(found, self.lower, self.upper)
        return clipped


def _equal_edges(given: Any, lower: Any, upper: Any, *, whole: bool) -> list[Number]:
    """Return the inner edges of bins of one width.

    Bins of integers hold equally many each, or one more.

    Example:
        >>> _equal_edges(4, 0, 1, whole=False), _equal_edges(4, 0, 9, whole=True)
        ([0.25, 0.5, 0.75], [3, 5, 8])
    """
    number = parameters.count(given, "the number of bins", minimum=2)
    places = upper - lower + 1 if whole else _MAX_BINS
    if number > min(places, _MAX_BINS):
        raise ValueError(f"at most {min(places, _MAX_BINS)} bins can be made")
    if whole:
        return [lower - (-i * places // number) for i in range(1, number)]
    shares = [i / number for i in range(1, number)]
    return [lower * (1 - share) + upper * share for share in shares]
