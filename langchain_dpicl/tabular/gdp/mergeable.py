"""Tallies of parts of a table, made by many workers, that add up to one release.

`tally` reads a part of the rows on a worker, `merge` adds parts up, and
`GDPTable.from_tallies` releases their sum: bit for bit what the same rows give in one
table under the same key, since all of it is sums of integers.

Privacy:
    A `Tally` holds exact statistics. It is private like the rows, and goes to the
    place that releases, and nowhere else. The proof of the release
    (`mechanisms.table_statistics`) needs two things of a sum of parts:

    * *A unit changes the sum by at most `rows_per_unit` rows.* Each part bounds the
      rows of its own units, so no unit may be in two parts. That is checked exactly:
      a tally carries the keyed digest of every unit that it has read, in the sample or
      not, and `merge` refuses tallies that share one. Equal ids have equal digests
      under one key, and tallies of different keys are refused, so an overlap is never
      missed. (Two units of one digest, of chance below n^2 2^-129, are refused in
      vain.) A sketch or a range of hashes that somebody claims would miss overlaps.
      Without `unit_key` each row is a unit, and that each is in one part is the
      caller's word, as it is for one table; the same tally twice is refused.
    * *A sample serves one event.* A `TallyKey` with a sampling rate below 1 decides
      who is in the sample. It is paid for when it is made: its fingerprint is part of
      the stored release that its charge starts (`GDPTable.tally_key`), and its tallies
      are released for that charge alone, in that ledger, of which the first draw that
      is stored stays. So no other account, process or table of the same sample gets a
      second draw. Two releases of one sample are not two independent samples: at
      q = 1/4 and epsilon 2 they would be charged 1.91, and lose 2.67.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import Self

from langchain_dpicl.common.hidden import Hidden, hiding
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.tabular.gdp.tallies import Counted, count_rows
from langchain_dpicl.tabular.gdp.terms import GDPTerms
from langchain_dpicl.tabular.rows.units import Digests, distinct_digests
from langchain_dpicl.tabular.rows.wanted import ExtraColumns, check_extra_columns
from langchain_dpicl.tabular.schema.table import TableSchema

_KEY, _TALLY = b"dpicl-tally-key-1\n", b"dpicl-tally-1\n"
_DIGEST_BYTES = 32
_SECRET_BYTES = 32
_PERSON = b"dpicl.tallykey"
_SHAPE = (
    *("schema", "group_by", "measure", "numeric"),
    *("sampling_rate", "unit_key", "rows_per_unit"),
)
"""The terms that say what a tally holds; the others say how it is released."""


class TallyKey:
    """The public terms of a table, and the secret key by which its units are hashed.

    `GDPTable.tally_key` makes one. It goes to every worker, and to nobody else: with
    it anybody can compute who would be in the sample. The repr shows nothing.

    Args:
        terms: The public terms.
        secret: 32 secret bytes.
    """

    __slots__ = ("_secret", "terms")

    def __init__(self, terms: Mapping[str, Any], secret: bytes) -> None:
        self.terms = dict(terms)
        self._secret = secret

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __reduce__(self) -> tuple[Callable[[bytes], TallyKey], tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)

    @property
    def fingerprint(self) -> str:
        """What tells keys apart; public."""
        return hashlib.blake2b(self._secret, digest_size=16, person=_PERSON).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the key for storing or sending. Secret."""
        return _packed(_KEY, self.terms, self._secret)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the key that `to_bytes` gave.

        Raises:
            InvalidParameterError: If these bytes hold none.
        """
        terms, secret = _unpacked(_KEY, Hidden(data))
        return cls(terms, secret.value)


class Tally:
    """Exact statistics of a part of a table. Private; the repr shows nothing.

    It can be pickled, and `to_bytes` gives it for a column of bytes: both only where
    the caller asks for it, for the way from a worker to the one who releases.

    Args:
        about: The public terms, and the key's fingerprint.
        counted: What was counted.
        parts: What tells the parts apart that it is the sum of.
    """

    __slots__ = ("_counted", "about", "parts")

    def __init__(
        self, about: Mapping[str, Any], counted: Counted, parts: Sequence[str]
    ) -> None:
        self.about = dict(about)
        self._counted = counted
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __reduce__(self) -> tuple[Callable[[bytes], Tally], tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)

    @property
    def sample(self) -> str | None:
        """The fingerprint of the key that decided who is in the sample; None: all."""
        is_whole = self.about["terms"]["sampling_rate"] == 1
        return None if is_whole else str(self.about["key"])

    def counted(self, terms: GDPTerms) -> Counted:
        """Return what was counted, for a release of these terms. Private.

        Raises:
            InvalidParameterError: If the tally is of other terms.
        """
        own, asked = self.about["terms"], described(terms)
        shapes = [(terms.n_groups, quantity.size) for quantity in terms.quantities]
        other = [name for name in _SHAPE if own.get(name) != asked[name]]
        if other or [tally.shape for tally in self._counted.exact] != shapes:
            raise InvalidParameterError(
                "The tallies are of another schema or other terms "
                f"({', '.join(other) or 'their shape'}): release them with those of "
                "their key."
            )
        return self._counted

    @classmethod
    def merged(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the sum of tallies of disjoint parts; see `merge`."""
        first = tallies[0]
        if any(one.about != first.about for one in tallies):
            raise InvalidParameterError(
                "The tallies were made with different keys or terms: make all of them "
                "with one TallyKey."
            )
        parts = [part for one in tallies for part in one.parts]
        if len(set(parts)) < len(parts):
            raise InvalidParameterError(
                "A tally is there twice: each part of the rows counts once."
            )
        counted = [one._counted for one in tallies]  # noqa: SLF001 - of this class
        names: Counter[str] = Counter()
        for one in counted:
            names.update(one.names)
        sums: list[Any] = [
            np.sum(each, axis=0, dtype=np.int64)
            for each in zip(*(one.exact for one in counted), strict=True)
        ]
        units = _disjoint([one.units for one in counted if one.units is not None])
        n_rows = sum(one.n_rows for one in counted)
        found = Counted(sums, names, n_rows, units)
        return cls(first.about, found, sorted(parts))

    def to_bytes(self) -> bytes:
        """Return the tally for sending. Private."""
        own = self._counted
        header = {
            "about": self.about,
            "parts": list(self.parts),
            "shapes": [list(tally.shape) for tally in own.exact],
            "names": dict(own.names),
            "n_rows": own.n_rows,
            "n_digests": None if own.units is None else len(own.units),
        }
        arrays = [tally.astype("<i8").tobytes() for tally in own.exact]
        if own.units is not None:
            arrays.append(own.units.astype("<u8").tobytes())
        return _packed(_TALLY, header, b"".join(arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the tally that `to_bytes` gave.

        Raises:
            InvalidParameterError: If these bytes hold none.
        """
        held = Hidden(data)
        del data
        header, content = _unpacked(_TALLY, held)
        own = Hidden(header)
        del header
        exact, start = [], 0
        for shape in own.value["shapes"]:
            size = 8 * int(np.prod(shape))
            part = np.frombuffer(content.value[start : start + size], "<i8")
            exact.append(part.astype(np.int64).reshape(shape))
            start += size
        units = None
        if own.value["n_digests"] is not None:
            found = np.frombuffer(content.value[start:], "<u8").astype(np.uint64)
            units = found.reshape(own.value["n_digests"], 2)
        names = Counter(own.value["names"])
        counted = Counted(exact, names, own.value["n_rows"], units)
        return cls(own.value["about"], counted, own.value["parts"])


@hiding
def tally(
    rows: Any,
    schema: TableSchema,
    key: TallyKey,
    *,
    extra_columns: ExtraColumns = "refuse",
    progress: bool | None = False,
) -> Tally:
    """Count a part of a table, for `merge` and `GDPTable.from_tallies`.

    Args:
        rows: The part, as for `GDPTable`; it may be empty. With a `unit_key` all rows
            of a unit must be in one part: let the engine partition by that column.
        schema: The table's public schema.
        key: Of `GDPTable.tally_key`, the same for all parts.
        extra_columns: As for `GDPTable`.
        progress: Whether to show a bar while reading; None: where somebody looks.

    Raises:
        InvalidParameterError: If a row is not what the schema allows, or the key is for
            another schema.
        UnitError: If a row has no unit id.

    Privacy:
        The result is private: exact statistics, and a keyed digest of each unit. See
        the module's docstring for what of it is released, and when.

    Example:
        >>> from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema
        >>> yes_no = {"values": ["no", "yes"]}
        >>> schema = TableSchema(
        ...     label="ill",
        ...     columns=[
        ...         CategoricalColumn(name="smokes", **yes_no),
        ...         CategoricalColumn(name="ill", **yes_no),
        ...     ],
        ... )
        >>> key = GDPTable.tally_key(schema)
        >>> tally([{"smokes": "no", "ill": "yes"}], schema, key)
        Tally(<hidden>)
    """
    if not isinstance(key, TallyKey):
        raise InvalidParameterError(
            f"key must be a TallyKey of GDPTable.tally_key(), not {type(key).__name__}."
        )
    terms = terms_of(schema, key.terms)
    counted = count_rows(
        Hidden(rows),
        terms,
        random=SecureRandom(),
        extra_columns=check_extra_columns(extra_columns),
        progress=progress,
        key=key._secret,  # noqa: SLF001 - of this module
    )
    about = {"terms": key.terms, "key": key.fingerprint}
    return Tally(about, counted, [secrets.token_hex(16)])


def new_key(terms: GDPTerms) -> TallyKey:
    """Return a fresh key for these terms."""
    return TallyKey(described(terms), secrets.token_bytes(_SECRET_BYTES))


def described(terms: GDPTerms) -> dict[str, Any]:
    """Return a release's terms, ready for JSON."""
    own = terms.described()
    return {
        "measure": own.get("measure"),
        **{name: own[name] for name in _SHAPE if name not in ("measure", "unit_key")},
        "unit_key": terms.unit_key,
        "split": own["split"],
        "noise": terms.noise,
        "epsilon": terms.epsilon,
    }


def arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a `GDPTable` of the terms that `described` gave."""
    own = {name: value for name, value in fields.items() if name != "schema"}
    if own["measure"] is not None:
        own["measure"] = [tuple(each) for each in own["measure"]]
        own["group_by"] = None
    return own


def terms_of(schema: TableSchema, fields: Mapping[str, Any]) -> GDPTerms:
    """Return the terms that `described` gave.

    Raises:
        InvalidParameterError: If they are of another schema.
    """
    if not isinstance(schema, TableSchema) or (
        schema.fingerprint() != fields.get("schema")
    ):
        raise InvalidParameterError(
            "schema must be the TableSchema that the key was made for."
        )
    own = {**arguments(fields), "group_by": tuple(fields["group_by"])}
    if own["measure"] is not None:
        own["measure"] = tuple(own["measure"])
    terms = GDPTerms(schema=schema, **own)
    terms.check()
    return terms


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


def _packed(mark: bytes, header: Mapping[str, Any], content: bytes) -> bytes:
    text = json.dumps(header, sort_keys=True).encode()
    data = len(text).to_bytes(8, "little") + text + content
    return mark + hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() + data


def _unpacked(mark: bytes, data: Hidden[Any]) -> tuple[dict[str, Any], Hidden[bytes]]:
    """Return the header and the content of what `_packed` made.

    The digest shows accidents, and is no signature: tallies travel where the rows do.
    """
    start = len(mark) + _DIGEST_BYTES
    given = data.value
    is_ours = isinstance(given, bytes) and given.startswith(mark)
    own = Hidden(given[start:] if is_ours else b"")
    is_whole = is_ours and (
        hashlib.blake2b(own.value, digest_size=_DIGEST_BYTES).digest()
        == given[len(mark) : start]
    )
    del given
    if not is_whole:
        kind = mark.decode().rsplit("-", 1)[0]
        raise InvalidParameterError(
            f"These bytes are no {kind} of this version, or not all of one."
        )
    size = int.from_bytes(own.value[:8], "little")
    header = json.loads(own.value[8 : 8 + size])
    return header, Hidden(own.value[8 + size :])
