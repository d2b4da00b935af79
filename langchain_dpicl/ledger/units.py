"""What each unit has spent: one row a unit and account, and never an id.

Privacy:
    Which units were ever eligible, and how often, is private. A ledger that outlives
    the process keeps a keyed hash of the id and the steps spent. The key is random and
    stays with the balances, so that the same unit id finds the same balance from every
    process and index, also after the unit was deleted and added again. It keeps ids out
    of files and dumps. A person who holds the ledger *and* a list of ids can look them
    up, so a ledger is guarded like the records.

    The key stays until the account ends. Until then a person who has seen it can link
    balances with a list of ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from langchain_dpicl.accounting import Cost
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.book import COLLECTED, Book, Transaction, Whole, unit_table

_u = unit_table.c
_MODULUS = 2**256


@dataclass(frozen=True, repr=False)
class UnitBalance:
    """What a unit has spent: private, for an operator's export, and not in the repr."""

    tag: str
    """Keyed hash of the unit's id; `Ledger.unit_tag` computes it."""

    spent: Cost
    """Steps of the account's limit."""


def tag_of(book: Book, unit_id: object) -> str:
    """Return the keyed hash, 16 bytes, under which an account keeps a unit: private.

    Two of a million units share a tag with probability below 1e-26.
    """
    if not book.unit_key:
        raise LedgerError(
            f"Account {book.name!r} charges the whole corpus, not single units: it "
            "keeps no balances."
        )
    text = canonical_unit_id(unit_id)
    if text is None:
        raise LedgerError("A unit id is a non-empty string or an integer.")
    return _keyed(book, b"dpicl.unit", text, 16)


def balance_term(book: Book, name: str, *numbers: int) -> int:
    """Return the part of a balance, or of a collection, in the sum of digests.

    A balance of zeros counts for nothing.
    """
    if not any(numbers):
        return 0
    return int(_keyed(book, b"dpicl.balance", f"{name}{numbers}", 32), 16)


def collect(
    transaction: Transaction,
    book: Book,
    number: int,
    cost: Cost,
    unit_ids: Iterable[Any],
) -> set[Any]:
    """Charge each unit that can pay, and write that charge `number` was collected.

    Private in, private out: for the sealed region. A unit that the ledger has never
    seen has spent nothing. What the ledger shows does not depend on who pays.

    Args:
        transaction: One that has locked the account alone.
        book: The account.
        number: The charge whose price is collected, once.
        cost: The price.
        unit_ids: All units that would take part, each once.

    Returns:
        The ids, as given, of those that have paid. The others must take no part.
    """
    ids = list(unit_ids)
    tags = {tag_of(book, unit_id): unit_id for unit_id in ids}
    if len(tags) != len(ids):
        raise LedgerError(
            "A group source named a unit twice in one draw: what it returns can't be "
            "trusted, and nothing was charged."
        )
    paid = _charge(transaction, book, cost, sorted(tags))
    # Also where nobody paid: a reader of the file must not tell the one from the other.
    total = int(book.balances or "0", 16) + balance_term(book, "charge", number)
    for tag, loss, failure in paid:
        before = loss - cost.loss, failure - cost.failure
        total += balance_term(book, tag, loss, failure)
        total -= balance_term(book, tag, *before)
    sums: dict[str, Any] = {"balances": f"{total % _MODULUS:064x}"}
    transaction.append(book, "units", sums, **sums, charge=number, step=COLLECTED)
    return {tags[tag] for tag, _, _ in paid}


def _charge(
    transaction: Transaction, book: Book, cost: Cost, tags: list[str]
) -> list[tuple[str, int, int]]:
    """Charge in one statement every unit that can pay; return their new balances."""
    limit, connection = book.account.limit, transaction.connection
    is_server = connection.dialect.name == "postgresql"
    dialect: Any = postgresql if is_server else sqlite
    unpack = sa.func.json_array_elements_text if is_server else sa.func.json_each
    each = unpack(sa.literal(tags, sa.JSON)).table_valued("value")
    values = [sa.literal(number, Whole) for number in (book.id, *cost)]
    rows = sa.select(values[0], each.c.value, *values[1:])
    # The condition keeps SQLite from reading ON CONFLICT as part of a join.
    rows = rows.where(sa.literal_column("1") == sa.literal_column("1"))
    upsert = dialect.insert(unit_table).from_select([*_u.keys()], rows)
    upsert = upsert.on_conflict_do_update(
        index_elements=["book", "tag"],
        set_={"loss": _u.loss + cost.loss, "failure": _u.failure + cost.failure},
        where=(_u.loss <= limit.loss - cost.loss)
        & (_u.failure <= limit.failure - cost.failure),
    ).returning(_u.tag, _u.loss, _u.failure)
    return [(str(row[0]), row[1], row[2]) for row in transaction.execute(upsert)]


def _keyed(book: Book, person: bytes, text: str, size: int) -> str:
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"),
        key=bytes.fromhex(book.unit_key),
        digest_size=size,
        person=person,
    ).hexdigest()
