"""From a handler's arguments to an account's terms, and how they are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langchain_dpicl.accounting import UNITS, best_order
from langchain_dpicl.budget.filter import AccountFilter
from langchain_dpicl.budget.plan import AccountPlan
from langchain_dpicl.budget.terms import account_of, account_terms, described
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import AccountTerms, MemoryLedger

PLAN = AccountTerms("mine", 8.0, 1e-6, 20)


def terms(**changes: Any) -> tuple[AccountTerms, int | None]:
    given: dict[str, Any] = {
        "name": "mine",
        "epsilon": 8,
        "delta": 1e-6,
        "queries": 20,
        "accounting": None,
        "scope": "corpus",
        "delta0_share": None,
        "order": None,
    }
    return account_terms(**{**given, **changes})


def test_a_plan_has_its_queries_for_a_term() -> None:
    assert terms() == (PLAN, 20)
    assert terms(scope="unit") == (replace(PLAN, scope="unit"), 20)


@pytest.mark.parametrize("kind", ["renyi"])
@pytest.mark.parametrize("scope", ["corpus", "unit"])
@pytest.mark.parametrize("queries", [None, 20])
def test_a_filter_sets_a_fifth_of_delta_aside(
    kind: Any, scope: Any, queries: int | None
) -> None:
    found, shared = terms(accounting=kind, scope=scope, queries=queries)
    order = best_order(8.0, 0.8e-6)
    assert found == AccountTerms(
        "mine", 8.0, 1e-6, None, kind, scope, order=order, delta0_share=0.2
    )
    assert shared == queries


def test_a_given_part_and_order_are_kept() -> None:
    found, _ = terms(accounting="renyi", delta0_share=0.0, order=9.0)
    assert (found.delta0_share, found.order) == (0.0, 9.0)


@pytest.mark.parametrize("kind", [None, "renyi"])
def test_there_are_as_many_queries_as_steps_at_most(kind: Any) -> None:
    assert terms(accounting=kind, queries=UNITS)[1] == UNITS
    assert terms(accounting=kind, queries=1)[1] == 1
    with pytest.raises(InvalidParameterError, match=f"at most {UNITS}"):
        terms(accounting=kind, queries=UNITS + 1)
    with pytest.raises(InvalidParameterError, match="queries must be at least 1"):
        terms(accounting=kind, queries=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accounting": "rdp"}, "accounting must be 'renyi'"),
        ({"accounting": "plan"}, "accounting must be 'renyi'"),
        ({"scope": "person"}, "scope must be 'corpus' or 'unit'"),
        ({"scope": "person", "accounting": "renyi"}, "scope must be"),
        ({"queries": None}, "How is the budget to be spent"),
        ({"delta0_share": 0.0}, "go with accounting="),
        ({"delta0_share": 0.5}, "go with accounting="),
        ({"order": 2.0}, "go with accounting="),
        ({"order": 2.0, "delta0_share": 0.5}, "go with accounting="),
        ({"accounting": "zcdp"}, "accounting must be 'renyi'"),
        ({"accounting": "renyi", "delta0_share": 1.0}, "delta0_share must be"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        terms(**changes)
    assert caught.value.__cause__ is None


def test_terms_say_which_account_it_is() -> None:
    ledger = MemoryLedger()
    plan = account_of(PLAN, 20, ledger)
    assert isinstance(plan, AccountPlan)
    assert (plan.terms, plan.queries, plan.ledger) == (PLAN, 20, ledger)
    kept, _ = terms(accounting="renyi", queries=None)
    found = account_of(kept, 7, ledger)
    assert isinstance(found, AccountFilter)
    assert (found.terms, found.queries, found.ledger) == (kept, 7, ledger)
    with pytest.raises(LedgerError, match="make no filter"):
        account_of(replace(kept, delta0_share=None), 7, ledger)


def test_what_is_usual_is_not_shown() -> None:
    assert described(PLAN, 20) == "account='mine', epsilon=8, delta=1e-06, queries=20"
    assert described(replace(PLAN, accounting="renyi"), None) == (
        "account='mine', epsilon=8, delta=1e-06, accounting='renyi'"
    )
    of_corpus = replace(PLAN, corpus="clinic", period="2026-12", scope="unit")
    assert described(of_corpus, 3) == (
        "account='mine', epsilon=8, delta=1e-06, queries=3, scope='unit', "
        "corpus='clinic', period='2026-12'"
    )
    assert described(replace(PLAN, corpus="clinic"), 3).endswith("corpus='clinic'")
    assert described(replace(PLAN, period="2026"), 3).endswith("3, period='2026'")
