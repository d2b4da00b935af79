"""The hash chain of an account's journal, and the digest of its balances.

Every entry of a journal holds the digest of the entry before it: the terms, then the
plan once it is fixed, then each charge. The account's row holds the *head*: the digest
of the last entry together with all that changes in that row (counter, sums, digest of
the balances, whether and when it is closed, its salt's fingerprint). It follows from
everything before it, so that an entry or a sum that is edited, deleted or added no
longer leads to the head:

    digest = BLAKE2b-256(JSON array of the previous digest, kind of entry, contents)

with `dpicl.journal` as BLAKE2b's personalization. JSON writes a float as the shortest
decimal that reads back as the same double, so that floats are exact.

Balances of units have no order to chain them in. Their digest is a sum: for each unit a
keyed hash of its tag and balance, added up modulo 2^256. A charge takes the old terms
off and adds the new ones, and a row that was lost, edited or restored from an old copy
no longer adds up.

What a charge has released in steps is a chain of its own, from its header on. The head
covers the number of steps and the last digest of each (`after_releases`), so that a
draw that was stored can't be taken back, to be drawn again.

What this sees, and what not:
    It sees accidents, half-restored backups, and whoever edits rows to get budget back
    without working through this chain. The chain has no key, for a key would have to
    lie beside the ledger: whoever can write to the database *and* rewrites everything
    consistently (or puts back a whole older copy of the database) is not seen. Heads
    that are kept elsewhere, as in the lines of `dpicl ledger export`, see this too: a
    journal that once had a certain head must still contain it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from langchain_dpicl.accounting import Cost
from langchain_dpicl.accounting.events import Event
from langchain_dpicl.ledger.base import AccountState, AccountTerms

if TYPE_CHECKING:
    from langchain_dpicl.ledger.corpus import CorpusTerms

_JOURNAL = b"dpicl.journal"
_BALANCES = b"dpicl.balances"
_DIGEST_BYTES = 32
_MODULUS = 1 << 8 * _DIGEST_BYTES
_PAIR = struct.Struct(">QQ")

# The digest of a per-unit account where nobody has paid anything.
NO_BALANCES = "0" * 2 * _DIGEST_BYTES
NO_ACCOUNTS = ""  # The digest of a registry before the first account.


def canonical(value: Any) -> str:
    """Return a value's one JSON text.

    Example:
        >>> canonical({"b": 0.1, "a": [1]})
        '{"a": [1], "b": 0.1}'
    """
    return json.dumps(value, sort_keys=True, allow_nan=False)


def events_text(events: Sequence[Event]) -> str:
    """Return the JSON under which the ledger keeps events."""
    return canonical([event.model_dump(mode="json") for event in events])


def after_terms(terms: AccountTerms, unit_key: bytes | None) -> str:
    """Return the digest that starts an account's chain.

    Of the key of its tags only the hash goes into the chain.
    """
    key = None if unit_key is None else hashlib.sha256(unit_key).hexdigest()
    promised = (terms.corpus, terms.period, terms.purpose)
    return _entry(
        "",
        "terms",
        terms.name,
        *map(_exact, (terms.epsilon, terms.delta)),
        terms.queries,
        terms.accounting,
        terms.scope,
        *map(_exact, (terms.order, terms.delta0_share)),
        key,
        # Nothing for an account that has none: its chain is older than these.
        *(promised if any(one is not None for one in promised) else ()),
    )


def after_account(last: str, first: str, corpus: str | None = None) -> str:
    """Return the registry's digest after the account whose terms have a digest.

    `corpus` is the digest of the terms of its corpus, if it has one.
    """
    return _entry(last, "registered", first, *(() if corpus is None else (corpus,)))


def corpus_digest(terms: CorpusTerms) -> str:
    """Return the digest of what a corpus promises."""
    cap = map(_exact, (terms.epsilon, terms.delta))
    return _entry("", "corpus", terms.name, terms.unit_key, *cap, terms.window_days)


def corpus_head(first: str, at: datetime) -> str:
    """Return a corpus's head: the digest of its terms, and the last time it saw."""
    return _entry(first, "seen", _moment(at))


def after_plan(last: str, plan: str) -> str:
    """Return the digest after the plan, given as the text that is stored."""
    return _entry(last, "plan", plan)


def after_charge(
    last: str,
    name: str,
    sequence: int,
    events: str,
    cost: Cost,
    at: datetime,
) -> str:
    """Return the digest after one more charge, whose events are given as stored.

    Example:
        >>> at = datetime(2026, 1, 1, tzinfo=timezone.utc)
        >>> one = after_charge("", "notes", 1, "[]", Cost(1, 0), at)
        >>> one == after_charge("", "notes", 1, "[]", Cost(2, 0), at)
        False
    """
    return _entry(
        *(last, "charge", name, sequence, events),
        *(cost.loss, cost.failure, _moment(at)),
    )


def after_release(name: str, charge: int, kind: str, header: str) -> str:
    """Return the digest that starts the chain of what a charge releases in steps."""
    return _entry("", "release", name, charge, kind, header)


def after_step(last: str, number: int, drawn: str) -> str:
    """Return the digest after one more step, given as the text that is stored."""
    return _entry(last, "step", number, drawn)


def after_releases(chains: Mapping[int, tuple[int, str]]) -> str | None:
    """Return the digest of all releases of an account; None if there are none.

    `chains` holds, for each charge that started one, in order, its number of steps and
    the last digest.
    """
    if not chains:
        return None
    parts = [part for charge, chain in chains.items() for part in (charge, *chain)]
    return _entry("", "releases", *parts)


def head_of(
    last: str,
    state: AccountState,
    balances: str | None,
    releases: str | None,
) -> str:
    """Return an account's head, given the digest of its journal's last entry.

    `balances` is the digest of its units' balances, `releases` that of its releases;
    None without any.
    """
    closed_at = None if state.closed_at is None else _moment(state.closed_at)
    bound = (closed_at, state.salt)
    return _entry(
        last,
        "account",
        state.used,
        state.spent.loss,
        state.spent.failure,
        state.closed,
        balances,
        releases,
        *(bound if any(one is not None for one in bound) else ()),
    )


def balances_after(
    digest: str, key: bytes, balances: Iterable[tuple[bytes, Cost, Cost]]
) -> str:
    """Return the digest of balances after some of them have changed.

    `key` is that of the account's tags. For each unit come its tag, what it had spent,
    and what it has spent now. A balance of zero counts as none, so that a unit's first
    charge is no special case.

    Example:
        >>> none, one = Cost(0, 0), Cost(1, 0)
        >>> once = balances_after(NO_BALANCES, bytes(32), [(b"tag", none, one)])
        >>> balances_after(once, bytes(32), [(b"tag", one, none)]) == NO_BALANCES
        True
    """
    total = int(digest, 16)
    keyed = hashlib.blake2b(key=key, digest_size=_DIGEST_BYTES, person=_BALANCES)
    for tag, before, now in balances:
        if any(before):
            total -= _term(keyed, tag, before)
        if any(now):
            total += _term(keyed, tag, now)
    return f"{total % _MODULUS:0{2 * _DIGEST_BYTES}x}"


def utc(at: datetime) -> datetime:
    """Return a time read from a database, in UTC; SQLite forgets the zone."""
    if at.tzinfo is None:
        return at.replace(tzinfo=timezone.utc)
    return at.astimezone(timezone.utc)


def _moment(at: datetime) -> str:
    return utc(at).isoformat(timespec="microseconds")


def _exact(number: float | None) -> float | None:
    # 8 and 8.0 are one epsilon, and must be one text.
    return None if number is None else float(number)


def _entry(*parts: str | float | None) -> str:
    return hashlib.blake2b(
        canonical(parts).encode(), digest_size=_DIGEST_BYTES, person=_JOURNAL
    ).hexdigest()


def _term(keyed: hashlib.blake2b, tag: bytes, spent: Cost) -> int:
    # A copy is half the price of a new keyed hash.
    term = keyed.copy()
    term.update(tag + _PAIR.pack(*spent))
    return int.from_bytes(term.digest(), "big")
