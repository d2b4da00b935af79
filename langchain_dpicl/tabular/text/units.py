"""Each unit's records as texts for calls: no text holds two units' records."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.common.prompts import DOCUMENT_SEPARATOR
from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.ingest import take_documents

MERGES = ("first", "last", "most")
"""How what several parts tell becomes one value."""


@dataclass(frozen=True, repr=False)
class Part:
    """What one call reads: records of one unit. Private: its repr shows nothing.

    Attributes:
        unit_id: Whose they are.
        number: Which part of the unit's records this is, from 0.
        text: The records.
    """

    unit_id: str
    number: int
    text: str

    def __repr__(self) -> str:
        return hidden_repr(self)

    def tag(self, key: str) -> str:
        """Return a keyed digest of the part; another text has another one.

        Without the key nobody tells from it whose the part is, or checks a guess.
        """
        content = json.dumps([self.unit_id, self.number, self.text])
        secret = hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest()
        return hashlib.blake2b(
            content.encode(), key=secret, digest_size=16, person=b"dpicl.part"
        ).hexdigest()


def units_of(
    documents: Iterable[Document],
    *,
    unit_key: str,
    order_key: str | None,
    max_characters: int,
) -> list[tuple[Part, ...]]:
    """Return the parts of each unit's records, units in the order of their ids.

    Args:
        documents: The records.
        unit_key: The metadata key that holds the unit id.
        order_key: The metadata key by which a unit's records are ordered; None, and
            where it says nothing: by their texts. Not by their places in the list,
            which may depend on everybody.
        max_characters: Most characters of a part.

    Returns:
        For each unit its parts; none for a unit without text.

    Raises:
        InvalidParameterError: If something is no `Document`.
        UnitError: If a document has no usable unit id, or there are none.
    """
    taken, unit_ids = take_documents(documents, unit_key)
    if not taken:
        raise UnitError("There are no documents. Pass those of one person or more.")
    records: dict[str, list[tuple[Any, str]]] = {}
    for document, unit_id in zip(taken, unit_ids, strict=True):
        place = _place(None if order_key is None else document.metadata.get(order_key))
        records.setdefault(unit_id, []).append((place, document.page_content))
    return [
        tuple(
            Part(unit_id, number, text)
            for number, text in enumerate(
                texts_of([text for _, text in sorted(records[unit_id])], max_characters)
            )
        )
        for unit_id in sorted(records)
    ]


def texts_of(records: Iterable[str], most: int) -> list[str]:
    r"""Return records as texts of bounded length, in order; blank ones are left out.

    Example:
        >>> texts_of(["one", " ", "two", "a long record"], 13)
        ['one\n\n---\n\ntwo', 'a long record']
    """
    texts: list[str] = []
    is_open = False
    for record in records:
        if not record.strip():
            continue
        pieces = list(_pieces(record, most))
        joined = f"{texts[-1]}{DOCUMENT_SEPARATOR}{pieces[0]}" if is_open else ""
        if is_open and len(pieces) == 1 and len(joined) <= most:
            texts[-1] = joined
        else:
            texts += pieces
        is_open = True
    return texts


def check_merge(merge: Any, names: Sequence[str]) -> dict[str, str]:
    """Return each column's rule by which parts are merged.

    Raises:
        InvalidParameterError: If there is no such rule or column.
    """
    rules = dict.fromkeys(names, MERGES[0])
    given = merge if isinstance(merge, Mapping) else dict.fromkeys(names, merge)
    for name, rule in given.items():
        if name not in rules or not isinstance(rule, str) or rule not in MERGES:
            raise InvalidParameterError(
                "merge must be 'first', 'last' or 'most', or a mapping from columns to "
                f"these; the columns are {', '.join(map(repr, names)):.400}."
            )
        rules[name] = rule
    return rules


def merged(
    parts: Iterable[Mapping[str, Any]],
    rules: Mapping[str, str],
    nones: Mapping[str, str | None],
) -> dict[str, Any]:
    """Return what the parts of one unit tell together.

    Args:
        parts: What each tells, in order; a column that a part tells nothing of is not
            in it.
        rules: By column: the "first" value told, the "last", or the one that "most"
            parts tell, of equals the first. For "first" and "most" the column's "none"
            counts only where no part tells another value.
        nones: By column, its value that says that there is none.

    Example:
        >>> parts = [{"drug": "none"}, {"drug": "a"}, {"drug": "b"}, {}, {"drug": "b"}]
        >>> [merged(parts, {"drug": rule}, {"drug": "none"})["drug"] for rule in MERGES]
        ['a', 'b', 'b']
    """
    told = list(parts)
    found: dict[str, Any] = {}
    for name, rule in rules.items():
        values = [part[name] for part in told if name in part]
        if rule == "last":
            values = values[-1:]
        values = [one for one in values if one != nones.get(name)] or values
        if values:
            found[name] = max(values, key=values.count) if rule == "most" else values[0]
    return found


def _pieces(record: str, most: int) -> Iterable[str]:
    """Yield a record in pieces, cut at white space where there is some."""
    record = record.strip()
    while len(record) > most:
        cut = max(record.rfind(sign, most // 2, most + 1) for sign in (" ", "\n"))
        cut = cut if cut > 0 else most
        yield record[:cut].strip()
        record = record[cut:].strip()
    if record:
        yield record


def _place(value: Any) -> tuple[int, float, str]:
    """Return where a value stands among others: numbers, then texts, then nothing."""
    if isinstance(value, Real):
        # JSON may hold integers that no float does: one person's must stop nobody.
        with suppress(OverflowError):
            if math.isfinite(value):
                return 0, float(value), ""
    if isinstance(value, date):
        value = value.isoformat()
    if isinstance(value, str) and value.strip():
        return 1, 0.0, value.strip()
    return 2, 0.0, ""
