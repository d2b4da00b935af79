"""Which rows come first: those that show how labels differ, out of pairs of columns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.ldp_parts import budget_of

from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular import CategoricalColumn, LDPTable, TableSchema

SCHEMA = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse", "diver"]),
        CategoricalColumn(name="ill", values=["no", "yes", "never"]),
        CategoricalColumn(name="smokes", values=["no", "yes"]),
    ],
)


def rows_of(counts: dict[tuple[str, str, str], int]) -> list[dict[str, str]]:
    return [
        {"job": job, "ill": ill, "smokes": smokes}
        for (job, ill, smokes), count in counts.items()
        for _ in range(count)
    ]


# Clerks who don't smoke are the most frequent everywhere; what tells the ill ones from
# the others is that some are divers, and some smoke.
ROWS = rows_of(
    {
        ("clerk", "no", "no"): 900,
        ("nurse", "no", "no"): 100,
        ("clerk", "yes", "no"): 240,
        ("diver", "yes", "no"): 110,
        ("clerk", "yes", "yes"): 150,
    }
)


def table_of(rows: Any, epsilon: float = 300.0, **terms: Any) -> LDPTable:
    return LDPTable(rows, SCHEMA, budget=budget_of(epsilon=epsilon), **terms)


def test_the_first_row_of_each_label_tells_it_from_the_others() -> None:
    rows = table_of(ROWS).sample(6)
    assert rows[0] == {"job": "clerk", "ill": "no", "smokes": "no"}
    assert rows[1] == {"job": "diver", "ill": "yes", "smokes": "yes"}
    assert [row["ill"] for row in rows] == ["no", "yes"] * 3
    drawn = Counter(
        tuple(row.values()) for row in table_of(ROWS, model="joint").sample(4000)[2:]
    )
    # The telling row is nobody's: drawn rows follow the table.
    assert ("diver", "yes", "yes") not in drawn
    assert 0.4 < drawn["clerk", "yes", "no"] / 2000 < 0.56


@pytest.mark.parametrize("model", ["joint", "label"])
def test_it_rests_on_pairs_of_columns_whatever_model_was_fitted(model: Any) -> None:
    rows = table_of(ROWS, model=model).sample(2)
    assert rows[1] == {"job": "diver", "ill": "yes", "smokes": "yes"}


def test_it_needs_less_epsilon_than_whole_rows_do() -> None:
    """At an epsilon that blurs rows, the telling ones are still right."""
    right = 0
    for seed in range(10):
        table = table_of(ROWS * 20, epsilon=3.0, random=SeededRandom(seed))
        told = table.sample(2)
        right += {row["ill"]: row["smokes"] for row in told} == {
            "no": "no",
            "yes": "yes",
        }
    assert right == 10


def test_with_one_label_it_is_the_most_frequent_row() -> None:
    rows = rows_of({("nurse", "no", "yes"): 300, ("clerk", "no", "yes"): 200})
    assert table_of(rows).sample(1) == [{"job": "nurse", "ill": "no", "smokes": "yes"}]


def test_fewer_rows_than_labels_take_the_most_frequent_label() -> None:
    assert table_of(ROWS).sample(1)[0]["ill"] == "no"


def test_rows_that_are_not_balanced_are_all_drawn() -> None:
    rows = table_of(ROWS, model="joint").sample(3000, balanced=False)
    share = np.mean([row["ill"] == "yes" for row in rows])
    assert abs(share - 1 / 3) < 0.06
    assert ("diver", "yes", "yes") not in {tuple(row.values()) for row in rows}
