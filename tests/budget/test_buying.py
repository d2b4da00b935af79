"""What is bought is drawn once, stored before it is shown, and given again by key.

Races of processes, deaths, and twins stand in the ledger's tests of promises.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl import (
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
    PrivacyBudgetHandler,
    UnsoundStoreError,
    accounting,
)
from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.budget import buying, charges, last
from langchain_dpicl.budget import stored as owners
from langchain_dpicl.ledger.book import Transaction

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
            with pytest.raises(LedgerError, match="not drawn"):
                paid.keep_note("a word")
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


def test_what_can_not_be_stored_is_charged_anew() -> None:
    budget = opened()
    for number, broken in enumerate((object, lambda: {1: object()}), 1):
        with pytest.raises(TypeError):
            budget.buy(VOTE, key="q").once(broken)
        assert budget.spent().queries == number


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


def test_an_owner_that_is_dropped_holds_up_nobody() -> None:
    budget = opened()
    budget.buy(VOTE, key="q")  # Nobody keeps it.
    assert budget.buy(VOTE, key="q").charge == 2


@pytest.mark.parametrize("asked", ["vote", Gaussian(noise_multiplier=1.0), VOTE.parts])
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


# ---- Owners --------------------------------------------------------------------------


def start(url: str, work: str) -> subprocess.Popen[str]:
    """Start a process that has opened the account as `budget`."""
    begin = (
        "import os, sys, time, random\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        f"from test_buying import VOTE, opened\nbudget = opened({url!r})\n"
    )
    command = [sys.executable, "-c", begin + work]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


HANG = 'paid = budget.buy(VOTE, key="q", steps=2, resumable=True)\n'
HANG += 'paid.once(lambda: "first")\n'
HANG += 'print("bought", flush=True)\ntime.sleep(600)\n'


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def test_a_killed_owner_is_replaced(url: str) -> None:
    """Of several draws the stored ones stay; the net has a single draw."""
    budget = opened(url)
    worker = start(url, HANG)
    assert worker.stdout is not None
    worker.stdout.readline()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(budget.buy, VOTE, key="q", steps=2, resumable=True)
        time.sleep(0.3)
        assert not waiter.done()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        paid = waiter.result(10)
    worker.stdout.close()
    assert (paid.charge, paid.steps) == (1, ("first",))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_replaced_owner_shows_and_stores_nothing(steps: int) -> None:
    budget, others = opened(), set(owners._at_work)
    first = budget.buy(VOTE, key="q", steps=steps, resumable=steps > 1)
    (token,) = owners._at_work - others
    owners.end_owner(token)
    second = budget.buy(VOTE, key="q", steps=steps, resumable=steps > 1)
    owners._at_work.add(token)
    with pytest.raises(LedgerError, match="Another owner draws"):
        first.once(lambda: "late")
    assert second.once(lambda: "new") == "new"
    with pytest.raises(LedgerError):
        first.once(lambda: "later")
    stored = charges(budget.ledger, "default")
    assert [c.values for c in stored] == [()] * (2 - steps) + [("new",)]
    budget.ledger.verify()


def test_an_owner_on_another_machine_has_a_public_time() -> None:
    elsewhere = "another:1:1:token"
    assert owners.is_alive(elsewhere, owners.SILENCE - 1)
    assert not owners.is_alive(elsewhere, owners.SILENCE)
    here = owners.owner_name(owners.new_owner())
    assert owners.is_alive(here, 1e9)
    owners.end_owner(here.rpartition(":")[2])
    assert not owners.is_alive(here, 0)
    assert not owners.is_alive("", 0)


def test_a_long_draw_renews_the_entry_of_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = opened()
    with budget.buy(VOTE, key="q") as paid:
        begun = last(budget.ledger, "default", "q")
        paid.renew()
        assert last(budget.ledger, "default", "q") == begun, "it has just bought"
        monkeypatch.setattr(buying, "SILENCE", 0.0)
        paid.renew()
        held = last(budget.ledger, "default", "q")
        assert begun is not None
        assert held is not None
        assert (held.owner, held.last > begun.last) == (begun.owner, True)
        assert paid.once(lambda: "drawn") == "drawn"
    paid.renew()
    budget.ledger.verify()
    assert [c.values for c in charges(budget.ledger, "default")] == [("drawn",)]


@pytest.mark.parametrize("terms", [{}, {"accounting": "renyi"}])
def test_nothing_is_read_after_a_draw(
    terms: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = opened(**terms)
    with budget.buy(VOTE) as paid:
        paid.once(lambda: "drawn")

    def gone(*_: Any, **__: Any) -> Any:
        raise LedgerError("The ledger can't be reached.")

    monkeypatch.setattr(type(budget.ledger), "run", gone)
    state = budget.public_state(paid.stored)
    assert (state["queries_spent"], state["epsilon_spent"] > 0) == (1, True)


def test_waiting_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = opened()
    monkeypatch.setattr(buying, "SILENCE", 0.2)
    with budget.buy(VOTE, key="q") as paid:
        with pytest.raises(LedgerError, match=r"charge 1 .* nothing for 0\.2 sec"):
            budget.buy(VOTE, key="q")
        assert paid.once(lambda: "slow") == "slow"
    assert budget.spent().queries == 1


def test_a_fork_does_not_draw_what_its_parent_has_bought(url: str) -> None:
    budget = opened(url)
    paid = budget.buy(VOTE, key="q")
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        signal.alarm(10)
        try:
            paid.once(lambda: "child's")
        except LedgerError:
            paid.leave()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert paid.once(lambda: "parent's") == "parent's"


# ---- Units ---------------------------------------------------------------------------

UNITS: Any = {"charges_units": True, "unit_key": "patient"}


def ask(budget: PrivacyBudgetHandler, *units: str, key: str | None = None) -> Any:
    """Return who has paid, as a draw that shows it would."""
    with budget.buy(VOTE, key=key, **UNITS) as paid:
        return paid.once(lambda: sorted(paid.collect(units)) if paid.collect else None)


def test_nothing_is_drawn_for_units_that_were_not_asked_to_pay() -> None:
    budget = opened(scope="unit", queries=2)
    with pytest.raises(UnsoundStoreError, match="pass `collect` on"):
        budget.buy(VOTE, **UNITS).once(lambda: "drawn")
    stored = charges(budget.ledger, "default")
    assert [c.values for c in stored] == [()]


def test_a_source_that_swallows_a_failed_payment_releases_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, append = opened(scope="unit", queries=2), Transaction.append

    def full(self: Transaction, book: Any, kind: str, body: Any, **more: Any) -> Any:
        if kind == "units":
            raise LedgerError("The disk is full.")
        return append(self, book, kind, body, **more)

    monkeypatch.setattr(Transaction, "append", full)
    paid = budget.buy(VOTE, **UNITS)

    def swallowing() -> str:
        with suppress(LedgerError):
            paid.collect(["a"])
        return "drawn"

    with pytest.raises(UnsoundStoreError):
        paid.once(swallowing)
    assert [c.values for c in charges(budget.ledger, "default")] == [()]


def test_units_pay_once_for_a_charge() -> None:
    budget = opened(scope="unit", queries=2)

    def twice() -> Any:
        assert paid.collect is not None
        return [sorted(paid.collect(["a"])), sorted(paid.collect(["b"]))]

    with (
        budget.buy(VOTE, **UNITS) as paid,
        pytest.raises(UnsoundStoreError, match="exactly once"),
    ):
        paid.once(twice)
    assert ask(budget, "a", "b") == ["a", "b"]
    assert ask(budget, "a", "b") == ["b"], "a has paid for the draw that was refused"


def test_a_lost_draw_is_charged_anew_and_its_payers_pay_again() -> None:
    budget = opened(scope="unit", queries=2)
    with budget.buy(VOTE, key="q", **UNITS) as paid:
        assert paid.collect is not None
        assert paid.collect(["a"]) == {"a"}
    assert ask(budget, "a", "b", key="q") == ["a", "b"]
    assert ask(budget, "a", "b") == ["b"]
    again = budget.buy(VOTE, key="q", **UNITS)
    assert (again.is_again, again.collect) == (True, None)


def test_who_was_replaced_charges_nobody() -> None:
    budget = opened(scope="unit", queries=2)
    paid = budget.buy(VOTE, key="q", **UNITS)
    paid.leave()
    assert paid.collect is not None
    with pytest.raises(LedgerError, match="Nothing is left to draw here"):
        paid.collect(["a"])
    assert [ask(budget, "a"), ask(budget, "a")] == [["a"], ["a"]]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({}, "can't name the units"),
        ({"charges_units": True, "steps": 2}, "draws several times"),
        ({"charges_units": True, "resumable": True}, "or goes on"),
    ],
)
def test_what_units_cannot_pay_for_is_refused_before_the_charge(
    terms: Any, words: str
) -> None:
    budget = opened(scope="unit", queries=2)
    with pytest.raises(InvalidParameterError, match=words):
        budget.buy(VOTE, **terms)
    assert budget.spent().queries == 0
