"""Whether the ledger confirms what a record says of its charge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_dpicl.accounting import merge
from langchain_dpicl.budget import charges, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger, open_ledger
from langchain_dpicl.release.comparing import StoredRecord, account_says
from langchain_dpicl.released.checking import events_of, unfit

_TERMS = ("epsilon", "delta", "accounting", "scope", "queries")


def require_charged(
    record: Mapping[str, Any],
    ledger: str | Ledger,
    what: str,
    items: Sequence[Any],
) -> tuple[str, ...]:
    """Refuse a record whose charge is not in the ledger as the record has it.

    Args:
        record: A checked record. One of status `public` needs no charge.
        ledger: The ledger that is said to have been charged, or its URL.
        what: What was released: `examples`, whose texts no ledger has, or `documents`.
        items: The examples or documents.

    Returns:
        The names of what the ledger does not store, and what was not compared.

    Raises:
        InvalidParameterError: If the record names no charge, the ledger has none of
            that number or one of other events, the account's terms are other ones, or a
            field or a document is not what the ledger stored.
        LedgerError: If the ledger can't be read, was tampered with, or has no such
            account.
    """
    if record["status"] == "public":
        return (*record, what)
    account, number = record["account"], record["charge"]
    if account is None or number is None:
        raise unfit("charge", "names no charge that a ledger could confirm")
    name = account["name"]
    with _opened(ledger) as opened:
        opened.verify(name)
        terms, plan = opened.state(name).account, plan_of(opened, name)
        by_number = {charge.charge: charge for charge in charges(opened, name)}
    for term in _TERMS:
        if term in account and account[term] != getattr(terms, term):
            raise unfit("account", f"has another {term} than the ledger")
    unit_key = plan.unit_key if plan else None
    if plan is not None and unit_key != record["unit_key"]:
        raise unfit("unit_key", "is not what the account protects")
    if number not in by_number:
        raise unfit("charge", f"is number {number}, which the ledger does not have")
    charge = by_number[number]
    if merge(charge.events) != merge(events_of(record)):
        raise unfit("events", "are not those that the ledger says were paid for")
    known = account_says(record, terms, unit_key)
    spent = epsilon_spent(terms, plan, number, charge.spent)
    after = {"epsilon_spent": spent, "queries_spent": number}
    known["account"] |= {name: after[name] for name in after if name in account}
    return _compared(
        StoredRecord.of(record, charge, terms.delta), record, known, what, items
    )


def _compared(
    stored: StoredRecord,
    record: Mapping[str, Any],
    known: Mapping[str, Any],
    what: str,
    items: Sequence[Any],
) -> tuple[str, ...]:
    """Refuse what is not as the ledger stored it; return what was not compared."""
    fields = stored.compared(record, known)
    if fields.other:
        raise unfit(fields.other[0], "is not what the ledger stored")
    if what == "examples":
        return (*fields.not_compared, what)
    texts = stored.compared_documents(record, items)
    if texts.other:
        raise InvalidParameterError(
            f"{texts.other[0]} is not what the ledger's stored draw says. Load a good "
            "copy, or make the documents again with release(resume=True).documents()."
        )
    return (*fields.not_compared, *texts.not_compared)


@contextmanager
def _opened(ledger: str | Ledger) -> Iterator[Ledger]:
    if isinstance(ledger, Ledger):
        yield ledger
        return
    opened = open_ledger(ledger, create=False)
    try:
        yield opened
    finally:
        opened.dispose()
