"""Units: the one spelling of their ids, how they are charged, what neighbors are.

A *unit* is one person (account, document: whatever one unit id names). Two corpora
are neighbors when one is the other plus all records of one unit. A query turns a
corpus into *slots*, one model answer each; the relation says how two neighboring
corpora's slots can differ, and every sensitivity in the library follows from it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum
from numbers import Integral
from typing import Any, TypeAlias
from uuid import UUID

Collect: TypeAlias = Callable[[Iterable[str]], set[str]]
"""Charges units that are about to take part: ids in, the ids of those that paid out.

The ids are canonical, each once. The charge of every unit that paid is durable when it
returns. A unit that did not pay is to be treated as if not in the corpus. Ids and
answers are private."""

REPORTS_OF = "reports of each "
"""How the name of a kind of unit begins where it is public who takes part.

What such units say is protected, and not that they said it. An account or a corpus
protects one kind of unit, so it holds no such release beside one that promises more."""

_MAX_INTEGER_BITS = 1024


def canonical_unit_id(value: Any) -> str | None:
    """Return a unit id's one spelling, or None where the value cannot be an id.

    Example:
        >>> canonical_unit_id(" p-1 "), canonical_unit_id(1.0)
        ('p-1', None)
        >>> canonical_unit_id(UUID(int=7)) == canonical_unit_id(str(UUID(int=7)))
        True
    """
    if isinstance(value, str):
        # str.__str__ also undoes subclasses that print differently, such as enums.
        text = str.__str__(value).strip()
        return unicodedata.normalize("NFC", text) or None
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        number = int(value)
        # Python refuses to print integers of thousands of digits.
        return str(number) if number.bit_length() <= _MAX_INTEGER_BITS else None
    return None


class Relation(str, Enum):
    """How the slots of two neighboring corpora differ.

    Example:
        >>> Relation("replace") is Relation.REPLACE
        True
    """

    ADD_REMOVE = "add_remove"
    """One slot appears or vanishes; all other slots are the same."""

    REPLACE = "replace"
    """One slot changes from any answer (or none) to any other; the rest stay."""
