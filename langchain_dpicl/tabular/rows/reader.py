"""`RowReader`: from a private table to the encoded rows that take part in a release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.common.progress import is_watched, progress_bar
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source, current
from langchain_dpicl.tabular.rows.capped import CappedRows
from langchain_dpicl.tabular.rows.chunks import CHUNK_SIZE, Chunk, read_chunks
from langchain_dpicl.tabular.rows.units import (
    KEY_WORDS,
    Digests,
    DistinctUnits,
    UnitDraw,
)
from langchain_dpicl.tabular.rows.wanted import ExtraColumns

Encoded: TypeAlias = "dict[str, NDArray[np.int64]]"


class RowReader:
    """Reads a table once: checks and encodes all rows, and yields those that take part.

    Without `unit_key` every row is a unit of its own, and a row is in the sample by a
    fresh coin. With it, a *unit* is in the sample by a keyed hash of its id
    (`UnitDraw`), and of each unit in it at most `rows_per_unit` rows take part
    (`CappedRows`).

    Memory: a chunk; with `unit_key` also each row of the *sampled* units at 16 bytes
    and 1 to 8 a column (about 36 for 20 columns of codes).

    Args:
        data: The table, as for `read_chunks`.
        schema_names: The columns of the schema.
        encode: Turns a chunk into integers: for each column that it makes, one number
            a row, each computed from that row's cells alone. It raises where a cell is
            not what the schema allows.
        unit_key: The column that says whose a row is; None: every row is a unit.
        rows_per_unit: Most rows of a unit that take part.
        sampling_rate: The Poisson rate q at which units are sampled.
        random: The source of the sample's secret bits; None: the context says.
        extra_columns: What to do with a column that the schema doesn't know.
        chunk_size: Most rows in memory as they came.
        progress: Whether to show rows a second on standard error; None: at a terminal.
            How many rows there are is private: it is for who may see the table.
        categories: As for `read_chunks`.
        key: A secret key of 32 bytes that several readers of disjoint parts of a table
            share; None draws a fresh one. With one, `units` has all units' digests, at
            16 to 24 bytes each.

    Raises:
        InvalidParameterError: If an argument is out of its range.

    Example:
        >>> reader = RowReader(
        ...     [{"age": 37}, {"age": 52}],
        ...     ["age"],
        ...     lambda chunk: {"age": np.asarray(chunk.columns["age"])},
        ...     unit_key=None,
        ... )
        >>> sum(int(block["age"].sum()) for block in reader.blocks())
        89

    Privacy:
        Unit: what one value of `unit_key` names, or one row. Neighbors: a table and the
        same with all rows of one unit more.

        For fixed random bits the units do not meet: whether a unit takes part, and
        with which rows, depends on that unit's own rows and the secret bits, not on
        who else is there, in which order rows come, or where chunks are cut. So one
        unit more adds at most `rows_per_unit` encoded rows to what `blocks` yields in
        all, and nothing else changes; and each unit is in with a probability of its
        own that is never above q. That is Poisson sampling (privacy of the result: the
        caller's mechanism with sensitivity `rows_per_unit` rows, amplified at q).
        With `unit_key` the coins come of a PRF under a key that is drawn afresh for
        every reader and never leaves it (or of every table, where parts share one);
        see `UnitDraw` for why that is as good.

        Every row is checked and encoded *before* the sample is looked at. Otherwise an
        error would tell that a faulty row was in the sample, and the same table would
        pass or fail by chance. An error does tell that there is a faulty row: it is
        for who brings the table, not for who gets the release.

        Order and sizes of the blocks are private and depend on everybody: only sums
        over all of them are bounded as said.
    """

    def __init__(  # noqa: PLR0913 - the public terms, one by one
        self,
        data: Any,
        schema_names: Sequence[str],
        encode: Callable[[Chunk], Mapping[str, NDArray[np.int64]]],
        *,
        unit_key: str | None,
        rows_per_unit: int = 1,
        sampling_rate: float = 1.0,
        random: SecureRandom | None = None,
        extra_columns: ExtraColumns = "refuse",
        chunk_size: int = CHUNK_SIZE,
        progress: bool | None = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        key: bytes | None = None,
    ) -> None:
        hidden = Hidden(data)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del data
        cap = parameters.count(rows_per_unit, "rows_per_unit")
        if unit_key is None and cap != 1:
            raise InvalidParameterError(
                "rows_per_unit needs unit_key=: without one every row is a unit of its "
                "own. Name the column that says whose a row is."
            )
        self._rate = parameters.sampling_rate(sampling_rate)
        self._encode = encode
        self._random = checked_source(random)
        self._shown = is_watched() if progress is None else progress
        self._unit_key = unit_key
        self._cap = cap
        self._key = key
        self._units: Digests | None = None
        self._chunks = read_chunks(
            hidden.value,
            schema_names,
            unit_key=unit_key,
            extra_columns=extra_columns,
            chunk_size=chunk_size,
            categories=categories,
        )
        self._is_begun = self._is_ended = False
        self._n_rows = 0

    def __repr__(self) -> str:
        return "RowReader(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A reader of private rows is not pickled.")

    @property
    def n_rows(self) -> int:
        """How many rows were read, in the sample or not. Private."""
        return self._counted(self._n_rows)

    @property
    def units(self) -> Digests | None:
        """The digests of all units that were read, where a key was given. Private."""
        self._counted(0)
        return self._units

    @property
    def _source(self) -> SecureRandom:
        return self._random or current()

    def blocks(self) -> Iterator[Encoded]:
        """Read the table and yield the encoded rows that take part, block by block.

        Returns:
            For each block, what `encode` made of its rows, as 64-bit integers.

        Raises:
            InvalidParameterError: If the table was read already, is no table, or has
                wrong columns. What `encode` and iterables of the caller's raise passes.
            UnitError: If a row has no usable unit id.
        """
        if self._is_begun:
            raise InvalidParameterError(
                "A RowReader reads its table once: a second pass would need another "
                "sample. Make a new one."
            )
        self._is_begun = True
        return self._blocks()

    def _blocks(self) -> Iterator[Encoded]:
        taken = self._by_row if self._unit_key is None else self._by_unit
        # Closed at once where something fails: a database waits for it.
        with (
            closing(self._chunks),
            progress_bar(
                "Reading rows", None, shown=self._shown, speed="rows/s"
            ) as advance,
        ):
            yield from taken(advance)
        self._is_ended = True

    def _by_row(self, advance: Callable[[int], None]) -> Iterator[Encoded]:
        """Toss a coin for every row."""
        from langchain_dpicl.groups.selection import poisson_sample

        for chunk in self._chunks:
            encoded = Hidden(self._encoded(chunk))
            size = chunk.size
            del chunk
            self._n_rows += size
            places = Hidden(poisson_sample(self._source, size, self._rate))
            advance(size)
            if len(places.value):
                yield _selected(encoded.value, places.value)

    def _by_unit(self, advance: Callable[[int], None]) -> Iterator[Encoded]:
        """Keep the rows of sampled units; cap them when all are there."""
        key = self._key or self._source.words(KEY_WORDS).tobytes()
        draw = UnitDraw(key, str(self._unit_key), self._rate)
        sampled = CappedRows(key, self._cap)
        everybody = None if self._key is None else DistinctUnits()
        for chunk in self._chunks:
            encoded = Hidden(self._encoded(chunk))
            units = Hidden(draw.digests(chunk.units, self._n_rows))
            size = chunk.size
            del chunk
            self._n_rows += size
            chosen = Hidden(draw.chosen(units.value))
            if everybody is not None:
                everybody.add(units.value)
            sampled.add(
                units.value[chosen.value], _selected(encoded.value, chosen.value)
            )
            del encoded, units, chosen
            advance(size)
        yield from sampled.blocks()
        if everybody is not None:
            self._units = everybody.digests()

    def _encoded(self, chunk: Chunk) -> Encoded:
        made = Hidden(
            {name: np.asarray(codes) for name, codes in self._encode(chunk).items()}
        )
        for name, codes in made.value.items():
            problem = _not_codes(codes, chunk.size)
            del codes
            if problem:
                raise InvalidParameterError(f"encode made {problem} of {name!r}.")
        return {
            name: codes.astype(np.int64, copy=False)
            for name, codes in made.value.items()
        }

    def _counted(self, count: int) -> int:
        if not self._is_ended:
            raise InvalidParameterError(
                "Rows are counted when blocks() has been read to its end."
            )
        return count


def _selected(encoded: Encoded, places: NDArray[Any]) -> Encoded:
    return {name: codes[places] for name, codes in encoded.items()}


def _not_codes(codes: NDArray[Any], size: int) -> str:
    """Return what was made instead of one integer a row, or no text."""
    if codes.shape != (size,):
        return f"an array of shape {codes.shape} instead of one number a row"
    if codes.dtype.kind not in "iu":
        return f"numbers of type {codes.dtype} instead of integers"
    return ""
