"""A charge and what is stored of it, as the account's book has it.

Privacy:
    What is stored is released output and public terms: no record, no unit id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from langchain_dpicl.accounting import Charge, Cost, Event, read_events
from langchain_dpicl.budget import owners
from langchain_dpicl.ledger import Ledger, Plan
from langchain_dpicl.ledger.book import CHARGED, Book, Transaction
from langchain_dpicl.ledger.schema import entry_table

_e = entry_table.c


@dataclass(frozen=True)
class Stored:
    """One charge of an account.

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
        return owners.is_alive(self.owner, (now - self.last) / 1e6)


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
    """Return the last charge under a key that is not forgotten, whatever its state.

    Raises:
        LedgerError: If the ledger can't be read or trusted, or has no such account.
    """

    def read(transaction: Transaction) -> Stored | None:
        book = transaction.load("account", account)
        return find_charge(transaction, book, place_of(key))

    return ledger.run(read, writes=False)


def forget(ledger: Ledger, account: str) -> int:
    """Give no stored answer again that was charged before now; return how many.

    This is what an erasure does: a public rule for all answers, and none for the
    answers of one person. Charges, draws and balances stay in the ledger.

    Raises:
        LedgerError: If the ledger can't be used or has no such account.
    """

    def work(transaction: Transaction) -> int:
        book = transaction.load("account", account, "alone")
        under_key = (_e.book == book.id, _e.key.is_not(None), _e.number > book.since)
        count = sa.select(sa.func.count(sa.distinct(_e.key))).where(*under_key)
        keys = int(transaction.execute(count).scalar_one())
        transaction.append(book, "forgot", {}, since=book.entries + 1)
        return keys

    return ledger.run(work)


def plan_of(ledger: Ledger, account: str) -> Plan | None:
    """Return what the account's first charge has fixed; None before it.

    Raises:
        LedgerError: If the ledger can't be read or trusted, or has no such account.
    """
    return ledger.run(
        lambda transaction: read_plan(
            transaction, transaction.load("account", account)
        ),
        writes=False,
    )


def charges(ledger: Ledger, account: str) -> list[Stored]:
    """Return all charges of an account, in order.

    Raises:
        LedgerError: If the ledger can't be read or trusted, or has no such account.
    """

    def read(transaction: Transaction) -> list[Stored]:
        book = transaction.load("account", account)
        rows = transaction.read(book, _e.charge > 0)
        rows.sort(key=lambda row: (row["charge"], row["number"]))
        return [
            _read(book, number, list(group))
            for number, group in groupby(rows, key=lambda row: row["charge"])
        ]

    return ledger.run(read, writes=False)


def _read(book: Book, number: int, rows: list[dict[str, Any]]) -> Stored:
    """Put the entries of one charge together."""
    if not rows or rows[0]["kind"] != "charge":
        raise book.damaged(f"charge {number} is missing")
    try:
        return _put_together(book, number, rows)
    except (LookupError, TypeError, ValueError):
        pass
    raise book.damaged(f"charge {number} can't be read")


def _put_together(book: Book, number: int, rows: list[dict[str, Any]]) -> Stored:
    bodies = [(row["kind"], json.loads(row["body"])) for row in rows]
    first = bodies[0][1]
    return Stored(
        account=book.name,
        charge=number,
        asked=Charge.model_validate(first["charge"]),
        events=read_events(first["events"]),
        cost=Cost(*first["cost"]),
        spent=Cost(rows[0]["loss"], rows[0]["failure"]),
        steps=first["steps"],
        header=first["header"],
        values=tuple(_bodies(bodies, "draw")),
        note=next(iter(_bodies(bodies, "note")), None),
        ended=any("ended" in body for _, body in bodies[1:]),
        key=rows[0]["key"],
        digest=rows[0]["digest"],
        owner=[body["owner"] for _, body in bodies if "owner" in body][-1] or "",
        at=rows[0]["at"],
        last=rows[-1]["at"],
    )


def _bodies(bodies: Iterable[tuple[str, Any]], kind: str) -> list[Any]:
    return [body["value"] for name, body in bodies if name == kind]
