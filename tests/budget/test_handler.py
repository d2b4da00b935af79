"""The account handler: what it promises, refuses and reports."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.callbacks import CallbackManager

from langchain_dpicl import accounting
from langchain_dpicl.accounting import (
    Failure,
    Gaussian,
)
from langchain_dpicl.budget import BudgetState, PrivacyBudgetHandler, find_budget
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms import keyword_joint, keyword_ptr, voting

VOTE = voting.charge(name="vote")
JOINT = keyword_joint.charge()


def handler(
    ledger: str | Ledger = ":memory:", queries: int = 4, account: str = "notes"
) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=queries, ledger=ledger, account=account
    )


def test_spent_grows_to_the_budget_and_no_further() -> None:
    budget = handler()
    assert (budget.spent(), budget.spent().queries) == (0.0, 0)
    seen = []
    for number in range(1, 5):
        paid = budget.charge(VOTE)
        assert paid.sequence == number
        seen.append(budget.spent().epsilon)
    assert seen == sorted(seen)
    assert 7.99 < seen[-1] <= 8
    assert budget.remaining().queries == 0
    assert budget.remaining() < 0.01
    with pytest.raises(BudgetExhaustedError):
        budget.charge(VOTE)
    assert budget.spent() == seen[-1]


def test_the_same_question_twice_costs_twice() -> None:
    budget = handler()
    events = budget.charge(VOTE).events
    first = budget.spent().epsilon
    assert first == pytest.approx(accounting.compose(events, 1e-6))
    budget.charge(VOTE)
    assert budget.spent().epsilon == pytest.approx(accounting.compose(events * 2, 1e-6))
    assert budget.spent().epsilon > first


def test_the_noise_is_calibrated_once_and_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    first = handler(url).charge(VOTE)
    second = handler(url).charge(VOTE)
    assert first.events == second.events
    assert second.sequence == 2


def test_a_stored_plan_is_followed_not_computed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    stored = handler(url).charge(VOTE).events[0].noise_multiplier
    monkeypatch.setattr(
        "langchain_dpicl.budget.plan.plan_queries",
        lambda *_args, **_kwargs: pytest.fail("calibrated again"),
    )
    assert handler(url).charge(VOTE).events[0].noise_multiplier == stored


def test_parsers_that_ask_for_the_same_share_a_plan() -> None:
    budget = handler()
    budget.charge(VOTE)
    budget.charge(voting.charge(name="esa"))
    with pytest.raises(PlanMismatchError, match="another kind of release"):
        budget.charge(JOINT)
    assert budget.spent().queries == 2


def test_an_account_protects_one_kind_of_unit() -> None:
    budget = handler()
    budget.charge(VOTE, unit_key="patient")
    with pytest.raises(PlanMismatchError, match="'patient'"):
        budget.charge(VOTE, unit_key="visit")
    with pytest.raises(PlanMismatchError, match="each record by itself"):
        budget.charge(VOTE)
    assert budget.spent().queries == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", -1),
        ("epsilon", float("inf")),
        ("epsilon", float("nan")),
        ("epsilon", "8"),
        ("delta", 0),
        ("delta", 1),
        ("delta", float("nan")),
        ("queries", 0),
        ("queries", 2.5),
        ("queries", True),
    ],
)
def test_bad_numbers_are_refused_by_name(name: str, value: object) -> None:
    terms = {"epsilon": 8, "delta": 1e-6, "queries": 4, "ledger": ":memory:"}
    with pytest.raises(InvalidParameterError, match=name) as caught:
        PrivacyBudgetHandler(**{**terms, name: value})  # type: ignore[arg-type]
    assert isinstance(caught.value, DPError)
    assert isinstance(caught.value, ValueError)


def test_other_terms_on_an_open_account_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    handler(url, queries=4)
    with pytest.raises(PlanMismatchError, match="queries is 4, not 5"):
        handler(url, queries=5)


def test_a_lost_ledger_pays_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    budget = handler(f"sqlite:///{path}")
    budget.charge(VOTE)
    budget.ledger.dispose()  # type: ignore[attr-defined]
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(LedgerError):
        budget.charge(VOTE)


def test_can_afford_charges_nothing() -> None:
    budget = handler(queries=1)
    assert budget.can_afford()
    assert budget.can_afford(VOTE)
    assert budget.can_afford(Gaussian(noise_multiplier=10.0))
    assert not budget.can_afford(Gaussian(noise_multiplier=0.01))
    assert not budget.can_afford(keyword_ptr.charge(delta0=0.5))
    assert budget.spent().queries == 0
    paid = budget.charge(VOTE)
    assert not budget.can_afford()
    assert paid.events


def test_can_afford_follows_the_fixed_plan() -> None:
    budget = handler()
    paid = budget.charge(VOTE)
    assert budget.can_afford(VOTE)
    assert budget.can_afford(paid.events)
    assert budget.can_afford(paid.events[0])
    assert not budget.can_afford(JOINT)
    assert not budget.can_afford([*paid.events, Failure(delta0=1e-9)])
    budget.ledger.close_account("notes")
    assert not budget.can_afford(VOTE)


def test_threads_share_one_plan_and_never_overspend() -> None:
    budget = handler(queries=20)
    barrier = threading.Barrier(8)

    def spend() -> list[float | None]:
        barrier.wait()
        found: list[float | None] = []
        for _ in range(5):
            try:
                found.append(budget.charge(VOTE).events[0].noise_multiplier)
            except BudgetExhaustedError:
                found.append(None)
        return found

    with ThreadPoolExecutor(8) as pool:
        results = [
            z
            for future in [pool.submit(spend) for _ in range(8)]
            for z in future.result()
        ]
    assert results.count(None) == 20
    assert len(set(results) - {None}) == 1


async def test_acharge_charges_like_charge() -> None:
    budget = handler()
    paid = await budget.acharge(VOTE)
    assert paid.sequence == 1
    assert budget.spent().queries == 1


def test_the_repr_and_a_pickle_hold_public_terms_only(tmp_path: Path) -> None:
    budget = handler(f"sqlite:///{tmp_path / 'a.db'}")
    assert "epsilon=8" in repr(budget)
    budget.charge(VOTE)
    again = pickle.loads(pickle.dumps(budget))
    assert again.spent() == budget.spent()
    state = pickle.loads(pickle.dumps(BudgetState(1.5, delta=1e-6, queries=2)))
    assert (state, state.delta, state.queries) == (1.5, 1e-6, 2)


def test_find_budget_looks_everywhere_and_never_guesses() -> None:
    budget, other = handler(), handler(account="other")
    assert find_budget(budget) is budget
    assert find_budget(None, [budget]) is budget
    assert find_budget(budget, [budget]) is budget
    manager = CallbackManager(handlers=[], inheritable_handlers=[budget])
    assert find_budget(None, manager) is budget
    with pytest.raises(NoBudgetError, match="No privacy budget"):
        find_budget(None, [])
    with pytest.raises(NoBudgetError, match="'notes', 'other'"):
        find_budget(budget, [other])


# -- what a handler tells and passes on ------------------------------------------------
