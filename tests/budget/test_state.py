"""What an account says of itself: terms, prices, what is spent and what is left."""

from __future__ import annotations

import math
import pickle
from copy import copy, deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.callbacks import (
    BaseCallbackHandler,
    CallbackManager,
)

from langchain_dpicl import (
    BudgetExhaustedError,
    InvalidParameterError,
    NoBudgetError,
    PlanMismatchError,
    PrivacyBudgetHandler,
)
from langchain_dpicl.accounting import (
    UNITS,
    Charge,
    Exponential,
    Failure,
    Gaussian,
    compose,
)
from langchain_dpicl.budget import BudgetState, find_budget
from langchain_dpicl.ledger import CorpusTerms, open_ledger

VOTE = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
PTR = Charge(name="ptr", parts=(Gaussian(noise_multiplier=None), Failure(delta0=None)))


def opened(ledger: Any = ":memory:", **terms: Any) -> PrivacyBudgetHandler:
    terms = {"epsilon": 8, "delta": 1e-6, "queries": 20, **terms}
    return PrivacyBudgetHandler(ledger=ledger, **terms)


def fixed(noise_multiplier: float) -> Charge:
    return Charge(name="vote", parts=(Gaussian(noise_multiplier=noise_multiplier),))


# -- a plan ----------------------------------------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta of a Gaussian mechanism (Balle and Wang 2018), by itself."""

    def cdf(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    left, right = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return cdf(left) - math.exp(epsilon) * cdf(right)


def test_a_plan_spends_what_it_was_opened_for() -> None:
    budget, z = opened(queries=4), 0.0
    assert budget.remaining() == BudgetState(8.0, 1e-6, 4)
    for used in range(1, 5):
        paid = budget.buy(VOTE)
        paid.leave()
        (event,) = paid.events
        z = event.noise_multiplier
        spent = budget.spent()
        assert (spent.delta, spent.queries) == (1e-6, used)
        mu = math.sqrt(used) / z
        assert gaussian_delta(spent.epsilon, mu) <= 1e-6
        assert gaussian_delta(spent.epsilon * 0.999, mu) > 1e-6
        assert budget.remaining().queries == 4 - used
        assert budget.public_state(paid.stored)["epsilon_spent"] == spent.epsilon
    assert 8 * 0.999 < budget.spent().epsilon <= 8
    with pytest.raises(BudgetExhaustedError, match="4"):
        budget.buy(VOTE)
    with pytest.raises(BudgetExhaustedError, match="4"):
        budget.require_payable(VOTE)
    assert not budget.can_afford()


def test_twin_a_noise_of_half_the_plan_overspends() -> None:
    z = opened(queries=4).quote(VOTE)[0].noise_multiplier
    assert gaussian_delta(8, 2 / (z / 2)) > 1e-6


def test_quoting_fixes_nothing_and_a_charge_fixes_the_plan_for_all() -> None:
    ledger = open_ledger(":memory:")
    first, second = opened(ledger), opened(ledger)
    assert first.quote(PTR)[1].delta0 == pytest.approx(1e-6 / 2 / 20)
    assert first.can_afford(PTR)
    assert first.can_afford(Gaussian(noise_multiplier=3.0))
    second.buy(VOTE).leave()
    for budget in (first, second):
        assert budget.can_afford(VOTE)
        assert not budget.can_afford(PTR)
        with pytest.raises(PlanMismatchError, match="each of its queries spends"):
            budget.quote(PTR)
        assert budget.can_afford(budget.quote(VOTE)[0])


@pytest.mark.parametrize(
    ("charge", "words"),
    [
        (fixed(0.5), r"20 releases by vote .* cost epsilon \d+.* the account has 8"),
        (Charge(name="e", parts=(Exponential(epsilon=9.0),)), "noise you fixed"),
        (
            Charge(name="p", parts=(*VOTE.parts, Failure(delta0=1e-6))),
            "No amount of noise lets p answer 20 queries within epsilon 8",
        ),
    ],
)
def test_no_plan_is_made_that_does_not_fit(charge: Charge, words: str) -> None:
    budget = opened()
    for ask in (budget.quote, budget.buy, budget.require_payable):
        with pytest.raises(PlanMismatchError, match=words):
            ask(charge)
    assert not budget.can_afford(charge)
    assert budget.buy(VOTE).charge == 1, "nothing was fixed"


# -- a filter --------------------------------------------------------------------------


def test_a_filter_pays_until_its_divergence_is_spent() -> None:
    order, z = 6.0, 4.0
    budget = opened(queries=None, accounting="renyi", order=order, delta0_share=0.0)
    limit = 8 - math.log(1e6) / (order - 1) + math.log(order) / (order - 1)
    limit -= math.log(1 - 1 / order)
    times = int(limit / (order / (2 * z * z)))
    for _ in range(times):
        budget.buy(fixed(z)).leave()
    with pytest.raises(BudgetExhaustedError, match=r"\d"):
        budget.buy(fixed(z))
    spent = budget.spent()
    truth = compose([Gaussian(noise_multiplier=z, count=times)], 1e-6)
    assert truth <= spent.epsilon <= 8
    assert budget.remaining() == BudgetState(8 - spent.epsilon, 1e-6, None)
    assert budget.can_afford(fixed(300.0))


def test_open_noise_under_a_filter_is_one_querys_share() -> None:
    budget = opened(accounting="renyi")
    for _ in range(5):
        budget.buy(VOTE).leave()
    assert budget.remaining().queries == 15
    budget.buy(PTR).leave()
    assert budget.remaining().queries == 14
    with pytest.raises(InvalidParameterError, match="noise_multiplier=, delta0="):
        opened(accounting="renyi", queries=None).quote(PTR)
    with pytest.raises(PlanMismatchError, match="delta"):
        opened(accounting="renyi", delta0_share=0.0).quote(PTR)


def test_queries_of_a_filter_may_change_and_terms_may_not() -> None:
    ledger = open_ledger(":memory:")
    opened(ledger, accounting="renyi").buy(VOTE).leave()
    assert opened(ledger, accounting="renyi", queries=9).remaining().queries == 8
    for other in (
        {"epsilon": 7},
        {"delta": 1e-7},
        {"accounting": None},
        {"order": 2.5},
    ):
        with pytest.raises(PlanMismatchError):
            opened(ledger, **{"accounting": "renyi", **other})


# -- terms -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"delta": 1}, "delta must be strictly between"),
        ({"queries": None}, "How is the budget to be spent"),
        ({"queries": 0}, "queries must be at least 1"),
        ({"queries": UNITS + 1}, f"at most {UNITS}"),
        ({"accounting": "zcdp"}, "accounting must be 'renyi'"),
        ({"order": 3.0}, "go with accounting="),
        ({"delta0_share": 0.1}, "go with accounting="),
        ({"scope": "people"}, "scope"),
        ({"period": "2026"}, "period"),
        ({"account": "a\x00b"}, "name"),
    ],
)
def test_terms_out_of_range_open_nothing(terms: Any, words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        opened(**terms)


def test_a_handler_is_its_account_in_every_copy(tmp_path: Path) -> None:
    budget = opened(f"sqlite:///{tmp_path}/ledger.db", accounting="renyi", purpose="p")
    budget.buy(VOTE).leave()
    for twin in (copy(budget), deepcopy(budget), pickle.loads(pickle.dumps(budget))):
        assert (twin.spent(), repr(twin)) == (budget.spent(), repr(budget))
    assert "account='default', epsilon=8.0, delta=1e-06, queries=20" in repr(budget)
    alone = budget.in_memory()
    assert (alone.spent().queries, alone.quote(VOTE)) == (0, budget.quote(VOTE))
    with pytest.raises(InvalidParameterError, match="can't be changed"):
        budget.epsilon = 9  # type: ignore[misc]


def test_a_name_is_made_of_corpus_and_period() -> None:
    cap = CorpusTerms(name="clinic", unit_key="patient", epsilon=8, delta=1e-5)
    budget = opened(corpus=cap, period="2099-12")
    assert budget.account == "clinic/2099-12"
    with pytest.raises(BudgetExhaustedError, match="2099-12"):
        budget.buy(VOTE, unit_key="patient")
    alone = opened(corpus=cap)
    with pytest.raises(PlanMismatchError, match="corpus 'clinic' protects 'patient'"):
        alone.buy(VOTE, unit_key="visit")
    alone.buy(VOTE, unit_key="patient").leave()


# -- which account a run charges -------------------------------------------------------


def ways(*handlers: Any) -> list[Any]:
    """Return every form in which a run's handlers are passed on."""
    run = CallbackManager(handlers=[], inheritable_handlers=list(handlers))
    own = CallbackManager(handlers=list(handlers), inheritable_handlers=[])
    return [
        list(handlers),
        tuple(handlers),
        own,
        run,
        own.on_chain_start({}, {}),
        run.on_chain_start({}, {}).get_child(),
        SimpleNamespace(handlers=list(handlers)),
    ]


def test_a_budget_is_found_in_every_form_of_handlers() -> None:
    mine = opened()
    for callbacks in ways(BaseCallbackHandler(), mine):
        assert find_budget(None, callbacks) is mine
        assert find_budget(mine, callbacks) is mine
    for callbacks in (None, *ways(BaseCallbackHandler()), []):
        assert find_budget(mine, callbacks) is mine
        with pytest.raises(NoBudgetError, match="nothing was asked of the model"):
            find_budget(None, callbacks)


def test_several_accounts_are_named_and_none_is_taken() -> None:
    one, two, three = (opened(account=name) for name in ("one", "two", "three"))
    said = r"^2 privacy budgets apply to this run \('one', 'two'\)"
    for callbacks in ways(one, two):
        with pytest.raises(NoBudgetError, match=said):
            find_budget(None, callbacks)
    with pytest.raises(NoBudgetError, match=r"^3 .* \('three', 'one', 'two'\)"):
        find_budget(three, [one, two, one])
