"""Units: the one spelling of their ids, and how they are charged."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias, overload
from uuid import UUID

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ChargeUnits: TypeAlias = Callable[[Sequence[str]], Sequence[bool]]
"""Charges units that are about to take part: ids in, one answer each, True for paid.

The ids are canonical, each once. The charge of everyone who paid is durable when it
returns. Who did not pay is to be treated as if not in the corpus. Ids and answers are
private."""

_MAX_INTEGER_BITS = 1024


class NumberedUnits(Sequence[str]):
    """Units of one index: their ids, which are looked up when somebody reads them.

    A ledger in the same process knows them by number: a number costs one read of an
    array, an id four reads all over the memory. Which units are meant, and in which
    order, is the same.

    Args:
        source: What numbers its units, and never changes: one snapshot of an index.
        size: How many units it has.
        numbers: The units' numbers, from 0 to below `size`, each once.
        ids: Returns their ids, in the order of `numbers`.
    """

    def __init__(
        self,
        source: object,
        size: int,
        numbers: NDArray[np.int64],
        ids: Callable[[], Sequence[str]],
    ) -> None:
        self.source = source
        self.size = size
        self.numbers = numbers
        self._find = ids

    @cached_property
    def _ids(self) -> Sequence[str]:
        return self._find()

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return self._ids[place]


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
