"""A curator's table: what is reported of it, and what is made of the reports."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.ldp_parts import (
    MIXED,
    ROW,
    SCHEMA,
    SIZES,
    budget_of,
    joint_of,
    table_of,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular.ldp.table import LDPTable
from langchain_dpicl.tabular.schema import CategoricalColumn
from langchain_dpicl.tabular.schema.table import TableSchema

EVEN = {"job": 2.0, "age": 2.0, "income": 2.0}
HALVES = {"job": 1.0, "age": 1.0, "income": 1.0}


def test_a_unit_is_reported_no_more_often_than_its_cap() -> None:
    rows = [{**ROW, "who": "a"}] * 7 + [{**ROW, "who": "b"}] + [{**ROW, "who": "c"}] * 2
    table = table_of(rows, unit_key="who", rows_per_unit=2).release()
    assert table.n_reports == 2 + 1 + 2
    record = table.record()
    assert record["unit_key"] == "who"
    assert "at most 2" in record["unit"]
    assert record["epsilon"] == 6.0
    assert record["parameters"]["epsilons"] == HALVES
    assert record["parameters"]["rows_per_unit"] == 2


@pytest.mark.parametrize("make", [list, iter, pd.DataFrame])
def test_rows_come_in_any_container(make: Any) -> None:
    table = table_of(make(MIXED * 250), random=SeededRandom(2))
    expected = table_of(MIXED * 250, random=SeededRandom(2), chunk_size=50_000)
    assert np.array_equal(joint_of(table.release()), joint_of(expected.release()))


def test_shares_and_errors_are_of_values_and_bins() -> None:
    table = table_of(MIXED * 5000, random=SeededRandom(5)).release()
    found = table.standard_errors()
    assert {name: len(values) for name, values in found.items()} == SIZES
    truth = {"below 25": 0.25, "25 to 50": 0.25, "50 or more": 0.5}
    assert found["age"].keys() == truth.keys()
    for text, (share, error) in found["age"].items():
        assert 0 < error < 0.02
        # Six standard errors: one in a billion.
        assert abs(share - truth[text]) < 6 * error


def test_intervals_of_a_joint_tables_errors_hold_in_95_percent() -> None:
    rows = [ROW] * 900 + [MIXED[1]] * 97 + [MIXED[2]] * 3
    truth = {
        "job": {"nurse": 0.9, "clerk": 0.097, "smith": 0.003},
        "age": {"50 or more": 0.9, "25 to 50": 0.097, "below 25": 0.003},
        "income": {"high": 0.9, "low": 0.1},
    }
    held = []
    for seed in range(25):
        table = table_of(rows, epsilon=2.0, model="joint", random=SeededRandom(seed))
        for name, values in table.release().standard_errors().items():
            for text, (share, error) in values.items():
                held.append(abs(share - truth[name][text]) <= 1.96 * error)
    assert np.mean(held) >= 0.95 - 3 * (0.95 * 0.05 / len(held)) ** 0.5


@pytest.mark.parametrize(("k", "each"), [(1, {0, 1}), (6, {3}), (7, {3, 4})])
def test_balanced_rows_have_labels_alike(k: int, each: set[int]) -> None:
    table = table_of(MIXED * 500).release()
    rows = table.sample(k)
    assert len(rows) == k
    labels = Counter(row["income"] for row in rows)
    assert {labels["low"], labels["high"]} == each
    for row in rows:
        assert list(row) == list(SIZES)
        assert row["age"] in ("below 25", "25 to 50", "50 or more")


def test_rows_follow_the_table_and_their_label() -> None:
    budget = budget_of(epsilon=300)
    table = table_of(MIXED * 500, epsilon=300.0, budget=budget, model="joint")
    rows = table.sample(4000, balanced=False)
    seen = Counter((row["job"], row["age"], row["income"]) for row in rows)
    # At this epsilon every report is true: 3 kinds of rows, a half and two quarters.
    assert len(seen) == 3
    assert min(seen.values()) > 800
    assert {income for job, _, income in seen if job == "nurse"} == {"high"}


def test_a_label_without_weight_is_left_out() -> None:
    rich = table_of([ROW] * 500, epsilon=300.0, budget=budget_of(epsilon=300))
    assert {row["income"] for row in rich.sample(9)} == {"high"}


def test_examples_carry_the_record() -> None:
    table = table_of(MIXED * 500)
    examples = table.examples(4)
    assert examples[0].keys() == {"text", "label"}
    assert "The job is" in examples[0]["text"]
    record = examples.record
    assert record["mechanism"] == "ldp_table"
    assert record["relation"] == "replace"
    assert "how many rows there are is public" in record["neighbors"]
    assert record["events"] == [
        {"kind": "pure", "epsilon": 6.0, "sampling_rate": 1.0, "count": 1}
    ]
    assert (record["epsilon"], record["delta"], record["charge"]) == (6.0, 0.0, 1)
    assert record["account"]["queries_spent"] == 1
    told = record["parameters"]
    assert told["schema"] == SCHEMA.fingerprint()
    assert told["n_reports"] == 2000
    assert told["epsilons"] == EVEN
    assert told["randomized_by"] == "curator"
    assert set(told["standard_errors"]) == set(SIZES)
    assert "random" not in record
    assert json.loads(json.dumps(record)) == record
    # Drawing again is free.
    table.examples(40)
    assert table.record()["account"]["queries_spent"] == 1


def test_a_chain_classifies_rows_with_the_examples() -> None:
    table = table_of(MIXED * 2000)
    chain = table.classification_chain(OfflineChatModel(), k=4)
    assert chain.invoke({"job": "nurse", "age": 61}) in ("low", "high", None)


def test_a_summary_has_the_largest_shares_with_their_margins() -> None:
    table = table_of(MIXED * 5000, random=SeededRandom(5)).release()
    lines = table.summary().splitlines()
    assert lines[0] == "20000 report(s) at epsilon 6:"
    share, error = table.standard_errors()["job"]["nurse"]
    assert lines[1].startswith(f"  job: nurse {share:.1%} +- {1.96 * error:.1%}, ")
    assert "95 %" in lines[-1]


def test_what_is_not_for_production_says_so() -> None:
    seeded = table_of(MIXED, random=SeededRandom(1)).release()
    assert "NOT SECURE" in seeded.record()["random"]
    assert "NOT SECURE" in repr(seeded)
    assert "NOT SECURE" not in repr(table_of(MIXED))


def test_nothing_private_is_in_repr_and_nothing_is_pickled() -> None:
    schema = TableSchema(
        label="income",
        columns=[
            CategoricalColumn(name="job", values=["clerk", "nurse"], other="clerk"),
            SCHEMA.label_column,
        ],
    )
    rows = [{"job": "canary-7391", "income": "low"}] * 20
    table = LDPTable(rows, schema, epsilon=1, budget=budget_of(epsilon=1))
    assert "canary" not in repr(vars(table))
    with pytest.raises(TypeError, match="resume=True"):
        pickle.dumps(table)
    table.release()
    assert "canary" not in repr(vars(table)) + str(table.record()) + table.summary()
    # Once there are reports, the rows are let go.
    assert table._rows is None


async def test_collecting_does_not_block_the_event_loop() -> None:
    tables = [table_of(MIXED * 100, budget=budget_of()) for _ in range(2)]
    await asyncio.gather(*(table.arelease() for table in tables))
    assert [table.n_reports for table in tables] == [400, 400]
    assert len(await tables[0].aexamples(3)) == 3


def test_one_row_is_a_table() -> None:
    table = table_of([ROW]).release()
    assert table.n_reports == 1
    assert "1 report(s)" in table.summary()


def test_more_columns_than_a_joint_table_holds() -> None:
    features = [
        CategoricalColumn(name=f"c{i}", values=["a", "b", "c"]) for i in range(20)
    ]
    schema = TableSchema(label="income", columns=[*features, SCHEMA.label_column])
    row = {f"c{i}": "a" for i in range(20)}
    rows = [{**row, "income": "low"}, {**dict.fromkeys(row, "b"), "income": "high"}]
    table = LDPTable(
        rows * 2000,
        schema,
        epsilon=105,
        budget=budget_of(epsilon=105),
        random=SeededRandom(9),
    )
    drawn = table.sample(20)
    assert table.record()["parameters"]["model"] == "label"
    truth = {"low": "a", "high": "b"}
    agree = [row[f"c{i}"] == truth[row["income"]] for row in drawn for i in range(20)]
    assert np.mean(agree) > 0.8
    with pytest.raises(InvalidParameterError, match="too large"):
        LDPTable(
            rows, schema, epsilon=105, model="joint", budget=budget_of(epsilon=105)
        ).release()
