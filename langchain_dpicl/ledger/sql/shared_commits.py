"""One commit for the charges that wait for it in one process.

A commit to a SQLite file takes five syncs, whatever is in it. Charges of several
threads, which would commit one after another, are written in one transaction instead:
while one of them commits, the next ones gather. Each is checked and written as if it
were alone, behind those before it; one that is refused has written nothing. None
returns before the transaction that holds it is on disk. If that fails, or dies, all of
them fail, and what was written may stand: budget may be lost, and no charge.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection

from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.ledger.base import Charge
from langchain_dpicl.ledger.sql.schema import UNREADABLE

MOST = 64
"""Charges in one transaction: others wait for its end."""

GATHERING_SECONDS = 0.001
"""How long a charge waits for those of others, if the last one was not alone."""

Write = Callable[[Connection], Charge]
Run = Callable[[Callable[[Connection], None]], None]


@dataclass(eq=False, repr=False)
class _Waiting:
    """A charge to be written, and what became of it.

    `leads` says whether its thread writes the next charges, of which it is the first;
    `ready` that it does, or that another thread has written this one.
    """

    write: Write
    charge: Charge | None = None
    error: BaseException | None = None
    leads: bool = False
    ready: threading.Event = field(default_factory=threading.Event)


class _Gathered:
    """The charges of one process that wait, and whether a thread is writing some."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.waiting: list[_Waiting] = []
        self.is_led = False
        self.last = 1

    def join(self, one: _Waiting) -> None:
        """Let a charge wait, or its thread lead if no other does."""
        with self.lock:
            self.waiting.append(one)
            if not self.is_led:
                self._appoint()

    def take(self, together: list[_Waiting]) -> None:
        """Put those that are written next, the leader's own first, into a list."""
        if self.last > 1:
            # Whose charges the last commit held are about to bring their next.
            time.sleep(GATHERING_SECONDS)
        with self.lock:
            together += self.waiting[:MOST]
            del self.waiting[:MOST]
        self.last = len(together)

    def hand_over(self) -> None:
        """Let the thread of the charge that waits longest lead."""
        with self.lock:
            self._appoint()

    def leave(self, one: _Waiting) -> None:
        """Take a charge back whose thread was stopped before it was written."""
        with self.lock:
            if one in self.waiting:
                self.waiting.remove(one)
                if one.leads:
                    self._appoint()

    def _appoint(self) -> None:
        self.is_led = bool(self.waiting)
        if self.waiting:
            self.waiting[0].leads = True
            self.waiting[0].ready.set()


class SharedCommits:
    """Writes charges in transactions that waiting threads share.

    Args:
        run: Runs a function in one transaction, from its start again if the database
            has undone it, and returns when that is on disk.
        unreadable: Makes the error for a charge whose rows can't be read, given the
            name of what reading them raised.
    """

    def __init__(self, run: Run, unreadable: Callable[[str], DPError]) -> None:
        self._run = run
        self._unreadable = unreadable
        self._gathered = _Gathered()

    def charge(self, write: Write) -> Charge:
        """Write one charge, durably; return it, or raise what it was refused with."""
        if self._gathered.pid != os.getpid():
            # The leading thread did not come along into this child.
            self._gathered = _Gathered()
        gathered, own = self._gathered, _Waiting(write)
        try:
            gathered.join(own)
            own.ready.wait()
            if own.leads:
                self._lead(gathered)
        finally:
            gathered.leave(own)
        if own.charge is None:
            raise own.error or _lost()
        return own.charge

    def _lead(self, gathered: _Gathered) -> None:
        # A list from before: who is in it hears of it, wherever this thread is stopped.
        together: list[_Waiting] = []
        try:
            gathered.take(together)
            self._write(together)
        finally:
            # Those that are written may bring their next while the others commit.
            for one in together:
                one.ready.set()
            gathered.hand_over()

    def _write(self, together: list[_Waiting]) -> None:
        written: list[Charge | None] = []
        try:
            self._run(partial(self._write_all, together, written))
        except BaseException as error:
            for one in together:
                one.error = one.error or _copied(error)
            if not isinstance(error, DPError):
                raise
        else:
            # Not before: whatever fails up to here has acknowledged no charge.
            for one, charge in zip(together, written, strict=True):
                one.charge = charge

    def _write_all(
        self,
        together: list[_Waiting],
        written: list[Charge | None],
        connection: Connection,
    ) -> None:
        """Write each charge, or note why it was refused."""
        written.clear()
        for one in together:
            one.error = None
        if len(together) == 1:
            written.append(together[0].write(connection))
            return
        for one in together:
            # A header that can't be made comes after a charge that was written.
            connection.exec_driver_sql("SAVEPOINT dpicl_charge")
            try:
                written.append(one.write(connection))
            except (DPError, *UNREADABLE) as error:
                # A damaged account is no reason to refuse the others.
                is_ours = isinstance(error, DPError)
                one.error = error if is_ours else self._unreadable(type(error).__name__)
                written.append(None)
                connection.exec_driver_sql("ROLLBACK TO dpicl_charge")
            connection.exec_driver_sql("RELEASE dpicl_charge")


def _copied(error: BaseException) -> BaseException:
    """Return an error for each thread: a traceback belongs to one of them."""
    return type(error)(*error.args) if isinstance(error, DPError) else _lost()


def _lost() -> LedgerError:
    return LedgerError(
        "The thread that wrote this charge with its own was stopped. The charge may "
        "stand; nothing was released."
    )
