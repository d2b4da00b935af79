"""Fresh keys for tags: nobody's balance is lost, and former keys find nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.ledgers import PLANNED, UNIT_PLANNED, Database, opened, spend

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.ledger.balances import KEY_BYTES, unit_tag

Connect = Callable[[], SQLLedger]


@pytest.fixture
def charged(connect: Connect) -> SQLLedger:
    """A ledger where `p-often` has spent all, and `p-seldom` has not."""
    ledger = connect()
    opened(ledger, UNIT_PLANNED)
    for units in (["p-often"], ["p-often", "p-seldom"]):
        assert all(ledger.charge_units(spend(ledger, UNIT_PLANNED), units))
    return ledger


def spent(ledger: SQLLedger, unit: str) -> Cost | None:
    tag = ledger.unit_tag("notes", unit)
    found = {one.tag: one.spent for one in ledger.unit_balances("notes")}
    return found.get(tag)


def test_balances_move_and_stay_what_they_are(
    charged: SQLLedger, connect: Connect
) -> None:
    units = ("p-often", "p-seldom", "p-new")
    other = connect()
    # Another process has the account open, with the former key.
    assert other.verify("notes").used == 2
    before = [spent(charged, unit) for unit in units]
    digests = [record.digest for record in charged.charges("notes")]
    for _ in range(3):
        tags = {one.tag for one in charged.unit_balances("notes")}
        assert charged.rotate_key("notes") == 2
        assert not tags & {one.tag for one in charged.unit_balances("notes")}
        assert [spent(charged, unit) for unit in units] == before
        assert charged.verify("notes") == other.verify("notes")
    charge = spend(other, UNIT_PLANNED)
    assert other.charge_units(charge, units) == [False, True, True]
    assert charged.charge_units(spend(charged, UNIT_PLANNED), units) == [
        *(False, False, True)
    ]
    assert [one.digest for one in charged.charges("notes")][:2] == digests
    assert connect().open(UNIT_PLANNED).used == 4


def test_former_keys_find_no_tag(charged: SQLLedger, database: Database) -> None:
    charged.rotate_key("notes")
    [[key]] = database.execute("SELECT unit_key FROM dpicl_account")
    assert len(key) == 2 * KEY_BYTES
    tags = {one.tag for one in charged.unit_balances("notes")}
    assert unit_tag(bytes(key), "p-often").hex() in tags
    # Twin of a rotation that changes nothing: the first key would find it.
    for former in (bytes(key)[:KEY_BYTES], bytes(key)[KEY_BYTES:]):
        assert unit_tag(former, "p-often").hex() not in tags


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dpicl_account SET unit_key = {first}",
        "UPDATE dpicl_account SET unit_key = {other}",
        "UPDATE dpicl_unit SET loss = 0",
        "DELETE FROM dpicl_unit",
    ],
)
def test_an_edit_is_seen_and_never_made_whole(
    charged: SQLLedger, connect: Connect, database: Database, edit: str
) -> None:
    charged.rotate_key("notes")
    [[key]] = database.execute("SELECT unit_key FROM dpicl_account")
    first, start = (
        bytes(key)[:KEY_BYTES].hex(),
        "x'" if database.kind == "sqlite" else r"'\x",
    )
    database.execute(
        edit.format(first=f"{start}{first}'", other=f"{start}{2 * first}'")
    )
    for use in (SQLLedger.verify, SQLLedger.rotate_key):
        with pytest.raises(LedgerError, match="'notes' is damaged"):
            use(connect(), "notes")
    if "unit_key" in edit:
        with pytest.raises(LedgerError, match="'notes' is damaged"):
            connect().open(UNIT_PLANNED)


def test_an_account_without_balances_has_no_key(connect: Connect) -> None:
    ledger = connect()
    opened(ledger, PLANNED)
    with pytest.raises(LedgerError, match="charges the whole corpus"):
        ledger.rotate_key("notes")
