"""An account that is gone, or has another name now, does not get a fresh budget."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.ledgers import FILTERED, PLANNED, Database, opened, spend

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, SQLLedger

Connect = Callable[[], SQLLedger]

OTHER = AccountTerms("other", 8.0, 1e-6, 5)
EDITS = {
    "renamed": ["UPDATE dpicl_account SET name = 'old notes' WHERE name = 'notes'"],
    "deleted": [
        "DELETE FROM dpicl_charge WHERE account_id = 1",
        "DELETE FROM dpicl_account WHERE name = 'notes'",
    ],
    "of other terms": ["UPDATE dpicl_account SET queries = 6 WHERE name = 'notes'"],
    "swapped": [
        "UPDATE dpicl_account SET name = 'x' WHERE name = 'notes'",
        "UPDATE dpicl_account SET name = 'notes' WHERE name = 'third'",
        "UPDATE dpicl_account SET name = 'third' WHERE name = 'x'",
    ],
    "without a registry": ["DELETE FROM dpicl_registry"],
}


@pytest.mark.parametrize("charged", [True, False])
@pytest.mark.parametrize("edit", EDITS)
def test_no_account_is_opened_beside_one_that_was_touched(
    database: Database, connect: Connect, edit: str, charged: bool
) -> None:
    ledger = opened(connect())
    ledger.open(AccountTerms("third", 8.0, 1e-6, 5))
    if charged:
        for _ in range(PLANNED.queries or 0):
            spend(ledger)
    for statement in EDITS[edit]:
        database.execute(statement)
    before = database.dump()
    with pytest.raises(LedgerError, match="dpicl ledger verify"):
        connect().open(OTHER)
    if edit in ("renamed", "deleted", "swapped"):
        with pytest.raises(LedgerError):
            connect().open(PLANNED)
    with pytest.raises(LedgerError, match="dpicl ledger verify"):
        connect().verify_accounts()
    assert database.dump() == before


def test_a_handler_gets_no_fresh_account_for_a_renamed_one(
    database: Database,
) -> None:
    def handler() -> PrivacyBudgetHandler:
        return PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=20, ledger=database.url, account="notes"
        )

    handler()
    database.execute("UPDATE dpicl_account SET name = 'spent'")
    with pytest.raises(LedgerError, match="dpicl ledger verify"):
        handler()


def test_accounts_that_nobody_touched_are_joined_by_more(connect: Connect) -> None:
    ledger = connect()
    for turn, terms in enumerate([PLANNED, FILTERED, OTHER] * 3):
        named = AccountTerms(**{**vars(terms), "name": f"{terms.name} {turn}"})
        spend(opened(ledger, named), named)
        ledger.close_account(named.name)
    connect().verify_accounts()
