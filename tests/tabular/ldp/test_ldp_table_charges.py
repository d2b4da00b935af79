"""What a table is charged, and when: before the first report is drawn, or never."""

from __future__ import annotations

import threading
import traceback
from typing import Any

import pytest
from support.ldp_parts import MIXED, ROW, SCHEMA, Watched, budget_of, joint_of, table_of

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.budget import Purchase
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    NoBudgetError,
    PlanMismatchError,
    UnitError,
)
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.ldp import collecting, reporting
from langchain_dpicl.tabular.ldp.table import LDPTable

CANARY = "canary-7391"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order; rows of `Watched` are noted here too."""
    noted: list[str] = []
    randomize, bought = reporting.Reporter.randomize, Purchase.bought

    def noting_draws(self: Any, codes: Any) -> Any:
        noted.append("draw")
        return randomize(self, codes)

    def noting_charges(self: Any) -> Any:
        paid = bought(self)
        noted.append("charge")
        return paid

    monkeypatch.setattr(reporting.Reporter, "randomize", noting_draws)
    monkeypatch.setattr(Purchase, "bought", noting_charges)
    return noted


def spent(budget: PrivacyBudgetHandler) -> int:
    return budget.spent().queries


def test_rows_that_come_once_are_read_after_the_charge(seen: list[str]) -> None:
    table_of(iter(Watched(MIXED, seen))).release()
    assert seen == ["charge", *["read"] * 4, "draw"]


def test_rows_that_can_be_read_twice_are_checked_before_it(seen: list[str]) -> None:
    table_of(Watched(MIXED, seen)).release()
    reads = ["read"] * 4
    assert seen == [*reads, "charge", *reads, "draw"]


def test_nothing_is_read_before_it_is_asked_for(seen: list[str]) -> None:
    table = table_of(Watched(MIXED, seen))
    table.forecast(1000)
    for ask in (
        lambda: table.n_reports,
        lambda: table.distribution,
        lambda: table.epsilons,
        table.record,
        table.summary,
        table.standard_errors,
    ):
        with pytest.raises(InvalidParameterError, match=r"release\(\)"):
            ask()
    assert seen == []


def test_a_table_is_charged_once_whatever_is_drawn() -> None:
    budget = budget_of(queries=3)
    table = table_of(MIXED * 100, epsilon=1.0, budget=budget)
    threads = [threading.Thread(target=table.release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.sample(50)
    table.examples(3)
    assert spent(budget) == 1
    table_of(MIXED, epsilon=1.0, budget=budget).release()
    assert spent(budget) == 2


def test_an_account_that_is_used_up_refuses_before_rows_are_read(
    seen: list[str],
) -> None:
    budget = budget_of()
    table_of(MIXED, budget=budget).release()
    seen.clear()
    with pytest.raises(BudgetExhaustedError):
        table_of(Watched(MIXED, seen), budget=budget).release()
    assert seen == []


def test_the_plan_decides_where_epsilon_is_left_open() -> None:
    table = table_of(MIXED, epsilon=None, budget=budget_of(queries=2)).release()
    record = table.record()
    assert record["epsilon"] == pytest.approx(3.0, rel=0.05)
    assert record["events"] == [
        {"kind": "pure", "epsilon": record["epsilon"], "sampling_rate": 1.0, "count": 1}
    ]
    assert sum(table.epsilons.values()) <= record["epsilon"]
    assert sum(table.epsilons.values()) == pytest.approx(record["epsilon"])


def test_a_filter_charges_what_the_table_says() -> None:
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, accounting="renyi", ledger=":memory:"
    )
    record = table_of(MIXED, epsilon=0.5, budget=budget).release().record()
    assert record["epsilon"] == 0.5
    assert budget.spent().queries == 1


def test_the_account_protects_one_kind_of_unit() -> None:
    budget = budget_of(queries=2)
    table_of(MIXED, epsilon=1.0, budget=budget).release()
    rows = [{**row, "who": i} for i, row in enumerate(MIXED)]
    with pytest.raises(PlanMismatchError):
        table_of(rows, epsilon=1.0, budget=budget, unit_key="who").release()
    assert spent(budget) == 1


BAD_ROWS = [
    ({"job": "nurse", "income": "low"}, InvalidParameterError, "age"),
    ({**ROW, "town": "Ash"}, InvalidParameterError, "town"),
    ({**ROW, "job": CANARY}, InvalidParameterError, "job"),
    ({**ROW, "job": None}, InvalidParameterError, "job"),
    ({**ROW, "age": None}, InvalidParameterError, "age"),
    ({**ROW, "age": CANARY}, InvalidParameterError, "age"),
    ({**ROW, "income": CANARY}, InvalidParameterError, "income"),
]


@pytest.mark.parametrize(("row", "kind", "said"), BAD_ROWS)
def test_bad_rows_cost_nothing_where_rows_can_be_read_twice(
    row: Any, kind: type[DPError], said: str, seen: list[str]
) -> None:
    budget = budget_of()
    table = table_of([*MIXED * 50, row], budget=budget)
    with pytest.raises(kind, match=said) as caught:
        table.release()
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    # Also where somebody prints what the library's frames hold.
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = [f for f in shown.stack if "langchain_dpicl" in f.filename]
    assert len(ours) > 3
    assert CANARY not in str([f.locals for f in ours])
    assert seen == []
    assert spent(budget) == 0


@pytest.mark.parametrize(("row", "kind", "said"), BAD_ROWS)
def test_bad_rows_that_come_once_cost_the_charge_and_release_nothing(
    row: Any, kind: type[DPError], said: str
) -> None:
    budget = budget_of(queries=2)
    rows = iter([*MIXED * 50, row])
    table = table_of(rows, epsilon=1.0, budget=budget, chunk_size=50)
    with pytest.raises(kind, match=rf"{said}.*Charge 1 .*only once") as caught:
        table.release()
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert table._collected is None
    # What is left of the rows is no table, and is not charged.
    with pytest.raises(InvalidParameterError, match="came only once"):
        table.examples(2)
    assert spent(budget) == 1


def test_rows_need_a_unit_id_where_units_are_named() -> None:
    budget = budget_of()
    rows = [{**ROW, "who": "a"}, {**ROW, "who": None}]
    with pytest.raises(UnitError, match="who"):
        table_of(rows, budget=budget, unit_key="who").release()
    assert spent(budget) == 0


@pytest.mark.parametrize("rows", [[], iter([])])
def test_no_rows_are_no_table(rows: Any) -> None:
    with pytest.raises(UnitError, match="no rows"):
        table_of(rows).release()


def test_no_account_no_table(seen: list[str]) -> None:
    with pytest.raises(NoBudgetError):
        LDPTable(Watched(MIXED, seen), SCHEMA, epsilon=1).release()
    personal = budget_of(scope="unit")
    with pytest.raises(InvalidParameterError, match="one by one"):
        table_of(Watched(MIXED, seen), budget=personal).release()
    assert seen == []


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"split": {"job": 6.0}}, "'age'"),
        ({"split": {"job": 1, "age": 1, "income": 1}}, "sums to 3"),
        ({"epsilon": None, "split": {"job": 1}}, "epsilon="),
        ({"model": "forest"}, "model"),
        ({"rows_per_unit": 2}, "unit_key="),
        ({"rows_per_unit": 0, "unit_key": "who"}, "rows_per_unit"),
        ({"unit_key": "job"}, "column of the schema"),
        ({"unit_key": ""}, "unit_key"),
        ({"extra_columns": "keep"}, "extra_columns"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"budget": "sqlite://"}, "budget"),
        ({"random": 7}, "SecureRandom"),
    ],
)
def test_terms_that_do_not_fit_are_refused_at_once(terms: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        table_of(MIXED, **terms)


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_rows_are_drawn_by_count(k: Any) -> None:
    with pytest.raises(InvalidParameterError, match="k"):
        table_of(MIXED).sample(k)


def test_the_record_is_checked_before_the_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = collecting.trial_record

    def unfit(*args: Any) -> Any:
        return {**trial(*args), "epsilon": 0.0}

    monkeypatch.setattr(collecting, "trial_record", unfit)
    budget = budget_of()
    with pytest.raises(DPError, match="epsilon"):
        table_of(MIXED, budget=budget).release()
    assert spent(budget) == 0


def test_chunks_change_nothing_but_the_order_of_draws() -> None:
    table = table_of(MIXED * 100, chunk_size=7, random=SeededRandom(1)).release()
    assert joint_of(table).sum() == 400
