"""The exact tallies of a table, group by group: private, in whole numbers.

Everything is added up in 64-bit integers, so that a row moves a tally by exactly what
the schema says, whatever the order of the rows and however they are cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.tabular.gdp.names import NameCounts
from langchain_dpicl.tabular.gdp.terms import ROWS, GDPTerms, Quantity
from langchain_dpicl.tabular.rows.chunks import Chunk
from langchain_dpicl.tabular.rows.reader import RowReader
from langchain_dpicl.tabular.rows.units import Digests
from langchain_dpicl.tabular.rows.wanted import ExtraColumns
from langchain_dpicl.tabular.schema.numeric import NumericColumn

Block = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, repr=False)
class Counted:
    """What was counted of a table's rows, or of a part of them. Private.

    Attributes:
        exact: One array per quantity, shape (groups, size).
        names: How often what is named outside open columns' lists.
        n_rows: How many rows were read, in the sample or not.
        units: The digests of the units, in ascending order, where they were kept.
    """

    exact: list[NDArray[np.int64]]
    names: Mapping[str, int]
    n_rows: int
    units: Digests | None = None

    def __repr__(self) -> str:
        return "Counted(<hidden>)"


def count_rows(
    data: Hidden[Any],
    terms: GDPTerms,
    *,
    random: SecureRandom | None,
    extra_columns: ExtraColumns,
    progress: bool | None,
    key: bytes | None = None,
) -> Counted:
    """Read rows once, and count what a release of these terms needs.

    Args:
        data: The rows.
        terms: What is measured, and who takes part.
        random: Where the sample comes from; None: the context says.
        extra_columns: Whether unknown columns are refused or ignored.
        progress: Whether to show a bar while reading.
        key: Hashes units instead of a fresh key; then their digests are kept.

    Raises:
        InvalidParameterError: If a row is not what the schema allows.
        UnitError: If a row has no unit id.
    """
    tallies, names = Tallies(terms), Hidden(NameCounts(terms.opened))

    def encode(chunk: Chunk) -> dict[str, NDArray[np.int64]]:
        encoded = tallies.encode(chunk)
        # All rows take part where a column is open.
        names.value.add(chunk)
        return encoded

    reader = RowReader(
        data.value,
        terms.schema.names,
        encode,
        categories=terms.schema.categories,
        unit_key=terms.unit_key,
        rows_per_unit=terms.rows_per_unit,
        sampling_rate=terms.sampling_rate,
        random=random,
        extra_columns=extra_columns,
        progress=progress,
        key=key,
    )

    def read() -> None:
        for block in reader.blocks():
            tallies.add(block)

    without_frames(read)
    return Counted(tallies.exact, names.value.exact, reader.n_rows, reader.units)


class Tallies:
    """Adds up blocks of encoded rows; private.

    Args:
        terms: What is measured.

    Privacy:
        Nothing here is released. The sensitivity that `GDPTerms` states holds because
        a row adds to one group's entries alone, and to each of them at most what its
        quantity's bound says.
    """

    def __init__(self, terms: GDPTerms) -> None:
        self._terms = terms
        self._tallies = [
            np.zeros((terms.n_groups, quantity.size), dtype=np.int64)
            for quantity in terms.quantities
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    @property
    def exact(self) -> list[NDArray[np.int64]]:
        """One array per quantity, shape (groups, size). Private."""
        return self._tallies

    def encode(self, chunk: Chunk) -> dict[str, NDArray[np.int64]]:
        """Return a chunk's columns as codes, or as grid steps where they are summed.

        Raises:
            InvalidParameterError: If a value is not what the schema allows; the column
                is named.
        """
        summed = {one.name for one in self._terms.quantities if one.kind == "sum"}
        encoded = {}
        for column in self._terms.schema.columns:
            values = chunk.columns[column.name]
            # A number that is not measured has no bins, and is checked all the same.
            if isinstance(column, NumericColumn) and (
                column.name in summed or not column.has_codes
            ):
                encoded[column.name] = column.grid(values)
            else:
                encoded[column.name] = column.codes(values)
        return encoded

    def add(self, block: Block) -> None:
        """Add rows, given as one array per column, as `encode` makes them."""
        groups = self._groups(block)
        for place, quantity in enumerate(self._terms.quantities):
            self._tallies[place] += self._counted(quantity, block, groups)

    def _groups(self, block: Block) -> NDArray[np.int64]:
        groups = np.zeros(len(next(iter(block.values()))), dtype=np.int64)
        for name, size in zip(
            self._terms.group_by, self._terms.group_sizes, strict=True
        ):
            groups *= size
            groups += block[name]
        return groups

    def _counted(
        self, quantity: Quantity, block: Block, groups: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        n_groups, size = self._terms.n_groups, quantity.size
        if quantity.kind == "sum":
            found = np.zeros(n_groups, dtype=np.int64)
            # Not `bincount` with weights: it adds up floats.
            np.add.at(found, groups, block[quantity.name])
        elif quantity.name == ROWS and quantity.kind == "rows":
            found = np.bincount(groups, minlength=n_groups)
        else:
            places = groups
            for name in quantity.columns:
                width = self._terms.schema.column(name).domain_size
                places = places * width + block[name]
            found = np.bincount(places, minlength=n_groups * size)
        return found.astype(np.int64, copy=False).reshape(n_groups, size)
