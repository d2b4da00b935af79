"""The hash chain: whatever is edited, deleted or added beside the ledger is seen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledgers import (
    FILTERED,
    NOISY,
    PLAN,
    PLANNED,
    RENYI,
    UNIT_PLANNED,
    Database,
    opened,
    spend,
)

from langchain_dpicl.accounting import Cost, Gaussian
from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.ledger import Ledger, SQLLedger, hash_chain
from langchain_dpicl.ledger.base import AccountState, ChargeRecord
from langchain_dpicl.ledger.sql import rows

Connect = Callable[[], SQLLedger]

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Clock(datetime):
    """A host's clock, which may be wrong."""

    shown = NOON

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(rows, "datetime", Clock)
    Clock.shown = NOON
    return Clock


def refused(connect: Connect, *named: str) -> None:
    """Whoever opens, verifies or charges the account now gets nothing."""
    uses: list[Callable[[SQLLedger], object]] = [
        lambda ledger: ledger.open(PLANNED),
        lambda ledger: ledger.verify("notes"),
        lambda ledger: ledger.charge("notes"),
        lambda ledger: ledger.fix_plan("notes", PLAN),
    ]
    for use in uses:
        with pytest.raises(LedgerError) as caught:
            use(connect())
        for part in ("'notes'", "Nothing is released", "Restore the ledger", *named):
            assert part in str(caught.value)
        assert caught.value.__cause__ is None


ACCOUNT = {
    # edit: (columns, what the message names)
    "epsilon": ("epsilon = '0x1.0p+10'", "charge 1"),
    "delta": ("delta = '0x1.0p-1'", "charge 1"),
    "more queries": ("queries = 50", "charge 1"),
    "no number": ("epsilon = 'much'", "terms"),
    "a filter": (
        "accounting = 'renyi', renyi_order = '0x1.0p+3', delta0_share = '0x0.0p+0'",
        "charge 1",
    ),
    "half a filter": ("accounting = 'renyi'", "terms"),
    "unknown kind": ("accounting = 'new'", "terms"),
    "no kind": ("queries = NULL", "terms"),
    "per unit": ("scope = 'unit'", "terms"),
    "less noise": ("plan = replace(plan, '0.333', '0.666')", "charge 1"),
    "no plan": ("plan = NULL", "charge 1"),
    "plan from the future": ("plan = replace(plan, 'gaussian', 'cauchy')", "plan"),
    "the counter": ("used = 1", "charge"),
    "the sum": ("spent_loss = 1", "charge 3"),
    "the head": (
        "head = (SELECT digest FROM dpicl_charge WHERE sequence = 2)",
        "charge 3",
    ),
    "closed": ("closed = NOT closed", "charge 3"),
}
FIRST = "(SELECT c.{0} FROM dpicl_charge c WHERE c.sequence = 1)"
CHARGE = {
    "a cheaper charge": ("events = replace(events, '0.333', '9.333')", 2),
    "a cost": ("cost_loss = 0", 2),
    "a negative cost": ("cost_loss = -1", 3),
    "a time": (f"charged_at = {FIRST.format('charged_at')}", 3),
    "a digest": (f"digest = {FIRST.format('digest')}", 3),
    "from the future": ("events = replace(events, 'gaussian', 'cauchy')", 3),
    "no events": ("events = '[[['", 3),
    "another number": ("sequence = 7", 2),
}
COPY = "account_id, {0}, events, cost_loss, cost_failure, charged_at, digest"
JOURNAL = {
    "the first": ("DELETE FROM dpicl_charge WHERE sequence = 1", "charge 1"),
    "one in the middle": ("DELETE FROM dpicl_charge WHERE sequence = 2", "charge 2"),
    "the last": ("DELETE FROM dpicl_charge WHERE sequence = 3", "charge 3"),
    "all": ("DELETE FROM dpicl_charge", "charge 1"),
    "one too many": (
        "INSERT INTO dpicl_charge (" + COPY.format("sequence") + ") "
        "SELECT " + COPY.format(4) + " FROM dpicl_charge WHERE sequence = 3",
        "charge 4",
    ),
}
EDITS = {
    **{
        name: (f"UPDATE dpicl_account SET {columns}", where)
        for name, (columns, where) in ACCOUNT.items()
    },
    **{
        name: (
            f"UPDATE dpicl_charge SET {columns} WHERE sequence = {number}",
            f"charge {number}",
        )
        for name, (columns, number) in CHARGE.items()
    },
    **JOURNAL,
}


@pytest.mark.parametrize(("edit", "where"), EDITS.values(), ids=EDITS)
def test_an_edit_beside_the_ledger_is_seen(
    database: Database, connect: Connect, clock: type[Clock], edit: str, where: str
) -> None:
    ledger = opened(connect())
    for _ in range(3):
        ledger.charge("notes")
        clock.shown += timedelta(minutes=1)
    ledger.verify("notes")
    database.execute(edit)
    refused(connect, where)


@pytest.mark.parametrize("name", [*ACCOUNT, "a digest", "the last", "one too many"])
def test_a_ledger_that_is_open_sees_it_at_its_next_charge(
    database: Database, connect: Connect, name: str
) -> None:
    ledger = opened(connect())
    for _ in range(3):
        ledger.charge("notes")
    database.execute(EDITS[name][0])
    with pytest.raises(LedgerError, match="damaged"):
        ledger.charge("notes")


def test_a_cheaper_charge_with_digests_to_match_is_seen(
    database: Database, connect: Connect
) -> None:
    """Whoever knows the chain can make it whole; the filter still counts."""
    ledger = opened(connect(), FILTERED)
    charge = ledger.charge("notes", NOISY)
    (record,) = ledger.charges("notes")
    start = database.execute("SELECT plan FROM dpicl_account")[0][0]
    first = hash_chain.after_plan(hash_chain.after_terms(FILTERED, None), start)
    for cost, seen in ((Cost(1, charge.cost.failure), True), (charge.cost, False)):
        forged = hash_chain.after_charge(
            first, "notes", 1, hash_chain.events_text(NOISY), cost, record.at
        )
        state = AccountState(FILTERED, None, 1, closed=False, spent=cost)
        head = hash_chain.head_of(forged, state, None, None)
        database.execute(
            f"UPDATE dpicl_charge SET cost_loss = {cost.loss}, digest = '{forged}'"
        )
        database.execute(
            f"UPDATE dpicl_account SET spent_loss = {cost.loss}, head = '{head}'"
        )
        if seen:
            with pytest.raises(LedgerError, match="for less than its events cost"):
                connect().open(FILTERED)
        else:
            connect().open(FILTERED)


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dpicl_unit SET loss = loss - 1 WHERE loss = 2",
        "UPDATE dpicl_unit SET loss = 0",
        "UPDATE dpicl_unit SET loss = -5",
        "UPDATE dpicl_unit SET loss = 3",
        "UPDATE dpicl_unit SET failure = 1",
        "DELETE FROM dpicl_unit WHERE loss = 2",
        "DELETE FROM dpicl_unit",
        "INSERT INTO dpicl_unit SELECT id, unit_key, 1, 0 FROM dpicl_account",
    ],
)
def test_a_balance_that_was_edited_lost_or_added_is_seen(
    database: Database, connect: Connect, edit: str
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    ledger.charge_units(ledger.charge("notes"), ["p-1", "p-2"])
    ledger.charge_units(ledger.charge("notes"), ["p-1"])
    ledger.verify("notes")
    database.execute(edit)
    with pytest.raises(LedgerError, match="balances"):
        connect().verify("notes")


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dpicl_account SET balances_digest = NULL",
        f"UPDATE dpicl_account SET balances_digest = '{hash_chain.NO_BALANCES}'",
        "UPDATE dpicl_account SET spent_loss = 0",
    ],
)
def test_sums_of_a_per_unit_account_are_in_its_head(
    database: Database, connect: Connect, edit: str
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    ledger.charge_units(charge, ["p-1", "p-2"])
    database.execute("DELETE FROM dpicl_unit")
    database.execute(edit)
    for other in (ledger, connect()):
        with pytest.raises(LedgerError, match="damaged"):
            other.charge_units(charge, ["p-1"])
    with pytest.raises(LedgerError, match="damaged"):
        connect().open(UNIT_PLANNED)


def test_a_negative_balance_is_seen_by_the_charge_that_meets_it(
    database: Database, connect: Connect
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    ledger.charge_units(charge, ["p-1", "p-2"])
    database.execute("UPDATE dpicl_unit SET loss = -5 WHERE loss = 1")
    with pytest.raises(LedgerError, match="can have spent"):
        ledger.charge_units(charge, ["p-1"])


def test_a_new_key_would_forget_all_balances_and_is_seen(
    database: Database, connect: Connect
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    ledger.charge_units(charge, ["p-1"])
    zero = "x'00'" if database.kind == "sqlite" else "'\\x00'::bytea"
    database.execute(f"UPDATE dpicl_account SET unit_key = {zero}")
    for other in (ledger, connect()):
        with pytest.raises(LedgerError, match="damaged"):
            other.charge_units(charge, ["p-1"])


def test_a_clock_that_goes_backwards_stops_nothing(
    connect: Connect, clock: type[Clock]
) -> None:
    ledger = opened(connect())
    ledger.charge("notes")
    clock.shown = NOON - timedelta(days=400)
    connect().charge("notes")
    clock.shown = NOON + timedelta(microseconds=1)
    connect().charge("notes")
    times = [record.at for record in ledger.charges("notes")]
    assert times == [NOON, NOON, NOON + timedelta(microseconds=1)]
    assert connect().open(PLANNED).used == 3
    ledger.verify("notes")


def test_the_same_clock_is_kept_in_memory(ledger: Ledger, clock: type[Clock]) -> None:
    opened(ledger)
    ledger.charge("notes")
    clock.shown = NOON - timedelta(days=1)
    ledger.charge("notes")
    first, second = ledger.charges("notes")
    assert first.at <= second.at


def test_a_closed_account_still_verifies(connect: Connect) -> None:
    ledger = opened(connect())
    ledger.charge("notes")
    ledger.close_account("notes")
    assert connect().verify("notes").closed
    assert connect().open(PLANNED).used == 1


def test_the_order_of_opening_fixing_and_closing_is_in_the_chain(
    connect: Connect,
) -> None:
    ledger = connect()
    ledger.open(RENYI)
    ledger.verify("notes")
    ledger.close_account("notes")
    ledger.verify("notes")
    with pytest.raises(DPError, match="closed"):
        spend(ledger, RENYI)


def test_a_journal_can_be_checked_by_hand(connect: Connect) -> None:
    """An export holds all that the digests are made of."""
    ledger = opened(connect(), FILTERED)
    for _ in range(3):
        ledger.charge("notes", NOISY)
    records = ledger.charges("notes")

    def by_hand(before: str, record: ChargeRecord) -> str:
        charge = record.charge
        events = [
            {"kind": event.kind, **vars(event)}  # type: ignore[attr-defined]
            for event in charge.events
        ]
        entry = [before, "charge", "notes", charge.sequence]
        entry += [json.dumps(events, sort_keys=True), *charge.cost]
        entry += [record.at.isoformat(timespec="microseconds")]
        text = json.dumps(entry).encode()
        return hashlib.blake2b(
            text, digest_size=32, person=b"dpicl.journal"
        ).hexdigest()

    for before, record in pairwise(records):
        assert by_hand(before.digest, record) == record.digest


def test_terms_are_what_they_are_equal_to() -> None:
    terms = replace(PLANNED, epsilon=8)
    assert hash_chain.after_terms(terms, None) == hash_chain.after_terms(PLANNED, None)
    for other in ({"epsilon": 8.1}, {"queries": 6}, {"name": "x"}, {"scope": "unit"}):
        changed = replace(PLANNED, **other)  # type: ignore[arg-type] # any field
        assert hash_chain.after_terms(changed, None) != hash_chain.after_terms(
            PLANNED, None
        )
    assert hash_chain.after_terms(PLANNED, b"k") != hash_chain.after_terms(
        PLANNED, None
    )


balances = st.dictionaries(
    st.binary(min_size=16, max_size=16),
    st.tuples(st.integers(0, 2**31), st.integers(0, 2**31)).map(lambda b: Cost(*b)),
    max_size=8,
)


@settings(deadline=None, max_examples=50)
@given(before=balances, after=balances)
def test_the_digest_of_balances_knows_no_order_and_no_history(
    before: dict[bytes, Cost], after: dict[bytes, Cost]
) -> None:
    key, none = bytes(range(32)), Cost(0, 0)

    def digest(held: dict[bytes, Cost]) -> str:
        changes = [(tag, none, spent) for tag, spent in held.items()]
        return hash_chain.balances_after(hash_chain.NO_BALANCES, key, reversed(changes))

    moves = [
        (tag, before.get(tag, none), after.get(tag, none)) for tag in {*before, *after}
    ]
    assert hash_chain.balances_after(digest(before), key, moves) == digest(after)
    positive = {tag: spent for tag, spent in after.items() if any(spent)}
    assert (digest(after) == digest(before)) == (
        positive == {tag: spent for tag, spent in before.items() if any(spent)}
    )
    assert len(digest(after)) == 64


def test_another_machines_rounding_is_no_damage(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(connect(), FILTERED)
    ledger.charge("notes", NOISY)
    ledger.charge("notes", [Gaussian(noise_multiplier=40.0)])
    kind = type(FILTERED.filter)
    own = kind.cost
    for off, seen in ((1, False), (-1, False), (-9, False), (2, True)):
        monkeypatch.setattr(
            kind, "cost", lambda self, e, off=off: Cost(own(self, e)[0] + off, 1)
        )
        if seen:
            with pytest.raises(LedgerError, match="for less"):
                connect().open(FILTERED)
        else:
            connect().open(FILTERED)
