"""A ledger beside a dictionary that keeps the same promises, step by step.

`History` opens accounts, charges, collects, draws, loses draws, closes and opens the
ledger again, in any order. After every step an account that was touched holds exactly
what the dictionary holds; in the end all do, and the ledger verifies. What the
dictionary refuses the ledger refuses, by the same error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from faces import (
    BudgetExhaustedError,
    Charge,
    CorpusTerms,
    DPError,
    Exponential,
    Failure,
    Gaussian,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
    close,
    open_account,
    open_ledger,
    read,
    verify,
)
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from worlds import UNIT

ORDER, EPSILON, DELTA, SHARE = 8.0, 8.0, 1e-6, 0.25
CAP = CorpusTerms("clinic", UNIT, epsilon=2 * EPSILON, delta=2 * DELTA)
FILTER = {"accounting": "renyi", "order": ORDER, "delta0_share": SHARE}
TERMS: dict[str, dict[str, Any]] = {
    "plan": {"queries": 3},
    "filter": FILTER,
    "unit": {"queries": 2, "scope": "unit"},
    **{f"capped {n}": {"queries": 2, "corpus": CAP} for n in (1, 2, 3)},
}
NAMES = st.sampled_from(sorted(TERMS))
PEOPLE = "abcd"
RELEASES: list[tuple[Any, ...]] = [
    (),  # The account chooses the noise.
    (Gaussian(9.0),),
    (Gaussian(2.0), Failure(1e-7)),
    (Exponential(1.5),),
    (Gaussian(0.5),),  # More than any account here has.
]
ASKED = st.tuples(
    st.sampled_from([None] * 9 + RELEASES),  # None: as before.
    st.sampled_from([None, None, "a question", "another"]),
    st.permutations(PEOPLE).map(lambda people: people[:3]),
    st.sampled_from([False, False, True]),  # Whether the draw is lost.
)


def pure(epsilon: float) -> float:
    """Return the divergence of randomized response, at the order."""
    ends = math.exp(ORDER * epsilon) + math.exp((1 - ORDER) * epsilon)
    return math.log(ends / (1 + math.exp(epsilon))) / (ORDER - 1)


def cost(events: tuple[Any, ...]) -> tuple[float, float]:
    """Return a release's share of the filter, by the formulas of the guarantee."""
    limit = EPSILON - math.log(1 - 1 / ORDER)
    limit += (math.log(DELTA * (1 - SHARE)) + math.log(ORDER)) / (ORDER - 1)
    loss = failure = 0.0
    for event in events:
        if isinstance(event, Gaussian):
            loss += ORDER / (2 * event.noise_multiplier**2)
        elif isinstance(event, Exponential):
            loss += min(ORDER * event.epsilon**2 / 8, pure(event.epsilon))
        else:
            failure += event.delta0
    return loss / limit, failure / (DELTA * SHARE)


class Account:
    """What one account has to remember."""

    def __init__(self, name: str) -> None:
        self.name, self.terms, self.closed = name, TERMS[name], False
        self.plan: Any = None
        self.charges: list[tuple[Any, ...]] = []
        self.draws: dict[int, str] = {}
        self.keys: dict[str, int] = {}
        self.paid: Counter[str] = Counter()


class Model(dict[str, Account]):
    """Accounts by name, and why one of them refuses; no reason is a charge."""

    def has_room(self, name: str) -> bool:
        others = (self[n] for n in self if n != name and "corpus" in TERMS[n])
        return "corpus" not in TERMS[name] or sum(bool(o.charges) for o in others) < 2

    def refusals(self, name: str, events: tuple[Any, ...]) -> set[type[DPError] | None]:
        account, found = self[name], set[type[DPError] | None]()
        if account.closed:
            found.add(LedgerError)
        if "accounting" in account.terms and not events:
            return {InvalidParameterError}
        if "accounting" in account.terms:
            shares = [
                sum(s) for s in zip(*map(cost, [*account.charges, events]), strict=True)
            ]
            if max(shares) > 1 - 1e-6:
                found.add(BudgetExhaustedError)
            if 1 - 1e-6 < max(shares) <= 1:
                found.add(None)
            return found
        if account.plan not in (None, events) or events in RELEASES[-1:]:
            found.add(PlanMismatchError)
        elif not account.closed:
            account.plan = events
        is_spent = name != "unit" and len(account.charges) == account.terms["queries"]
        if is_spent or not (account.charges or self.has_room(name)):
            found.add(BudgetExhaustedError)
        return found


class History(RuleBasedStateMachine):
    """Any history of one ledger; a test gives `place`, the URL of an empty one."""

    place: Any = None
    model_class: Any = Model

    def __init__(self) -> None:
        super().__init__()
        self.url = type(self).place()
        self.ledger = open_ledger(self.url)
        self.model, self.accounts = type(self).model_class(), dict[str, Any]()
        self.touched = set[str]()

    @contextmanager
    def expect(self, reasons: set[Any]) -> Iterator[None]:
        try:
            yield
        except DPError as error:
            if type(error) not in reasons:
                raise AssertionError(reasons) from error
        else:
            assert not reasons or None in reasons, reasons

    @rule(name=NAMES, epsilon=st.sampled_from([EPSILON, 7.0]))
    def open(self, name: str, epsilon: float) -> None:
        reasons: set[Any] = set()
        if name in self.model and epsilon != EPSILON:
            reasons = {PlanMismatchError}
        elif name not in self.model and not self.model.has_room(name):
            reasons = {BudgetExhaustedError}
        elif epsilon != EPSILON:
            return
        terms = {**TERMS[name], "epsilon": epsilon}
        with self.expect(reasons):
            self.accounts[name] = open_account(self.ledger, name, **terms)
            self.model.setdefault(name, Account(name))
            self.touched.add(name)

    @rule(name=NAMES, asked=st.lists(ASKED, min_size=1, max_size=4))
    def ask(self, name: str, asked: list[Any]) -> None:
        self.touched.add(name)
        if name not in self.model:
            self.open(name, EPSILON)
        if account := self.model.get(name):
            for events, *rest in asked:
                same = account.plan or RELEASES[1]
                self.ask_once(account, same if events is None else events, *rest)

    def ask_once(
        self, account: Account, events: Any, key: Any, units: Any, is_lost: bool
    ) -> None:
        name = account.name
        if (number := account.keys.get(key)) is not None:
            charge = Charge(self.accounts[name], events, key)
            assert (charge.owns, charge.number) == (False, number)
            assert charge.once(lambda: "a second draw") == account.draws[number]
            return
        with self.expect(self.model.refusals(name, events)):
            charge = Charge(self.accounts[name], events, key)
            account.charges.append(events)
            assert (charge.owns, charge.number) == (True, len(account.charges))
            if name == "unit":
                can_pay = {unit for unit in units if account.paid[unit] < 2}
                assert charge.collect(units) == can_pay
                account.paid.update(can_pay)
            if is_lost:
                charge.give_up()
                return
            number, text = charge.number, f"draw {charge.number} of {name}"
            assert charge.once(lambda: text) == text
            assert charge.once(lambda: "a second draw") == text
            account.draws[number] = text
            if key is not None:
                account.keys[key] = number

    @rule(name=NAMES)
    def close(self, name: str) -> None:
        if name in self.model and self.model[name].charges:
            close(self.accounts[name])
            self.model[name].closed = True
            self.touched.add(name)

    @rule()
    def reopen(self) -> None:
        if self.url != ":memory:":
            self.ledger.dispose()
            self.ledger = open_ledger(self.url, create=False)
        for name in self.model:
            self.accounts[name] = open_account(self.ledger, name, **TERMS[name])

    @invariant()
    def holds_what_the_dictionary_holds(self) -> None:
        for name in self.touched & {*self.model}:
            account = self.model[name]
            book = read(self.accounts[name], *(PEOPLE if name == "unit" else ""))
            assert list(book.charges) == [*range(1, len(account.charges) + 1)]
            assert book.draws == account.draws
            if name == "unit":
                assert book.paid == {unit: account.paid[unit] for unit in PEOPLE}
            else:
                assert all(
                    map(float.__le__, map(float, book.spent), map(float, book.most))
                )
        self.touched.clear()

    def teardown(self) -> None:
        self.touched = {*self.model}
        self.holds_what_the_dictionary_holds()
        verify(self.ledger)
        if self.url != ":memory:":
            self.ledger.dispose()
