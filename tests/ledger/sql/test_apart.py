"""Accounts, callers and releases that stand beside one another in the same tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, make_url
from support.ledgers import UNIT_FILTERED, UNIT_PLANNED, Database, opened

from langchain_dpicl.accounting import Cost, Failure, Gaussian
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import Allowance, SQLLedger
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.balances import unit_tag
from langchain_dpicl.ledger.sql import keys, release_rows, statements, unit_charging
from langchain_dpicl.ledger.sql.transactions import Transactions

Connect = Callable[[], SQLLedger]
NAMES = ("a", "b", "c")
CALLERS = ("p", "q", "r")
AT = datetime(2026, 12, 10, tzinfo=timezone.utc)


def within(caller: str) -> CallerLimit:
    return CallerLimit(Allowance(caller, 1.0), 2**40)


def events(place: int) -> tuple[Gaussian, Failure]:
    """Return what no other charge releases."""
    return Gaussian(20.0 + place), Failure((1 + place) * 1e-10)


@pytest.fixture
def ledger(connect: Connect) -> Iterator[SQLLedger]:
    """Three accounts, each with three charges, callers, units and releases, mixed."""
    ledger = connect()
    for name in NAMES:
        opened(ledger, replace(UNIT_FILTERED, name=name))
    for turn in range(3):
        for place, name in enumerate(NAMES):
            caller = within(CALLERS[(turn + place) % 3])
            charge = ledger.charge(name, events(3 * place + turn), within=caller)
            units = [f"u-{n}" for n in range(turn + 1)]
            assert all(ledger.charge_units(charge, units))
            ledger.start_release(name, turn + 1, f"kind {turn}", f"{name}{turn}")
    for turn in range(3):
        for name in NAMES:
            for number in range(3 - turn):
                drawn = f"{name}{turn}{number}"
                assert ledger.store_step(name, turn + 1, number, drawn) == drawn
    yield ledger
    ledger.dispose()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_an_account_is_its_own(
    ledger: SQLLedger, connect: Connect, name: str
) -> None:
    place = NAMES.index(name)
    for one in (ledger, connect()):
        charges = [record.charge for record in one.charges(name)]
        assert [charge.sequence for charge in charges] == [1, 2, 3]
        assert [charge.events for charge in charges] == [
            events(3 * place + turn) for turn in range(3)
        ]
        state = one.verify(name)
        assert state == one.state(name)
        assert state.used == 3
        total = [sum(charge.cost[part] for charge in charges) for part in (0, 1)]
        assert state.spent == tuple(total)
        for turn in range(3):
            caller = CALLERS[(turn + place) % 3]
            assert one.caller_spent(name, caller) == charges[turn].cost.loss
        assert one.caller_spent(name, "pq") == 0
        found = {balance.tag: balance.spent for balance in one.unit_balances(name)}
        assert found == {
            one.unit_tag(name, f"u-{n}"): Cost(
                sum(charge.cost.loss for charge in charges[n:]),
                sum(charge.cost.failure for charge in charges[n:]),
            )
            for n in range(3)
        }
        assert [
            (release.charge, release.kind, release.header, release.steps)
            for release in one.releases(name)
        ] == [
            (
                *(turn + 1, f"kind {turn}", f"{name}{turn}"),
                tuple(f"{name}{turn}{number}" for number in range(3 - turn)),
            )
            for turn in range(3)
        ]
        assert [r.charge for r in one.releases(name, "kind 1")] == [2]
    ledger.verify_accounts()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_done_to_an_account_is_done_to_it_alone(
    ledger: SQLLedger, connect: Connect, name: str
) -> None:
    def others() -> list[Any]:
        return [
            (one.state(other), one.charges(other), list(one.unit_balances(other)))
            for one in (connect(),)
            for other in NAMES
            if other != name
        ]

    before = others()
    charge = ledger.charge(name, events(9), within=within("q"))
    assert (charge.sequence, ledger.charge(name, events(9)).sequence) == (4, 5)
    sums = [
        r.charge.caller_spent for r in ledger.charges(name) if r.charge.caller == "q"
    ]
    assert sums == [sums[0], (sums[0] or 0) + charge.cost.loss]
    assert ledger.charge_units(charge, ["u-0", "new"]) == [True, True]
    assert ledger.store_step(name, 2, 2, "more") == "more"
    assert ledger.store_step(name, 2, 1, "again") == f"{name}11"
    ledger.start_release(name, 4, "kind", "header")
    assert ledger.rotate_key(name) == 4
    ledger.close_account(name)
    assert others() == before
    again = connect()
    for one in NAMES:
        again.verify(one)
    again.verify_accounts()
    assert again.state(name).closed


def test_balances_are_moved_whole_and_in_chunks(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(ledger, replace(UNIT_PLANNED, name="d"))
    ids = [f"u-{n}" for n in range(7)]
    charge = ledger.charge("d")
    assert all(ledger.charge_units(charge, ids))
    for chunk in (1, 2, 3, 6, 7, 8):
        monkeypatch.setattr(keys, "_CHUNK", chunk)
        assert ledger.rotate_key("d") == 7
        found = [balance.tag for balance in ledger.unit_balances("d")]
        assert found == sorted(ledger.unit_tag("d", one) for one in ids)
        assert ledger.verify("d").used == 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 6, 7, 8])
def test_units_are_charged_whole_in_chunks_of_any_size(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(unit_charging, "CHUNK", chunk)
    ledger = opened(connect(), replace(UNIT_PLANNED, queries=1))
    charge = ledger.charge("notes")
    ids = [f"u-{n}" for n in range(7)]
    assert ledger.charge_units(charge, ids[::2]) == [True] * 4
    assert ledger.charge_units(charge, ids) == [n % 2 == 1 for n in range(7)]
    ledger.verify("notes")


@pytest.mark.parametrize(("former", "salt"), [((), "ee"), (("ee", "ff"), "gg")])
def test_a_rotation_binds_an_account_to_the_salt_that_follows_its_own(
    ledger: SQLLedger, connect: Connect, former: tuple[str, ...], salt: str
) -> None:
    ledger.bind_salt("b", "ee")
    assert ledger.rotate_key("b", former=former, salt="gg") == 3
    assert ledger.rotate_key("a", former=former, salt="gg") == 3
    assert (connect().state("b").salt, connect().state("a").salt) == (salt, None)
    connect().verify("b")


def test_a_row_stands_for_nobody_and_has_spent_nothing(
    database: Database, connect: Connect
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    for units, size in (([], 1), ([], 1), (["p-1"], 2)):
        ledger.charge_units(charge, units)
        found = database.execute("SELECT tag, loss, failure FROM dpicl_unit")
        assert len(found) == size
    key = bytes(database.execute("SELECT unit_key FROM dpicl_account")[0][0])
    zero = [bytes(tag) for tag, *spent in found if not any(spent)]
    assert len(zero) == 1
    assert len(zero[0]) == 16
    assert zero[0] != unit_tag(key, "p-1")
    assert zero[0] == unit_charging._nobody(key)


# -- statements that write only where all is as it was read ----------------------------


def in_transaction(database: Database, use: Callable[[Connection], Any]) -> Any:
    transactions = Transactions(_url(database))
    try:
        return transactions.run(use)
    finally:
        transactions.engine.dispose()


def _url(database: Database) -> Any:
    return make_url(database.url)


@pytest.mark.parametrize(("now", "rows"), [(3, 0), (4, 1), (5, 0)])
def test_a_charge_is_counted_after_the_one_before_it(
    ledger: SQLLedger, database: Database, now: int, rows: int
) -> None:
    [(number,)] = database.execute("SELECT id FROM dpicl_account WHERE name = 'b'")
    values = {"number": number, "now": now, "loss": 9, "failure": 8, "head": "aa"}
    counted = in_transaction(
        database, lambda c: c.execute(statements.COUNT_CHARGE, values).rowcount
    )
    assert counted == rows
    found = database.execute(
        "SELECT name, used, spent_loss, spent_failure FROM dpicl_account "
        "WHERE head = 'aa'"
    )
    assert [tuple(row) for row in found] == [("b", now, 9, 8)] * rows


@pytest.mark.parametrize(("step", "rows"), [(1, 0), (2, 1), (3, 0)])
def test_a_step_is_counted_after_the_one_before_it(
    ledger: SQLLedger, database: Database, step: int, rows: int
) -> None:
    [(number,)] = database.execute("SELECT id FROM dpicl_account WHERE name = 'b'")
    values = {"number": number, "sequence": 2, "step": step, "now": 7, "digest": "aa"}
    counted = in_transaction(
        database, lambda c: c.execute(statements.COUNT_STEP, values).rowcount
    )
    assert counted == rows
    found = database.execute(
        "SELECT account_id, charge, steps FROM dpicl_release WHERE digest = 'aa'"
    )
    assert [tuple(row) for row in found] == [(number, 2, 7)] * rows


def test_a_step_that_is_not_counted_is_not_stored(
    ledger: SQLLedger, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = statements.COUNT_STEP.where(statements.release_table.c.steps == 99)
    with monkeypatch.context() as patched:
        patched.setattr(release_rows.statements, "COUNT_STEP", twice)
        with pytest.raises(LedgerError, match="did not count a step of account 'b'"):
            ledger.store_step("b", 2, 2, "never given out")
    assert connect().releases("b")[1].steps == ("b10", "b11")
    assert ledger.store_step("b", 2, 2, "given out") == "given out"
