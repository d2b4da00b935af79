"""Following books from their first entry on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from langchain_dpicl.accounting import Cost, read_events
from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.ledger.book import (
    CHARGED,
    COLLECTED,
    FIXED,
    NOTED,
    Book,
    Transaction,
    book_table,
    entry_digest,
    entry_table,
    meta_table,
    unit_table,
)
from langchain_dpicl.ledger.terms import NO_LIMIT, NOTHING, Head, Plan, dump
from langchain_dpicl.ledger.units import balance_term

_b, _e, _u = book_table.c, entry_table.c, unit_table.c
_STREAM = {"yield_per": 2_000}
_KEPT_COSTS = 4_096
_ROUNDING = 10**9
_MODULUS = 2**256


def verify_ledger(transaction: Transaction, heads: Iterable[Head] = ()) -> int:
    """Check everything that a ledger holds; return the number of entries."""
    execute = transaction.execute
    names = execute(sa.select(_b.kind, _b.name).order_by(_b.id)).all()
    books = [transaction.load(kind, name) for kind, name in names]
    root = transaction.load("ledger", "ledger")
    for book in books:
        inside = [
            child for child in books if book is not child and book.kind == "ledger"
        ]
        inside += [child for child in books if child.parent == book.id]
        if verify_book(transaction, book) != {
            child.id: child.promise for child in inside
        }:
            raise book.damaged("a book of it is missing, edited or new")
    meta = [dict(row) for row in execute(sa.select(meta_table)).mappings()]
    if [dump(row) for row in meta] != [root.terms]:
        raise root.damaged("its version was edited")
    total = sum(book.entries for book in books)
    if execute(sa.select(sa.func.count()).select_from(entry_table)).scalar() != total:
        raise root.damaged("there are entries of no book")
    # The balances of the others were read.
    keyed = [book.id for book in books if book.unit_key]
    if execute(sa.select(_u.book).where(_u.book.not_in(keyed)).limit(1)).all():
        raise root.damaged("there are balances of no per-unit account")
    for head in heads:
        require_head(transaction, head)
    return total


def require_head(transaction: Transaction, head: Head) -> None:
    """Refuse a book that does not go on from a head that was kept elsewhere."""
    book = transaction.load(head.kind, head.name)
    rows = transaction.read(book, _e.number == head.entries)
    if [row["digest"] for row in rows] != [head.digest]:
        raise book.damaged(
            f"it does not go on from the head that was kept, at entry {head.entries}: "
            "it was rewritten, or an older copy of the ledger was put back"
        )


def verify_book(transaction: Transaction, book: Book) -> dict[int, str]:
    """Follow a book from its first entry; return the books that it names."""
    reader = _Reader(book)
    entries = sa.select(entry_table).where(_e.book == book.id).order_by(_e.number)
    with transaction.execute(entries, execution_options=_STREAM) as rows:
        for row in rows.mappings():
            try:
                fits = reader.takes(dict(row))
            except (DPError, TypeError, ValueError, LookupError) as error:
                if isinstance(error, LedgerError):
                    raise
                fits = False
            if not fits:
                raise book.damaged(f"entry {row['number']} does not follow")
    if reader.book != book:
        raise book.damaged("its row does not agree with its entries")
    if book.unit_key:
        _require_balances(transaction, book, reader.collected)
    return reader.children


class _Reader:
    """A book as far as its entries were read."""

    def __init__(self, book: Book) -> None:
        self.book = Book(**{name: getattr(book, name) for name in FIXED})
        self.children: dict[int, str] = {}
        self.collected: list[int] = []
        self._plan: Plan | None = None
        self._steps: list[tuple[int, int]] = []  # Of each charge: drawn, of so many.
        self._costs: dict[str, Cost] = {}
        if book.kind == "account":
            terms = book.account
            limit = (NO_LIMIT,) * 2 if terms.scope == "unit" else terms.limit
            if (book.most_loss, book.most_failure) != limit:
                raise book.damaged("its limits are not those of its terms")

    def takes(self, row: dict[str, Any]) -> bool:
        """Add an entry; return whether it follows from those before it."""
        book, body = self.book, json.loads(row["body"])
        if row["digest"] != entry_digest(book.promise, row):
            raise book.damaged(f"entry {row['number']} was edited")
        kind, cost, changes = row["kind"], NOTHING, {}
        fits = row["at"] >= book.at
        if kind == "opened":
            fits &= not book.entries
        elif kind == "child":
            self.children[body["id"]] = body["promise"]
            fits &= book.kind != "account"
        elif kind == "plan":
            fits &= self._plan is None and not book.used
            self._plan = Plan.model_validate(body)
        elif kind == "charge":
            cost = Cost(*body["cost"])
            fits &= self._is_paid(row, body, cost)
            self._steps.append((0, body["steps"]))
        elif kind == "forgot":
            changes = {"since": row["number"]}
        elif kind == "closed":
            fits &= book.is_open
            changes = {"closed_at": row["at"]}
        else:
            fits &= self._is_of_charge(row)
            changes = body if kind == "units" else {}
        self.book = book.after(row, cost, **changes)
        return bool(fits and row["digest"] == self.book.last)

    def _is_of_charge(self, row: dict[str, Any]) -> bool:
        """Take an entry of a charge that is there."""
        number, kind, step = row["charge"], row["kind"], row["step"]
        if not 1 <= number <= len(self._steps):
            return False
        drawn, most = self._steps[number - 1]
        if kind == "draw":
            self._steps[number - 1] = drawn + 1, most
            return bool(step == drawn < most)
        if kind == "units":
            self.collected.append(number)
            return bool(self.book.unit_key) and step == COLLECTED
        if kind == "note":
            return bool(step == NOTED and drawn == most)
        return bool(kind == "owner" and step is None)

    def _is_paid(self, row: dict[str, Any], body: Any, cost: Cost) -> bool:
        """Return whether a charge was payable, at no less than its events cost."""
        terms = self.book.account
        place = dump(body["events"])
        least = self._costs.get(place)
        if least is None:
            events = read_events(body["events"])
            if terms.filter is None and (not self._plan or events != self._plan.events):
                return False
            least = terms.cost(events)
            if len(self._costs) < _KEPT_COSTS:
                self._costs[place] = least
        # Another machine's logarithm, or a later and tighter bound, may be one step off
        # a cost that was rounded up; nothing that matters to the guarantee is.
        is_cheap = any(
            paid + 1 + needed // _ROUNDING < needed or paid < 0
            for paid, needed in zip(cost, least, strict=True)
        )
        start, end = terms.span
        follows = (row["charge"], row["step"]) == (self.book.used + 1, CHARGED)
        return (
            follows and self.book.is_open and start <= row["at"] < end and not is_cheap
        )


def _require_balances(
    transaction: Transaction, book: Book, collected: list[int]
) -> None:
    """Check the sum of keyed digests of all balances of an account."""
    total = sum(balance_term(book, "charge", number) for number in collected)
    limit = book.account.limit
    balances = sa.select(_u.tag, _u.loss, _u.failure).where(_u.book == book.id)
    with transaction.execute(balances, execution_options=_STREAM) as rows:
        for tag, loss, failure in rows:
            if loss > limit.loss or failure > limit.failure:
                raise book.damaged("a balance is above its limit")
            total += balance_term(book, tag, loss, failure)
    if total % _MODULUS != int(book.balances or "0", 16):
        raise book.damaged("a unit's balance was edited, lost or added")
