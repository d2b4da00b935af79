"""A curator's table: what is read, charged and reported, and when."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.draws import before_draws, full
from support.ldp_parts import (
    MIXED,
    ROW,
    SCHEMA,
    SIZES,
    Watched,
    budget_of,
    joint_of,
    table_of,
)

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.budget import Purchase
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    UnitError,
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


@pytest.mark.parametrize("make", [iter, pd.DataFrame])
def test_rows_come_in_any_container(make: Any) -> None:
    def released(rows: Any) -> np.ndarray:
        with seeded(2):
            return joint_of(table_of(rows).release())

    assert np.array_equal(released(make(ROWS)), released(ROWS))


def test_intervals_of_shares_hold_in_95_percent() -> None:
    rows = [ROW] * 900 + [MIXED[1]] * 97 + [MIXED[2]] * 3
    truth = {
        "job": {"nurse": 0.9, "clerk": 0.097, "smith": 0.003},
        "age": {"50 or more": 0.9, "25 to 50": 0.097, "below 25": 0.003},
        "income": {"high": 0.9, "low": 0.1},
    }
    held = []
    for seed in range(30):
        # Half of the invitations are not answered, and count as evenly spread.
        invited = 2000 if seed % 2 else 1000
        with seeded(seed):
            table = table_of(rows, epsilon=2.0, invited=invited).release()
        assert {n: len(v) for n, v in table.standard_errors().items()} == SIZES
        for name, values in table.standard_errors().items():
            for text, (share, error) in values.items():
                part = 1000 / invited
                real = part * truth[name][text] + (1 - part) / SIZES[name]
                held.append(abs(share - real) <= 1.96 * error)
    assert np.mean(held) >= 0.95 - 3 * (0.95 * 0.05 / len(held)) ** 0.5


@pytest.mark.parametrize(("k", "each"), [(1, {0, 1}), (6, {3}), (7, {3, 4})])
def test_balanced_rows_have_labels_alike(k: int, each: set[int]) -> None:
    rows = table_of(MIXED * 500).sample(k)
    labels = Counter(row["income"] for row in rows)
    assert {labels["low"], labels["high"]} == each
    for row in rows:
        assert list(row) == list(SIZES)
        assert row["age"] in ("below 25", "25 to 50", "50 or more")


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


def test_a_summary_has_the_largest_shares_with_their_margins() -> None:
    table = table_of(MIXED * 5000).release()
    lines = table.summary().splitlines()
    assert lines[0] == "20000 report(s) at epsilon 6:"
    share, error = table.standard_errors()["job"]["nurse"]
    assert abs(share - 0.5) < 6 * error < 0.12
    assert lines[1].startswith(f"  job: nurse {share:.1%} +- {1.96 * error:.1%}, ")
    assert "95 %" in lines[-1]
    assert "1 report(s)" in table_of([ROW]).release().summary()


def test_a_seed_is_told() -> None:
    with seeded(1):
        table = table_of(MIXED).release()
    assert "NOT SECURE" in table.record()["random"]


def test_nothing_private_is_in_repr_and_nothing_is_pickled() -> None:
    job = CategoricalColumn(name="job", values=["clerk", "nurse"], other="clerk")
    schema = TableSchema(label="income", columns=[job, SCHEMA.label_column])
    table = table_of([{"job": CANARY, "income": "low"}] * 20, schema)
    assert CANARY not in repr(vars(table)) + repr(table)
    with pytest.raises(TypeError, match="resume=True"):
        pickle.dumps(table)
    table.release()
    assert CANARY not in repr(vars(table)) + str(table.record()) + table.summary()
    # Once there are reports, the rows are let go.
    assert table._rows is None


async def test_collecting_does_not_block_the_event_loop() -> None:
    tables = [table_of(ROWS) for _ in range(2)]
    await asyncio.gather(*(table.arelease() for table in tables))
    assert [table.n_reports for table in tables] == [200, 200]
    assert len(await tables[0].aexamples(3)) == 3


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
    table = table_of(ROWS, epsilon=1.0, budget=budget)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: table.release(), range(4)))
    table.sample(50)
    assert spent(budget) == 1
    table_of(MIXED, epsilon=1.0, budget=budget).release()
    assert spent(budget) == 2


def test_an_account_that_is_used_up_refuses_before_rows_are_read(
    seen: list[str],
) -> None:
    budget = budget_of()
    table_of(MIXED, budget=budget).release()
    seen.clear()
    with pytest.raises(BudgetExhaustedError, match=r"release\(resume=True\) takes it"):
        table_of(Watched(MIXED, seen), budget=budget).release()
    assert seen == []


def test_the_plan_decides_where_epsilon_is_left_open() -> None:
    table = table_of(MIXED, epsilon=None, budget=budget_of(queries=2)).release()
    record = table.record()
    assert record["epsilon"] == pytest.approx(3.0, rel=0.05)
    assert record["events"][0]["epsilon"] == record["epsilon"]
    assert sum(table.epsilons.values()) <= record["epsilon"]
    assert sum(table.epsilons.values()) == pytest.approx(record["epsilon"])


BAD_ROWS = [
    ({"job": "nurse", "income": "low"}, "age"),
    ({**ROW, "town": "Ash"}, "town"),
    ({**ROW, "job": CANARY}, "job"),
    ({**ROW, "job": None}, "job"),
    ({**ROW, "age": CANARY}, "age"),
    ({**ROW, "job": object()}, "job"),
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


def test_rows_need_a_unit_id_where_units_are_named() -> None:
    budget = budget_of()
    rows = [{**ROW, "who": "a"}, {**ROW, "who": None}]
    for refused in (table_of(rows, budget=budget, unit_key="who"), table_of([])):
        with pytest.raises(UnitError, match=r"who|no rows"):
            refused.release()
    assert spent(budget) == 0


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
        ({"split": {"job": 1, "age": 1, "income": 1}}, "sums to 3"),
        ({"epsilon": None, "split": {"job": 1}}, "epsilon="),
        ({"model": "forest"}, "model"),
        ({"rows_per_unit": 2}, "unit_key="),
        ({"rows_per_unit": 0, "unit_key": "who"}, "rows_per_unit"),
        ({"rows_per_unit": 10**400, "unit_key": "who"}, "rows_per_unit must be from 1"),
        ({"unit_key": "job"}, "column of the schema"),
        ({"unit_key": ""}, "unit_key"),
        ({"budget": "sqlite://"}, "budget"),
    ],
)
def test_terms_that_do_not_fit_are_refused_at_once(terms: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        table_of(MIXED, **{"budget": budget_of(), **terms})


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_rows_are_drawn_by_count(k: Any) -> None:
    budget = budget_of()
    with pytest.raises(InvalidParameterError, match="k"):
        table_of(MIXED, budget=budget).sample(k)
    assert spent(budget) == 0


# -- drawn once ------------------------------------------------------------------------


def test_of_several_at_once_one_pays_and_draws_and_the_others_take_its_counts(
    tmp_path: Path, seen: list[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    budget_of(url)
    begun = threading.Barrier(3)

    class Rows(list[Any]):
        waits = True

        def __iter__(self) -> Any:
            if self.waits:
                # All have looked for stored counts by now, and found none.
                self.waits = False
                begun.wait(timeout=60)
            return super().__iter__()

    def released(_: int) -> Any:
        return table_of(Rows(ROWS), budget=budget_of(url)).release(resume=True)

    with ThreadPoolExecutor(3) as pool:
        one, *others = pool.map(released, range(3))
    for other in others:
        assert np.array_equal(joint_of(one), joint_of(other))
        assert one.record() == other.record()
    assert spent(budget_of(url)) == 1
    assert seen.count(f"draw {len(ROWS)}") == 3


def test_other_terms_are_another_collection() -> None:
    budget = budget_of(queries=6, epsilon=36)
    table_of(ROWS, budget=budget).release()
    for terms in ({"invited": 400}, {"split": {"job": 2.0, "age": 2.0, "income": 2.0}}):
        if "invited" in terms:
            other = budget_of(queries=6, epsilon=36)
            table_of(ROWS, budget=other, invited=500).release()
            table_of(ROWS, budget=other, **terms).release(resume=True)
            assert spent(other) == 2
        else:
            table_of(ROWS, budget=budget, **terms).release(resume=True)
    with seeded(1):
        table_of(ROWS, budget=budget).release(resume=True)
    assert spent(budget) == 3
    # Which model is fitted is free.
    table_of(ROWS, budget=budget, model="joint").release(resume=True)
    assert spent(budget) == 3


def test_counts_that_could_not_be_stored_are_in_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, drawn = budget_of(), list[Any]()
    before_draws(monkeypatch, lambda _, value: full(drawn.append(value)))
    with pytest.raises(LedgerError, match="full") as caught:
        table_of(ROWS, budget=budget).release()
    frame, shown = caught.value.__traceback__, list[Any]()
    while frame is not None:
        if frame.tb_frame.f_code.co_filename != __file__:
            shown.extend(frame.tb_frame.f_locals.values())
        frame = frame.tb_next
    assert shown, "frames are looked at"
    assert not any(isinstance(value, reports.ReportCounts) for value in shown)
    assert repr(drawn[0])[1:-1] not in repr(shown)


def test_resumed_counts_have_the_noise_of_the_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = budget_of()
    with monkeypatch.context() as patch:
        patch.setattr(reports, "randomize", lambda *_, **__: 1 / 0)
        with pytest.raises((ZeroDivisionError, DPError)):
            table_of(ROWS, budget=budget).release()
    table = table_of([ROW] * 4000, budget=budget).release(resume=True)
    kept = joint_of(table).sum(axis=(1, 2))[1] / 4000
    odds = np.exp(table.epsilons["job"])
    assert abs(kept - odds / (odds + 2)) < 0.05
    assert spent(budget) == 1
