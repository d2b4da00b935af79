"""What must hold after any crash: the worker's announcements against the ledger."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Pure,
)
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.ledger import AccountTerms, Ledger
from langchain_dpicl.ledger.base import ChargeRecord
from support.crash import accounts

_SLACK = 1 + 1e-4
"""What a coarse search for the best order may miss: less than any charge."""

_OUT_OF_REACH = ("can't be used",)


@dataclass(frozen=True)
class Answer:
    """A charge that a worker has announced."""

    account: str
    sequence: int
    events: str
    paid: tuple[str, ...]
    refused: tuple[str, ...]


def answers(announced: Iterable[Mapping[str, Any]]) -> dict[str, list[Answer]]:
    """Return the announced charges of each account."""
    found: dict[str, list[Answer]] = defaultdict(list)
    for said in announced:
        if "sequence" in said:
            answer = Answer(
                said["account"],
                said["sequence"],
                json.dumps(said["events"]),
                tuple(said.get("paid", ())),
                tuple(said.get("refused", ())),
            )
            found[answer.account].append(answer)
    return found


def nobody_was_alarmed(announced: Iterable[Mapping[str, Any]]) -> None:
    """A worker may find the ledger out of reach; nobody may find it damaged."""
    alarms = {
        said["error"]
        for said in announced
        if "error" in said and not any(why in said["error"] for why in _OUT_OF_REACH)
    }
    assert not alarms, f"workers were told: {alarms}"


def nobody_was_refused(announced: Iterable[Mapping[str, Any]]) -> None:
    """A database that is up serves everybody in the end, however many they are."""
    refused = [said["error"] for said in announced if "error" in said]
    assert not refused, f"{len(refused)} charges were refused: {set(refused)}"


def every_answer_is_charged(
    said: Sequence[Answer], journal: Sequence[ChargeRecord]
) -> None:
    """Two answers never share a charge, and each one has its own in the journal."""
    twice = [s for s, n in Counter(a.sequence for a in said).items() if n > 1]
    assert not twice, f"charges {twice} paid for two answers each"
    charged = {
        record.charge.sequence: json.dumps(accounts.as_announced(record.charge.events))
        for record in journal
    }
    lost = sorted(a.sequence for a in said if a.sequence not in charged)
    assert not lost, f"answers {lost} were announced and are not in the journal"
    other = [a.sequence for a in said if charged[a.sequence] != a.events]
    assert not other, f"the journal charges other events than answers {other} had"


def journal_is_whole(journal: Sequence[ChargeRecord]) -> None:
    """No gap, and no step back in time."""
    sequences = [record.charge.sequence for record in journal]
    assert sequences == list(range(1, len(journal) + 1)), "the journal has gaps"
    times = [record.at for record in journal]
    assert times == sorted(times), "the journal's time goes backwards"


def budget_is_kept(ledger: Ledger, name: str, journal: Sequence[ChargeRecord]) -> None:
    """The charges of a whole-corpus account are within what it promised."""
    state = ledger.state(name)
    terms = state.terms
    assert state.used == len(journal), "the counter is not the journal's length"
    if terms.queries is not None:
        assert len(journal) <= terms.queries, "more queries than the account has"
    if terms.accounting == "zcdp" and terms.scope == "corpus":
        _require_within([e for r in journal for e in r.charge.events], terms)


def callers_are_kept(journal: Sequence[ChargeRecord]) -> None:
    """No caller has spent more than its allowance, and no sum forgets a charge."""
    spent: Counter[str] = Counter()
    for record in journal:
        if (caller := record.charge.caller) is not None:
            spent[caller] += record.charge.cost.loss
            assert record.charge.caller_spent == spent[caller], "a sum forgets a charge"
    assert all(one <= accounts.ALLOWED for one in spent.values()), "an allowance passed"


def units_are_kept(
    ledger: Ledger,
    name: str,
    said: Sequence[Answer],
    journal: Sequence[ChargeRecord],
    interruptions: int,
) -> None:
    """No unit pays more than its limit, and none forgets what was announced."""
    terms = ledger.state(name).terms
    prices = {record.charge.sequence: record.charge for record in journal}
    balances = {b.tag: b.spent for b in ledger.unit_balances(name)}
    for unit in accounts.UNITS:
        paid = [prices[answer.sequence] for answer in said if unit in answer.paid]
        _require_within([event for charge in paid for event in charge.events], terms)
        loss = sum(charge.cost.loss for charge in paid)
        failure = sum(charge.cost.failure for charge in paid)
        spent = balances.get(ledger.unit_tag(name, unit), (0, 0))
        assert spent[0] <= terms.limit.loss, "a unit has spent more than its limit"
        assert spent[1] <= terms.limit.failure, "a unit has failed above its limit"
        assert loss <= spent[0], "a unit's balance forgets a payment"
        assert failure <= spent[1], "a unit's balance forgets a payment's delta0"
        # What was paid and never announced: a crash between the two.
        most = max(charge.cost.loss for charge in prices.values())
        assert spent[0] - loss <= interruptions * most, "units pay for no answer"


def steps_are_kept(announced: Iterable[Mapping[str, Any]], ledger: Ledger) -> None:
    """What was drawn and given out is what the ledger says was drawn."""
    stored = {
        (name, release.charge): list(release.steps)
        for name in ledger.accounts()
        for release in ledger.releases(name, accounts.RELEASES)
    }
    lost = [
        (said["account"], said["sequence"])
        for said in announced
        if "steps" in said
        and stored.get((said["account"], said["sequence"])) != said["steps"]
    ]
    assert not lost, f"steps are lost, and could be drawn again: {lost}"


def few_are_lost(announced: int, charged: int, interruptions: int) -> None:
    """A crash loses at most the one charge that was under way."""
    assert charged - announced <= interruptions, (
        f"{charged} charges for {announced} answers, after {interruptions} "
        "interruptions: more were charged for nothing than were interrupted"
    )


def limit_is_reached(ledger: Ledger, name: str) -> None:
    """What a crash has left of the budget can be spent to the end, and no further."""
    kind = accounts.kind_of(name)
    if kind == "unit":
        charge = ledger.charge(name, accounts.MIXES[kind][-1])
        paid = ledger.charge_units(charge, accounts.UNITS)
        assert len(paid) == len(accounts.UNITS)
        return
    events = None if kind == "plan" else accounts.MIXES[kind][-1]
    while True:
        before = ledger.state(name)
        try:
            ledger.charge(name, events)
        except BudgetExhaustedError:
            break
    assert ledger.state(name) == before, "a refusal has changed the account"
    if kind == "plan":
        assert before.used == accounts.USES, "the limit was not reached"
    else:
        cost = before.terms.filter.cost(events or ())  # type: ignore[union-attr]
        left = before.terms.limit.loss - before.spent.loss
        assert 0 <= left < cost.loss, "the limit was not reached"


def _require_within(events: Sequence[Event], terms: AccountTerms) -> None:
    """Check zCDP accounting by formulas of its own, not the library's."""
    share = terms.delta0_share or 0.0
    failures = math.fsum(e.count * e.delta0 for e in events if type(e) is Failure)
    assert failures <= share * terms.delta * _SLACK, "too much of delta was spent"
    rho = math.fsum(
        event.count
        * (
            0.5 / event.noise_multiplier**2
            if isinstance(event, Gaussian)
            else event.epsilon**2 / (8 if isinstance(event, Exponential) else 2)
        )
        for event in events
        if isinstance(event, Gaussian | Exponential | Pure)
    )
    delta = (1 - share) * terms.delta
    # Canonne, Kamath, Steinke 2020, Proposition 12: any order gives a bound.
    spent = min(
        rho * order
        + math.log(1 / (order * delta)) / (order - 1)
        + math.log(1 - 1 / order)
        for order in (1 + 1.005**step for step in range(-400, 1600))
    )
    assert not rho or spent <= terms.epsilon * _SLACK, (
        f"epsilon {spent} was spent of {terms.epsilon}"
    )
