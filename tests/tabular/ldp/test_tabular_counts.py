from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.ldp import counts as counts_module
from langchain_dpicl.tabular.ldp.counts import MAX_CELLS, ReportCounts

WIDE = (2, 3, 50, 7, 200, 2, 90, 4)
NARROW = (2, 5, 3, 4)


def some_codes(sizes: tuple[int, ...], n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, n) for size in sizes], axis=1)


def plain_pair(codes: np.ndarray, sizes: tuple[int, ...], i: int, j: int) -> np.ndarray:
    table = np.zeros((sizes[i], sizes[j]), dtype=np.int64)
    np.add.at(table, (codes[:, i], codes[:, j]), 1)
    return table


def counted(sizes: tuple[int, ...], *blocks: np.ndarray) -> ReportCounts:
    counts = ReportCounts(sizes, len(sizes) // 2)
    for block in blocks:
        counts.add(block)
    return counts


def same(one: ReportCounts, other: ReportCounts) -> bool:
    return one.to_dict() == other.to_dict()


@pytest.mark.parametrize("sizes", [WIDE, NARROW, (1500, 1000), (7,), (2,) * 21])
@pytest.mark.parametrize("n", [0, 1, 2000])
def test_all_counts_are_those_of_plain_counting(sizes: tuple[int, ...], n: int) -> None:
    codes = some_codes(sizes, n)
    counts = counted(sizes, codes[: n // 3], codes[n // 3 :])
    assert counts.n == n
    assert counts.domain_sizes == sizes
    pairs, label = counts.pairs, len(sizes) // 2
    assert counts.label == label
    assert [label, *pairs] == sorted(range(len(sizes)), key=lambda n: (n != label, n))
    for column, table in pairs.items():
        assert np.array_equal(table, plain_pair(codes, sizes, label, column))
    for i, single in enumerate(counts.singles):
        assert np.array_equal(single, np.bincount(codes[:, i], minlength=sizes[i]))
    joint = counts.joint
    assert (joint is None) == (math.prod(sizes) > MAX_CELLS)
    if joint is not None:
        assert joint.shape == sizes
        assert all(
            joint[tuple(row)] == (codes == row).all(axis=1).sum() for row in codes
        )


@given(
    st.lists(st.integers(2, 60), min_size=1, max_size=6),
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_blocks_make_no_difference(sizes: list[int], lengths: list[int]) -> None:
    shape = tuple(sizes)
    blocks = [some_codes(shape, n, seed) for seed, n in enumerate(lengths)]
    whole = counted(shape, np.concatenate(blocks))
    assert same(counted(shape, *blocks), whole)


def test_reading_between_blocks_changes_nothing() -> None:
    codes = some_codes(WIDE, 300)
    counts = counted(WIDE, codes[:100])
    assert sum(table.sum() for table in counts.pairs.values()) == 7 * 100
    counts.add(codes[100:])
    assert same(counts, counted(WIDE, codes))


def test_what_is_handed_out_is_a_copy() -> None:
    for sizes in (WIDE, NARROW):
        counts = counted(sizes, some_codes(sizes, 10))
        before = counts.to_dict()
        counts.pairs[0][:] = -1
        counts.singles[0][:] = -1
        if counts.joint is not None:
            counts.joint[:] = -1
        counts.to_dict()["domain_sizes"][:] = []
        assert counts.to_dict() == before


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.uint64])
def test_any_integers_in_any_layout_are_counted(dtype: type) -> None:
    codes = some_codes(NARROW, 50)
    odd = np.asfortranarray(np.repeat(codes, 2, axis=0).astype(dtype))[::2]
    assert same(counted(NARROW, odd), counted(NARROW, codes))


def test_memory_does_not_grow_with_the_reports() -> None:
    sizes = (10,) * 20
    block = some_codes(sizes, 50_000)
    counts = counted(sizes, block)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(6):
        counts.add(block)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts.n == 350_000
    assert after - before < 1 << 16
    assert peak - before < 4 * block.nbytes


@pytest.mark.parametrize("sizes", [WIDE, NARROW])
def test_stored_counts_come_back(sizes: tuple[int, ...]) -> None:
    codes = some_codes(sizes, 500)
    counts = counted(sizes, codes[:200])
    restored = ReportCounts.from_dict(json.loads(json.dumps(counts.to_dict())))
    assert same(restored, counts)
    restored.add(codes[200:])
    assert same(restored, counted(sizes, codes))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((), "at least one"),
        (5, "sequence"),
        ((2, 1), r"domain_sizes\[1\]"),
        ((2, 2.0), r"domain_sizes\[1\]"),
        ((MAX_CELLS + 1,), "merge values"),
        ((6000, 6000), "merge values of the largest"),
    ],
)
def test_tables_that_cannot_be_kept_are_refused(sizes: object, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        ReportCounts(sizes, 0)  # type: ignore[arg-type]


def test_a_label_that_is_no_column_is_refused() -> None:
    for label in (2, -1, 0.5):
        with pytest.raises(InvalidParameterError, match="label"):
            ReportCounts((2, 3), label)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([[0, 5, 0, 0]], "column 1 must be between 0 and 4"),
        ([[0, 0, 0, -77]], "column 3 must be between 0 and 3"),
        (np.array([[2**63 + 5, 0, 0, 0]], dtype=np.uint64), "column 0"),
        ([[0.0, 0.0, 0.0, 0.0]], "integers"),
        ([0, 0, 0, 0], "shape"),
        ([[0, 0]], "shape"),
        ([[0, 0], [0]], "one length"),
    ],
)
def test_wrong_codes_are_refused_whole_and_unquoted(codes: object, said: str) -> None:
    counts = counted(NARROW, some_codes(NARROW, 5))
    before = counts.to_dict()
    with pytest.raises(InvalidParameterError, match=said) as caught:
        counts.add(codes)
    assert "77" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert counts.to_dict() == before
    good = some_codes(NARROW, 40_000)
    good[-1, 0] = 9
    with pytest.raises(InvalidParameterError, match="column 0"):
        counts.add(good)
    assert counts.n == 5


def test_there_is_a_largest_number_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "_MAX_REPORTS", 8)
    counts = counted(NARROW, some_codes(NARROW, 5))
    with pytest.raises(InvalidParameterError, match="at most 8"):
        counts.add(some_codes(NARROW, 5))
    assert counts.n == 5


@pytest.mark.parametrize("sizes", [WIDE, NARROW])
@pytest.mark.parametrize(
    "damage",
    [
        lambda a, main: a.pop(main),
        lambda a, main: a.pop("n"),
        lambda a, main: a.update(domain_sizes=a["domain_sizes"][:-1]),
        lambda a, main: a.update(domain_sizes=[[2]]),
        lambda a, main: a.pop("label"),
        lambda a, main: a.update(label=99),
        lambda a, main: a.update(n=a["n"] + 1),
        lambda a, main: a.update(n=-1),
        lambda a, main: a.update(n=2.5),
        lambda a, main: a.update({main: a[main][:-1]}),
        lambda a, main: a.update({main: list(map(float, a[main]))}),
        lambda a, main: a.update({main: [["x"], 1]}),
        lambda a, main: a[main].__setitem__(0, -1),
        lambda a, main: a.update({main: [2**62] * len(a[main])}),
        lambda a, main: a[main].__setitem__(0, a[main][0] + 1),
        lambda a, main: a.update({main: [10**30]}),
    ],
)
def test_damaged_files_are_refused(sizes: tuple[int, ...], damage: object) -> None:
    arrays = counted(sizes, some_codes(sizes, 400)).to_dict()
    damage(arrays, list(arrays)[-1])  # type: ignore[operator]
    with pytest.raises(InvalidParameterError):
        ReportCounts.from_dict(arrays)


def test_pairs_that_contradict_each_other_are_refused() -> None:
    arrays = counted(WIDE, some_codes(WIDE, 400)).to_dict()
    flat = arrays["pairs"]
    first = plain_pair(some_codes(WIDE, 400), WIDE, 4, 0).ravel()
    assert flat[:400] == first.tolist()
    flat[0] += 1
    flat[2] -= 1
    with pytest.raises(InvalidParameterError, match="contradict"):
        ReportCounts.from_dict(arrays)
    with pytest.raises(InvalidParameterError, match="missing"):
        ReportCounts.from_dict([1])  # type: ignore[arg-type]
