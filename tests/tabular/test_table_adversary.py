"""Attacks on what both tables share: what is charged, to whom, and when not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
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


def schema(*labels: str) -> TableSchema:
    return TableSchema(
        label="ill",
        columns=[
            CategoricalColumn(name="job", values=["clerk", "nurse"]),
            CategoricalColumn(name="ill", values=labels or ("no", "yes")),
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
        (lambda t: t.classification_chain(OfflineChatModel(), unknown=3), "unknown"),
        (lambda t: t.classification_chain("a model's name"), "model"),
        (lambda t: t.classification_chain(OfflineChatModel(), k=0), "k must"),
    ],
)
def test_public_mistakes_are_refused_before_the_charge(
    kind: Any, use: Callable[[Any], Any], named: str
) -> None:
    budget = account()
    table = kind(ROWS, schema(), budget=budget)
    with pytest.raises(InvalidParameterError, match=named):
        use(table)
    assert budget.spent().queries == 0
    # The same use without the mistake is paid for.
    table.classification_chain(OfflineChatModel(), k=2)
    assert budget.spent().queries == 1


@pytest.mark.parametrize("kind", TABLES)
def test_labels_that_no_answer_tells_apart_are_refused_before_the_charge(
    kind: Any,
) -> None:
    budget = account()
    rows = [{"job": "clerk", "ill": "No"}, {"job": "nurse", "ill": "no"}] * 50
    table = kind(rows, schema("No", "no"), budget=budget)
    with pytest.raises(InvalidParameterError, match="the same once case"):
        table.classification_chain(OfflineChatModel())
    assert budget.spent().queries == 0


def test_both_tables_add_up_in_one_account_that_is_opened_anew(tmp_path: Path) -> None:
    def opened(**terms: Any) -> PrivacyBudgetHandler:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        return account(accounting="renyi", ledger=url, **terms)

    charges = []
    for kind in (GDPTable, invited, GDPTable):
        table = kind(PEOPLE, schema(), epsilon=0.2, budget=opened(), unit_key="who")
        charges.append(table.release().record()["charge"])
    assert charges == [1, 2, 3]
    assert 0.2 < opened().spent().epsilon <= 3.0
    with pytest.raises(BudgetExhaustedError):
        invited(
            PEOPLE, schema(), epsilon=3.0, budget=opened(), unit_key="who"
        ).release()
    # Each release knows its own charge among them.
    again = GDPTable(PEOPLE, schema(), epsilon=0.2, budget=opened(), unit_key="who")
    assert again.release(resume=True).record()["charge"] == charges[2]
    with pytest.raises(PlanMismatchError, match="other terms"):
        opened(delta0_share=0.3)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("person_first", [True, False])
def test_an_account_is_of_one_kind_of_unit(kind: Any, person_first: bool) -> None:
    budget = account(accounting="renyi")
    by_person = GDPTable(PEOPLE, schema(), epsilon=0.2, budget=budget, unit_key="who")
    by_row = kind(ROWS, schema(), epsilon=0.2, budget=budget)
    first, second = (by_person, by_row) if person_first else (by_row, by_person)
    first.release()
    with pytest.raises(PlanMismatchError, match="kind of unit"):
        second.release()
    assert budget.spent().queries == 1
