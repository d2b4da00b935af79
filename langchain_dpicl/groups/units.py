"""Unit ids: reading them, and hashing them to slots.

One *unit* is the person, or thing, that one unit id names. Two spellings that may be
the same person are read as one unit. To merge two units is safe, since the merged unit
is protected as a whole; to split one would break the guarantee.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import NoReturn

from langchain_core.documents import Document

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.exceptions import InvalidParameterError, UnitError

SALT_BYTES = 32
_SHARD = b"dpicl.shard"
_TIE = b"dpicl.tie"
_FINGERPRINT = b"dpicl.salt"


def new_salt() -> bytes:
    """Return a fresh secret key for `keyed_slot`, kept with the index."""
    return os.urandom(SALT_BYTES)


def salt_fingerprint(salt: bytes) -> str:
    """Return what tells one salt from another: public, and says nothing of the salt.

    A per-unit account of a corpus keeps it in the ledger (`Ledger.bind_salt`).

    Example:
        >>> salt_fingerprint(b"a" * 32) == salt_fingerprint(b"b" * 32)
        False
    """
    return _digest(salt, _FINGERPRINT, "").hex()


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


def refuse_unknown_unit(unit_key: str) -> NoReturn:
    """Raise the error that nobody was deleted, without the id.

    A request for erasure with a mistyped id must not look successful.
    """
    raise UnitError(
        f"No document here has that unit id under {unit_key!r}; nothing was deleted."
    )


def keyed_slot(salt: bytes, unit_id: str, n: int) -> int:
    """Return the slot that a unit is hashed to: a keyed PRF of its id, mod n.

    It depends on the secret salt, the id and n, and on nothing else: not on the order
    of insertion, the other units, or the question. So adding or removing a unit moves
    nobody else, and a unit that comes back finds its old slot. The bias of the modulus
    is below n / 2^128.

    Example:
        >>> keyed_slot(b"k" * 32, "p-1", 8) == keyed_slot(b"k" * 32, "p-1", 8)
        True

    Privacy:
        For the sensitivity any function of the unit's own id suffices. With the secret
        key, a person who chooses ids cannot choose who shares a slot.
    """
    if n < 1:
        raise InvalidParameterError(f"n must be at least 1, not {n}.")
    return int.from_bytes(_digest(salt, _SHARD, unit_id), "big") % n


def tie_key(salt: bytes, document: Document) -> bytes:
    """Return a keyed digest of a document's content, to break ties of equal score.

    It depends on the text, the id and the metadata, never on the order of insertion.
    Metadata that JSON cannot express does not count.

    Example:
        >>> from langchain_core.documents import Document
        >>> tie_key(b"k" * 32, Document("a")) == tie_key(b"k" * 32, Document("b"))
        False
    """
    try:
        metadata = json.dumps(document.metadata, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        metadata = ""
    content = json.dumps([document.page_content, document.id, metadata])
    return _digest(salt, _TIE, content)


def _digest(salt: bytes, purpose: bytes, text: str) -> bytes:
    # surrogatepass: a lone surrogate in an id is not a reason to fail.
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"),
        key=salt,
        digest_size=16,
        person=purpose,
    ).digest()
