from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.mechanisms.rounded_gaussian import (
    MARGIN,
    RoundedGaussian,
    _exact_threshold,
    _resolve,
    _table,
    count_grid,
)

TOP = 1 << 63


def law(scale: float, reach: int) -> dict[int, float]:
    ks = np.arange(-reach, reach + 1)
    p = stats.norm.cdf((ks + 0.5) / scale) - stats.norm.cdf((ks - 0.5) / scale)
    return dict(zip(ks.tolist(), p.tolist(), strict=True))


def reference(scale: float, j: int) -> int:
    """2^63 F_j, rounded down, from 200 bits: independent of the code under test."""
    with mpmath.workprec(200):
        tail = mpmath.erfc(mpmath.mpf(2 * j + 1) / (2 * mpmath.sqrt(2) * scale))
        return int(mpmath.floor((1 - tail) * TOP))


@pytest.mark.parametrize(
    ("scale", "every"), [(0.7, 1), (3.0, 1), (512.0, 1), (777.77, 2), (16384.0, 41)]
)
def test_every_threshold_is_far_better_than_its_margin(
    scale: float, every: int
) -> None:
    thresholds = _table(scale).thresholds
    errors = [
        abs(int(thresholds[j]) - reference(scale, j))
        for j in range(0, thresholds.size, every)
    ]
    assert max(errors) < 1 << 13  # What the module's docstring derives.
    assert MARGIN > 1 << 13


@pytest.mark.parametrize("scale", [0.7, 512.0, 16384.0, 1e6])
def test_exact_thresholds_keep_their_promise_at_any_precision(scale: float) -> None:
    for j in (0, int(scale), int(5 * scale), int(12 * scale)):
        for bits in (63, 127, 255):
            with mpmath.workprec(bits + 200):
                x = mpmath.mpf(2 * j + 1) / (2 * mpmath.sqrt(2) * scale)
                exact = mpmath.erf(x) * mpmath.mpf(2) ** bits
                assert abs(_exact_threshold(scale, j)(bits) - exact) < 2


@pytest.mark.parametrize("scale", [2.5, 600.0, 16384.0])
def test_all_three_paths_invert_the_same_uniform(scale: float) -> None:
    """The table, the single draw and the exact search agree word by word."""
    words = SeededRandom(1).words(3000)
    unused = SeededRandom(2)
    by_table = _table(scale).invert(words, unused)
    noise = RoundedGaussian(scale)
    singly = [noise._from_word(word, unused) for word in words.tolist()]
    assert by_table.tolist() == singly
    for word, k in zip(words[:60].tolist(), singly, strict=False):
        v = word % TOP
        assert _resolve(scale, v, unused) == abs(k)
        assert (k < 0) == (word >= TOP and k != 0)


@pytest.mark.parametrize("scale", [600.0, 16384.0])
def test_draws_do_not_depend_on_how_they_are_batched(scale: float) -> None:
    noise = RoundedGaussian(scale)
    batch = noise.draw(500, SeededRandom(3))
    source = SeededRandom(3)
    assert batch.tolist() == [noise.draw_one(source) for _ in range(500)]


def test_a_word_at_a_threshold_is_decided_with_the_right_probability(
    fits: Callable[..., bool],
) -> None:
    """The words around F_j: below it always j, above always j + 1, on it a draw."""
    scale, j = 600.0, 421
    fine = _exact_threshold(scale, j)(63 + 64)
    v, fraction = fine >> 64, (fine % 2**64) / 2**64
    assert abs(v - int(_table(scale).thresholds[j])) < MARGIN
    source = SeededRandom(4)

    def invert(word: int, count: int) -> list[int]:
        words = np.full(count, word, np.uint64)
        return _table(scale).invert(words, source).tolist()

    assert set(invert(v - 1, 20)) == {j}
    assert set(invert(v + 1, 20)) == {j + 1}
    expected = {j: fraction, j + 1: 1 - fraction}
    assert 0.05 < fraction < 0.95
    assert fits(invert(v, 2000), expected)
    assert fits((-k for k in invert(v + TOP, 1000)), expected)
    assert not fits(invert(v, 2000), {j: 1 - fraction, j + 1: fraction})


def test_words_within_the_margin_are_not_left_to_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table(600.0)
    at = int(table.thresholds[100])
    resolved: list[int] = []

    def resolve(scale: float, v: int, random: object) -> int:
        resolved.append(v)
        return 0

    monkeypatch.setattr("langchain_dpicl.mechanisms.rounded_gaussian._resolve", resolve)
    inside = [at - MARGIN, at, at + MARGIN - 1]
    outside = [at - MARGIN - 1, at + MARGIN]
    table.invert(np.array(inside + outside, np.uint64), SeededRandom(5))
    assert resolved == inside
    resolved.clear()
    for v in inside + outside:
        RoundedGaussian(600.0)._from_word(v, SeededRandom(5))
    assert resolved == inside


@pytest.mark.parametrize("beyond", [1_000, 3_000, 9_000])
def test_words_beyond_the_table_are_not_left_to_a_guess(beyond: int) -> None:
    """About eight sigmas out, where U has three bits left in a double."""
    scale, v = 512.0, TOP - beyond
    exact = _resolve(scale, v, SeededRandom(6))
    assert exact > 7.5 * scale
    assert RoundedGaussian(scale)._from_word(v, SeededRandom(6)) == exact
    assert RoundedGaussian(scale)._guess(v) != exact


def test_the_far_tail_has_the_right_conditional_distribution(
    fits: Callable[..., bool],
) -> None:
    """The largest word: |K| given that U >= 1 - 2^-63, about nine sigmas out."""
    scale = 2.0
    source = SeededRandom(6)
    word = np.array([TOP - 1], np.uint64)
    draws = [int(_table(scale).invert(word, source)[0]) for _ in range(1200)]
    beyond = {
        j: min(1.0, 2 * stats.norm.sf((j - 0.5) / scale) * TOP) for j in range(15, 32)
    }
    conditional = {j: beyond[j] - beyond[j + 1] for j in range(15, 31)}
    assert fits(draws, conditional)
    assert min(draws) > 6.5 * scale


@pytest.mark.parametrize("scale", [0.8, 5.0])
def test_draws_follow_the_exact_cell_probabilities(
    fits: Callable[..., bool], scale: float
) -> None:
    draws = RoundedGaussian(scale).draw(200_000, SeededRandom(7)).tolist()
    assert fits(draws, law(scale, 60))
    assert not fits(draws, law(0.98 * scale, 60))


@pytest.mark.parametrize(("scale", "count"), [(16384.0, 100_000), (1e6, 30_000)])
def test_draws_are_gaussian_on_a_fine_grid(
    is_gaussian: Callable[..., bool], scale: float, count: int
) -> None:
    draws = RoundedGaussian(scale).draw(count, SeededRandom(8)).astype(float)
    assert is_gaussian(draws, scale)
    assert not is_gaussian(draws, 0.9 * scale)


def test_draws_are_independent_and_symmetric() -> None:
    draws = RoundedGaussian(600.0).draw(100_000, SeededRandom(9)).astype(float)
    bound = 5 / np.sqrt(draws.size)
    assert abs(np.mean(np.sign(draws))) < bound
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(np.abs(draws[1:]), np.abs(draws[:-1]))[0, 1]) < bound


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.5, 1e6),
    st.floats(1e-300, 0.999, exclude_min=True)
    | st.floats(-290, -0.01).map(lambda e: 10**e),
)
def test_the_quantile_is_safe_and_least(scale: float, probability: float) -> None:
    t = RoundedGaussian(scale).upper_quantile(probability)

    def tail(at: int) -> mpmath.mpf:
        x = mpmath.mpf(2 * at + 1) / (2 * mpmath.sqrt(2) * scale)
        return mpmath.erfc(x) / 2

    with mpmath.workprec(200):
        assert tail(t) <= probability
        assert tail(t - 1) > probability * (1 - 1e-8) or t < 0


def test_the_tail_is_that_of_the_rounded_noise() -> None:
    noise = RoundedGaussian(3.0)
    assert noise.tail(-1) == pytest.approx(sum(law(3.0, 60)[k] for k in range(61)))
    assert noise.tail(4) == pytest.approx(sum(law(3.0, 60)[k] for k in range(5, 61)))


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-6, 2e6))
def test_the_grid_for_counts_is_fine_exact_and_bounded(sigma: float) -> None:
    weight, noise = count_grid(sigma)
    assert weight & (weight - 1) == 0
    assert noise.scale == weight * sigma
    assert noise.scale / weight == sigma
    assert noise.scale >= 512
    assert weight <= 1 << 29


def test_a_huge_scale_needs_no_table() -> None:
    _table.cache_clear()
    assert RoundedGaussian(2e6).draw(1000, SeededRandom(10)).std() > 1.8e6
    assert _table.cache_info().currsize == 0
