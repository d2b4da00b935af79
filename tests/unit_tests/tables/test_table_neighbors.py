"""One person more or less moves a released table by that person's rows, at most R.

With the same coins two releases have the same noise, so their difference is exactly
what the rows differ by. Nothing else may follow from a person's rows: not which rows of
others count, nor how others' cells are read, whatever the order, the form or the
spelling.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from faces import (
    InvalidParameterError,
    UnitError,
    counts,
    planned,
    table_of,
    tabular,
    tallied,
)
from hypothesis import given
from hypothesis import strategies as st
from unit_tests.tables.parts import (
    JOBS,
    MEASURE,
    SCHEMA,
    Row,
    exact,
    moved,
    people,
    person,
    released,
    told,
)

OTHERS = [{**row, "who": f"p{n % 9}"} for n, row in enumerate(people(20))]
MOST = 2
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.sampled_from([-(10**9), 20, 39.0, 40, 59, 60, 10**12]),
            "job": st.sampled_from([*JOBS, " nurse ", "clerk\n"]),
            "ill": st.sampled_from([0, 1, "0", "1", " 1"]),
        }
    ),
    min_size=1,
    max_size=5,
)


def spelled(row: Row) -> Row:
    """Return a row in the schema's spelling."""
    return {**row, "job": row["job"].strip(), "ill": str(int(float(row["ill"])))}


BEFORE = cache(lambda release: release(OTHERS))


def check_contribution(
    newcomer: list[Row], release: Callable[[list[Row]], Any], seed: int = 3
) -> None:
    """Check that a person adds some of the own rows, `MOST` at most, and no more."""
    rows = [*OTHERS, *({**row, "who": "newcomer"} for row in newcomer)]
    random.Random(seed).shuffle(rows)
    pairs, ages = moved(release(rows), BEFORE(release))
    own_pairs, own_ages = exact([spelled(row) for row in newcomer])
    for difference, own in ((pairs, own_pairs), (ages, own_ages)):
        assert difference.total() == min(MOST, len(newcomer))
        assert not difference - own, "a cell that is not the newcomer's moved"
        assert not any(count < 0 for count in difference.values())


def of_units(rows: Any, **terms: Any) -> Any:
    """Release a table of at most `MOST` rows a person, always with the same coins."""
    return released(rows, rows_per_unit=MOST, seed=7, **terms)


BY_NOISE = {n: partial(of_units, noise=n) for n in ("laplace", "gaussian")}


@pytest.mark.promise("table-neighbors")
@pytest.mark.parametrize("noise", BY_NOISE)
@given(newcomer=ROWS, seed=st.integers(0, 99))
def test_a_person_moves_the_tables_by_the_own_rows(
    noise: str, newcomer: list[Row], seed: int
) -> None:
    check_contribution(newcomer, BY_NOISE[noise], seed)


@pytest.mark.promise("table-neighbors", twin=True)
@pytest.mark.parametrize(
    "broken",
    [
        # Every row is taken for a person of its own.
        lambda rows: of_units([{**r, "who": str(n)} for n, r in enumerate(rows)]),
        # The newcomer's rows are entered twice, as two people's.
        lambda rows: of_units([*rows, *({**r, "who": r["who"] + "b"} for r in rows)]),
        # The first rows of the file count, so that a row in front displaces another.
        lambda rows: of_units(rows[: len(OTHERS)]),
    ],
    ids=["rows as people", "twice", "the first rows"],
)
def test_twin_that_moves_more(broken: Callable[[list[Row]], Any]) -> None:
    with pytest.raises(AssertionError):
        check_contribution([person(4)] * 4, broken, seed=1)


def in_parts(rows: list[Row]) -> Iterator[Row]:
    """Yield rows as a cursor does, once."""
    yield from rows


class Stream:
    """An object with Arrow's C stream, and no other face."""

    def __init__(self, rows: list[Row]) -> None:
        parts = [rows[n : n + 7] for n in range(0, len(rows), 7)]
        self._table = pa.concat_tables(map(pa.Table.from_pylist, parts))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[list[Row]], Any]] = {
    "iterator": in_parts,
    "backwards": lambda rows: rows[::-1],
    "other columns first": lambda rows: [dict(reversed(row.items())) for row in rows],
    "arrow table": pa.Table.from_pylist,
    "arrow stream": Stream,
    "frame": lambda rows: pd.DataFrame(rows, dtype=object),
}


@pytest.mark.promise("table-forms")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_order_and_form_of_rows_change_nothing(
    form: Callable[[list[Row]], Any],
) -> None:
    # Whose rows count is decided by the rows themselves, not by their places.
    assert of_units(form(OTHERS)) == of_units(OTHERS)


@pytest.mark.promise("table-forms")
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_partitions_add_up_to_the_table(seed: int, parts: int) -> None:
    rows = people(24)
    random.Random(seed).shuffle(rows)
    cut = [rows[n::parts] for n in range(parts)]
    found = tallied(cut, SCHEMA, measure=MEASURE, unit_key="who").release()
    pairs, ages = told(found)
    assert (Counter(pairs), Counter(ages)) == exact(rows)


@pytest.mark.promise("table-parts-disjoint")
def test_a_person_in_two_parts_is_refused() -> None:
    with pytest.raises(UnitError):
        tallied([OTHERS[:10], OTHERS[5:]], SCHEMA, measure=["job"], unit_key="who")


# --- how a cell is read ---------------------------------------------------------------

WARDS = tabular.TableSchema(
    label="ill",
    columns=[
        tabular.CategoricalColumn(
            name="ward", values=["1", "01", "x", "?", "-"], other="?", missing="-"
        ),
        tabular.CategoricalColumn(name="ill", values=["0", "1"]),
    ],
)
CELLS = [1, "1", "01", "x", " x", "X", "001", None, "", True, "1.0", float("nan")]


def wards(rows: list[Row]) -> Counter[str]:
    """Return how many rows each ward has, without noise that counts."""
    table = table_of("GDPTable", rows, WARDS, measure=["ward"], epsilon=1e5).release()
    return Counter({ward: count for (ward,), count in counts(table, "ward").items()})


def check_cells(read: Callable[[list[Row]], Counter[str]]) -> None:
    """Check that each cell is read the same, whatever stands in the others."""
    rows = [{"ward": cell, "ill": 0} for cell in CELLS]
    alone = [read([row]) for row in rows]
    for end in range(2, len(rows) + 1):
        for part in (slice(end), slice(-end, None)):
            expected = sum(alone[part], Counter[str]())
            assert read(rows[part]) == expected, CELLS[part]


@pytest.mark.promise("cell-alone")
def test_a_cell_is_read_without_regard_to_others() -> None:
    check_cells(wards)
    # A float was a whole number before a reader guessed by other cells.
    with pytest.raises(InvalidParameterError):
        wards([{"ward": 1.0, "ill": 0}])
    assert wards([{"ward": "01", "ill": 0}]) == Counter({"01": 1})


@pytest.mark.promise("cell-alone", twin=True)
def test_twin_whose_column_has_a_type() -> None:
    def inferred(rows: list[Row]) -> Counter[str]:
        # As `pandas.read_csv` does: numbers, unless some cell is text.
        texts = ["" if row["ward"] is None else str(row["ward"]) for row in rows]
        if all(text.strip().isdigit() for text in texts):
            texts = [str(int(text)) for text in texts]
        return wards([{**r, "ward": t} for r, t in zip(rows, texts, strict=True)])

    with pytest.raises(AssertionError):
        check_cells(inferred)


@pytest.mark.promise("table-refuses")
@pytest.mark.parametrize(
    "bad",
    [
        {"age": 30, "job": "spy", "ill": "0"},
        {"age": "secret", "job": "nurse", "ill": "0"},
        {"age": float("nan"), "job": "nurse", "ill": "0"},
        {"job": "nurse", "ill": "0"},
        {"age": 30, "job": "nurse", "ill": "0", "secret": "x"},
    ],
)
def test_what_the_schema_does_not_have_is_refused_before_a_charge(bad: Row) -> None:
    budget = planned()
    with pytest.raises(InvalidParameterError) as caught:
        released([*OTHERS, {**bad, "who": "w"}], budget=budget)
    assert "spy" not in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(UnitError):
        released([*OTHERS, {**person(1), "who": None}], budget=budget)
    assert budget.spent().queries == 0
