"""Every cell of a ledger's file, edited to something that no ledger wrote there.

SQLite keeps what it is given, in any column. Whatever stands there, the ledger works or
raises a `LedgerError`, takes no memory for it, and never pays for more than was left.
"""

from __future__ import annotations

import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import FILTERED, PLAN, PLANNED, UNIT_KEY, UNIT_PLANNED
from support.release_templates import template

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Gaussian, GaussianPart
from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import (
    AccountTerms,
    CorpusTerms,
    Ledger,
    SQLLedger,
)

NASTY: tuple[Any, ...] = (
    *(None, 0, 1, -1, 2**63 - 1, -(2**63), 10**9, 0.5, float("inf")),
    *("", "x", "{}", "nan", "0x1p99999", "9" * 5000, "x" * 1_000_000),
    *("[" * 100_000, '{"template":' * 100_000, '{"template": {}, "events": []}'),
    '[{"kind": "parallel", "branches": [[[]]], "count": 1, "partition": ""}]',
    '{"template": {}, "events": [{"kind": "pure", "epsilon": 1e-9, "count": 1}]}',
    *(b"", b"\xff" * 40, "\ud7ff\x00", "9999-99-99 99:99:99.999999"),
    *("2999-01-01 00:00:00.000000", "1999-01-01 00:00:00.000000"),
)
ROOM = 300_000
"""Kilobytes that all edits together may take; one number read as a size takes more."""

RELEASE = template("vote", (GaussianPart(1.1),))
"""Of a filter account two are paid for."""

ACCOUNTS = {
    terms.name: terms
    for terms in (
        replace(PLANNED, name="plan", queries=2, corpus="full"),
        replace(FILTERED, name="filter"),
        replace(UNIT_PLANNED, name="units", queries=2),
    )
}
FULL = CorpusTerms("full", None, PLANNED.epsilon, PLANNED.delta, window_days=30)
"""A cap that one account has used up."""
Work = Callable[[], Any]


def pay(ledger: Ledger, terms: AccountTerms) -> bool:
    """Charge one release; return whether anybody has paid for it."""
    events = None if terms.accounting == "plan" else (Gaussian(1.1),)
    charge = ledger.charge(terms.name, events)
    return terms.scope == "corpus" or any(ledger.charge_units(charge, ["ann", "bob"]))


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger whose accounts have spent everything."""
    path = tmp_path_factory.mktemp("spent") / "ledger.db"
    ledger = SQLLedger(f"sqlite:///{path}")
    ledger.create_corpus(FULL)
    for name, terms in ACCOUNTS.items():
        ledger.open(terms)
        ledger.fix_plan(name, PLAN if terms.accounting == "plan" else UNIT_KEY)
        assert pay(ledger, terms)
        assert pay(ledger, terms)
        assert not is_paid(ledger, terms)
        ledger.start_release(name, 1, "kind", "header")
        ledger.store_step(name, 1, 0, "drawn")
    ledger.dispose()
    return path


def is_paid(ledger: Ledger, terms: AccountTerms) -> bool:
    try:
        return pay(ledger, terms)
    except (LedgerError, BudgetExhaustedError):
        return False


def cells(path: Path) -> list[tuple[str, str, int]]:
    """Return (table, column, number of rows) for all that the ledger keeps."""
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'dpicl%'"
        ).fetchall()
        return [
            (table, column, rows)
            for (table,) in tables
            for (rows,) in database.execute(f"SELECT count(*) FROM {table}").fetchall()
            for _, column, *_ in database.execute(f"PRAGMA table_info({table})")
            if rows
        ]


def edit(path: Path, table: str, column: str, row: int, value: Any) -> bool:
    """Write a value into the row of a table; return whether the file takes it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        info = database.execute(f"PRAGMA table_info({table})").fetchall()
        keys = ", ".join(name for _, name, _, _, _, key in info if key)
        order = f"SELECT {keys} FROM {table} ORDER BY {keys} LIMIT 1 OFFSET {row}"
        try:
            database.execute(
                f"UPDATE {table} SET {column} = ? WHERE ({keys}) = ({order})", (value,)
            )
        except sqlite3.IntegrityError:
            return False
    return True


def typed(work: Work) -> Any:
    """Return what work returns; None for an error that says what is wrong."""
    try:
        return work()
    except (LedgerError, BudgetExhaustedError):
        return None


def use_handler(budget: PrivacyBudgetHandler) -> None:
    """Call everything that a handler reads, while or after the file is edited."""
    typed(budget.spent)
    typed(budget.remaining)
    typed(budget.can_afford)
    typed(lambda: budget.can_afford(RELEASE))
    typed(budget.public_state)


def use(ledger: Ledger, terms: AccountTerms) -> None:
    """Call everything that a ledger reads and writes, but payments."""
    name = terms.name
    typed(ledger.accounts)
    typed(lambda: ledger.open(terms))
    typed(lambda: ledger.state(name))
    typed(lambda: ledger.verify(name))
    typed(lambda: ledger.charges(name))
    typed(lambda: list(ledger.unit_balances(name)))
    typed(lambda: ledger.unit_tag(name, "ann"))
    typed(lambda: ledger.fix_plan(name, PLAN))
    typed(lambda: ledger.releases(name, "kind"))
    drawn = typed(lambda: ledger.store_step(name, 1, 0, "drawn again"))
    assert drawn in (None, "drawn")
    typed(lambda: ledger.releases(name))
    typed(ledger.corpora)
    typed(lambda: ledger.corpus("full"))
    another = replace(ACCOUNTS["plan"], name="another")
    assert typed(lambda: ledger.open(another)) is None


def handler_of(ledger: str | Ledger, terms: AccountTerms) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=terms.epsilon,
        delta=terms.delta,
        queries=terms.queries,
        accounting=None if terms.accounting == "plan" else terms.accounting,
        scope=terms.scope,
        account=terms.name,
        delta0_share=terms.delta0_share,
        ledger=ledger,
        corpus=terms.corpus,
    )


@pytest.mark.parametrize("share", range(3))
def test_an_edited_cell_is_an_error_of_ours_and_no_money(
    spent: Path, tmp_path: Path, share: int
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    edits = 0
    for place, (table, column, rows) in enumerate(cells(spent)):
        for number, value in enumerate(NASTY):
            if number % 3 != share:
                continue
            row = (place + number) % rows
            path = tmp_path / f"{place}-{number}.db"
            shutil.copy(spent, path)
            terms = list(ACCOUNTS.values())[row * 3 // rows]
            if table == "dpicl_unit":
                terms = ACCOUNTS["units"]
            open_before = handler_of(f"sqlite:///{path}", terms)
            try:
                if edit(path, table, column, row, value):
                    edits += 1
                    check(open_before, path, terms, table)
            except BaseException:
                print(f"{table}.{column} of row {row} was {value!r:.60}")  # noqa: T201 - names the edit
                raise
            finally:
                open_before.ledger.dispose()
                path.unlink()
    assert edits > 250
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < ROOM


def check(
    open_before: PrivacyBudgetHandler,
    path: Path,
    terms: AccountTerms,
    table: str,
) -> None:
    """Use an account whose file was edited, by who knew it before and who didn't."""
    use_handler(open_before)
    # A unit's balance is one of many in a sum, which `verify` alone adds up.
    lost = table == "dpicl_unit" and not typed(
        lambda: open_before.ledger.verify(terms.name)
    )
    paid = is_paid(open_before.ledger, terms)
    if ledger := typed(lambda: SQLLedger(f"sqlite:///{path}")):
        use(ledger, terms)
        paid |= is_paid(ledger, terms)
        if budget := typed(lambda: handler_of(ledger, terms)):
            use_handler(budget)
        typed(lambda: ledger.close_account(terms.name))
        ledger.dispose()
    assert not paid or lost
