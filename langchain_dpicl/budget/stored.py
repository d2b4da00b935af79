"""What an account's book has of a charge, and whether its owner still draws for it.

Of two draws under one charge the quicker one would be released. One person's long
record can decide which is quicker, and all other answers of that draw come with it. So
one *owner* draws for a charge, and others wait until the draw is stored.

What reads a ledger here raises `LedgerError` if it can't be read or trusted, or has no
such account.

Privacy:
    What is stored is released output and public terms: no record, no unit id. An owner
    is a random token and a process. Whether the process exists depends on no record.
    `SILENCE` is public, and longer than any call takes: in a draw of many calls the
    owner renews its entry (`Paid.renew`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from langchain_dpicl.accounting import Charge, Cost, Event, read_events
from langchain_dpicl.ledger import Ledger, Plan
from langchain_dpicl.ledger.book import CHARGED, Book, Transaction, entry_table

SILENCE = 3600.0
"""Seconds without a new step after which an owner on another machine counts as dead.

Nobody waits longer for an owner on this machine either; it keeps its charge.
"""

_T = TypeVar("_T")
_e = entry_table.c


# ---- Owners --------------------------------------------------------------------------

_at_work: set[str] = set()
"""Tokens of the charges that this process draws for, in any of its threads."""


def new_owner() -> str:
    """Return the token of a new owner in this process."""
    token = secrets.token_hex(8)
    _at_work.add(token)
    return token


def end_owner(token: str) -> None:
    """Note that an owner draws no more."""
    _at_work.discard(token)


def is_at_work(token: str) -> bool:
    """Return whether an owner in this process may still draw."""
    return token in _at_work


def owner_name(token: str) -> str:
    """Return an owner of this process as an entry has it: machine, process, token."""
    return f"{_process(os.getpid())}:{token}"


def is_alive(name: str, silent: float) -> bool:
    """Return whether an owner may still draw.

    On this machine its process tells. Elsewhere only the public time does, which begins
    anew with each stored step.

    Args:
        name: What an entry says; empty if the charge was given up.
        silent: Seconds since its last entry.
    """
    if not name:
        return False
    process, _, token = name.rpartition(":")
    if process == _process(os.getpid()):
        return is_at_work(token)
    machine, number, started = process.split(":")
    if machine == _machine() and os.name == "posix":
        return _started(int(number)) == started
    return silent < SILENCE


@functools.lru_cache(maxsize=1)
def _machine() -> str:
    """Return a digest of what process numbers are unique in."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        # Containers of one machine number their processes by themselves.
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


@functools.lru_cache(maxsize=8)
def _process(number: int) -> str:
    return f"{_machine()}:{number}:{_started(number)}"


def _started(number: int) -> str:
    """Return when a process began, if the system tells; "gone" if there is none."""
    if Path("/proc/self/stat").exists():
        with suppress(OSError, IndexError):
            stat = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
            state, *more = stat.rpartition(")")[2].split()
            # A process that was killed stays a zombie until its parent looks.
            return "gone" if state in {"Z", "X"} else more[18]
        return "gone"
    if os.name == "posix":
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return "gone"
        except OSError:
            pass
    return "unknown"


# ---- Charges -------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A charge of an account.

    Attributes:
        account: The account.
        charge: Its number in the account, from 1.
        asked: What was to be paid for, with holes.
        events: What was paid for, in the order of the parts.
        cost: What it cost, in the account's steps.
        spent: What the account's charges cost together, this one included.
        steps: How many draws it pays for.
        header: Public terms of the release.
        values: What was drawn, in order.
        note: The public wording of what was drawn; None if there is none.
        ended: Whether nothing is left to draw, before every step was drawn.
        owner: The owner of the next draw; empty if it was given up.
        key: The digest of its key; None without one.
        digest: The ledger's digest of the account's book up to this charge.
        at: When it was charged, in microseconds since 1970, by the ledger's clock.
        last: When something was stored last.
    """

    account: str
    charge: int
    asked: Charge
    events: tuple[Event, ...]
    cost: Cost
    spent: Cost
    steps: int
    header: dict[str, Any]
    values: tuple[Any, ...]
    note: Any
    ended: bool
    owner: str
    key: str | None
    digest: str
    at: int
    last: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to draw."""
        return self.ended or len(self.values) == self.steps

    def is_drawn(self, now: int) -> bool:
        """Return whether somebody draws for it, at the ledger's time."""
        return is_alive(self.owner, (now - self.last) / 1e6)

    def is_owned(self, token: str) -> bool:
        """Return whether the owner of a token draws for it."""
        return bool(token) and self.owner.endswith(f":{token}")


def place_of(key: str) -> str:
    """Return the digest under which a key's charges are kept."""
    data = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=32, person=b"dpicl.key").hexdigest()


def read_plan(transaction: Transaction, book: Book) -> Plan | None:
    """Return what the account's first charge has fixed."""
    rows = transaction.read(book, _e.charge == 0, _e.step == CHARGED)
    return Plan.model_validate_json(rows[0]["body"]) if rows else None


def read_charge(transaction: Transaction, book: Book, number: int) -> Stored:
    """Return a charge by its number."""
    return _read(book, number, transaction.read(book, _e.charge == number))


def find_charge(transaction: Transaction, book: Book, place: str) -> Stored | None:
    """Return the last charge under a key that is not forgotten, whatever its state."""
    under_key = (_e.book == book.id, _e.key == place, _e.number > book.since)
    last = sa.select(_e.charge).where(*under_key).order_by(_e.number.desc()).limit(1)
    number = transaction.execute(last).scalar()
    return None if number is None else read_charge(transaction, book, number)


def last(ledger: Ledger, account: str, key: str) -> Stored | None:
    """Return the last charge under a key that is not forgotten, whatever its state."""
    return _of(ledger, account, lambda t, book: find_charge(t, book, place_of(key)))


def plan_of(ledger: Ledger, account: str) -> Plan | None:
    """Return what the account's first charge has fixed; None before it."""
    return _of(ledger, account, read_plan)


def charges(ledger: Ledger, account: str) -> list[Stored]:
    """Return all charges of an account, in order."""

    def read(transaction: Transaction, book: Book) -> list[Stored]:
        rows = transaction.read(book, _e.charge > 0)
        rows.sort(key=lambda row: (row["charge"], row["number"]))
        groups = groupby(rows, key=lambda row: row["charge"])
        return [_read(book, number, list(group)) for number, group in groups]

    return _of(ledger, account, read)


def forget(ledger: Ledger, account: str) -> int:
    """Give no stored answer again that was charged before now; return how many.

    This is what an erasure does: a public rule for all answers, and none for the
    answers of one person. Charges, draws and balances stay in the ledger.
    """

    def work(transaction: Transaction) -> int:
        book = transaction.load("account", account, "alone")
        under_key = (_e.book == book.id, _e.key.is_not(None), _e.number > book.since)
        count = sa.select(sa.func.count(sa.distinct(_e.key))).where(*under_key)
        keys = int(transaction.execute(count).scalar_one())
        transaction.append(book, "forgot", {}, since=book.entries + 1)
        return keys

    return ledger.run(work)


def _of(ledger: Ledger, account: str, read: Callable[[Transaction, Book], _T]) -> _T:
    """Read an account in a transaction of its own."""
    return ledger.run(lambda t: read(t, t.load("account", account)), writes=False)


def _read(book: Book, number: int, rows: list[dict[str, Any]]) -> Stored:
    """Put the entries of a charge together."""
    if not rows or rows[0]["kind"] != "charge":
        raise book.damaged(f"charge {number} is missing")
    with suppress(LookupError, TypeError, ValueError):
        bodies = [(row["kind"], json.loads(row["body"])) for row in rows]
        values: dict[str, list[Any]] = {"draw": [], "note": []}
        for kind, body in bodies:
            if kind in values:
                values[kind].append(body["value"])
        first, row = bodies[0][1], rows[0]
        return Stored(
            account=book.name,
            charge=number,
            asked=Charge.model_validate(first["charge"]),
            events=read_events(first["events"]),
            cost=Cost(*first["cost"]),
            spent=Cost(row["loss"], row["failure"]),
            steps=first["steps"],
            header=first["header"],
            values=tuple(values["draw"]),
            note=next(iter(values["note"]), None),
            ended=any("ended" in body for _, body in bodies[1:]),
            owner=[body["owner"] for _, body in bodies if "owner" in body][-1] or "",
            key=row["key"],
            digest=row["digest"],
            at=row["at"],
            last=rows[-1]["at"],
        )
    raise book.damaged(f"charge {number} can't be read")
