"""What verification says of each damaged row, also where all digests fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.corpora import CLINIC, DECEMBER, clock_for, opened_in, pay
from support.ledgers import (
    FILTERED,
    NOISY,
    PLANNED,
    UNIT_FILTERED,
    UNIT_PLANNED,
    Database,
    opened,
    spend,
    sqlite_database,
)
from support.rechaining import rechained

from langchain_dpicl.accounting import Cost, Failure, Gaussian
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, Allowance, SQLLedger
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.sql import rows, verification

AGAIN = (
    "Nothing is released from it. Restore the ledger, or open an account with another "
    "name: a new promise."
)
ALICE = CallerLimit(Allowance("alice", 1.0), 2**40)


@pytest.fixture
def file(tmp_path: Path) -> Database:
    return sqlite_database(tmp_path / "ledger.db")


@pytest.fixture
def connect(file: Database) -> Iterator[Callable[[], SQLLedger]]:
    opened_here: list[SQLLedger] = []

    def again() -> SQLLedger:
        opened_here.append(SQLLedger(file.url))
        return opened_here[-1]

    yield again
    for ledger in opened_here:
        ledger.dispose()


Connect = Callable[[], SQLLedger]


def said(use: Callable[[], object]) -> str:
    with pytest.raises(LedgerError) as caught:
        use()
    assert caught.value.__cause__ is None
    return str(caught.value)


def damage(where: str, why: str, name: str = "notes") -> str:
    return f"Account {name!r} is damaged {where}: {why}. {AGAIN}"


def charged(ledger: SQLLedger, terms: AccountTerms, times: int = 3) -> SQLLedger:
    opened(ledger, terms)
    for _ in range(times):
        spend(ledger, terms)
    return ledger


# -- edits that leave the digests as they were -----------------------------------------

PLAIN = {
    "a charge is missing": (
        "UPDATE dpicl_charge SET sequence = 7 WHERE sequence = 2",
        ("at charge 2", "it is missing from the journal"),
    ),
    "the first is missing": (
        "DELETE FROM dpicl_charge WHERE sequence = 1",
        ("at charge 1", "it is missing from the journal"),
    ),
    "the first was edited": (
        "UPDATE dpicl_charge SET digest = 'aa' WHERE sequence = 1",
        ("at charge 1", "it, the account's terms or its plan was edited"),
    ),
    "the second was edited": (
        "UPDATE dpicl_charge SET digest = 'aa' WHERE sequence = 2",
        ("at charge 2", "it was edited"),
    ),
    "the last was edited": (
        "UPDATE dpicl_charge SET digest = 'aa' WHERE sequence = 3",
        ("at charge 3", "it was edited"),
    ),
    "another plan's events": (
        "UPDATE dpicl_charge SET events = '[]' WHERE sequence = 2",
        ("at charge 2", "it can't be read (its events are not the plan's)"),
    ),
    "no events": (
        "UPDATE dpicl_charge SET events = '[[[' WHERE sequence = 2",
        (
            "at charge 2",
            (
                "it can't be read (A charge can't be read: it was written by another "
                "version or damaged.)"
            ),
        ),
    ),
    "no cost": (
        "UPDATE dpicl_charge SET cost_loss = 'x' WHERE sequence = 3",
        (
            "at charge 3",
            "it can't be read (invalid literal for int() with base 10: 'x')",
        ),
    ),
    "the counter is behind": (
        "UPDATE dpicl_account SET used = 1",
        ("at charge 2", "its counter says 1 charges, its journal ends at 3"),
    ),
    "the counter is ahead": (
        "UPDATE dpicl_account SET used = 5",
        ("at charge 4", "its counter says 5 charges, its journal ends at 3"),
    ),
    "the journal is gone": (
        "DELETE FROM dpicl_charge",
        ("at charge 1", "its counter says 3 charges, its journal ends at 0"),
    ),
    "the head": (
        "UPDATE dpicl_account SET head = 'aa'",
        (
            "at charge 3",
            "its journal does not end where its head says, or a sum was edited",
        ),
    ),
    "the terms": (
        "UPDATE dpicl_account SET queries = 'x'",
        (
            "in its terms or plan",
            "they can't be read; another version wrote them, or somebody edited them",
        ),
    ),
}


@pytest.mark.parametrize("edit", PLAIN)
def test_an_edit_is_named_with_the_charge_it_is_at(
    file: Database, connect: Connect, edit: str
) -> None:
    charged(connect(), PLANNED)
    statement, where = PLAIN[edit]
    file.execute(statement)
    for use in (lambda: connect().verify("notes"), lambda: connect().open(PLANNED)):
        assert said(use) == damage(*where)


@pytest.mark.parametrize(
    "edit", ["DELETE FROM dpicl_unit", "UPDATE dpicl_unit SET loss = 1"]
)
def test_edited_balances_are_named_as_such(
    file: Database, connect: Connect, edit: str
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    ledger.charge_units(ledger.charge("notes"), ["p-1", "p-2"])
    ledger.charge_units(ledger.charge("notes"), ["p-1"])
    file.execute(edit)
    assert said(lambda: connect().verify("notes")) == damage(
        "in its units' balances", "one of them was edited, lost or added"
    )


@pytest.mark.parametrize("terms", [UNIT_PLANNED, UNIT_FILTERED])
@pytest.mark.parametrize("part", ["loss", "failure"])
@pytest.mark.parametrize("times", [1, 40])
def test_a_balance_beyond_what_a_unit_can_have_spent_is_impossible(
    file: Database, connect: Connect, terms: AccountTerms, part: str, times: int
) -> None:
    """The least of what was charged and of the limit is the most that it can be."""
    ledger = charged(connect(), terms, times)
    spent, limit = (
        getattr(ledger.state("notes").spent, part),
        getattr(terms.limit, part),
    )
    assert ledger.charge_units(_last(ledger), ["p-1"]) == [True]
    impossible = damage(
        "in its units' balances", "one of them is not what a unit can have spent"
    )
    edited = damage("in its units' balances", "one of them was edited, lost or added")
    most, where = min(spent, limit), "WHERE loss > 0"
    for value, expected in ((most, edited), (most + 1, impossible), (-1, impossible)):
        file.execute(f"UPDATE dpicl_unit SET {part} = {value} {where}")
        where = f"WHERE {part} = {value}"
        # A balance that is what it was is no damage.
        if value == most and _is_whole(connect):
            continue
        assert said(lambda: connect().verify("notes")) == expected
    file.execute(f"UPDATE dpicl_unit SET {part} = 0.5 {where}")
    assert said(lambda: connect().verify("notes")) == impossible


def _last(ledger: SQLLedger) -> Any:
    return ledger.charges("notes")[-1].charge


def _is_whole(connect: Connect) -> bool:
    try:
        connect().verify("notes")
    except LedgerError:
        return False
    return True


# -- edits with digests to match -------------------------------------------------------

FORGED = {
    "a sum that is too small": (
        ["UPDATE dpicl_account SET spent_loss = spent_loss - 1"],
        ("at charge 3", "its charges don't add up"),
    ),
    "a sum that is too large": (
        ["UPDATE dpicl_account SET spent_loss = spent_loss + 1"],
        ("at charge 3", "its charges don't add up"),
    ),
    "failures that don't add up": (
        ["UPDATE dpicl_account SET spent_failure = spent_failure + 1"],
        ("at charge 3", "its charges don't add up"),
    ),
    "a charge for less": (
        [
            "UPDATE dpicl_charge SET cost_loss = 0 WHERE sequence = 2",
            (
                "UPDATE dpicl_account SET spent_loss = "
                "(SELECT sum(cost_loss) FROM dpicl_charge)"
            ),
        ],
        ("at charge 2", "it was charged for less than its events cost"),
    ),
    "a negative charge": (
        [
            "UPDATE dpicl_charge SET cost_failure = -1 WHERE sequence = 2",
            (
                "UPDATE dpicl_account SET spent_failure = "
                "(SELECT sum(cost_failure) FROM dpicl_charge)"
            ),
        ],
        ("at charge 2", "it was charged for less than its events cost"),
    ),
    "an earlier time": (
        [
            (
                "UPDATE dpicl_charge SET charged_at = '2001-01-01 00:00:00.000000' "
                "WHERE sequence = 2"
            )
        ],
        ("at charge 2", "it is older than the one before it"),
    ),
    "a sum of nobody": (
        ["UPDATE dpicl_charge SET caller_spent = 1 WHERE sequence = 2"],
        ("at charge 2", "its caller's sum was edited"),
    ),
    "a caller without a sum": (
        ["UPDATE dpicl_charge SET caller = 'eve' WHERE sequence = 3"],
        ("at charge 3", "its caller's sum was edited"),
    ),
}


@pytest.mark.parametrize("edit", FORGED)
@pytest.mark.parametrize("terms", [FILTERED, UNIT_FILTERED])
def test_a_forged_journal_is_named_with_the_rule_it_breaks(
    file: Database, connect: Connect, terms: AccountTerms, edit: str
) -> None:
    charged(connect(), terms)
    edits, where = FORGED[edit]
    rechained(file.url, [])
    connect().verify("notes")
    rechained(file.url, edits)
    for use in (lambda: connect().verify("notes"), lambda: connect().open(terms)):
        assert said(use) == damage(*where)


def test_charges_of_the_same_moment_are_in_order(
    file: Database, connect: Connect
) -> None:
    charged(connect(), FILTERED)
    times = "(SELECT c.charged_at FROM dpicl_charge c WHERE c.sequence = {})"
    rechained(file.url, [f"UPDATE dpicl_charge SET charged_at = {times.format(2)}"])
    connect().verify("notes")


@pytest.mark.parametrize("terms", [PLANNED, FILTERED, UNIT_PLANNED, UNIT_FILTERED])
@pytest.mark.parametrize("over", [0, 1])
def test_an_account_never_holds_more_charges_than_it_pays_for(
    file: Database, connect: Connect, terms: AccountTerms, over: int
) -> None:
    """In a per-unit account the limit is each unit's, and charges go on."""
    charged(connect(), terms, 1)
    limit = terms.limit
    if terms.queries is None:
        edits = [
            (
                f"UPDATE dpicl_charge SET cost_loss = {limit.loss + over}, "
                f"cost_failure = {limit.failure}"
            )
        ]
    else:
        edits = [
            "INSERT INTO dpicl_charge (account_id, sequence, events, cost_loss, "
            f"cost_failure, charged_at, digest) SELECT account_id, {n}, events, 1, 0, "
            "charged_at, '' FROM dpicl_charge WHERE sequence = 1"
            for n in range(2, terms.queries + over + 1)
        ]
    edits.append(
        "UPDATE dpicl_account SET used = (SELECT count(*) FROM dpicl_charge), "
        "spent_loss = (SELECT sum(cost_loss) FROM dpicl_charge), "
        "spent_failure = (SELECT sum(cost_failure) FROM dpicl_charge)"
    )
    rechained(file.url, edits)
    if terms.scope == "unit" or not over:
        connect().verify("notes")
        return
    number = 1 if terms.queries is None else terms.queries + 1
    assert said(lambda: connect().verify("notes")) == damage(
        f"at charge {number}", "more was charged than it has"
    )


@pytest.mark.parametrize(
    ("at", "inside"),
    [
        ("2026-11-30 23:59:59.999999", False),
        ("2026-12-01 00:00:00.000000", True),
        ("2026-12-31 23:59:59.999999", True),
        ("2027-01-01 00:00:00.000000", False),
    ],
)
def test_a_charge_outside_its_period_is_damage(
    file: Database,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    inside: bool,
) -> None:
    clock_for(monkeypatch, "2026-12-10")
    ledger = connect()
    ledger.create_corpus(CLINIC)
    opened_in(ledger)
    pay(ledger)
    name = DECEMBER.name
    rechained(file.url, [f"UPDATE dpicl_charge SET charged_at = '{at}'"], name)
    if inside:
        connect().verify(name)
        return
    assert said(lambda: connect().verify(name)) == damage(
        "at charge 1", "it is not within the account's period", name
    )


def test_the_sums_of_callers_are_each_ones_own(
    file: Database, connect: Connect
) -> None:
    ledger = opened(connect(), FILTERED)
    bob = CallerLimit(Allowance("bob", 1.0), 2**40)
    for within in (ALICE, None, bob, ALICE, bob):
        ledger.charge("notes", NOISY, within=within)
    connect().verify("notes")
    loss = _last(ledger).cost.loss
    kept = [row.charge.caller_spent for row in ledger.charges("notes")]
    assert kept == [loss, None, loss, 2 * loss, 2 * loss]
    for sequence in (1, 3, 4, 5):
        for off in (-1, 1):
            rechained(
                file.url,
                [
                    (
                        f"UPDATE dpicl_charge SET caller_spent = caller_spent + {off} "
                        f"WHERE sequence = {sequence}"
                    )
                ],
            )
            assert said(lambda: connect().verify("notes")) == damage(
                f"at charge {sequence}", "its caller's sum was edited"
            )
            rechained(
                file.url,
                [
                    (
                        f"UPDATE dpicl_charge SET caller_spent = caller_spent - {off} "
                        f"WHERE sequence = {sequence}"
                    )
                ],
            )
    connect().verify("notes")


def test_what_a_caller_has_spent_is_between_nothing_and_all(
    file: Database, connect: Connect
) -> None:
    ledger = opened(connect(), FILTERED)
    ledger.charge("notes", NOISY, within=ALICE)
    spent = ledger.charge("notes", NOISY).spent
    assert spent is not None
    for value, whole in ((0, True), (spent.loss, True), (spent.loss + 1, False)):
        file.execute(
            f"UPDATE dpicl_charge SET caller_spent = {value} WHERE sequence = 1"
        )
        if whole:
            assert ledger.caller_spent("notes", "alice") == value
            continue
        assert said(lambda: ledger.caller_spent("notes", "alice")) == damage(
            "in its callers' sums", "one of them is not what a caller can have spent"
        )


# -- what is rounded, and what is read once --------------------------------------------


@pytest.mark.parametrize(
    ("needed", "charged_for", "paid"),
    [
        (0, 0, True),
        (0, -1, False),
        (1, 0, True),
        (2, 0, False),
        (5, 4, True),
        (5, 3, False),
        (5, 9, True),
        (10**9 - 1, 10**9 - 2, True),
        (10**9 - 1, 10**9 - 3, False),
        (10**9, 10**9 - 2, True),
        (10**9, 10**9 - 3, False),
        (3 * 10**9, 3 * 10**9 - 4, True),
        (3 * 10**9, 3 * 10**9 - 5, False),
    ],
)
@pytest.mark.parametrize("part", ["loss", "failure"])
def test_a_charge_may_be_a_rounding_less_than_its_events_cost(
    needed: int, charged_for: int, paid: bool, part: str
) -> None:
    cost = Cost(3, 3)._replace(**{part: needed})
    stored = Cost(3, 3)._replace(**{part: charged_for})
    state: Any = rows.AccountState(FILTERED, None, 1, closed=False)
    if paid:
        verification._require_paid(state, "at charge 1", cost, stored)
        return
    assert said(
        lambda: verification._require_paid(state, "at charge 1", cost, stored)
    ) == damage("at charge 1", "it was charged for less than its events cost")


def test_the_cost_of_the_same_events_is_computed_once(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(connect(), FILTERED)
    others = [(Gaussian(40.0 + n), Failure(1e-9)) for n in range(3)]
    for events in (NOISY, *others, NOISY, NOISY, *others):
        ledger.charge("notes", events)
    asked: list[Any] = []
    cost = verification._cost

    def counting(state: Any, stored: str) -> Cost:
        asked.append(stored)
        return cost(state, stored)

    monkeypatch.setattr(verification, "_cost", counting)
    connect().verify("notes")
    assert len(asked) == len(set(asked)) == 4
    asked.clear()
    monkeypatch.setattr(verification, "_KEPT_COSTS", 1)
    connect().verify("notes")
    first = json.loads(asked[0])[0]["noise_multiplier"]
    assert (first, len(asked)) == (4.0, 7)


def test_events_that_cost_nothing_are_charged_nothing(connect: Connect) -> None:
    ledger = opened(connect(), FILTERED)
    for _ in range(3):
        ledger.charge("notes", (Failure(0.0),))
    assert connect().verify("notes").spent == (0, 0)


# -- the list of accounts --------------------------------------------------------------


@pytest.mark.parametrize("off", [-1, 1])
def test_the_number_of_accounts_is_part_of_their_list(
    file: Database, connect: Connect, off: int
) -> None:
    ledger = connect()
    for name in "abc":
        ledger.open(replace(PLANNED, name=name))
    assert file.execute("SELECT accounts FROM dpicl_registry") == [(3,)]
    file.execute(f"UPDATE dpicl_registry SET accounts = accounts + {off}")
    assert said(connect().verify_accounts).startswith(
        "The ledger's accounts are not those that were opened in it: one of them was "
    )
    file.execute(f"UPDATE dpicl_registry SET accounts = accounts - {off}")
    connect().verify_accounts()
    file.execute("UPDATE dpicl_registry SET head = 'aa'")
    assert "not those that were opened" in said(connect().verify_accounts)


def test_an_account_whose_corpus_is_gone_is_not_whole(
    file: Database, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_for(monkeypatch, "2026-12-10")
    ledger = connect()
    ledger.create_corpus(CLINIC)
    opened_in(ledger)
    file.execute("UPDATE dpicl_corpus SET window_days = 366")
    assert said(lambda: connect().verify(DECEMBER.name)) == (
        "Corpus 'clinic' is damaged: its cap, its window, its unit or its last time "
        "was edited. Nothing is opened in it and nothing is charged. Restore the "
        "ledger."
    )
    file.execute("DELETE FROM dpicl_corpus")
    assert "holds no corpus 'clinic'" in said(lambda: connect().verify(DECEMBER.name))
