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
    are two places. The index comes first. An account that is bound to its former salt
    refuses questions until it is bound to the fresh one, in the transaction that moves
    the balances. A crash between the two is finished by running it again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.erasure import operators_ledger
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import storage
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
    progress: bool = False,
) -> Rotated:
    """Deal a saved index's groups afresh, and give units' balances fresh tags.

    Groups that follow the index take the deal over with their next question. Each step
    is whole or not done, whatever crashes; running it again finishes what a crash has
    left, or else rotates again.

    Args:
        index: The directory that `RetrievedGroups.save` wrote; None: none.
        ledger: A SQL ledger; None: no account.
        accounts: Its per-unit accounts to rotate; None: all of them.
        progress: Whether to count, on standard error, the documents that are read and
            written, and the accounts.

    Raises:
        InvalidParameterError: If there is nothing to rotate, the index can't be read or
            written, or the ledger is in memory.
        LedgerError: If the ledger can't be used, or an account is damaged or keeps no
            balances.

    Example:
        >>> rotate_salt()
        Traceback (most recent call last):
        langchain_dpicl.errors.InvalidParameterError: Name an index, a ledger, ...

    Privacy:
        See the module.
    """
    if index is None and ledger is None:
        raise InvalidParameterError("Name an index, a ledger, or both.")
    revision = None
    with operators_ledger(ledger) as book:
        if book is not None and not isinstance(book, SQLLedger):
            raise InvalidParameterError(
                "Tags of a ledger in memory need no rotation: it ends with its process."
            )
        states = {} if book is None else _per_unit(book, accounts)
        former: Collection[str] = ()
        salt = None
        if index is not None:
            revision, former, salt = _dealt(index, states, progress=progress)
        if book is not None:
            title = "Giving accounts fresh tags"
            with progress_bar(title, len(states), shown=progress) as advance:
                for name in states:
                    book.rotate_key(name, former=former, salt=salt)
                    advance(1)
    return Rotated(revision, list(states))


def _per_unit(
    ledger: SQLLedger, accounts: Sequence[str] | None
) -> dict[str, str | None]:
    """Return the accounts to rotate, with the fingerprint that each is bound to."""
    names = ledger.accounts() if accounts is None else accounts
    found = {name: ledger.state(name) for name in names}
    return {
        name: state.salt
        for name, state in found.items()
        if accounts is not None or state.terms.scope == "unit"
    }


def _dealt(
    index: str | os.PathLike[str],
    bound: Mapping[str, str | None],
    *,
    progress: bool,
) -> tuple[int, Collection[str], str]:
    """Deal an index afresh; return its revision, its former salts and its salt.

    Where an account is bound to a former salt, a crash came between the two: the index
    has its fresh salt already.
    """
    title = "Documents read and written"
    with (
        storage.one_writer(index) as directory,
        progress_bar(title, None, shown=progress) as advance,
    ):
        base = storage.read_revision(directory)
        if not set(base.former_salts) & set(bound.values()):
            terms, dealt, base = storage.load(
                directory, salt=new_salt(), advance=advance
            )
            former = (*base.former_salts, base.salt_fingerprint)
            base = replace(base, former_salts=former)
            base = storage.write(directory, terms, dealt, base=base, advance=advance)
    return base.number, base.former_salts, base.salt_fingerprint
