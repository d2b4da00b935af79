"""Fresh secrets: a salt for a saved index, keys for the tags of per-unit accounts.

Privacy:
    A fresh salt costs nothing. The salt sends a unit to a group by a hash of its own
    id, whatever the other units are; so for every fixed salt one unit more or less
    changes one slot, and each release has its sensitivity and its event, as before. The
    salt is drawn by the operating system, not from records or answers, and a
    composition holds for mechanisms that are chosen anew before each release. Answers
    by two deals are two releases, and both are charged. What must not be: rotating
    until the groups look good, for then the deal depends on the records. So rotate by
    the calendar, or because the salt was seen.

    Balances are found by id, not by group, and a fresh key moves them
    (`ledger.sql.keys`): nobody may spend more, or less, than before. Index and ledger
    share no secret, so that each is rotated by itself, and a crash between the two
    leaves both usable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from langchain_dpicl.erasure import operators_ledger
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.groups import storage
from langchain_dpicl.groups.saved_files import Cipher
from langchain_dpicl.groups.units import new_salt
from langchain_dpicl.ledger import Ledger, SQLLedger


@dataclass(frozen=True)
class Rotated:
    """What has fresh secrets now.

    Attributes:
        revision: The index's new revision; None where none was rotated.
        accounts: The accounts whose tags have a fresh key.
    """

    revision: int | None = None
    accounts: list[str] = field(default_factory=list)


def rotate_salt(
    *,
    index: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | None = None,
    accounts: Sequence[str] | None = None,
    cipher: Cipher | None = None,
) -> Rotated:
    """Deal a saved index's groups afresh, and give units' balances fresh tags.

    Groups that follow the index take the deal over with their next question. Each step
    is whole or not done, whatever crashes; running it again rotates again.

    Args:
        index: The directory that `RetrievedGroups.save` wrote; None: none.
        ledger: A SQL ledger; None: no account.
        accounts: Its per-unit accounts to rotate; None: all of them.
        cipher: What the index is encrypted with.

    Raises:
        InvalidParameterError: If there is nothing to rotate, the index can't be read or
            written, or the ledger is in memory.
        LedgerError: If the ledger can't be used, or an account is damaged or keeps no
            balances.

    Example:
        >>> rotate_salt()
        Traceback (most recent call last):
        langchain_dpicl.exceptions.InvalidParameterError: Name an index, a ledger, ...

    Privacy:
        See the module.
    """
    if index is None and ledger is None:
        raise InvalidParameterError("Name an index, a ledger, or both.")
    revision, done = None, []
    with operators_ledger(ledger) as book:
        if book is not None and not isinstance(book, SQLLedger):
            raise InvalidParameterError(
                "Tags of a ledger in memory need no rotation: it ends with its process."
            )
        if book is not None:
            names = book.accounts() if accounts is None else accounts
            for name in names:
                if accounts is None and book.state(name).terms.scope != "unit":
                    continue
                book.rotate_key(name)
                done.append(name)
        if index is not None:
            with storage.one_writer(index) as directory:
                terms, dealt, base = storage.load(directory, cipher, salt=new_salt())
                revision = storage.write(
                    directory, terms, dealt, base=base, cipher=cipher
                ).number
    return Rotated(revision, done)
