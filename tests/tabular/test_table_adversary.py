"""Attacks on what both tables share: what is charged, to whom, and when not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPTable,
    TableSchema,
)


def invited(*given: Any, **terms: Any) -> LDPTable:
    return LDPTable(*given, invited=900, **terms)


TABLES = [GDPTable, invited]
ROWS = [{"job": "clerk", "ill": "no"}, {"job": "nurse", "ill": "yes"}] * 300
PEOPLE = [{**row, "who": f"p{place // 3}"} for place, row in enumerate(ROWS)]


SCHEMA = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse"]),
        CategoricalColumn(name="ill", values=["no", "yes"]),
    ],
)


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 3.0, "delta": 1e-6, "ledger": ":memory:", **terms}
    if "accounting" not in given:
        given["queries"] = 1
    return PrivacyBudgetHandler(**given)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda t: t.classification_chain(OfflineChatModel(), unknown="no"), "unknown"),
        (lambda t: t.classification_chain("a model's name"), "model"),
        (lambda t: t.classification_chain(OfflineChatModel(), k=0), "k must"),
    ],
)
def test_public_mistakes_are_refused_before_the_charge(
    kind: Any, use: Callable[[Any], Any], named: str
) -> None:
    budget = account()
    table = kind(ROWS, SCHEMA, budget=budget)
    with pytest.raises(InvalidParameterError, match=named):
        use(table)
    assert budget.spent().queries == 0
    # The same use without the mistake is paid for.
    table.classification_chain(OfflineChatModel(), k=2)
    assert budget.spent().queries == 1


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("person_first", [True, False])
def test_an_account_is_of_one_kind_of_unit(kind: Any, person_first: bool) -> None:
    budget = account(accounting="renyi")
    by_person = GDPTable(PEOPLE, SCHEMA, epsilon=0.2, budget=budget, unit_key="who")
    by_row = kind(ROWS, SCHEMA, epsilon=0.2, budget=budget)
    first, second = (by_person, by_row) if person_first else (by_row, by_person)
    first.release()
    with pytest.raises(PlanMismatchError, match="kind of unit"):
        second.release()
    assert budget.spent().queries == 1
