"""Unit ids: reading them, and hashing them to shards.

One *unit* is the person, or thing, that one unit id names. Two spellings that may be
the same person are read as one unit. To merge two units is safe, since the merged unit
is protected as a whole; to split one would break the guarantee.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError

SALT_BYTES = 32
_MOST_SHARDS = 2**63 - 1
_SHARD = b"dpicl.shard"


def new_salt() -> bytes:
    """Return a fresh secret key for `unit_digest`, kept with the index."""
    return os.urandom(SALT_BYTES)


def check_salt(salt: Any) -> bytes:
    """Return 32 bytes, refusing anything else."""
    if not (isinstance(salt, bytes) and len(salt) == SALT_BYTES):
        raise InvalidParameterError(
            f"salt must be {SALT_BYTES} secret bytes, as secrets.token_bytes"
            f"({SALT_BYTES}) returns them."
        )
    return salt


def unit_id_of(document: Document, unit_key: str, *, position: int = 0) -> str:
    """Return the id of the unit that a document belongs to, as a string.

    The id is a non-empty string or an integer in the document's metadata. The integer 7
    and the string "7" name the same unit, and so do spellings that differ by
    surrounding white space or by Unicode composition (NFC). Anything else is a
    `UnitError`, which names the key and the document's position in the caller's list,
    never the value.

    Example:
        >>> from langchain_core.documents import Document
        >>> unit_id_of(Document("note", metadata={"patient_id": 7}), "patient_id")
        '7'
    """
    if unit_key not in document.metadata:
        raise UnitError(
            f"Document {position} (counted from 0) has no metadata key {unit_key!r}. "
            "Name the key that holds each record's unit id as unit_key=, or drop the "
            "records without one: a record without an id cannot count as a unit of its "
            "own."
        )
    value = document.metadata[unit_key]
    unit_id = canonical_unit_id(value)
    if unit_id is None:
        raise UnitError(
            f"Metadata key {unit_key!r} of document {position} (counted from 0) holds "
            f"a {type(value).__name__} that is no unit id. A unit id is a non-empty "
            "string or an integer."
        )
    return unit_id


def canonical_ids(units: Iterable[Any], where: str) -> list[str]:
    """Return the canonical id of each unit; `where` names the list in an error."""
    values = units.tolist() if isinstance(units, np.ndarray) else units
    ids = []
    for position, value in enumerate(values):
        unit_id = canonical_unit_id(value)
        if unit_id is None:
            raise UnitError(
                f"Unit {position} (counted from 0) {where} is a "
                f"{type(value).__name__} that is no unit id. A unit id is a non-empty "
                "string or an integer."
            )
        ids.append(unit_id)
    return ids


def refuse_unknown_unit(unit_key: str) -> NoReturn:
    """Raise the error that nobody was deleted, without the id.

    A request for erasure with a mistyped id must not look successful.
    """
    raise UnitError(
        f"No document here has that unit id under {unit_key!r}; nothing was deleted."
    )


def unit_digest(salt: bytes, unit_id: str) -> bytes:
    """Return a keyed digest of a canonical unit id, of 16 bytes.

    It says which shard a unit is in (`shard_number`), and where its records stand among
    those of its shard.

    Privacy:
        For the sensitivity any function of the unit's own id suffices. With the secret
        key, a person who chooses ids cannot choose who shares a shard.
    """
    # surrogatepass: a lone surrogate in an id is not a reason to fail.
    data = unit_id.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, key=salt, digest_size=16, person=_SHARD).digest()


def shard_number(digest: bytes, n: int) -> int:
    """Return the shard of a unit, by its digest: 0 to n - 1.

    It depends on the secret salt, the id and n, and on nothing else: not on the order
    of insertion, the other units, or the question. So adding or removing a unit moves
    nobody else, and a unit that comes back finds its old shard. The bias of the modulus
    is below n / 2^128.
    """
    return int.from_bytes(digest, "big") % n


def shard_of(unit: Any, salt: bytes, n: int) -> int:
    """Return the shard that `RetrievedGroups` puts a unit into: 0 to n - 1.

    Args:
        unit: The unit id, as in the records. All spellings of a person give one shard.
        salt: The 32 secret bytes that the groups are made with (`salt=`).
        n: Number of shards: `n_groups`.

    Raises:
        UnitError: If `unit` is no unit id. The value is not in the message.
        InvalidParameterError: If the salt or n cannot be used.

    Example:
        >>> shard_of(7, b"k" * 32, 8) == shard_of(" 7 ", b"k" * 32, 8)
        True

    Privacy:
        See `unit_digest` and `shard_number`. The salt is a secret of the index.
    """
    return int(shards_of([unit], salt, n)[0])


def shards_of(units: Iterable[Any], salt: bytes, n: int) -> NDArray[np.int64]:
    """Return `shard_of` of many units, shape (units,); any iterable, an array too.

    An id that comes often is hashed once: about 2 seconds for a million people.

    Example:
        >>> shards_of(["p-1", 7], b"k" * 32, 8).tolist()
        [0, 4]
    """
    check_salt(salt)
    if not 1 <= n <= _MOST_SHARDS:
        raise InvalidParameterError(f"n must be from 1 to {_MOST_SHARDS}, not {n}.")
    unit_ids = canonical_ids(units, "of the given ones")
    known = {
        unit_id: shard_number(unit_digest(salt, unit_id), n)
        for unit_id in dict.fromkeys(unit_ids)
    }
    return np.fromiter((known[one] for one in unit_ids), np.int64, len(unit_ids))
