"""Unit ids: reading them, and hashing them to shards.

One *unit* is the person, or thing, that one unit id names. Two spellings that may be
the same person are read as one unit. To merge two units is safe, since the merged unit
is protected as a whole; to split one would break the guarantee.
"""

from __future__ import annotations

import hashlib
from typing import Any, NoReturn

from langchain_core.documents import Document

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError

SALT_BYTES = 32
_MOST_SHARDS = 2**63 - 1
_SHARD = b"dpicl.shard"


def check_salt(salt: Any) -> bytes:
    """Return 32 secret bytes, the key of `unit_digest`, refusing anything else."""
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
    where = f"Metadata key {unit_key!r} of document"
    return checked_unit_id(document.metadata[unit_key], where, position)


def checked_unit_id(value: Any, where: str, position: int) -> str:
    """Return the one spelling of a unit id, or raise a `UnitError` without the value.

    `where` and `position` say in the message whose it is.
    """
    unit_id = canonical_unit_id(value)
    if unit_id is None:
        raise UnitError(
            f"{where} {position} (counted from 0) holds a {type(value).__name__} that "
            "is no unit id. A unit id is a non-empty string or an integer."
        )
    return unit_id


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

    The salt is the groups' (`salt=`), a secret; n is their `n_groups`. All spellings of
    a unit's id give one shard.

    Example:
        >>> shard_of(7, b"k" * 32, 8) == shard_of(" 7 ", b"k" * 32, 8)
        True
    """
    check_salt(salt)
    if not 1 <= n <= _MOST_SHARDS:
        raise InvalidParameterError(f"n must be from 1 to {_MOST_SHARDS}, not {n}.")
    return shard_number(unit_digest(salt, checked_unit_id(unit, "Unit", 0)), n)
