"""The function that is called when an account is nearly spent, and when it is."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl.accounting import BUDGET_UNITS, Cost
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.budget.low_balance import LowBalance
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import AccountTerms
from langchain_dpicl.mechanisms import vote_template

TERMS = AccountTerms("mine", 8.0, 1e-6, 4)
FILTER = AccountTerms("mine", 8.0, 1e-6, accounting="zcdp", delta0_share=0.2)
BUDGET: Any = object()


def told(share: float, spent: list[Cost], terms: AccountTerms = TERMS) -> list[int]:
    """Return at which of several charges the function was called."""
    calls: list[int] = []
    low = LowBalance((share, lambda _: calls.append(number)))
    for number, cost in enumerate(spent, 1):
        low.look(BUDGET, terms, PaidCharge(None, (), "mine", number, cost))
    return calls


USES = [Cost(used, 0) for used in range(1, 5)]


@pytest.mark.parametrize(
    ("share", "at"),
    [(1.0, 1), (0.76, 1), (0.75, 2), (0.5, 3), (0.26, 3), (0.25, 4), (0.01, 4), (9, 1)],
)
def test_it_is_the_first_charge_that_leaves_less_than_the_share(
    share: float, at: int
) -> None:
    assert told(share, USES) == [at]


def test_failures_count_too() -> None:
    half, most = BUDGET_UNITS // 2, BUDGET_UNITS * 3 // 4
    costs = [Cost(1, 1), Cost(1, half), Cost(2, most), Cost(most, most)]
    assert told(0.5, costs, FILTER) == [3]


def test_the_function_is_given_the_handler() -> None:
    found: list[Any] = []
    budget = PrivacyBudgetHandler(
        epsilon=8,
        delta=1e-6,
        queries=2,
        ledger=":memory:",
        on_low=(1.0, found.append),
    )
    budget.charge(vote_template("vote"))
    budget.charge(vote_template("vote"))
    assert found == [budget]


@pytest.mark.parametrize(
    "on_low",
    [
        [0.2, print],
        (0.2, print, print),
        (0.2,),
        (),
        (print, 0.2),
        (0.2, "print"),
        {0.2: print},
        print,
    ],
)
def test_anything_but_a_pair_of_share_and_function_is_refused(on_low: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"such as \(0.2, tell_the_admin\)"):
        LowBalance(on_low)


@pytest.mark.parametrize("share", [0, -0.5, float("nan"), float("inf"), "0.2", None])
def test_the_share_is_a_positive_number(share: Any) -> None:
    with pytest.raises(InvalidParameterError, match="on_low must be"):
        LowBalance((share, print))


def test_a_failure_is_a_warning_where_it_was_charged() -> None:
    def fail(_: object) -> None:
        raise KeyError("secret")

    low = LowBalance((1.0, fail))
    paid = PaidCharge(None, (), "mine", 1, Cost(1, 0))
    said = "on_low of account 'mine' failed with a KeyError; the charge stands."
    with pytest.warns(UserWarning, match=said) as caught:
        low.look(BUDGET, TERMS, paid)
    assert caught[0].filename == __file__
    # It is not called again.
    low.look(BUDGET, TERMS, paid)
    assert len(caught) == 1
