"""The exact tallies of a table, or of parts of one that many workers count.

`tally` reads a part of the rows on a worker, `merge` adds parts up, and
`GDPTable.from_tallies` releases their sum: bit for bit what the same rows give in one
table. All of it is sums of 64-bit integers, so that a row moves a tally by exactly what
the schema says, whatever the order of the rows.

Privacy:
    A `Tally` holds exact statistics. It is private like the rows, and goes to the
    place that releases, and nowhere else. The proof of the release
    (`mechanisms.tables`) needs that a unit changes the sum by at most
    `rows_per_unit` rows. Each part bounds the rows of its own units, so no unit may be
    in two parts. That is checked exactly: a tally carries the keyed digest of every
    unit that it has read, and `merge` refuses tallies that share one. Equal ids have
    equal digests under one key, and tallies of different keys are refused, so an
    overlap is never missed. (Two units of one digest, of chance below n^2 2^-129, are
    refused in vain.) Without `unit_key` each row is a unit, and that each is in one
    part is the caller's word, as it is for one table; the same tally twice is refused.

    There is no tally of a sample: two releases of one sample are not two independent
    samples.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.tabular.gdp.terms import (
    GDPTerms,
    Measure,
    MeasuredTable,
    read_measure,
)
from langchain_dpicl.tabular.people import (
    Digests,
    People,
    distinct_digests,
    read_people,
)
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.terms import require_schema

_KEY_BYTES = 32


@dataclass(frozen=True, repr=False)
class Tally:
    """Exact statistics of a table, or of a part of one. Private; the repr shows none.

    It can be pickled, for the way from a worker to the one who releases.

    Attributes:
        terms: What is measured, and of whom.
        exact: One array of whole numbers for each table, in its shape.
        n_rows: How many rows were read.
        units: The digests of the units, ascending; None where each row is one.
        key: A digest of the key; empty where the rows were not read in parts.
        parts: What tells the parts apart that it is the sum of.
    """

    terms: GDPTerms
    exact: list[NDArray[np.int64]]
    n_rows: int
    units: Digests | None = None
    key: str = ""
    parts: tuple[str, ...] = field(default_factory=lambda: (secrets.token_hex(16),))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"


@hiding
def count_rows(
    data: Any,
    terms: GDPTerms,
    *,
    progress: bool | None = None,
    key: bytes | None = None,
) -> Tally:
    """Read rows once, and count what a release needs; see `read_people`."""
    people = read_people(
        data,
        terms.table_schema,
        unit_key=terms.unit_key,
        rows_per_unit=terms.rows_per_unit,
        progress=progress,
        key=key,
    )
    exact = [_counted(table, people) for table in terms.tables]
    return Tally(terms, exact, people.n_rows, people.units)


@hiding
def tally(
    rows: Any,
    schema: TableSchema,
    key: bytes,
    *,
    measure: Measure | None = None,
    unit_key: str | None = None,
    rows_per_unit: int = 1,
) -> Tally:
    """Count a part of a table, for `merge` and `GDPTable.from_tallies`.

    The key is `secrets.token_bytes(32)`, drawn once for all parts of a table, and
    secret. The other terms are those of `GDPTable`. A part may be empty. With a
    `unit_key` all rows of a unit must be in one part: let the engine partition by that
    column.

    Raises:
        InvalidParameterError: If a row is not what the schema allows, a term is out of
            its range, or the key is none.
        UnitError: If a row has no unit id.

    Privacy:
        The result is private: exact statistics, and a keyed digest of each unit. See
        the module's docstring for what of it is released, and when.
    """
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise InvalidParameterError(
            f"key must be {_KEY_BYTES} secret bytes: secrets.token_bytes({_KEY_BYTES})."
        )
    terms = GDPTerms(
        table_schema=require_schema(schema),
        measure=read_measure(measure, schema),
        unit_key=unit_key,
        rows_per_unit=rows_per_unit,
    )
    found = count_rows(rows, terms, progress=False, key=key)
    digest = hashlib.blake2b(key, digest_size=16, person=b"dpicl.tallykey").hexdigest()
    return Tally(terms, found.exact, found.n_rows, found.units, digest)


@hiding
def merge(tallies: Iterable[Tally]) -> Tally:
    """Add up tallies of disjoint parts of one table, in any order and any grouping.

    Args:
        tallies: At least one. Sums of some of them can be merged with others.

    Raises:
        InvalidParameterError: If there are none, they were made with different keys or
            terms, or one is there twice.
        UnitError: If a unit has rows in two of them.

    Privacy:
        Private in, private out. That no unit is in two tallies is checked exactly.
    """
    found = list(tallies) if isinstance(tallies, Iterable) else []
    if not found or not all(isinstance(part, Tally) for part in found):
        raise InvalidParameterError("tallies must be those of tally(), at least one.")
    terms, key = found[0].terms, found[0].key
    if any((part.terms.digest(), part.key) != (terms.digest(), key) for part in found):
        raise InvalidParameterError(
            "The tallies were made with different keys, schemas or terms."
        )
    parts = sorted(name for part in found for name in part.parts)
    if len(set(parts)) < len(parts):
        raise InvalidParameterError(
            "A tally is there twice: each part of the rows counts once."
        )
    every = zip(*(part.exact for part in found), strict=True)
    sums: list[Any] = [np.sum(each, axis=0, dtype=np.int64) for each in every]
    digests = [part.units for part in found if part.units is not None]
    units = distinct_digests(np.concatenate(digests)) if digests else None
    if units is not None and len(units) < sum(map(len, digests)):
        raise UnitError(
            "A unit has rows in two of the tallies. Its rows would be bounded in each "
            "alone: partition the rows by the unit_key first, so that all rows of a "
            "unit are in one part."
        )
    n_rows = sum(part.n_rows for part in found)
    return Tally(terms, sums, n_rows, units, key, tuple(parts))


def _counted(table: MeasuredTable, people: People) -> NDArray[np.int64]:
    """Add up encoded rows: each adds to at most `table.cells` cells of one table."""
    codes, n_rows = people.codes, len(people)
    places: NDArray[np.int64] = np.zeros((n_rows, 1), dtype=np.int64)
    for name, size in zip(table.columns, table.shape, strict=True):
        own = codes[name].astype(np.int64)
        own = own[:, None, None] if own.ndim == 1 else own[:, None, :]
        before = places[:, :, None]
        # Every value of the one column with every value of the other.
        both = np.where((before < 0) | (own < 0), -1, before * size + own)
        places = both.reshape(n_rows, both.shape[1] * both.shape[2])
    found = np.zeros(table.size, dtype=np.int64)
    is_cell = places >= 0
    if table.summed is None:
        found += np.bincount(places[is_cell], minlength=table.size)
    else:
        steps = codes[table.summed].astype(np.int64)[:, None]
        # Not `bincount` with weights: it adds up floats.
        np.add.at(found, places[is_cell], np.broadcast_to(steps, places.shape)[is_cell])
    return found.reshape(table.shape)
