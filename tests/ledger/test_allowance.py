"""Allowances in every ledger: charged with the account, never passed, verified."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.ledgers import (
    FILTERED,
    NOISY,
    PLANNED,
    Database,
    opened,
    spend,
)
from support.races import TURNS, WORKERS, kept, race

from langchain_dpicl.errors import (
    AllowanceExhaustedError,
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
)
from langchain_dpicl.ledger import AccountTerms, Allowance, Ledger, SQLLedger
from langchain_dpicl.ledger import memory as memory_ledger
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.base import Ledger as Contract
from langchain_dpicl.ledger.sql import rows

Connect = Callable[[], SQLLedger]

ALICE = CallerLimit(Allowance("alice", 1.0), 2)
BOB = CallerLimit(Allowance("bob", 1.0), 2)
RACED = AccountTerms("notes", 8.0, 1e-6, 1000)
MOST = 20
"""What the raced caller may spend: fewer than the tries of all processes."""


def test_a_caller_is_refused_when_others_are_not(ledger: Ledger) -> None:
    opened(ledger)
    first = ledger.charge("notes", within=ALICE)
    assert (first.caller, first.caller_spent) == ("alice", 1)
    assert ledger.charge("notes").caller is None
    assert ledger.charge("notes", within=ALICE).caller_spent == 2
    before = ledger.state("notes")
    with pytest.raises(AllowanceExhaustedError, match="'alice' in account 'notes'"):
        ledger.charge("notes", within=ALICE)
    assert ledger.state("notes") == before
    assert ledger.charge("notes", within=BOB).caller_spent == 1
    assert ledger.state("notes").used == 4
    spent = [ledger.caller_spent("notes", who) for who in ("alice", "bob", "eve")]
    assert spent == [2, 1, 0]
    assert [r.charge.caller for r in ledger.charges("notes")] == [
        *("alice", None, "alice", "bob")
    ]
    assert ledger.verify("notes").used == 4


def test_an_allowance_is_what_is_passed(ledger: Ledger) -> None:
    opened(ledger)
    for _ in range(2):
        ledger.charge("notes", within=ALICE)
    larger = CallerLimit(Allowance("alice", 2.0), 3)
    assert ledger.charge("notes", within=larger).caller_spent == 3


def test_the_account_still_refuses_by_itself(ledger: Ledger) -> None:
    opened(ledger, AccountTerms("small", 8.0, 1e-6, 1))
    spend(ledger, AccountTerms("small", 8.0, 1e-6, 1))
    with pytest.raises(BudgetExhaustedError) as caught:
        ledger.charge("small", within=ALICE)
    assert not isinstance(caught.value, AllowanceExhaustedError)
    assert ledger.caller_spent("small", "alice") == 0


def test_a_filter_adds_up_losses(ledger: Ledger) -> None:
    opened(ledger, FILTERED)
    found = FILTERED.filter
    assert found is not None
    loss = found.cost(NOISY).loss
    within = CallerLimit(Allowance("alice", 1.0), 3 * loss - 1)
    for times in (1, 2):
        charge = ledger.charge("notes", NOISY, within=within)
        assert charge.caller_spent == times * loss
    with pytest.raises(AllowanceExhaustedError, match="Not enough is left"):
        ledger.charge("notes", NOISY, within=within)
    with pytest.raises(AllowanceExhaustedError, match="more than the whole"):
        ledger.charge("notes", NOISY * 4, within=within)
    assert ledger.verify("notes").used == 2


def test_a_release_starts_with_the_charge_of_a_caller(ledger: Ledger) -> None:
    opened(ledger)
    starts = ("kind", lambda charge: str(charge.caller_spent))
    ledger.charge("notes", starts=starts, within=ALICE)
    assert [r.header for r in ledger.releases("notes", "kind")] == ["1"]
    full = CallerLimit(Allowance("alice", 1.0), 1)
    with pytest.raises(AllowanceExhaustedError):
        ledger.charge("notes", starts=starts, within=full)
    assert len(ledger.releases("notes", "kind")) == ledger.state("notes").used == 1


def test_a_ledger_without_sums_of_its_own_adds_up_its_charges() -> None:
    ledger = memory_ledger.MemoryLedger()
    opened(ledger)
    ledger.charge("notes", within=ALICE)
    spend(ledger)
    assert Contract.caller_spent(ledger, "notes", "alice") == 1


def charge_alice(url: str, _turn: int) -> object:
    try:
        within = CallerLimit(Allowance("alice", 1.0), MOST)
        return kept(url).charge("notes", within=within).caller_spent
    except AllowanceExhaustedError:
        return None


def raced(database: Database, connect: Connect) -> list[object]:
    opened(connect(), RACED)
    return race(charge_alice, database.url)


def test_processes_never_pass_an_allowance(
    database: Database, connect: Connect
) -> None:
    assert WORKERS * TURNS > MOST
    found = raced(database, connect)
    paid = sorted(one for one in found if isinstance(one, int))
    assert paid == list(range(1, MOST + 1))
    assert found.count(None) == WORKERS * TURNS - MOST
    ledger = connect()
    assert ledger.verify("notes").used == MOST
    assert ledger.caller_spent("notes", "alice") == MOST


@pytest.mark.parametrize("terms", [PLANNED, FILTERED], ids=["plan", "filter"])
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE dpicl_charge SET caller = 'eve' WHERE sequence = 2",
        "UPDATE dpicl_charge SET caller = NULL WHERE sequence = 2",
        "UPDATE dpicl_charge SET caller = NULL, caller_spent = NULL WHERE sequence = 2",
        "UPDATE dpicl_charge SET caller_spent = 0 WHERE sequence = 2",
        "UPDATE dpicl_charge SET caller = 'bob', caller_spent = 1 WHERE sequence = 1",
    ],
)
def test_an_edited_caller_is_found(
    database: Database, connect: Connect, terms: AccountTerms, edit: str
) -> None:
    ledger = opened(connect(), terms)
    events = None if terms is PLANNED else NOISY
    spend(ledger, terms)
    ledger.charge("notes", events, within=CallerLimit(ALICE.allowance, 2**40))
    spend(ledger, terms)
    connect().verify("notes")
    database.execute(edit)
    for use in (ledger.verify, connect().charge, lambda _: connect().open(terms)):
        with pytest.raises(LedgerError, match="damaged at charge"):
            use("notes")


@pytest.mark.parametrize("sum_", ["-1", "4", "NULL"])
def test_an_impossible_sum_pays_for_nothing(
    database: Database, connect: Connect, sum_: str
) -> None:
    """Found at once, also by a process that has checked the journal before."""
    ledger = opened(connect())
    ledger.charge("notes", within=ALICE)
    spend(ledger)
    database.execute(
        f"UPDATE dpicl_charge SET caller_spent = {sum_} WHERE sequence = 1"
    )
    with pytest.raises(LedgerError, match="in its callers' sums"):
        ledger.charge("notes", within=ALICE)
    assert ledger.state("notes").used == 2


@pytest.mark.parametrize(
    "caller", ["", " ", "a\nb", "x" * 201, 7, None, b"a", "\ud800"]
)
def test_a_caller_needs_a_name(caller: object) -> None:
    with pytest.raises(InvalidParameterError, match="caller's name"):
        Allowance(caller, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "1", None])
def test_an_allowance_is_a_positive_epsilon(epsilon: object) -> None:
    with pytest.raises(InvalidParameterError, match="epsilon"):
        Allowance("alice", epsilon)  # type: ignore[arg-type]


def test_a_name_has_one_spelling() -> None:
    assert Allowance(" Jose\u0301", 1) == Allowance("Jos\xe9", 1.0)


# -- twins: each is what a ledger would do without one of the rules --------------------


def test_twin_a_ledger_that_forgets_a_sum_passes_an_allowance(
    database: Database, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(connect(), RACED)
    monkeypatch.setattr(rows, "caller_spent", lambda *_: 0)
    monkeypatch.setattr(
        "langchain_dpicl.ledger.sql.postgres_pipeline.spent_of", lambda *_: 0
    )
    for _ in range(3):
        ledger.charge("notes", within=ALICE)
    assert ledger.state("notes").used == 3 > ALICE.most
    with pytest.raises(LedgerError, match="its caller's sum"):
        connect().verify("notes")
