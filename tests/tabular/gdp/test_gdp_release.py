"""When a table's release is charged, drawn and stored; and interruptions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.table_parts import JOBS, account, measured, people, people_schema

from langchain_dpicl.errors import (
    InvalidParameterError,
    PlanMismatchError,
    UnitError,
)
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    TableSchema,
)

MANY = [str(number) for number in range(100)]


def wide_schema() -> TableSchema:
    """Return a schema that makes ten thousand numbers out of one release."""
    return TableSchema(
        label="b",
        columns=[
            CategoricalColumn(name="a", values=MANY),
            CategoricalColumn(name="b", values=MANY),
            CategoricalColumn(name="who", values=["one", "two", "three"]),
        ],
    )


WIDE = [
    {"a": str(number % 100), "b": str(number % 7), "who": "one"}
    for number in range(500)
]


def noise_of(**terms: Any) -> np.ndarray[Any, Any]:
    """Return the noise on ten thousand counts of one release."""
    watched, table = measured(
        WIDE,
        wide_schema(),
        account(50),
        group_by="b",
        epsilon=0.75,
        split={"a": 0.5, "who": 0.25},
        **terms,
    )
    found = table.release().statistics
    return np.asarray(found.tallies[0] - watched.tallies[0]).ravel()


def fit(noise: np.ndarray[Any, Any], scale: float) -> float:
    """Return the p-value of noise being discrete Laplace of this scale."""
    reach = int(6 * scale)
    ratio = np.exp(-1 / scale)
    peak = (1 - ratio) / (1 + ratio)
    expected = {
        k: len(noise) * peak * ratio ** abs(k) for k in range(-reach, reach + 1)
    }
    seen = Counter(noise.tolist())
    rest = len(noise) - sum(seen[k] for k in expected)
    counts = [*(seen[k] for k in expected), rest]
    means = [*expected.values(), len(noise) - sum(expected.values())]
    return float(stats.chisquare(counts, means).pvalue)


def test_the_noise_on_a_count_has_the_scale_of_its_share() -> None:
    noise = noise_of()
    assert len(noise) == 10_000
    assert fit(noise, 1 / 0.5) > 1e-6
    # Broken: the whole epsilon for each column; half of it.
    assert fit(noise, 1 / 0.75) < 1e-6
    assert fit(noise, 1 / 0.25) < 1e-6


def test_the_noise_grows_with_the_rows_of_a_unit() -> None:
    noise = noise_of(unit_key="who", rows_per_unit=3)
    assert fit(noise, 3 / 0.5) > 1e-6
    assert fit(noise, 1 / 0.5) < 1e-6


def test_a_filter_pays_for_different_releases() -> None:
    budget = account(6.0, accounting="renyi", queries=3)
    one = GDPTable(people(900), people_schema(), budget=budget, epsilon=1.0)
    two = GDPTable(
        people(900), people_schema(), budget=budget, epsilon=2.0, group_by=[]
    )
    one.release()
    two.release()
    assert budget.spent().queries == 2
    assert 3.0 <= budget.spent().epsilon <= 6.0
    assert one.record()["epsilon"] == 1.0
    assert two.record()["epsilon"] == 2.0


def test_a_plan_is_for_one_kind_of_release() -> None:
    budget = account(4.0, queries=2)
    GDPTable(people(900), people_schema(), budget=budget).release()
    with pytest.raises(PlanMismatchError):
        GDPTable(
            people(900), people_schema(), budget=budget, sampling_rate=0.5
        ).release()


def test_bad_rows_are_found_before_the_charge_whoever_is_sampled() -> None:
    bad = [*people(50), {"age": 30, "pay": 1.0, "job": "pilot", "ill": "0"}]
    for seed in range(5):
        budget = account()
        table = GDPTable(
            bad,
            people_schema(),
            budget=budget,
            sampling_rate=0.01,
            random=SeededRandom(seed),
        )
        with pytest.raises(InvalidParameterError, match="'job'") as caught:
            table.release()
        assert "pilot" not in str(caught.value)
        assert budget.spent().queries == 0


def test_no_rows_are_refused_before_the_charge() -> None:
    budget = account()
    with pytest.raises(UnitError, match="no rows"):
        GDPTable([], people_schema(), budget=budget).release()
    assert budget.spent().queries == 0


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"rows_per_unit": 0}, "rows_per_unit"),
        ({"rows_per_unit": 2}, "unit_key"),
        ({"unit_key": ""}, "unit_key"),
        ({"unit_key": 7}, "unit_key"),
        ({"group_by": "color"}, "'color'"),
        ({"group_by": ["ill", "ill"]}, "twice"),
        ({"group_by": [3]}, "group_by"),
        ({"numeric": "median"}, "numeric"),
        ({"split": "domain"}, "split"),
        ({"split": "uneven"}, "split"),
        ({"split": {"age": 1.0}, "epsilon": 1.0}, "split"),
        ({"split": {"age": 1.0}}, "needs epsilon="),
        ({"split": {}}, "split"),
        (
            {
                "split": dict.fromkeys(["age", "pay", "job", "(rows)"], 0.3),
                "epsilon": 1,
            },
            "sums to 1.2",
        ),
        ({"split": dict.fromkeys(["age", "pay", "job", "(rows)"], 0.0)}, "split"),
        ({"small_groups": "maybe"}, "small_groups"),
        ({"extra_columns": "maybe"}, "extra_columns"),
        ({"random": np.random.default_rng(1)}, "random"),
        ({"budget": 7}, "budget"),
    ],
)
def test_wrong_terms_are_named(terms: dict[str, Any], named: str) -> None:
    given = {"budget": account(), **terms}
    with pytest.raises(InvalidParameterError, match=named.replace("(", r"\(")):
        GDPTable(people(9), people_schema(), **given).release()


def test_a_schema_is_needed() -> None:
    with pytest.raises(InvalidParameterError, match="TableSchema"):
        GDPTable(people(9), {"age": "int"})  # type: ignore[arg-type]


def test_too_many_groups_are_refused() -> None:
    columns = [
        CategoricalColumn(name=name, values=list(map(str, range(1000))))
        for name in ("a", "b", "c")
    ]
    schema = TableSchema(label="c", columns=columns)
    with pytest.raises(InvalidParameterError, match="coarser bins"):
        GDPTable([], schema, group_by=["a", "b"])


def test_a_given_split_decides_what_is_charged() -> None:
    split = {"age": 1.0, "pay": 0.5, "job": 0.25, "(rows)": 0.25}
    table = GDPTable(
        people(600), people_schema(), budget=account(3.0), epsilon=2, split=split
    )
    record = table.release().record()
    assert record["epsilon"] == pytest.approx(2.0)
    assert record["parameters"]["epsilons"] == pytest.approx(split)
    assert set(JOBS) >= {row["job"] for row in table.sample(3)}


def test_the_account_says_whose_rows_it_protects() -> None:
    rows = [{**row, "who": f"p{place % 50}"} for place, row in enumerate(people(300))]
    table = GDPTable(
        rows,
        people_schema(),
        # So large that the noise's standard deviation is below one row.
        budget=account(100.0),
        unit_key="who",
        rows_per_unit=4,
        small_groups="keep",
    )
    record = table.release().record()
    assert record["unit"] == "all rows with the same 'who'"
    assert record["parameters"]["rows_per_unit"] == 4
    assert sum(size.value for size in table.release().statistics.sizes) < 260


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4, 100])
def test_a_plan_of_one_release_is_paid_with_all_of_epsilon(epsilon: float) -> None:
    table = GDPTable(people(500), people_schema(), budget=account(epsilon))
    spent = table.release().record()["epsilon"]
    assert spent == pytest.approx(epsilon, rel=1e-5)
    sampled = GDPTable(
        people(500),
        people_schema(),
        budget=account(epsilon),
        sampling_rate=0.5,
    )
    spent = sampled.release().record()["epsilon"]
    assert spent == pytest.approx(epsilon, rel=1e-5)
