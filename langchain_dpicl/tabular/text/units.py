"""Each unit's records as texts for calls: no text holds two units' records."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.common.hidden import hidden_repr
from langchain_dpicl.common.prompts import DOCUMENT_SEPARATOR
from langchain_dpicl.errors import UnitError
from langchain_dpicl.groups.records import take_documents


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

        Who does not know the text can't tell from it whose the part is.
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
    """Return each unit's parts, units in the order of their ids.

    A unit without text has none. Where `order_key` says nothing, records are ordered by
    their texts: their places in the list may depend on everybody.

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


def merged(
    parts: Iterable[Mapping[str, Any]], nones: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return what the parts of one unit tell together: the first value told counts.

    A column's value that says that there is none, in `nones`, counts only where no part
    tells another value.

    Example:
        >>> parts = [{"drug": "none"}, {"drug": "a"}, {"ill": "flu", "drug": "b"}]
        >>> merged(parts, {"drug": "none", "ill": None})
        {'drug': 'a', 'ill': 'flu'}
    """
    told: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            told.setdefault(name, []).append(value)
    return {
        name: next((one for one in values if one != nones[name]), values[0])
        for name, values in told.items()
        if name in nones
    }


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
