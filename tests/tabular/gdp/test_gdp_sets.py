"""Columns that hold sets: who counts for what, and what is said of parts and wholes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_parts import account

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPClient,
    LDPTable,
    TableSchema,
)

DRUGS = ("aspirin", "iron")
EFFECTS = ("nausea", "rash", "cough", "itch")
ITEMS = CategoricalColumn(name="effects", values=EFFECTS, max_items=2)
SCHEMA = TableSchema(
    label="drug", columns=[CategoricalColumn(name="drug", values=DRUGS), ITEMS]
)
PAIR = ("drug", "effects")
Row = dict[str, Any]


def people(count: int, seed: int = 1) -> list[Row]:
    draws = random.Random(seed)
    return [
        {
            "drug": DRUGS[n % 2],
            "effects": draws.sample(EFFECTS[: 2 + 2 * (n % 2)], n % 3),
            "who": n,
        }
        for n in range(count)
    ]


def counted(row: Row) -> list[str]:
    """Return what a row counts for: the first two in the order of the schema."""
    return [effect for effect in EFFECTS if effect in row["effects"]][:2]


def table_of(rows: Any, epsilon: float = 1e4, **terms: Any) -> GDPTable:
    given = {"budget": account(epsilon), "unit_key": "who", **terms}
    return GDPTable(rows, SCHEMA, **given)


CELLS = st.lists(st.sampled_from([*EFFECTS, " rash "]), max_size=6)


@given(st.lists(CELLS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_each_row_counts_for_the_first_values_of_its_own_cell(
    cells: list[list[str]], order: random.Random
) -> None:
    plain = [[item.strip() for item in cell] for cell in cells]
    expected = [
        [code for code, value in enumerate(EFFECTS) if value in cell][:2]
        for cell in plain
    ]
    found = ITEMS.codes(cells)
    assert [[c for c in own if c >= 0] for own in found.tolist()] == expected
    for form in (tuple, set, frozenset, lambda cell: order.sample(cell, len(cell))):
        assert ITEMS.codes([form(cell) for cell in cells]).tolist() == (found.tolist())
    for place, cell in enumerate(cells):
        assert ITEMS.codes([cell]).tolist() == [found[place].tolist()]


@pytest.mark.parametrize("form", [pd.DataFrame, pa.Table.from_pylist])
def test_counts_are_those_of_a_counter(form: Any) -> None:
    rows = people(200)
    found = table_of(form(rows)).release().statistics
    pairs = Counter((row["drug"], own) for row in rows for own in counted(row))
    for drug in DRUGS:
        told = dict(found.counts("effects", {"drug": drug}))
        assert {v: n.value for v, n in told.items()} == {
            effect: pairs[drug, effect] for effect in EFFECTS
        }
    by_drug = dict(found.counts("drug", {"effects": "rash"}))
    assert {v: n.value for v, n in by_drug.items()} == {
        drug: pairs[drug, "rash"] for drug in DRUGS
    }
    # People are counted by a table of their own: a sum over a set counts mentions.
    assert found.total()[0] == 200
    assert found.terms.measure == (("drug",), PAIR)
    alone = table_of(rows, measure=[PAIR]).release().statistics
    for ask in (alone.total, lambda: alone.table("drug")):
        with pytest.raises(InvalidParameterError, match="count no rows"):
            ask()
    assert alone.table("effects").noisy.sum() == sum(pairs.values())


def test_sentences_tell_no_sum_over_a_set_as_a_number_of_people() -> None:
    rows = people(300)
    with_people = table_of(rows).documents(people="patients")
    mentions_only = table_of(rows, measure=[PAIR]).documents(people="patients")
    for one in with_people:
        meta = one.metadata
        size = sum(
            row["drug"] == meta["value"]
            if meta["by"] == "drug"
            else not meta["by"] or meta["value"] in counted(row)
            for row in rows
        )
        assert meta["size"] == size
        assert ("(each may have several)" in one.page_content) == (
            meta["of"] == "effects"
        )
    asked = {(d.metadata["of"], d.metadata["by"]): d for d in mentions_only}
    assert ("drug", "") not in asked
    by_drug = asked["effects", "drug"]
    assert "size" not in by_drug.metadata
    assert "of about" not in by_drug.page_content
    assert asked["drug", "effects"].metadata["size"] > 0
    about = asked["drug", "effects"].page_content
    assert "patients with itch among their effects: " in about


def test_rows_that_are_drawn_show_one_value_of_a_set() -> None:
    rows = people(600)
    drawn = table_of(rows).sample(3000, balanced=False)
    for drug in DRUGS:
        mentions = Counter(e for r in rows if r["drug"] == drug for e in counted(r))
        seen = Counter(row["effects"] for row in drawn if row["drug"] == drug)
        for effect in EFFECTS:
            share = mentions[effect] / mentions.total()
            assert abs(seen[effect] / seen.total() - share) < 0.06
    table = table_of(rows)
    assert table.text({"drug": "iron", "effects": ["rash", "nausea"]}) == (
        "The effects is nausea, rash."
    )
    assert table.examples(1)[0]["text"].startswith("The effects is ")


def test_sets_are_refused_where_nobody_counts_them() -> None:
    with pytest.raises(InvalidParameterError, match="GDPTable"):
        LDPTable(
            people(9), SCHEMA, unit_key="who", budget=account(1), participation="public"
        ).release()
    with pytest.raises(InvalidParameterError, match="GDPTable"):
        LDPClient(SCHEMA, epsilon=1).report({"drug": "iron", "effects": ["rash"]})
    with pytest.raises(InvalidParameterError, match="label"):
        TableSchema(label="effects", columns=SCHEMA.columns)
    for most in (0, 5):
        with pytest.raises(InvalidParameterError, match="from 1 to 4"):
            ITEMS.model_copy(update={"max_items": most})
