"""A curator's table: what is read, charged and reported, and when."""

from __future__ import annotations

import json
import traceback
from typing import Any

import numpy as np
import pytest
from support.ldp_parts import (
    MIXED,
    ROW,
    SCHEMA,
    SIZES,
    Watched,
    budget_of,
    table_of,
)

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.budget import Purchase
from langchain_dpicl.errors import (
    InvalidParameterError,
    NoBudgetError,
)
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import CategoricalColumn, LDPTable, TableSchema
from langchain_dpicl.tabular.ldp import reports

CANARY = "canary-7391"
ROWS = MIXED * 50


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order; rows of `Watched` are noted here too."""
    noted: list[str] = []
    randomize, bought = reports.randomize, Purchase.bought

    def noting_draws(codes: Any, **terms: Any) -> Any:
        noted.append(f"draw {len(codes)}")
        return randomize(codes, **terms)

    def noting_charges(self: Any) -> Any:
        paid = bought(self)
        noted.append("charge")
        return paid

    monkeypatch.setattr(reports, "randomize", noting_draws)
    monkeypatch.setattr(Purchase, "bought", noting_charges)
    return noted


def spent(budget: PrivacyBudgetHandler) -> int:
    return budget.spent().queries


def shown_by(error: BaseException) -> str:
    """Return the locals of the library's frames, as tracebacks print them."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [f for f in shown.stack if "langchain_dpicl" in f.filename]
    assert ours, "frames are looked at"
    return str([f.locals for f in ours])


# -- what comes out --------------------------------------------------------------------


def test_examples_carry_the_record_and_a_chain_classifies_with_them() -> None:
    table = table_of(MIXED * 500)
    examples = table.examples(4)
    assert examples[0].keys() == {"text", "label"}
    assert "The job is" in examples[0]["text"]
    record = examples.record
    assert record["mechanism"] == "ldp_table"
    assert record["events"] == [
        {"kind": "pure", "epsilon": 6.0, "sampling_rate": 1.0, "count": 1}
    ]
    assert (record["epsilon"], record["delta"], record["charge"]) == (6.0, 0.0, 1)
    assert record["account"]["queries_spent"] == 1
    told = record["parameters"]
    assert (told["schema"], told["n_reports"]) == (SCHEMA.fingerprint(), 2000)
    assert told["epsilons"] == {"job": 2.0, "age": 2.0, "income": 2.0}
    assert told["randomized_by"] == "curator"
    assert set(told["standard_errors"]) == set(SIZES)
    assert "random" not in record
    assert json.loads(json.dumps(record)) == record
    chain = table.classification_chain(OfflineChatModel(), k=4)
    assert chain.invoke({"job": "nurse", "age": 61}) in ("low", "high", None)
    # Drawing again is free.
    assert table.record()["account"]["queries_spent"] == 1


def test_more_columns_than_a_joint_table_holds() -> None:
    names = [f"c{i}" for i in range(20)]
    columns = [CategoricalColumn(name=name, values=["a", "b", "c"]) for name in names]
    schema = TableSchema(label="income", columns=[*columns, SCHEMA.label_column])
    truth = {"low": "a", "high": "b"}
    rows = [{**dict.fromkeys(names, v), "income": i} for i, v in truth.items()] * 2000
    drawn = table_of(rows, schema, epsilon=105).sample(20)
    agree = [row[name] == truth[row["income"]] for row in drawn for name in names]
    assert np.mean(agree) > 0.8
    with pytest.raises(InvalidParameterError, match="too large"):
        table_of(rows, schema, model="joint")


# -- what is charged, and when ---------------------------------------------------------


@pytest.mark.parametrize("make", [iter, lambda rows: rows])
def test_rows_are_read_once_and_before_the_charge(make: Any, seen: list[str]) -> None:
    table_of(make(Watched(MIXED, seen))).release()
    assert seen == [*["read"] * 4, "charge", *["draw 4"] * 3]


BAD_ROWS = [
    ({**ROW, "job": CANARY}, "job"),
    ({**ROW, "age": CANARY}, "age"),
]


@pytest.mark.parametrize("make", [list, iter])
@pytest.mark.parametrize(("row", "problem"), BAD_ROWS)
def test_bad_rows_cost_nothing_and_show_nothing(
    row: Any, problem: str, make: Any, seen: list[str]
) -> None:
    budget = budget_of()
    table = table_of(make([*ROWS, row, *MIXED]), budget=budget)
    with pytest.raises(InvalidParameterError, match=problem) as caught:
        table.release()
    assert CANARY not in str(caught.value) + shown_by(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    # What is left of rows that come once is no table.
    again = "iterator" if make is iter else problem
    with pytest.raises(InvalidParameterError, match=again):
        table.examples(2)
    assert (seen, spent(budget)) == ([], 0)
    # Mended, they are released by the same account.
    assert table_of(ROWS, budget=budget).release().n_reports == len(ROWS)


def test_no_account_no_table(seen: list[str]) -> None:
    with pytest.raises(NoBudgetError):
        LDPTable(
            Watched(MIXED, seen), SCHEMA, epsilon=1, participation="public"
        ).release()
    with pytest.raises(InvalidParameterError, match="one by one"):
        table_of(Watched(MIXED, seen), budget=budget_of(scope="unit")).release()
    assert seen == []


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"split": {"job": 6.0}}, "'age'"),
        ({"split": {"job": 1, "age": 1, "income": 1}}, "sum to epsilon"),
        ({"epsilon": None, "split": {"job": 1}}, "epsilon="),
        ({"model": "forest"}, "model"),
        ({"rows_per_unit": 2}, "unit_key="),
        ({"rows_per_unit": 0, "unit_key": "who"}, "rows_per_unit"),
        (
            {"rows_per_unit": 10**400, "unit_key": "who"},
            "rows_per_unit: it must be from 1",
        ),
        ({"unit_key": "job"}, "column of the schema"),
        ({"unit_key": ""}, "unit_key"),
        ({"budget": "sqlite://"}, "budget"),
    ],
)
def test_terms_that_do_not_fit_are_refused_at_once(terms: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        table_of(MIXED, **{"budget": budget_of(), **terms})


# -- drawn once ------------------------------------------------------------------------


def test_other_terms_are_another_collection() -> None:
    budget = budget_of(queries=6, epsilon=36)
    table_of(ROWS, budget=budget).release()
    split = {"job": 2.0, "age": 2.0, "income": 2.0}
    table_of(ROWS, budget=budget, split=split).release(resume=True)
    with seeded(1):
        table_of(ROWS, budget=budget).release(resume=True)
    assert spent(budget) == 3
    # Which model is fitted is free.
    table_of(ROWS, budget=budget, model="joint").release(resume=True)
    assert spent(budget) == 3
