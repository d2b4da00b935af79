"""What a ledger keeps of releases: what each charge has drawn.

Without it the same charge would be drawn for a second time, and the mean of many draws
has hardly any noise. So the account's head covers every draw (`ledger/hash_chain.py`).

* **One release a charge.** A charge starts one release, whose steps are numbered from 0
  without gaps.
* **The first draw stays.** Storing a step again returns what was stored before.
* **Noted with the draw.** A step and the note that it was drawn are one transaction.
* **Never again.** A step that was noted and is not there as it was is an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from langchain_dpicl.errors import LedgerError

if TYPE_CHECKING:
    from langchain_dpicl.ledger.base import Charge


Starts: TypeAlias = "tuple[str, Callable[[Charge], str]]"
"""A release that a charge starts: its kind, and its header given the charge."""


@dataclass(frozen=True)
class StoredRelease:
    """What was released under one charge, as the ledger keeps it.

    Attributes:
        charge: The charge's number.
        kind: What tells kinds of releases apart: a digest of their public terms.
        header: What the release was started with: public, as text.
        steps: What each step drew, in order, as text.
    """

    charge: int
    kind: str
    header: str
    steps: tuple[str, ...] = ()


class ReleaseStore(ABC):
    """Releases of accounts; see the module docstring for the promises."""

    @abstractmethod
    def start_release(self, name: str, charge: int, kind: str, header: str) -> None:
        """Store the public header of the release that a charge pays for, durably, once.

        `kind` is at most 64 characters that tell kinds of releases apart.

        Raises:
            LedgerError: If there is no such charge, it has started a release before, or
                the ledger can't be used or trusted.
        """

    @abstractmethod
    def store_step(self, name: str, charge: int, number: int, drawn: str) -> str:
        """Store what a step drew, durably; the first draw that is stored stays.

        Steps are numbered from 0. What is released is returned: this draw, or the one
        that was stored before it.

        Raises:
            LedgerError: If the charge has started no release, the step before this one
                is not stored, or the ledger can't be used or trusted: then the draw
                must not be released.
        """

    @abstractmethod
    def releases(self, name: str, kind: str | None = None) -> list[StoredRelease]:
        """Return an account's releases, of one kind or all, in the order of charges.

        Raises:
            LedgerError: If a stored step or header of the account was edited, deleted
                or added, or the ledger can't be used.
        """


def started_before(name: str, charge: int) -> LedgerError:
    """Return the error for a charge that is to start a second release."""
    return LedgerError(
        f"Charge {charge} of account {name!r} has started a release before: noise is "
        "drawn once for a charge. Go on with that release, or charge another one."
    )


def not_charged(name: str, charge: int) -> LedgerError:
    """Return the error for a release that nobody has paid for."""
    return LedgerError(
        f"Account {name!r} has no charge {charge}: nothing is released without one."
    )


def not_started(name: str, charge: int) -> LedgerError:
    """Return the error for a step of a release that has no header."""
    return LedgerError(
        f"Charge {charge} of account {name!r} has started no release: nothing is "
        "drawn for it."
    )


def is_next(name: str, charge: int, number: int, stored: int) -> bool:
    """Return whether a step is the next one of its release; else it is stored.

    `stored` is how many steps are; one that is neither is refused.
    """
    if not 0 <= number <= stored:
        raise LedgerError(
            f"The release of charge {charge} in account {name!r} holds {stored} steps: "
            f"step {number} can't be stored before the one that precedes it."
        )
    return number == stored
