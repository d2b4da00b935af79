"""The column of numbers: public bounds, public bins, and an integer grid.

Means are computed on a grid of integers, because noise can be exact on integers and is
not on floats (Mironov, *On Significance of the Least Significant Bits for Differential
Privacy*, CCS 2012). The grid is centered: a value that is clipped to bounds l and u and
counted from their middle lies within (u - l) / 2 of zero, half of what counting from l
would give.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr, ValidationInfo, field_validator
from typing_extensions import override

from langchain_dpicl.common.parameters import count
from langchain_dpicl.tabular.schema import cells, figures
from langchain_dpicl.tabular.schema.columns import TableColumn

Number = int | float  # Pydantic keeps each as it is.

GRID_STEPS = 1 << 20
"""Steps from the middle of a number column's bounds to either end."""

_MAX_DECIMALS = 15


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

    Raises:
        InvalidParameterError: If a field is wrong. It names the column and the field.

    Example:
        >>> age = NumericColumn(
        ...     name="age", kind="integer", lower=17, upper=90, bins=[30, 40],
        ...     unit="years",
        ... )
        >>> age.codes([29, 30, 120]).tolist(), age.grid([17, 90, 120]).tolist()
        ([0, 1, 2], [-73, 73, 73])
        >>> age.sentence(37), age.sentence(37, binned=True)
        ('The age is 37 years.', 'The age is 30 to 40 years.')
    """  # fmt: skip

    kind: Literal["number", "integer"] = "number"

    lower: Number
    """The public lower bound, a value of the column."""

    upper: Number
    """The public upper bound, a value of the column."""

    bins: tuple[Number, ...] = ()
    """Inner edges of the public bins, increasing, inside the bounds. An integer n makes
    n bins of one width. A bin holds its lower edge; values at an edge are in the bin
    above it. Without bins the column has no codes."""

    bin_texts: tuple[str, ...] | None = None
    """How the bins are shown; by default "below 30", "30 to 40", "40 or more"."""

    unit: str | None = None
    """What stands behind a value: "years"."""

    decimals: int | None = None
    """How many decimals are shown; by default so many that the range has four digits,
    and no zeros at the end."""

    missing: Number | None = None
    """The public number that missing cells count as; None refuses them."""

    outside: Literal["clip", "refuse"] = "clip"
    """What happens to values out of the bounds, infinite ones among them."""

    _names: tuple[str, ...] = PrivateAttr(default=())

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self.bin_texts is not None:
            self._names = self.bin_texts
        elif self.bins:
            self._names = figures.bin_names(self.bins, self._decimals, self._span)
        self._check_wording(self._figure(self.lower), self.unit)

    @field_validator("lower", "upper", "missing", mode="before")
    @classmethod
    def _number(cls, given: Any, info: ValidationInfo) -> float | None:
        field = str(info.field_name)
        if given is None and field == "missing":
            return None
        number = figures.declared(
            field, given, whole=info.data.get("kind") == "integer"
        )
        lower, upper = info.data.get("lower"), info.data.get("upper")
        if field == "upper" and lower is not None:
            figures.check_span(lower, number, whole=info.data.get("kind") == "integer")
        if field == "missing" and lower is not None and upper is not None:  # noqa: SIM102
            if not lower <= number <= upper:
                raise ValueError("give a public number within the bounds")
        return number

    @field_validator("bins", mode="before")
    @classmethod
    def _edges(cls, given: Any, info: ValidationInfo) -> tuple[float, ...]:
        lower, upper = info.data.get("lower"), info.data.get("upper")
        if lower is None or upper is None:
            return ()  # Refused already.
        whole = info.data.get("kind") == "integer"
        if isinstance(given, (list, tuple)):
            edges = tuple(
                figures.declared("an edge", edge, whole=False) for edge in given
            )
        else:
            edges = figures.equal_edges(given, lower, upper, whole=whole)
        for edge in edges:
            # The upper bound of an integer column is a bin of its own if it is an edge.
            if not (lower < edge < upper or (whole and edge == upper)):
                raise ValueError(
                    f"the edge {edge!r} is not inside the bounds; give inner edges only"
                )
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError("the edges must increase")
        return tuple(int(edge) if float(edge).is_integer() else edge for edge in edges)

    @field_validator("bin_texts", mode="before")
    @classmethod
    def _texts(cls, given: Any, info: ValidationInfo) -> tuple[str, ...] | None:
        if given is None:
            return None
        bins = info.data.get("bins", ())
        if not isinstance(given, (list, tuple)) or not all(
            isinstance(text, str) and text.strip() for text in given
        ):
            raise ValueError("give a list of texts that are not blank")
        if not bins or len(given) != len(bins) + 1:
            raise ValueError(
                "give one text per bin: one more than there are edges in bins="
            )
        if len(set(given)) < len(given):
            raise ValueError("two bins have the same text, and can't be told apart")
        return tuple(given)

    @field_validator("decimals", mode="before")
    @classmethod
    def _few(cls, given: Any, info: ValidationInfo) -> int | None:
        if given is None:
            return None
        number = count(given, "decimals", minimum=0)
        if number > _MAX_DECIMALS:
            raise ValueError(f"at most {_MAX_DECIMALS} decimals can be shown")
        if number and info.data.get("kind") == "integer":
            raise ValueError('integers have none; make the column kind="number"')
        return number

    @field_validator("unit", mode="after")
    @classmethod
    def _some_unit(cls, text: str | None) -> str | None:
        return cls._not_blank(text)

    @property
    @override
    def domain_size(self) -> int:
        """How many bins there are."""
        self._require_bins()
        return len(self.bins) + 1

    @property
    @override
    def has_codes(self) -> bool:
        """Whether the column has bins."""
        return bool(self.bins)

    @property
    def bound(self) -> int:
        """Grid steps from the middle of the bounds to either end."""
        return int(self._span) if self.kind == "integer" else GRID_STEPS

    @override
    def codes(self, values: Any) -> NDArray[np.int64]:
        """Encode cells as the numbers of their bins.

        Args:
            values: A list, array or series of cells.

        Returns:
            Integers from 0 to `domain_size - 1`, in the cells' order.

        Raises:
            InvalidParameterError: If the column has no bins, or a cell is refused. The
                message holds no cell.
        """
        self._require_bins()
        edges = np.array(self.bins, dtype=np.float64)
        found = np.searchsorted(edges, self._clipped(values), side="right")
        return found.astype(np.int64)

    def grid(self, values: Any) -> NDArray[np.int64]:
        """Clip cells to the bounds and put them on a public grid of integers.

        An integer column's x becomes 2x - lower - upper, exactly; a number column's x
        the whole number nearest to `GRID_STEPS` (x - middle) / (upper - middle).

        Args:
            values: A list, array or series of cells.

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
            ends = int(self.lower) + int(self.upper)
            steps = 2 * clipped.astype(np.int64) - ends
        else:
            steps = np.rint((clipped - self._middle) / self._half * GRID_STEPS).astype(
                np.int64
            )
        # Again, after rounding: the sensitivity must not hang on float arithmetic.
        bounded: NDArray[np.int64] = np.clip(steps, -self.bound, self.bound)
        return bounded

    def from_grid(self, q: float) -> float:
        """Return the value of a place on the grid, for instance of a noisy mean.

        Args:
            q: A place in grid steps from the middle; it need not be a whole number.

        Returns:
            The value, within the bounds; for an integer column an int.

        Raises:
            InvalidParameterError: If `q` is no number.

        Example:
            >>> age = NumericColumn(name="age", kind="integer", lower=0, upper=100)
            >>> age.from_grid(-26.0), age.from_grid(1e9)
            (37, 100)
        """
        if math.isnan(q):
            raise self._refusal("a place on its grid must be a number, not NaN")
        steps = min(max(q, -self.bound), self.bound)
        if self.kind == "integer":
            value: float = round((steps + self.lower + self.upper) / 2)
        else:
            value = float(self._middle + steps / GRID_STEPS * self._half)
        return min(max(value, self.lower), self.upper)

    @override
    def code_text(self, code: int) -> str:
        """Return the text of a bin, with the unit: "30 to 40 years".

        Raises:
            InvalidParameterError: If there is no such bin.
        """
        name = self._names[self._checked_code(code)]
        return " ".join(filter(None, (name, self._bin_unit)))

    @override
    def code_value(self, code: int) -> str:
        """Return the text of a bin, which stands for the numbers in it.

        Raises:
            InvalidParameterError: If there is no such bin.
        """
        return self.code_text(code)

    @override
    def parts(self, value: Any, *, binned: bool = False) -> tuple[str, str | None]:
        """Return the text of a number, or of its bin, and the unit."""
        if binned:
            self._require_bins()
        if isinstance(value, str) and value.strip() and self.bins:
            # A release that is grouped by this column knows its bin alone.
            for code, name in enumerate(self._names):
                if value in (name, self.code_text(code)):
                    return name, self._bin_unit
            if binned:
                raise self._refusal("this text is none of its bins. Give a number")
        if not binned:
            return self._figure(self._clipped([value]).item()), self.unit
        return self._names[int(self.codes([value])[0])], self._bin_unit

    @property
    def _span(self) -> float:
        return self.upper - self.lower

    @property
    def _half(self) -> float:
        return self.upper / 2 - self.lower / 2

    @property
    def _middle(self) -> float:
        return self.lower / 2 + self.upper / 2

    @property
    def _decimals(self) -> int:
        if self.kind == "integer":
            return 0
        if self.decimals is not None:
            return self.decimals
        return figures.sensible_decimals(self._half)

    @property
    def _bin_unit(self) -> str | None:
        # "young years": texts of one's own say it all.
        return self.unit if self.bin_texts is None else None

    def _figure(self, value: float) -> str:
        return figures.figure(value, self._decimals, fixed=self.decimals is not None)

    def _require_bins(self) -> None:
        if not self.bins:
            raise self._refusal(
                "it has no bins. Give bins=, public edges or a number of bins"
            )

    def _clipped(self, values: Any) -> NDArray[np.float64]:
        """Cells as numbers within the bounds, none of them missing."""
        try:
            found = cells.numbers(values)
        except cells.UnreadableError:
            found = None
        if found is None:
            raise self._refusal(
                "a cell is not a number, or the cells are no list, array or series of "
                "one axis. Turn text into numbers first, or make the column "
                "categorical"
            )
        absent = np.isnan(found)
        if absent.any():
            if self.missing is None:
                raise self._refusal(
                    "a cell is missing. Declare the number that such cells count as "
                    "(missing=), or leave out the rows without one"
                )
            found = np.where(absent, self.missing, found)
        if self.kind == "integer" and (found != np.rint(found)).any():
            raise self._refusal(
                'a cell is no integer. Make the column kind="number", or round it first'
            )
        clipped: NDArray[np.float64] = np.clip(found, self.lower, self.upper)
        if self.outside == "refuse" and (found != clipped).any():
            raise self._refusal(
                "a cell is out of the bounds. Declare bounds that hold every value "
                '(lower=, upper=), or clip (outside="clip")'
            )
        return clipped
