"""Whether a record claims no less than its events cost, and its ledger confirms it.

Records are checked where they are made and where they are read. All checks fail closed:
what is not understood is refused. Messages name fields, and repeat nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Parallel,
    Pure,
    compose,
    merge,
    read_events,
    sampled_epsilon,
)
from langchain_dpicl.budget import charges, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger, open_ledger
from langchain_dpicl.release.comparing import StoredRecord, account_says
from langchain_dpicl.release.record import ReleaseRecord

MAX_EVENTS = 20_000
"""Events of one record, two for each of many labels; more are only there to be slow."""

TOLERANCE = 1e-6
"""Relative rounding that a stated epsilon may lie below the recomputed one.

Bounds are computed numerically, and another version or processor may round otherwise.
"""

_OF_PRIVATE_DATA = ("unit", "relation", "neighbors")
_TERMS = ("epsilon", "delta", "accounting", "scope", "queries")


def checked_record(record: Any) -> dict[str, Any]:
    """Return a public record as JSON has it, if its claims hold together.

    A generator can call this before it charges: `charge` and `account` may be None.

    Args:
        record: The fields of `ReleaseRecord`; others may stand beside them.

    Raises:
        InvalidParameterError: If a field is missing or of another form, an event can't
            be read, the events cost more than the stated epsilon at delta, or a public
            record (status `public`) claims to have cost anything.
    """
    plain = plain_json(record)
    if not isinstance(plain, dict):
        raise InvalidParameterError("A release's record is a dictionary.")
    _require_form(plain)
    is_public = plain["status"] == "public"
    for name in ("epsilon", "delta", *(() if is_public else _OF_PRIVATE_DATA)):
        if plain[name] is None:
            raise unfit(name, "is null")
    if plain["charge"] is not None and plain["account"] is None:
        raise unfit("account", "is missing beside a charge")
    events = events_of(plain)
    if is_public:
        for name in ("epsilon", "delta", "events", "charge"):
            if plain[name]:
                raise unfit(name, "is not empty, though status is 'public'")
    elif not events:
        raise unfit("events", "is empty: what came from private data has a cost")
    else:
        _require_paid_in_full(plain, events)
    return plain


def events_of(record: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return a record's events.

    Raises:
        InvalidParameterError: If one of them can't be read.
    """
    try:
        events = read_events(record["events"])
    except (InvalidParameterError, RecursionError) as error:
        raise unfit("events", f"can't be read ({error!s:.200})") from None
    sizes = (
        sum(map(len, event.branches)) if isinstance(event, Parallel) else 1
        for event in events
    )
    if sum(sizes) > MAX_EVENTS:
        raise unfit("events", f"holds more than {MAX_EVENTS} of them")
    return events


def pure_epsilon(events: Iterable[Event]) -> float:
    """Return the events' epsilon at delta 0: infinite unless all of them are pure.

    Example:
        >>> half = Pure(epsilon=0.5)
        >>> pure_epsilon([Parallel(branches=((half,), (half, half)), count=3)])
        3.0
    """
    total = 0.0
    for event in events:
        if isinstance(event, Parallel):
            total += event.count * max(map(pure_epsilon, event.branches))
        elif isinstance(event, Pure | Exponential):
            each = sampled_epsilon(event.epsilon or math.inf, event.sampling_rate)
            total += event.count * each
        else:
            return math.inf
    return total


def plain_json(value: Any) -> Any:
    r"""Return a copy in the types of JSON, whose texts every encoding can write.

    Half characters (lone surrogates) become U+FFFD: a model may spell them, and text
    that was paid for is not lost over them.

    Raises:
        InvalidParameterError: If JSON can't express it.

    Example:
        >>> plain_json({"a": ("\ud83d\ude00", "\ud83db")}) == {"a": ["😀", "\ufffdb"]}
        True
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        halves = text.encode("utf-16-le", "surrogatepass")
        return json.loads(halves.decode("utf-16-le", "replace"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidParameterError(
            "A record or metadata must be what JSON can hold: keep text, finite "
            "numbers, booleans, lists and dictionaries with text keys in it."
        ) from None


def unfit(name: str, reason: str) -> InvalidParameterError:
    """Return the error that says which field of a record does not hold."""
    return InvalidParameterError(
        f"The record of this release can't be trusted: {name!r} {reason}. Load a good "
        "copy, or make the release again."
    )


def require_charged(
    record: Mapping[str, Any],
    ledger: str | Ledger,
    what: str,
    items: Sequence[Any],
) -> tuple[str, ...]:
    """Refuse a checked record whose charge is not in the ledger as the record has it.

    `what` was released: `examples`, whose texts no ledger has, or `documents`.

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
    stored = StoredRecord.of(record, charge, terms.delta)
    return _compared(stored, record, known, what, items)


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


def _require_form(record: dict[str, Any]) -> None:
    """Refuse the first field that is not as it should be."""
    try:
        status = ReleaseRecord.model_validate(record).status
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    else:
        if status not in ("released", "public"):
            raise unfit("status", "is neither 'released' nor 'public'")
        return
    name = str(first["loc"][0]) if first["loc"] else "record"
    raise unfit(name, f"does not hold: {first['msg']}")


def _require_paid_in_full(record: Mapping[str, Any], events: tuple[Event, ...]) -> None:
    delta, stated = record["delta"], record["epsilon"]
    try:
        cost = compose(events, delta) if delta else pure_epsilon(events)
    except (InvalidParameterError, ArithmeticError) as error:
        raise unfit("events", f"can't be accounted for ({error!s:.200})") from None
    # Written so that NaN fails as well.
    if not cost <= stated * (1 + TOLERANCE):
        raise unfit(
            "epsilon", f"is {stated:.6g} at delta {delta:g}; its events cost {cost:.6g}"
        )


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
