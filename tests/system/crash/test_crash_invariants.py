"""Each invariant of the crash tests fails where it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.crash import accounts, invariants

from langchain_dpicl.accounting import Cost, Gaussian
from langchain_dpicl.ledger import MemoryLedger

Said = list[dict[str, Any]]
MIX = accounts.MIXES["zcdp"][0]


def service(kind: str, times: int = 4) -> tuple[MemoryLedger, Said]:
    """Charge an account and announce every charge, without any crash."""
    ledger, name, said = MemoryLedger(), f"{kind}-0", []
    accounts.open_account(ledger, name)
    for turn in range(times):
        mix = accounts.MIXES[kind][turn % len(accounts.MIXES[kind])]
        charge = ledger.charge(name, mix)
        what: dict[str, Any] = {
            "account": name,
            "sequence": charge.sequence,
            "events": accounts.as_announced(charge.events),
        }
        if kind == "unit":
            paid = ledger.charge_units(charge, accounts.UNITS)
            pairs = zip(accounts.UNITS, paid, strict=True)
            what["paid"] = [unit for unit, did in pairs if did]
        if turn == 1:
            ledger.start_release(name, charge.sequence, accounts.RELEASES, "{}")
            what["steps"] = [ledger.store_step(name, charge.sequence, 0, "17")]
        said.append(what)
    return ledger, said


def check(ledger: MemoryLedger, said: Said, interruptions: int = 0) -> None:
    for name in ledger.accounts():
        answers, journal = invariants.answers(said)[name], ledger.charges(name)
        invariants.nobody_was_alarmed(said)
        invariants.journal_is_whole(journal)
        invariants.every_answer_is_charged(answers, journal)
        invariants.budget_is_kept(ledger, name, journal)
        if accounts.kind_of(name) == "unit":
            invariants.units_are_kept(ledger, name, answers, journal, interruptions)
        invariants.few_are_lost(len(answers), len(journal), interruptions)
    invariants.steps_are_kept(said, ledger)


def again(ledger: MemoryLedger, said: Said) -> None:
    said.append(said[-1])


def uncharged(ledger: MemoryLedger, said: Said) -> None:
    said.append({**said[-1], "sequence": 5})


def for_other_events(ledger: MemoryLedger, said: Said) -> None:
    said[1]["events"] = accounts.as_announced((Gaussian(77.0),))


def damaged(ledger: MemoryLedger, said: Said) -> None:
    said.append({"error": "Account 'plan-0' is damaged."})


def gap(ledger: MemoryLedger, said: Said) -> None:
    del _journal(ledger)[1], said[1]


def backwards(ledger: MemoryLedger, said: Said) -> None:
    last = _journal(ledger)[-1]
    _journal(ledger)[-1] = replace(last, at=last.at - timedelta(hours=1))


def miscounted(ledger: MemoryLedger, said: Said) -> None:
    name = ledger.accounts()[0]
    ledger._accounts[name] = replace(ledger._accounts[name], used=3)


def for_nothing(ledger: MemoryLedger, said: Said) -> None:
    said.pop()


def drawn_again(ledger: MemoryLedger, said: Said) -> None:
    said[1]["steps"] = ["18"]


def overspent(ledger: MemoryLedger, said: Said) -> None:
    """As if two had read the same balance, many times."""
    name = ledger.accounts()[0]
    for _ in range(2 * accounts.USES):
        state = ledger._accounts[name]
        ledger._accounts[name] = replace(state, spent=Cost(0, 0), used=0)
        charge = ledger.charge(name, state.plan.events if state.plan else MIX)
        sequence = state.used + 1
        ledger._accounts[name] = replace(ledger._accounts[name], used=sequence)
        journal = _journal(ledger)
        journal[-1] = replace(journal[-1], charge=replace(charge, sequence=sequence))
        said.append({**said[-1], "sequence": sequence, "events": _events(charge)})


def units_overspent(ledger: MemoryLedger, said: Said) -> None:
    name = ledger.accounts()[0]
    for _ in range(2 * accounts.USES):
        charge = ledger.charge(name, MIX)
        said.append(
            {
                "account": name,
                "sequence": charge.sequence,
                "events": _events(charge),
                "paid": list(accounts.UNITS),
            }
        )


def payment_forgotten(ledger: MemoryLedger, said: Said) -> None:
    ledger._balances[ledger.accounts()[0]]._loss[0] -= 1


def paid_for_nothing(ledger: MemoryLedger, said: Said) -> None:
    said[0]["paid"].remove(accounts.UNITS[0])


@pytest.mark.parametrize("kind", accounts.KINDS)
def test_where_nothing_breaks_nothing_fails(kind: str) -> None:
    check(*service(kind))


@pytest.mark.parametrize(
    ("kind", "break_it", "message"),
    [
        ("plan", again, "two answers"),
        ("plan", uncharged, "not in the journal"),
        ("zcdp", for_other_events, "other events"),
        ("plan", damaged, "were told"),
        ("plan", gap, "gaps"),
        ("plan", backwards, "backwards"),
        ("plan", miscounted, "counter"),
        ("plan", drawn_again, "drawn again"),
        ("plan", for_nothing, "charged for nothing"),
        ("plan", overspent, "more queries"),
        ("zcdp", overspent, "was spent of"),
        ("unit", units_overspent, "was spent of"),
        ("unit", payment_forgotten, "forgets"),
        ("unit", paid_for_nothing, "no answer"),
    ],
)
def test_what_breaks_is_seen(
    kind: str, break_it: Callable[[MemoryLedger, Said], None], message: str
) -> None:
    ledger, said = service(kind)
    break_it(ledger, said)
    with pytest.raises(AssertionError, match=message):
        check(ledger, said)


def test_a_crash_may_lose_the_charge_that_was_under_way() -> None:
    ledger, said = service("unit")
    said.pop()
    check(ledger, said, interruptions=1)


@pytest.mark.parametrize("kind", accounts.KINDS)
def test_a_limit_is_reached_and_not_passed(kind: str) -> None:
    ledger, _ = service(kind)
    invariants.limit_is_reached(ledger, f"{kind}-0")


def test_a_limit_that_stays_out_of_reach_is_seen() -> None:
    ledger, _ = service("plan", times=1)
    state = ledger._accounts["plan-0"]
    # As if a crash had eaten half of the budget.
    less = replace(state.terms, queries=accounts.USES // 2)
    ledger._accounts["plan-0"] = replace(state, terms=less)
    with pytest.raises(AssertionError, match="not reached"):
        invariants.limit_is_reached(ledger, "plan-0")


def _journal(ledger: MemoryLedger) -> list[Any]:
    return ledger._journal[ledger.accounts()[0]]


def _events(charge: Any) -> list[dict[str, Any]]:
    return accounts.as_announced(charge.events)
