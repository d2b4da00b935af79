"""Tallies of parts of a table, made by many workers, that add up to one release.

`tally` reads a part of the rows on a worker, `merge` adds parts up, and
`GDPTable.from_tallies` releases their sum: bit for bit what the same rows give in one
table, since all of it is sums of integers.

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

    Tallies of a sample are refused. Two releases of one sample are not two independent
    samples: at q = 1/4 and epsilon 2 they would be charged 1.91, and lose 2.67.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from langchain_dpicl.common.hidden import Hidden, hiding
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.tabular.gdp.tallies import Counted, count_rows
from langchain_dpicl.tabular.gdp.terms import GDPTerms
from langchain_dpicl.tabular.rows.units import Digests, distinct_digests
from langchain_dpicl.tabular.rows.wanted import ExtraColumns, check_extra_columns
from langchain_dpicl.tabular.schema.table import TableSchema

_KEY_BYTES = 32
_SHAPE = ("group_by", "measure", "numeric", "unit_key", "rows_per_unit")
"""The terms that say what a tally holds; the others say how it is released."""


@dataclass(frozen=True, repr=False)
class Tally:
    """Exact statistics of a part of a table. Private; the repr shows nothing.

    It can be pickled, for the way from a worker to the one who releases.

    Attributes:
        about: The public terms that say what it holds, and a digest of the key.
        counted: What was counted.
        parts: What tells the parts apart that it is the sum of.
    """

    about: Mapping[str, Any]
    counted: Counted
    parts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    @property
    def terms(self) -> dict[str, Any]:
        """The terms that say what it holds, as `GDPTable` takes them."""
        own = {name: self.about[name] for name in _SHAPE}
        return own if own["measure"] is None else {**own, "group_by": None}

    def counted_for(self, terms: GDPTerms) -> Counted:
        """Return what was counted, for a release of these terms. Private.

        Raises:
            InvalidParameterError: If the tally is of other terms.
        """
        if self.about != {**self.about, **_shape(terms)}:
            raise InvalidParameterError(
                "The tallies are of another schema or other terms: release them with "
                "those that tally() was given."
            )
        return self.counted


@hiding
def tally(
    rows: Any,
    schema: TableSchema,
    key: bytes,
    *,
    extra_columns: ExtraColumns = "refuse",
    **terms: Any,
) -> Tally:
    """Count a part of a table, for `merge` and `GDPTable.from_tallies`.

    Args:
        rows: The part, as for `GDPTable`; it may be empty. With a `unit_key` all rows
            of a unit must be in one part: let the engine partition by that column.
        schema: The table's public schema.
        key: `secrets.token_bytes(32)`, drawn once for all parts of a table and secret.
        extra_columns: As for `GDPTable`.
        **terms: `measure`, `group_by`, `numeric`, `unit_key`, `rows_per_unit`, as for
            `GDPTable`.

    Raises:
        InvalidParameterError: If a row is not what the schema allows, a term is out of
            its range, or the key is none.
        UnitError: If a row has no unit id.

    Privacy:
        The result is private: exact statistics, and a keyed digest of each unit. See
        the module's docstring for what of it is released, and when.
    """
    from langchain_dpicl.tabular.gdp.table import GDPTable

    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise InvalidParameterError(
            f"key must be {_KEY_BYTES} secret bytes: secrets.token_bytes({_KEY_BYTES})."
        )
    if other := sorted(terms.keys() - set(_SHAPE)):
        raise InvalidParameterError(
            f"tally() takes no {other[0]!r}: give it to GDPTable.from_tallies. There "
            "are no tallies of a sample."
        )
    own = GDPTable(None, schema, **terms)._terms  # noqa: SLF001 - as a table checks them
    counted = count_rows(
        Hidden(rows),
        own,
        random=None,
        extra_columns=check_extra_columns(extra_columns),
        progress=False,
        key=key,
    )
    digest = hashlib.blake2b(key, digest_size=16, person=b"dpicl.tallykey").hexdigest()
    return Tally({**_shape(own), "key": digest}, counted, (secrets.token_hex(16),))


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
    if not found or not all(isinstance(one, Tally) for one in found):
        raise InvalidParameterError("tallies must be those of tally(), at least one.")
    if any(one.about != found[0].about for one in found):
        raise InvalidParameterError(
            "The tallies were made with different keys, schemas or terms."
        )
    parts = [part for one in found for part in one.parts]
    if len(set(parts)) < len(parts):
        raise InvalidParameterError(
            "A tally is there twice: each part of the rows counts once."
        )
    counted = [one.counted for one in found]
    names: Counter[str] = Counter()
    for one in counted:
        names.update(one.names)
    every = zip(*(one.exact for one in counted), strict=True)
    sums: list[Any] = [np.sum(each, axis=0, dtype=np.int64) for each in every]
    units = _disjoint([one.units for one in counted if one.units is not None])
    whole = Counted(sums, names, sum(one.n_rows for one in counted), units)
    return Tally(found[0].about, whole, tuple(sorted(parts)))


def _shape(terms: GDPTerms) -> dict[str, Any]:
    """Return the terms that say what a tally holds, ready for JSON."""
    own = {name: getattr(terms, name) for name in ("sampling_rate", *_SHAPE)}
    return {**own, "schema": terms.schema.fingerprint()}


def _disjoint(units: Sequence[Digests]) -> Digests | None:
    """Return the digests of all units, each once.

    Raises:
        UnitError: If one is in two of them.
    """
    if not units:
        return None
    joined = np.concatenate(units)
    found = distinct_digests(joined)
    if len(found) < len(joined):
        raise UnitError(
            "A unit has rows in two of the tallies. Its rows would be bounded in each "
            "alone: partition the rows by the unit_key first, so that all rows of a "
            "unit are in one part."
        )
    return found
