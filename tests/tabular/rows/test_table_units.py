"""Who takes part in a table's release depends on nobody else."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from langchain_dpicl.errors import UnitError
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.rows import Chunk, RowReader
from langchain_dpicl.tabular.rows import capped as capping
from langchain_dpicl.tabular.rows.capped import CappedRows
from langchain_dpicl.tabular.rows.units import DistinctUnits, UnitDraw

KEY = b"k" * 32

Row = tuple[str, int]
Rows = list[Row]
Kept = Counter[tuple[int, int]]

ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=40)


def encode(chunk: Chunk) -> dict[str, NDArray[np.int64]]:
    values = np.array(chunk.columns["value"], dtype=np.int64)
    # Who it is, so that the tests see it: a schema has no such column.
    who = np.array([ord(unit) for unit in chunk.columns["who"]], dtype=np.int64)
    return {"who": who, "value": values}


def kept(
    rows: Rows,
    *,
    seed: int = 1,
    rate: float = 0.5,
    cap: int = 2,
    size: int = 7,
    key: str | None = "unit",
) -> Kept:
    """The (unit, value) pairs that take part."""
    reader = RowReader(
        [
            {"who": unit, "value": value} | ({} if key is None else {key: unit})
            for unit, value in rows
        ],
        ["who", "value"],
        encode,
        unit_key=key,
        rows_per_unit=cap,
        sampling_rate=rate,
        random=SeededRandom(seed),
        chunk_size=size,
        progress=False,
    )
    found: Kept = Counter()
    for block in reader.blocks():
        found.update(zip(block["who"].tolist(), block["value"].tolist(), strict=True))
    assert reader.n_rows == len(rows)
    return found


def of(found: Kept, unit: str) -> Kept:
    return Counter({pair: n for pair, n in found.items() if pair[0] == ord(unit)})


def neighbors_hold(
    take: Callable[..., Kept], rows: Rows, order: Any, seed: int
) -> None:
    """One unit more changes that unit's rows alone, in any order and chunks."""
    everybody = take(rows, seed=seed)
    shuffled = [rows[i] for i in order]
    assert take(shuffled, seed=seed, size=3) == everybody
    for gone in {unit for unit, _ in rows}:
        others = take([row for row in shuffled if row[0] != gone], seed=seed, size=5)
        assert others == everybody - of(everybody, gone)
        # What it adds is a part of its own rows, and no more than the cap.
        own = Counter((ord(unit), value) for unit, value in rows if unit == gone)
        assert of(everybody, gone) <= own
        assert of(everybody, gone).total() in (0, min(2, own.total()))


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, data=st.data(), seed=st.integers(0, 50))
def test_one_unit_more_changes_nobody_else(
    rows: Rows, data: st.DataObject, seed: int
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    neighbors_hold(kept, rows, order, seed)


class FirstCome(CappedRows):
    """The twin that keeps the rows of a unit that came first."""

    def _lowest(self, units: Any, unit: Any, columns: Any, rows: Any) -> Any:
        order = np.lexsort((rows, unit))
        starts = capping.run_starts(unit[order])
        return order[capping._places(starts) < self._cap]


class ByPlace(UnitDraw):
    """The twin that tosses a coin for each unit as it comes up."""

    def chosen(self, digests: Any) -> Any:
        _, first, unit = np.unique(
            digests[:, 0], return_index=True, return_inverse=True
        )
        return (np.argsort(np.argsort(first)) % 2 == 0)[unit]


@pytest.mark.parametrize(
    ("name", "twin"), [("CappedRows", FirstCome), ("UnitDraw", ByPlace)]
)
def test_twins_that_go_by_the_order_are_caught(
    name: str, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"langchain_dpicl.tabular.rows.reader.{name}", twin)
    rows = [(unit, value) for value in range(4) for unit in "abcdefgh"]
    with pytest.raises(AssertionError):
        neighbors_hold(kept, rows, range(len(rows))[::-1], 1)


def test_which_rows_of_a_unit_is_uniform_and_fresh() -> None:
    # Five rows, of which three are the same: each of the ten pairs is as likely.
    rows = [("a", 0), ("a", 0), ("a", 0), ("a", 1), ("a", 2)]
    expected = {(0, 0): 0.3, (0, 1): 0.3, (0, 2): 0.3, (1, 2): 0.1}
    n = 1500
    counts = Counter(
        tuple(sorted(value for _, value in kept(rows, seed=i, rate=1.0).elements()))
        for i in range(n)
    )
    assert set(counts) == set(expected)
    assert chi_square([counts[k] for k in expected], [n * p for p in expected.values()])
    # Ranked by content alone, equal rows would come together or not at all.
    by_content = [n * p for p in (1 / 3, 1 / 6, 1 / 6, 1 / 3)]
    assert not chi_square([counts[k] for k in expected], by_content)


def chi_square(counts: list[int], expected: list[float]) -> bool:
    """Whether the counts may come of what is expected, at significance 1e-6."""
    from scipy.stats import chi2

    found = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    return bool(chi2.sf(found, len(counts) - 1) > 1e-6)


UNITS = 8


def sizes_are_binomial(draw: Callable[[int], int], rate: float, runs: int) -> bool:
    """Whether samples have the sizes of independent coins."""
    from scipy.stats import binom

    expected = [runs * float(binom.pmf(k, UNITS, rate)) for k in range(UNITS + 1)]
    counts = Counter(draw(seed) for seed in range(runs))
    return chi_square([counts[k] for k in range(UNITS + 1)], expected)


@pytest.mark.parametrize("key", ["unit", None])
def test_samples_are_poisson(key: str | None) -> None:
    rows = [(unit, 0) for unit in "abcdefgh"]

    def draw(seed: int) -> int:
        return kept(rows, seed=seed, rate=0.3, cap=1, size=5, key=key).total()

    def fixed_size(seed: int) -> int:
        return len(SeededRandom(seed).sample(range(UNITS), 2))

    assert sizes_are_binomial(draw, 0.3, 1500)
    # Two that are as large on average: a sample of fixed size, and another rate.
    assert not sizes_are_binomial(fixed_size, 0.25, 1500)
    assert not sizes_are_binomial(draw, 0.34, 1500)


@settings(max_examples=100, deadline=None)
@given(rate=st.floats(0, 1, exclude_min=True), low=st.integers(0, 2**64 - 1))
def test_a_digest_is_compared_with_the_rate_exactly(rate: float, low: int) -> None:
    draw = UnitDraw(KEY, "unit", rate)
    edge = int(Fraction(rate) * 2**128)
    assert Fraction(edge, 2**128) <= Fraction(rate) < Fraction(edge + 1, 2**128)
    for value in {0, low, edge - 1, edge, edge + 1, (edge >> 64 << 64) + low}:
        if 0 <= value < 2**128:
            digest = np.array([[value >> 64, value % 2**64]], dtype=np.uint64)
            assert bool(draw.chosen(digest)[0]) == (value < edge)


def test_ids_have_one_spelling() -> None:
    draw = UnitDraw(KEY, "unit", 0.5)
    found = draw.digests([7, "7", " 7 ", np.int64(7), np.str_("7"), "70"], 0)
    assert len({tuple(digest) for digest in found[:5].tolist()}) == 1
    assert found[5].tolist() != found[0].tolist()
    for integers in (np.array([7, 70, 7]), np.array([7, 70, 7], np.uint8)):
        assert draw.digests(integers, 0).tolist() == found[[0, 5, 0]].tolist()
    other = UnitDraw(b"K" * 32, "unit", 0.5).digests([7], 0)
    assert other.tolist() != found[:1].tolist()


CANARY = 41.75


@pytest.mark.parametrize(
    "bad", [None, "", "  ", CANARY, float("nan"), True, b"41.75", (41.75,)]
)
def test_a_row_without_a_unit_is_refused(bad: Any) -> None:
    draw = UnitDraw(KEY, "person", 0.5)
    with pytest.raises(UnitError, match=r"Row 12 .* under unit_key 'person'") as caught:
        draw.digests(["a", 3, bad, None], 10)
    assert "41.75" not in str(caught.value)
    with pytest.raises(UnitError, match=r"Row 0 .* a float64 under"):
        draw.digests(np.array([1.0, 2.0]), 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 300), max_size=40), max_size=12), st.data())
def test_units_are_kept_once(chunks: list[list[int]], data: st.DataObject) -> None:
    least = data.draw(st.integers(0, 20))
    units, draw = DistinctUnits(), UnitDraw(KEY, "unit", 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("langchain_dpicl.tabular.rows.units._LEAST_PENDING", least)
        for chunk in chunks:
            if chunk:
                units.add(draw.digests(chunk, 0))
    for _ in range(2):
        assert len(units.digests()) == len({u for chunk in chunks for u in chunk})


def held(rows: CappedRows) -> Iterator[int]:
    for arrays in (rows._units, *rows._columns.values()):
        yield from (sys.getsizeof(a) if a.base is None else a.nbytes for a in arrays)


def test_rows_that_wait_are_packed() -> None:
    n, wide = 200_000, 20
    generator = np.random.default_rng(5)
    rows = CappedRows(KEY, 1)
    draw = UnitDraw(KEY, "unit", 1.0)
    values = generator.integers(0, 200, size=n)
    for start in range(0, n, 10_000):
        part = slice(start, start + 10_000)
        units = draw.digests(np.arange(n)[part] // 2, 0)
        rows.add(units, {f"c{i}": values[part] for i in range(wide)})
    total = Counter[int]()
    sizes = []
    for block in rows.blocks():
        total.update(block["c7"].tolist())
        sizes.append(len(block["c7"]))
    # 16 bytes for the unit and one for each code.
    assert sum(held(rows)) <= n * (16 + wide) * 1.01
    assert sum(sizes) == n // 2
    assert max(sizes) <= 1 << 16
    assert total <= Counter(values.tolist())


@pytest.mark.parametrize(
    "edge",
    [127, 128, 255, 256, 32_768, 65_536, 2**31, 2**32, 2**62, -1, -129, -(2**40)],
)
def test_packed_values_come_back(edge: int) -> None:
    rows = CappedRows(KEY, 3)
    draw = UnitDraw(KEY, "unit", 1.0)
    values = np.array([edge, edge - 1, 0], dtype=np.int64)
    rows.add(draw.digests(["a", "a", "b"], 0), {"c": values})
    assert sorted(np.concatenate([b["c"] for b in rows.blocks()])) == sorted(values)
