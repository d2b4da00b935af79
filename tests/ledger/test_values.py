"""The values that go in and out of a ledger: what they hold, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from datetime import datetime, timezone
from typing import Any

import pytest
from support.corpora import CLINIC, DECEMBER
from support.ledgers import FILTERED, NOISY, PLAN, PLANNED, UNIT_PLANNED

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import LedgerError, PlanMismatchError
from langchain_dpicl.ledger import (
    AccountTerms,
    Allowance,
    Charge,
    CorpusState,
    Ledger,
    MemoryLedger,
    Plan,
    parse_period,
)
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.base import (
    AccountState,
    ChargeRecord,
    UnitBalance,
    differences,
)
from langchain_dpicl.ledger.release_store import ReleaseStore, StoredRelease

AT = datetime(2026, 12, 10, tzinfo=timezone.utc)
STATE = AccountState(PLANNED, None, 0, closed=False)
VALUES: list[Any] = [
    *(PLANNED, PLAN, STATE, Charge("notes", 1, NOISY), CLINIC, parse_period("2026")),
    ChargeRecord(Charge("notes", 1, NOISY), AT),
    UnitBalance("00", Cost(1, 0)),
    Allowance("alice", 1.0),
    CallerLimit(Allowance("alice", 1.0), 3),
    CorpusState(CLINIC, AT),
    StoredRelease(1, "kind", "header"),
]
LEDGER = {
    *("open", "create_corpus", "corpora", "corpus", "bind_salt", "fix_plan", "charge"),
    *("charge_units", "state", "close_account", "verify", "accounts", "charges"),
    *("unit_balances", "unit_tag"),
}
STORE = {"start_release", "store_step", "releases"}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_what_it_was(value: Any) -> None:
    """What was checked must not be changed behind the check."""
    for name in [field.name for field in fields(value)]:
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, getattr(value, name))


@pytest.mark.parametrize("name", sorted(LEDGER | STORE))
def test_a_ledger_without_one_of_its_promises_is_none(name: str) -> None:
    inherited = (STORE if name in STORE else LEDGER) - {name}
    base: type[Any] = ReleaseStore if name in STORE else Ledger
    given = {
        one: getattr(MemoryLedger, one)
        for one in inherited | (STORE if base is Ledger else set())
    }
    with pytest.raises(TypeError, match=rf"abstract method '?{name}\b"):
        type("Partial", (base,), given)()
    type("Whole", (base,), {**given, name: getattr(MemoryLedger, name)})()


def test_what_differs_is_said_with_what_is_stored() -> None:
    given = replace(PLANNED, epsilon=9.0, queries=None, scope="unit")
    said = "epsilon is 8.0, not 9.0; queries is 5, not None; scope is corpus, not unit"
    assert differences(given, PLANNED) == said
    assert differences(PLANNED, PLANNED) == ""
    with pytest.raises(PlanMismatchError, match=f"with other terms: {said}. A guar"):
        given.require_same(PLANNED)
    PLANNED.require_same(replace(PLANNED))


def test_a_state_is_the_same_whenever_it_was_read() -> None:
    assert replace(STATE, at=AT) == STATE
    assert replace(STATE, closed_at=AT) != STATE
    charge = Charge("notes", 1, NOISY)
    assert charge == replace(charge, spent=Cost(4, 1))
    assert charge != replace(charge, caller="alice")
    assert (charge.cost, charge.caller, charge.caller_spent) == ((1, 0), None, None)
    assert ChargeRecord(charge, AT).digest == ""
    assert STATE.spent == (0, 0)
    assert STATE.left == 1.0


def test_what_a_unit_has_spent_is_in_no_repr() -> None:
    shown = repr(UnitBalance("5ec3e7", Cost(4321, 1234)))
    assert not [part for part in ("5ec3e7", "4321", "1234") if part in shown]


@pytest.mark.parametrize(
    ("terms", "limit"),
    [
        (PLANNED, Cost(5, 0)),
        (UNIT_PLANNED, Cost(2, 0)),
        (replace(PLANNED, queries=1), Cost(1, 0)),
        (replace(PLANNED, queries=None), Cost(0, 0)),
    ],
)
def test_the_limit_of_a_plan_is_its_queries(terms: AccountTerms, limit: Cost) -> None:
    assert (terms.limit, terms.filter) == (limit, None)
    assert terms.cost(PLAN.events, PLAN) == (1, 0)


@pytest.mark.parametrize("accounting", ["zcdp", "gdp", "renyi", "pure"])
def test_a_filter_has_the_limit_and_the_costs_of_its_kind(accounting: str) -> None:
    from langchain_dpicl.accounting import (
        Exponential,
        Failure,
        Gaussian,
        PrivacyFilter,
    )

    order = 5.5 if accounting == "renyi" else None
    terms = replace(FILTERED, accounting=accounting, order=order)
    expected = PrivacyFilter(
        accounting,  # type: ignore[arg-type] # one of them
        8.0,
        1e-6,
        delta0_share=0.25,
        order=order,
    )
    noise = Exponential(0.5) if accounting == "pure" else Gaussian(4.0)
    events = (noise, Failure(1e-9))
    assert terms.limit == expected.limit
    assert terms.cost(events, None) == expected.cost(events)
    ledger = MemoryLedger()
    ledger.open(terms)
    assert ledger.charge("notes", events).cost == expected.cost(events)
    if accounting == "pure":
        with pytest.raises(LedgerError, match=r"can't add up these events \("):
            ledger.charge("notes", (Gaussian(4.0),))


ODD_PLANS: list[Any] = [
    *(None, 3, [], "x", {}, {"events": []}, {"template": {}}),
    {"template": {}, "events": None},
    {"template": {}, "events": [{"kind": "cauchy"}]},
    {"template": {}, "events": [None]},
]


@pytest.mark.parametrize("value", ODD_PLANS, ids=str)
def test_a_plan_that_this_version_does_not_know_is_refused(value: Any) -> None:
    with pytest.raises(LedgerError, match=r"another version or damaged \(.+\)\. Noth"):
        Plan.from_dict(value)


@pytest.mark.parametrize("template", [None, [], "x", 3])
def test_a_plan_with_another_template_is_damaged(template: Any) -> None:
    with pytest.raises(LedgerError, match="plan can't be read: it is damaged"):
        Plan.from_dict({"template": template, "events": []})


def test_a_plan_is_read_as_it_was_written() -> None:
    assert Plan.from_dict(PLAN.to_dict()) == PLAN
    assert Plan.from_dict({"template": {}, "events": []}) == Plan({}, ())


@pytest.mark.parametrize(
    "tamper",
    [
        lambda ledger: ledger._journal["notes"].pop(),
        lambda ledger: ledger._journal["notes"].append(ledger._journal["notes"][0]),
        lambda ledger: ledger._accounts.update(
            notes=replace(ledger._accounts["notes"], used=3)
        ),
        lambda ledger: ledger._accounts.update(
            notes=replace(ledger._accounts["notes"], spent=Cost(1, 0))
        ),
        lambda ledger: ledger._accounts.update(
            notes=replace(ledger._accounts["notes"], spent=Cost(2, 1))
        ),
    ],
)
def test_charges_in_memory_that_do_not_add_up_are_damage(
    tamper: Callable[[Any], object],
) -> None:
    ledger = MemoryLedger()
    ledger.open(PLANNED)
    ledger.fix_plan("notes", PLAN)
    for _ in range(2):
        ledger.charge("notes")
    assert ledger.verify("notes").spent == (2, 0)
    tamper(ledger)
    with pytest.raises(LedgerError, match="'notes' is damaged: its charges don't add"):
        ledger.verify("notes")


def test_every_use_of_a_ledger_in_memory_is_refused_after_a_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = MemoryLedger()
    ledger.open(UNIT_PLANNED)
    ledger.fix_plan("notes", PLAN)
    charge = ledger.charge("notes")
    uses: list[Callable[[], object]] = [
        lambda: ledger.open(UNIT_PLANNED),
        lambda: ledger.create_corpus(CLINIC),
        ledger.corpora,
        lambda: ledger.corpus("clinic"),
        ledger.accounts,
        lambda: ledger.open(DECEMBER),
        lambda: ledger.fix_plan("notes", PLAN),
        lambda: ledger.charge("notes"),
        lambda: ledger.charge_units(charge, ["p-1"]),
        lambda: ledger.state("notes"),
        lambda: ledger.releases("notes"),
        lambda: ledger.start_release("notes", 1, "kind", "header"),
        lambda: ledger.store_step("notes", 1, 0, "drawn"),
        lambda: ledger.charges("notes"),
        lambda: ledger.caller_spent("notes", "alice"),
        lambda: list(ledger.unit_balances("notes")),
        lambda: ledger.unit_tag("notes", "p-1"),
        lambda: ledger.bind_salt("notes", "aa"),
        lambda: ledger.close_account("notes"),
        lambda: ledger.verify("notes"),
    ]
    with monkeypatch.context() as patched:
        patched.setattr("os.getpid", lambda: -1)
        for use in uses:
            with pytest.raises(LedgerError, match="does not survive a fork"):
                use()
    assert ledger.verify("notes").used == 1
