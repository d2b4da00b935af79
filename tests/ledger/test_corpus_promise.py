"""Whatever is opened, charged and closed: within any window nobody loses more.

The check knows nothing of how accounts are counted. It looks at the charges alone: for
every window, the accounts that were charged in it, with all that each of them may
release, are within the cap.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpora import PATIENTS, Clock, clock_for

from langchain_dpicl.errors import DPError
from langchain_dpicl.ledger import AccountTerms, CorpusTerms, MemoryLedger
from langchain_dpicl.ledger import clock as ledger_clock
from langchain_dpicl.ledger.corpus import CorpusState

WINDOW = 5
CAP = CorpusTerms("few", "patient", epsilon=3, delta=3e-6, window_days=WINDOW)
Action = tuple[str, int, float]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 4), st.sampled_from([1.0, 2.0, 3.0])),
        st.tuples(st.just("charge"), st.integers(0, 8), st.just(0.0)),
        st.tuples(st.just("charge"), st.integers(0, 8), st.just(0.0)),
        st.tuples(st.just("close"), st.integers(0, 8), st.just(0.0)),
        st.tuples(st.just("wait"), st.integers(-3, 9), st.sampled_from([0.0, 0.5])),
    ),
    max_size=60,
)


class BrokenPromiseError(AssertionError):
    """The promise was not kept."""


def play(actions: list[Action], clock: Clock, window: int | None = WINDOW) -> int:
    """Do what can be done, check the promise; return the number of charges."""
    ledger = MemoryLedger()
    clock.set("2026-12-10")
    ledger.create_corpus(replace(CAP, window_days=window))
    charged: list[tuple[Any, AccountTerms]] = []
    for action, number, amount in actions:
        names = ledger.accounts()
        name = names[number % len(names)] if names else ""
        try:
            if action == "wait":
                clock.wait(days=number + amount)
            elif action == "open":
                _open(ledger, clock, number, amount)
            elif action == "close":
                ledger.close_account(name)
            else:
                ledger.charge(name)
                at = ledger.charges(name)[-1].at
                charged.append((at, ledger.state(name).terms))
        except DPError:
            continue
    _check(charged, window)
    return len(charged)


def _open(ledger: MemoryLedger, clock: Clock, days: int, amount: float) -> None:
    first = clock.now.date()
    last = first + timedelta(days=days - 1)
    name = f"account {len(ledger.accounts()):04d}"
    period = f"{first}/{last}" if days else None
    ledger.open(
        AccountTerms(name, amount, amount / 1e6, 9, corpus="few", period=period)
    )
    ledger.fix_plan(name, PATIENTS)


def _check(charged: list[tuple[Any, AccountTerms]], window: int | None) -> None:
    times = [at for at, _ in charged]
    if times != sorted(times):
        raise BrokenPromiseError("a later charge has an earlier time")
    for start in times:
        end = None if window is None else start + timedelta(days=window)
        within = {
            terms for at, terms in charged if at >= start and (end is None or at <= end)
        }
        lost = sum(Fraction(repr(terms.epsilon)) for terms in within)
        if lost > CAP.epsilon:
            raise BrokenPromiseError(f"epsilon {float(lost)} within {window} days")


@pytest.fixture(scope="module")
def clock() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield clock_for(patch, "2026-12-10")


@settings(max_examples=400, deadline=None)
@given(ACTIONS, st.sampled_from([WINDOW, None]))
def test_nobody_loses_more_than_the_cap_within_any_window(
    actions: list[Action], window: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        play(actions, clock_for(patch, "2026-12-10"), window)


def many() -> list[list[Action]]:
    """Return the same histories for every test, in which much happens."""
    draws = random.Random(5)
    kinds = ["open", "open", "charge", "charge", "charge", "charge", "close", "wait"]
    return [
        [
            (kind, draws.randint(-3, 9) if kind == "wait" else draws.randint(0, 4), 1.0)
            for kind in draws.choices(kinds, k=80)
        ]
        for _ in range(300)
    ]


def test_many_accounts_are_charged_and_the_promise_is_kept(clock: Clock) -> None:
    assert sum(play(actions, clock) for actions in many()) > 2000


def forget_closed(patch: pytest.MonkeyPatch) -> None:
    right = CorpusState._counts
    patch.setattr(
        CorpusState, "_counts", lambda self, one: not one.closed and right(self, one)
    )


def forget_ended(patch: pytest.MonkeyPatch) -> None:
    right = CorpusState._counts

    def counts(self: CorpusState, one: Any) -> bool:
        is_over = one.terms.span is not None and one.terms.span.end <= self.at
        return not is_over and right(self, one)

    patch.setattr(CorpusState, "_counts", counts)


def look_at_openings_alone(patch: pytest.MonkeyPatch) -> None:
    """Accounts that are open at the same time all find room, and then are charged."""
    right = CorpusState.require_room

    def require_room(self: CorpusState, terms: AccountTerms) -> None:
        if terms.name not in {one.terms.name for one in self.accounts}:
            right(self, terms)

    patch.setattr(CorpusState, "require_room", require_room)


def forget_the_time(patch: pytest.MonkeyPatch) -> None:
    def corpus(self: MemoryLedger, name: str) -> CorpusState:
        held = (one for one in self._accounts.values() if one.terms.corpus == name)
        now = ledger_clock.database_time()
        return CorpusState(self._corpora[name][0], now, tuple(held))

    patch.setattr(MemoryLedger, "_corpus", corpus)


@pytest.mark.parametrize(
    "twin", [forget_closed, forget_ended, look_at_openings_alone, forget_the_time]
)
def test_twin_what_counts_too_little_is_found(clock: Clock, twin: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(BrokenPromiseError):
        twin(patch)
        for actions in many():
            play(actions, clock)
