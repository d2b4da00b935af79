"""Accounts without a plan, and accounts of single units."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.release_templates import template

from langchain_dpicl import PrivacyBudgetHandler, accounting
from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    Cost,
    EventTemplate,
    ExponentialPart,
    Failure,
    Gaussian,
    GaussianPart,
    PrivacyFilter,
    PurePart,
)
from langchain_dpicl.budget.pricing import price_release
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PlanMismatchError,
)

VOTE = template("vote", (GaussianPart(),))
LOUD = template("vote", (GaussianPart(40.0),))
JOINT = template("joint", (ExponentialPart(),))
PTR = template("ksa/ptr", (GaussianPart(),), needs_delta0=True)


def handler(**changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {
        "epsilon": 8,
        "delta": 1e-6,
        "ledger": ":memory:",
        "accounting": "zcdp",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


def admitted(
    budget: PrivacyBudgetHandler, shape: EventTemplate, most: int = 1000
) -> int:
    for number in range(most):
        try:
            budget.charge(shape)
        except BudgetExhaustedError:
            return number
    return most


# -- filters -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zcdp", "gdp", "renyi"])
def test_open_noise_lasts_for_exactly_the_queries_that_were_asked_for(
    kind: str,
) -> None:
    budget = handler(accounting=kind, queries=7)
    assert admitted(budget, VOTE) == 7
    assert 7 < budget.spent() <= 8
    assert budget.remaining().queries == 0
    assert not budget.can_afford(VOTE)


@pytest.mark.parametrize("kind", ["zcdp", "renyi"])
@pytest.mark.parametrize("shape", [JOINT, PTR, template("pf", (PurePart(),))])
def test_every_kind_of_release_gets_its_share(kind: str, shape: EventTemplate) -> None:
    assert admitted(handler(accounting=kind, queries=5), shape) == 5


@settings(deadline=None, max_examples=40)
@given(
    queries=st.integers(1, 5000),
    epsilon=st.floats(0.1, 30),
    shape=st.sampled_from([VOTE, JOINT, PTR]),
    share=st.floats(0.05, 1.0),
)
def test_an_open_release_costs_its_share_and_hardly_less(
    queries: int, epsilon: float, shape: EventTemplate, share: float
) -> None:
    found = PrivacyFilter("zcdp", epsilon, 1e-6)
    asked = template(
        shape.mechanism, shape.parts, needs_delta0=shape.needs_delta0, share=share
    )
    cost = found.cost(price_release(asked, found, queries))
    assert cost.loss <= BUDGET_UNITS * share / queries
    assert cost.loss >= BUDGET_UNITS * share / queries * 0.999 - 2
    assert cost.failure <= BUDGET_UNITS * share / queries
    assert (
        cost.failure
        >= (0.999 * BUDGET_UNITS * share / queries - 2) * asked.needs_delta0
    )


def test_parsers_with_different_noise_share_an_account() -> None:
    budget = handler(queries=10)
    charges = [budget.charge(shape) for shape in (VOTE, LOUD, JOINT, PTR, VOTE)]
    assert charges[1].noise.noise_multiplier == 40.0
    assert [paid.sequence for paid in charges] == [1, 2, 3, 4, 5]
    events = [event for paid in charges for event in paid.events]
    exact = accounting.zcdp_epsilon(accounting.rho(events), 1e-6)
    # The report takes what the failures have used out of delta.
    assert exact <= budget.spent() <= exact * 1.01
    records = budget.ledger.charges("default")
    assert [record.charge.events for record in records] == [g.events for g in charges]


def test_the_noise_may_follow_from_earlier_answers() -> None:
    budget = handler(accounting="gdp", epsilon=1.0)
    total = 0.0
    for z in (50.0, 20.0, 100.0, 10.0, 7.0, 5.0, 4.0):
        try:
            budget.charge(template("vote", (GaussianPart(z),)))
            total += 1 / z**2
        except BudgetExhaustedError:
            break
    assert accounting.gaussian_epsilon(total**0.5, 1e-6) <= 1.0


def test_without_queries_noise_must_be_named() -> None:
    budget = handler()
    with pytest.raises(InvalidParameterError, match="leaves its noise open"):
        budget.charge(VOTE)
    assert budget.spent().queries == 0
    # The account is bound to nothing yet.
    budget.charge(LOUD, unit_key="patient")
    assert budget.remaining().queries is None


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (VOTE, "noise_multiplier="),
        (JOINT, "epsilon="),
        (
            template("ptr", (ExponentialPart(), GaussianPart()), needs_delta0=True),
            "noise_multiplier=, epsilon=, delta0=",
        ),
    ],
)
def test_the_arguments_that_fix_the_noise_are_named(
    shape: EventTemplate[Any], names: str
) -> None:
    with pytest.raises(InvalidParameterError, match=rf"\({names}\)"):
        handler().charge(shape)


def test_delta0_needs_its_share_of_delta() -> None:
    budget = handler(queries=5, delta0_share=0.0)
    with pytest.raises(PlanMismatchError, match="sets no part of delta aside"):
        budget.charge(PTR)
    assert admitted(budget, VOTE) == 5
    fixed = template(
        "ksa/ptr", (GaussianPart(50.0),), needs_delta0=True, delta0=0.99e-7
    )
    half = handler(delta0_share=0.5)
    assert admitted(half, fixed) == 5
    assert accounting.total_delta0(
        [e for r in half.ledger.charges("default") for e in r.charge.events]
    ) == pytest.approx(4.95e-7)


def test_what_a_filter_cannot_add_up_is_refused_and_free() -> None:
    budget = handler(accounting="gdp", queries=5)
    with pytest.raises(PlanMismatchError, match="gdp"):
        budget.charge(JOINT)
    with pytest.raises(PlanMismatchError, match="gdp"):
        budget.charge(template("vote", (GaussianPart(3.0),), sampling_rate=0.1))
    assert budget.spent().queries == 0
    assert not budget.can_afford(JOINT)


def test_sampled_groups_gain_under_renyi_alone() -> None:
    sampled = template("vote", (GaussianPart(3.0),), sampling_rate=0.01)
    assert admitted(handler(accounting="renyi"), sampled, 400) == 400
    assert admitted(handler(accounting="zcdp"), sampled, 400) < 40


def test_a_release_dearer_than_the_account_is_refused() -> None:
    for scope in ("corpus", "unit"):
        budget = handler(scope=scope)
        with pytest.raises(BudgetExhaustedError, match="whole of account"):
            budget.charge(template("vote", (GaussianPart(0.01),)), charges_units=True)
        assert budget.spent().queries == 0


def test_can_afford_asks_and_charges_nothing() -> None:
    budget = handler(queries=2)
    assert budget.can_afford()
    assert budget.can_afford(VOTE)
    assert budget.can_afford(Gaussian(5.0))
    assert budget.can_afford([Gaussian(5.0), Failure(1e-8)])
    assert not budget.can_afford(Gaussian(0.001))
    assert not budget.can_afford(Failure(0.9))
    assert budget.spent().queries == 0
    budget.ledger.close_account("default")
    assert not budget.can_afford()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accounting": None}, "queries="),
        ({"accounting": "pld"}, "accounting must be"),
        ({"scope": "person"}, "scope must be"),
        ({"delta0_share": 1.5}, "delta0_share"),
        ({"delta0_share": float("nan")}, "delta0_share"),
        ({"order": 0.5, "accounting": "renyi"}, "order"),
        ({"order": 8.0}, "order"),
        ({"accounting": None, "queries": 5, "order": 8.0}, "order"),
        ({"accounting": None, "queries": 5, "delta0_share": 0.5}, "delta0_share"),
        ({"accounting": None, "queries": 2**31, "scope": "unit"}, "at most"),
    ],
)
def test_terms_that_make_no_account_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        handler(**changes)


def test_the_same_name_with_another_accounting_is_refused() -> None:
    ledger = handler().ledger
    for changes in (
        {"accounting": "gdp"},
        {"scope": "unit"},
        {"delta0_share": 0.1},
        {"accounting": None, "queries": 5},
    ):
        with pytest.raises(PlanMismatchError, match="already open"):
            handler(ledger=ledger, **changes)
    # How many queries open noise is meant for is no term of such an account.
    assert handler(ledger=ledger, queries=9).account == "default"


def test_repr_and_pickle_name_the_terms(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    budget = handler(ledger=url, queries=9, scope="unit", accounting="renyi")
    assert "accounting='renyi', scope='unit'" in repr(budget)
    again = pickle.loads(pickle.dumps(budget))
    assert repr(again) == repr(budget)


# -- per-unit accounts ---------------------------------------------------------------


def unit_handler(**changes: Any) -> PrivacyBudgetHandler:
    return handler(**{"accounting": None, "queries": 3, "scope": "unit", **changes})


@pytest.mark.parametrize("kind", [None, "zcdp", "gdp"])
def test_each_unit_pays_for_itself_and_the_account_never_ends(
    kind: str | None,
) -> None:
    budget = unit_handler(accounting=kind)
    who: list[dict[str, bool]] = []
    for number in range(12):
        paid = budget.charge(VOTE, charges_units=True)
        assert paid.charge_units is not None
        ids = ["always", f"once-{number}", *(["rarely"] if number % 4 == 0 else [])]
        who.append(dict(zip(ids, paid.charge_units(ids), strict=True)))
    assert [p["always"] for p in who] == [True] * 3 + [False] * 9
    assert all(p[f"once-{n}"] for n, p in enumerate(who))
    assert [p["rarely"] for p in who if "rarely" in p] == [True] * 3
    assert budget.spent().queries == 12
    assert budget.remaining().queries is None
    assert budget.can_afford(VOTE)
    assert 7.85 < budget.spent() <= 8.0


def test_a_cheap_release_is_open_to_who_cannot_pay_for_a_dear_one() -> None:
    budget = handler(scope="unit", accounting="gdp", queries=2)
    dear, cheap = VOTE, template("vote", (GaussianPart(100.0),))
    spent = [budget.charge(dear, charges_units=True) for _ in range(3)]
    for number, paid in enumerate(spent):
        assert paid.charge_units is not None
        assert paid.charge_units(["p"]) == [number < 2]
    paid = budget.charge(cheap, charges_units=True)
    assert paid.charge_units is not None
    # Two dear releases fill the balance up to their rounding: nothing is left over.
    assert paid.charge_units(["p", "q"]) == [False, True]


def test_a_source_that_cannot_name_units_is_refused_before_the_charge() -> None:
    budget = unit_handler()
    with pytest.raises(InvalidParameterError, match="score_threshold"):
        budget.charge(VOTE)
    assert budget.spent().queries == 0


def test_a_sampled_release_costs_every_unit_the_sampled_price() -> None:
    budget = unit_handler()
    sampled = template("vote", (GaussianPart(),), sampling_rate=0.5)
    paid = budget.charge(sampled, charges_units=True)
    assert paid.charge_units is not None
    assert paid.charge_units(["p", "q"]) == [True, True]
    (event,) = paid.events
    assert event.sampling_rate == 0.5
    assert event.noise_multiplier < unit_handler().quote(VOTE).noise_multiplier


def test_what_units_have_spent_is_nowhere_but_in_the_export() -> None:
    budget = unit_handler()
    before = [repr(budget), budget.public_state(), budget.spent(), budget.remaining()]
    worlds = []
    for ids in ([], ["p"], ["p", "q"]):
        other = unit_handler()
        paid = other.charge(VOTE, charges_units=True)
        assert paid.charge_units is not None
        paid.charge_units(ids)
        worlds.append(
            [repr(other), other.public_state(), other.spent(), other.can_afford(VOTE)]
        )
    assert worlds[0] == worlds[1] == worlds[2]
    assert before[0] == worlds[0][0]
    balances = list(other.ledger.unit_balances("default"))
    assert sorted(balance.tag for balance in balances) == sorted(
        other.ledger.unit_tag("default", unit) for unit in ("p", "q")
    )
    assert {balance.spent for balance in balances} == {Cost(1, 0)}


def test_a_closed_account_collects_nothing() -> None:
    budget = unit_handler()
    paid = budget.charge(VOTE, charges_units=True)
    budget.ledger.close_account("default")
    assert paid.charge_units is not None
    with pytest.raises(LedgerError, match="closed"):
        paid.charge_units(["p"])


def test_a_unit_named_twice_is_refused() -> None:
    paid = unit_handler().charge(VOTE, charges_units=True)
    assert paid.charge_units is not None
    with pytest.raises(LedgerError, match="twice"):
        paid.charge_units(["p", "q", "p"])
    assert paid.charge_units(["p", "q"]) == [True, True]


def test_a_corpus_account_collects_from_nobody() -> None:
    budget = handler(queries=3)
    paid = budget.charge(VOTE, charges_units=True)
    assert paid.charge_units is None
    charge = budget.ledger.charges("default")[0].charge
    with pytest.raises(LedgerError, match="whole corpus"):
        budget.ledger.charge_units(charge, ["p"])


def test_no_budget_is_still_no_budget() -> None:
    from langchain_dpicl.budget import find_budget

    with pytest.raises(NoBudgetError):
        find_budget(None, [])
