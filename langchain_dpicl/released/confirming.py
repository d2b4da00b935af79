"""Whether the ledger that is said to have been charged says so too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain_dpicl.accounting import merge
from langchain_dpicl.ledger import Ledger, open_ledger
from langchain_dpicl.released.checking import events_of, unfit

_TERMS = ("epsilon", "delta", "accounting", "scope", "queries")


def require_charged(record: Mapping[str, Any], ledger: str | Ledger) -> None:
    """Refuse a record whose charge is not in the ledger as the record has it.

    Args:
        record: A checked record. One of status `public` needs no charge.
        ledger: The ledger that is said to have been charged, or its URL.

    Raises:
        ReleaseError: If the record names no charge, the ledger has none of that
            number or one of other events, or the account's terms are other ones.
        LedgerError: If the ledger can't be read, was tampered with, or has no such
            account.
    """
    if record["status"] == "public":
        return
    account, number = record["account"], record["charge"]
    if account is None or number is None:
        raise unfit("charge", "names no charge that a ledger could confirm")
    name = account["name"]
    with _opened(ledger) as opened:
        state = opened.verify(name)
        charges = [written.charge for written in opened.charges(name)]
    for term in _TERMS:
        if term in account and account[term] != getattr(state.terms, term):
            raise unfit("account", f"has another {term} than the ledger")
    if (
        state.plan is not None
        and state.plan.template.get("unit_key") != (record["unit_key"])
    ):
        raise unfit("unit_key", "is not what the account protects")
    found = next((c for c in charges if c.sequence == number), None)
    if found is None:
        raise unfit("charge", f"is number {number}, which the ledger does not have")
    if merge(found.events) != merge(events_of(record)):
        raise unfit("events", "are not those that the ledger says were paid for")


@contextmanager
def _opened(ledger: str | Ledger) -> Iterator[Ledger]:
    if isinstance(ledger, Ledger):
        yield ledger
        return
    opened = open_ledger(ledger, create=False)
    try:
        yield opened
    finally:
        dispose = getattr(opened, "dispose", None)
        if dispose is not None:
            dispose()
