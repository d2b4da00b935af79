"""The last charges that this process has made: what follows them has higher numbers."""

from __future__ import annotations

import math
import threading

from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger.base import Charge


class LastCharges:
    """The number of each account's last charge, as one process knows it.

    A ledger that forgets is seen here by the processes that go on: an older copy that
    was written over the file, or a server that lost what it had confirmed.

    Example:
        >>> last = LastCharges()
        >>> last.require_later(Charge("notes", 2, ()), last.before("notes"))
        >>> last.require_later(Charge("notes", 1, ()), last.before("notes"))
        Traceback (most recent call last):
        langchain_dpicl.exceptions.LedgerError: Account 'notes' has forgotten charges...
    """

    def __init__(self) -> None:
        self._numbers: dict[str, float] = {}
        self._lock = threading.Lock()

    def before(self, account: str) -> float:
        """Return the last number before a charge begins."""
        number = self._numbers.get(account, 0)
        if number == math.inf:
            raise _forgotten(account)
        return number

    def require_later(self, charge: Charge, before: float) -> None:
        """Refuse an account that has fewer charges than this process has made.

        `before` is what `before` returned when the charge began; others may have ended
        since.
        """
        with self._lock:
            if charge.sequence > before:
                number = self._numbers.get(charge.account, 0)
                self._numbers[charge.account] = max(number, charge.sequence)
                return
            # For good: the account may grow beyond the old number.
            self._numbers[charge.account] = math.inf
        raise _forgotten(charge.account)


def _forgotten(name: str) -> LedgerError:
    return LedgerError(
        f"Account {name!r} has forgotten charges that this process has made: an older "
        "copy of the ledger took its place, or the server lost what it had confirmed. "
        "Nothing is released from it here. See 'Restoring' in docs/operations.md, then "
        "start this process anew."
    )
