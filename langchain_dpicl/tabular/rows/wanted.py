"""Which columns of a table are read, and what is said where they are not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from langchain_dpicl.errors import InvalidParameterError

ExtraColumns = Literal["refuse", "ignore"]

_MOST_NAMES = 5
_LONGEST_NAME = 60


@dataclass(frozen=True)
class WantedColumns:
    """The columns that a table must have.

    Attributes:
        names: The columns of the schema.
        unit_key: The column of the units' ids; None: there is none.
        ignore_others: Whether a column unknown to the schema is no error.
        categories: The columns of categories, with their declared values.
    """

    names: tuple[str, ...]
    unit_key: str | None
    ignore_others: bool
    categories: Mapping[str, Sequence[str]]

    @classmethod
    def checked(
        cls,
        names: Iterable[str],
        unit_key: str | None,
        extra_columns: str,
        categories: Mapping[str, Sequence[str]] | None = None,
    ) -> WantedColumns:
        """Return the columns, if the arguments can be used.

        Raises:
            InvalidParameterError: If not.
        """
        listed = [names] if isinstance(names, str) else list(names)
        if not listed or len(set(listed)) < len(listed):
            raise InvalidParameterError(
                "names must be the names of one column or more, each of them once."
            )
        given = listed if unit_key is None else [*listed, unit_key]
        if not all(isinstance(name, str) and name.strip() for name in given):
            raise InvalidParameterError(
                "names and unit_key must be names of columns: text that is not blank."
            )
        ignores = check_extra_columns(extra_columns) == "ignore"
        return cls(tuple(listed), unit_key, ignores, categories or {})

    @cached_property
    def all(self) -> tuple[str, ...]:
        """Every column that is read, each once."""
        if self.unit_key is None or self.unit_key in self.names:
            return self.names
        return (*self.names, self.unit_key)

    @cached_property
    def compared(self) -> dict[str, Sequence[str]]:
        """The columns whose cells are compared: categories' values, and ids."""
        ids: dict[str, Sequence[str]] = {self.unit_key: ()} if self.unit_key else {}
        return {**ids, **self.categories}

    @cached_property
    def expected(self) -> frozenset[str]:
        """The same as a set."""
        return frozenset(self.all)

    def fits(self, found: Any) -> bool:
        """Say whether a mapping's keys are right; quick, for every row of a table."""
        if self.ignore_others:
            return bool(found >= self.expected)
        return bool(found == self.expected)

    def problem(self, found: Collection[Any], what: str) -> str:
        """Return what is wrong with a table's columns, or no text.

        Args:
            found: Their names, as they are.
            what: What has them, such as "The frame".
        """
        counted = Counter(found)
        missing = [name for name in self.all if name not in counted]
        if missing:
            return (
                f"{what} has no {_columns(missing)}. Every row needs all columns of "
                f"the schema{'' if self.unit_key is None else ' and the unit_key'}; a "
                "value may be missing where the column says so, the column may not."
            )
        doubled = [name for name, times in counted.items() if times > 1]
        if doubled:
            return (
                f"{what} has {_columns(doubled)} more than once. Give every column a "
                "name of its own."
            )
        others = [name for name in counted if name not in self.expected]
        if others and not self.ignore_others:
            return (
                f"{what} has {_columns(others)}, unknown to the schema. Leave it out, "
                "add it to the schema, or pass extra_columns='ignore'. A column that "
                "says whose a row is must be named with unit_key=."
            )
        return ""

    def require(self, found: Sequence[Any], what: str) -> None:
        """Refuse a table whose columns are not right.

        Raises:
            InvalidParameterError: If a column is missing, unknown or there twice.
        """
        problem = self.problem(found, what)
        if problem:
            raise InvalidParameterError(problem)


def check_extra_columns(extra_columns: Any) -> ExtraColumns:
    """Return what to do with columns that the schema doesn't have.

    Raises:
        InvalidParameterError: If it is neither "refuse" nor "ignore".
    """
    if isinstance(extra_columns, str):
        if extra_columns == "refuse":
            return "refuse"
        if extra_columns == "ignore":
            return "ignore"
    raise InvalidParameterError(
        "extra_columns must be 'refuse' or 'ignore': what is done with a column that "
        "the schema doesn't know."
    )


def _columns(names: Sequence[Any]) -> str:
    shown = ", ".join(_shown(name) for name in names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return (
        f"column{'s' if len(names) > 1 else ''} {shown}"
        f"{f' and {more} more' if more > 0 else ''}"
    )


def _shown(name: Any) -> str:
    if not isinstance(name, str):
        # It may be a value: a list of lists that lost its header has such names.
        return f"with a {type(name).__name__} for a name (names are text)"
    if len(name) > _LONGEST_NAME:
        return repr(f"{name[:_LONGEST_NAME]}...")
    return repr(name)
