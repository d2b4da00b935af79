"""What is bought is drawn once, stored before it is shown, and given again by key."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
    PrivacyBudgetHandler,
    accounting,
)
from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.budget import charges, last

VOTE = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
OTHER = Charge(name="another", parts=(Gaussian(noise_multiplier=9.0),))


def opened(ledger: Any = ":memory:", **terms: Any) -> PrivacyBudgetHandler:
    terms = {"epsilon": 8, "delta": 1e-6, "queries": 20, **terms}
    return PrivacyBudgetHandler(ledger=ledger, **terms)


def test_a_draw_is_given_again_under_its_key_alone() -> None:
    budget = opened()
    with budget.buy(VOTE, key="q", header={"parser": "vote"}) as paid:
        assert paid.events == budget.quote(VOTE)
        assert (paid.is_again, paid.steps, paid.collect) == (False, (), None)
        assert paid.once(lambda: [1, 2]) == [1, 2]
        with pytest.raises(LedgerError, match="charge 1 of account 'default'"):
            paid.once(lambda: [3])
    again = budget.buy(VOTE, key="q")
    assert (again.is_again, again.charge, again.header) == (True, 1, {"parser": "vote"})
    assert again.once(lambda: [3]) == [1, 2]
    assert budget.buy(VOTE, key="Q").charge == 2
    assert budget.buy(VOTE).charge == 3
    assert budget.buy(VOTE).charge == 4


def test_a_key_has_one_release_and_its_events() -> None:
    budget = opened(accounting="renyi")
    with budget.buy(VOTE, key="q") as paid:
        paid.once(lambda: 1)
    again = budget.buy(OTHER, key="q")
    assert (again.is_again, again.events) == (True, paid.events)
    assert budget.spent().queries == 1


def test_an_answer_that_is_not_worth_giving_again_is_charged_anew() -> None:
    budget = opened()

    def ask(value: str) -> Any:
        with budget.buy(VOTE, key="q", again=lambda v: v[0] != "failed") as paid:
            return paid.once(lambda: value)

    assert [ask(v) for v in ("failed", "failed", "fine", "x")] == [
        "failed",
        "failed",
        "fine",
        "fine",
    ]
    assert budget.spent().queries == 3
    assert budget.buy(VOTE, key="q", anew=True).once(lambda: "new") == "new"
    assert budget.buy(VOTE, key="q").once(lambda: "x") == "new"


def test_what_is_worded_is_given_again_until_it_is_forgotten() -> None:
    budget = opened()
    assert last(budget.ledger, "default", "q") is None
    for key in ("q", "r"):
        with budget.buy(VOTE, key=key) as paid:
            paid.once(lambda: "drawn")
            assert paid.keep_note("worded") == "worded"
            assert paid.keep_note("worded otherwise") == "worded"
    again = budget.buy(VOTE, key="q")
    assert (again.steps, again.note) == (("drawn",), "worded")
    assert again.keep_note("too late") == "worded"
    assert budget.forget() == 2
    assert last(budget.ledger, "default", "q") is None
    assert budget.forget() == 0
    assert budget.buy(VOTE, key="q").once(lambda: "new") == "new"
    assert [c.values for c in charges(budget.ledger, "default")] == [
        ("drawn",),
        ("drawn",),
        ("new",),
    ]
    budget.ledger.verify()


def test_nothing_is_worded_before_it_is_drawn() -> None:
    paid = opened().buy(VOTE, key="q")
    with pytest.raises(LedgerError, match="not drawn"):
        paid.keep_note("a word")


ODD: list[Any] = [
    None,
    True,
    0,
    -(10**40),
    "\x00 NUL, \ud800 alone, \U0001f600, 'quotes', ; -- and a\nline",
    "x" * 10**6,
    list(range(10_000)),
    {"a": {"b": [None, 1.5, float("inf")]}, "": ""},
]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_what_is_drawn_is_stored_whatever_it_is(tmp_path: Path, value: Any) -> None:
    budget = opened(f"sqlite:///{tmp_path}/ledger.db")
    key = "\ud800 \x00 a key"
    with budget.buy(VOTE, key=key) as paid:
        assert paid.once(lambda: value) == value
        paid.keep_note(value)
    again = budget.buy(VOTE, key=key)
    assert (again.once(lambda: "a second draw"), again.note) == (value, value)
    budget.ledger.verify()


def test_what_fails_in_the_draw_is_charged_anew() -> None:
    budget = opened()
    for number, broken in enumerate((lambda: 1 / 0, object, lambda: {1: object()}), 1):
        with pytest.raises((ZeroDivisionError, TypeError)):
            budget.buy(VOTE, key="q").once(broken)
        assert budget.spent().queries == number
    assert budget.buy(VOTE, key="q").once(lambda: "fine") == "fine"
    assert budget.spent().queries == 4


STEPS: Any = {"steps": 4, "resumable": True}


def test_several_steps_go_on_under_their_charge() -> None:
    budget = opened()
    with budget.buy(VOTE, key="text", **STEPS) as paid:
        assert [paid.once(lambda w=word: w) for word in "ab"] == ["a", "b"]
        with pytest.raises(KeyboardInterrupt):
            paid.once(interrupt)
    with budget.buy(VOTE, key="text", **STEPS) as paid:
        assert (paid.charge, paid.steps, paid.is_again) == (1, ("a", "b"), False)
        assert [paid.once(lambda w=word: w) for word in "xxcd"] == list("abcd")
    again = budget.buy(VOTE, key="text", **STEPS)
    assert (again.is_again, again.steps) == (True, tuple("abcd"))
    assert budget.spent().queries == 1


def test_steps_that_are_not_needed_are_not_drawn() -> None:
    budget = opened()
    with budget.buy(VOTE, key="text", steps=9) as paid:
        paid.once(lambda: "a")
        paid.finish()
        with pytest.raises(LedgerError, match="Nothing is left"):
            paid.once(lambda: "b")
    again = budget.buy(VOTE, key="text", steps=9)
    assert (again.is_again, again.steps) == (True, ("a",))
    again.finish()


def interrupt() -> Any:
    raise KeyboardInterrupt


def test_an_interrupt_in_the_draw_gives_up_at_once() -> None:
    budget = opened()
    with ThreadPoolExecutor(1) as pool:
        paid = budget.buy(VOTE, key="q")
        waiter = pool.submit(lambda: budget.buy(VOTE, key="q").once(lambda: "waiter's"))
        time.sleep(0.05)
        assert not waiter.done()
        with pytest.raises(KeyboardInterrupt):
            paid.once(interrupt)
        assert waiter.result(10) == "waiter's"
    assert [c.values for c in charges(budget.ledger, "default")] == [(), ("waiter's",)]


def test_an_owner_that_is_dropped_holds_up_nobody() -> None:
    budget = opened()
    budget.buy(VOTE, key="q")  # Nobody keeps it.
    assert budget.buy(VOTE, key="q").charge == 2


def test_one_asking_pays_for_a_last_query_and_the_others_get_it() -> None:
    budget = opened(queries=1)
    barrier, draws = threading.Barrier(6), []

    def ask(_thread: int) -> Any:
        barrier.wait()
        with budget.buy(VOTE, key="q") as paid:
            return paid.once(lambda: draws.append(1) or time.sleep(0.2) or len(draws))

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(ask, range(6))) == {1}
    with pytest.raises(BudgetExhaustedError, match="1"):
        budget.buy(VOTE, key="another")
    assert budget.buy(VOTE, key="q").once(lambda: 0) == 1


@pytest.mark.parametrize(
    "asked", [None, "vote", Gaussian(noise_multiplier=1.0), VOTE.parts]
)
def test_what_is_no_charge_is_refused(asked: Any) -> None:
    budget = opened()
    for ask in (budget.buy, budget.quote, budget.require_payable):
        with pytest.raises(InvalidParameterError, match=r"pays for a Charge"):
            ask(asked)
    assert budget.spent().queries == 0


@pytest.mark.parametrize("terms", [{"steps": 0}, {"steps": 1.5}, {"unit_key": 3}])
def test_terms_that_make_no_sense_are_refused(terms: Any) -> None:
    budget = opened()
    with pytest.raises(InvalidParameterError):
        budget.buy(VOTE, **terms)
    assert budget.spent().queries == 0


def test_an_account_protects_one_kind_of_unit() -> None:
    budget = opened(accounting="renyi")
    budget.buy(OTHER, unit_key="patient").leave()
    for other in (None, "visit"):
        with pytest.raises(PlanMismatchError, match="units named by 'patient', and"):
            budget.buy(OTHER, unit_key=other)
    assert budget.spent().queries == 1


def test_a_planned_account_refuses_other_releases_and_says_what_it_pays() -> None:
    budget = opened()
    budget.buy(VOTE).leave()
    with pytest.raises(PlanMismatchError, match="each of its queries spends Gaussian"):
        budget.buy(OTHER)
    # The same events by another name are the same release.
    same = Charge(name="the same", parts=budget.quote(VOTE))
    assert budget.buy(same).charge == 2
    assert budget.buy(VOTE.model_copy(update={"name": "esa"})).charge == 3
    assert accounting.compose(accounting.merge(same.parts, 20), 1e-6) <= 8
