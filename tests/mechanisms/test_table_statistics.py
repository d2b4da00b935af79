from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    DiscreteLaplace,
    SeededRandom,
    noisy_histograms,
    noisy_tallies,
    table_statistics,
)
from langchain_dpicl.mechanisms.table_statistics import MAX_TALLY

Fits = Callable[..., bool]

DRAWS = 60_000
EPSILONS = [0.5, 1.5]
BOUNDS = [1, 4]
ROWS = 3


def law(scale: float, reach: int = 600) -> dict[int, float]:
    decay = math.exp(-1 / scale)
    first = (1 - decay) / (1 + decay)
    return {k: first * decay ** abs(k) for k in range(-reach, reach + 1)}


@pytest.fixture(scope="module")
def noises() -> list[list[int]]:
    """What was added to two tallies of several groups."""
    counts = np.full((DRAWS // 2, 2), 17)
    sums = np.full(DRAWS, -40)
    noisy = noisy_tallies(
        [counts, sums],
        epsilons=EPSILONS,
        bounds=BOUNDS,
        rows_per_unit=ROWS,
        random=SeededRandom(1),
    )
    assert [each.shape for each in noisy] == [counts.shape, sums.shape]
    assert {each.dtype for each in noisy} == {np.dtype(np.int64)}
    return [(noisy[0] - 17).ravel().tolist(), (noisy[1] + 40).tolist()]


@pytest.mark.parametrize("tally", [0, 1])
def test_every_entry_gets_the_noise_of_its_tally(
    fits: Fits, noises: list[list[int]], tally: int
) -> None:
    scale = ROWS * BOUNDS[tally] / EPSILONS[tally]
    assert fits(noises[tally], law(scale))


@pytest.mark.parametrize(
    ("tally", "scale"),
    [
        (0, 1 / 0.5),  # Without the rows of a unit.
        (1, 4 / 1.5),
        (1, 3 * 1 / 1.5),  # Without the bound.
        (1, 3 * 8 / 1.5),  # The bound of a sum that is not centered.
        (0, 3 * 1 / 2.0),  # All of epsilon for each tally.
        (1, 3 * 4 / 2.0),
        (0, 3 * 1 / 1.5),  # The other tally's epsilon.
        (0, 3 * 1 / 0.5 / 2),  # Half the scale.
    ],
)
def test_wrong_scales_are_caught(
    fits: Fits, noises: list[list[int]], tally: int, scale: float
) -> None:
    assert not fits(noises[tally], law(scale))


def test_a_mechanism_that_ignores_the_rows_of_a_unit_is_caught(
    fits: Fits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        table_statistics, "tally_l1", lambda relation, bound, rows_per_unit: bound
    )
    noisy = noisy_tallies(
        [np.zeros(DRAWS, int)],
        epsilons=[1.0],
        bounds=[2],
        rows_per_unit=2,
        random=SeededRandom(2),
    )
    assert not fits(noisy[0].tolist(), law(4.0))
    assert fits(noisy[0].tolist(), law(2.0))


def test_entries_get_noise_of_their_own(noises: list[list[int]]) -> None:
    bound = 5 / math.sqrt(DRAWS)
    for noise in noises:
        assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(noises[0], noises[1])[0, 1]) < bound


def test_one_units_rows_in_several_groups_cost_no_more_than_epsilon() -> None:
    """All tables of two rows a unit: the log-ratio of any output, over all tallies.

    The tallies are a count and a centered sum (values -2 .. 2) of each of two groups.
    With independent noise on every entry the worst ratio is exp(sum |moved| / scale).
    """
    rows = [(group, value) for group in (0, 1) for value in range(-2, 3)]
    epsilons, bounds = (0.3, 0.9), (1, 2)
    scales = [
        DiscreteLaplace.calibrated(2 * bound, epsilon).scale
        for bound, epsilon in zip(bounds, epsilons, strict=True)
    ]
    worst = Fraction(0)
    for one in rows:
        for two in [*rows, None]:
            moved = np.zeros((2, 2), int)
            for group, value in filter(None, (one, two)):
                moved[:, group] += (1, value)
            loss = sum(
                int(np.abs(moved[i]).sum()) / scales[i] for i in range(len(scales))
            )
            worst = max(worst, loss)
    exact = sum(map(Fraction, epsilons))
    assert exact * (1 - Fraction(1, 10**9)) < worst <= exact


def test_centering_halves_the_noise_of_a_sum() -> None:
    lower, upper = 17, 90
    on_half_steps = upper - lower
    shifted = 2 * (upper - lower)
    plain = 2 * max(abs(lower), abs(upper))
    scales = [
        DiscreteLaplace.calibrated(bound, 1.0).standard_deviation
        for bound in (on_half_steps, shifted, plain)
    ]
    assert scales[1] == pytest.approx(2 * scales[0], rel=1e-3)
    assert scales[2] > scales[1]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (2, 3, 4)])
def test_shapes_are_kept_and_the_input_is_not_changed(shape: tuple[int, ...]) -> None:
    given = np.full(shape, 5, np.uint8)
    noisy = noisy_tallies([given], epsilons=[0.1], bounds=[1])[0]
    assert noisy.shape == shape
    assert noisy.dtype == np.int64
    assert (given == 5).all()


def test_without_noise_the_tallies_themselves_are_left() -> None:
    tallies = [[[3, 4], [0, 9]], MAX_TALLY, [-MAX_TALLY]]
    noisy = noisy_tallies(tallies, epsilons=[1e9, 1e9, 1e9], bounds=[1, 1, 1])
    assert [each.tolist() for each in noisy] == tallies


def test_the_default_noise_is_the_operating_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Watched(SeededRandom):
        def _entropy(self, size: int) -> bytes:
            asked.append(size)
            return super()._entropy(size)

    monkeypatch.setattr("langchain_dpicl.mechanisms.source._SYSTEM", Watched(3))
    noisy_tallies([[1, 2]], epsilons=[1.0], bounds=[1])
    assert asked


GOOD = {"tallies": [[1, 2]], "epsilons": [1.0], "bounds": [1]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tallies": []}, "tallies"),
        ({"tallies": [[771.5]]}, r"tallies\[0\]"),
        ({"tallies": [[True]]}, r"tallies\[0\]"),
        ({"tallies": [["771"]]}, r"tallies\[0\]"),
        ({"tallies": [[771, [771]]]}, r"tallies\[0\]"),
        ({"tallies": [[771 * 10**20]]}, r"tallies\[0\]"),
        ({"epsilons": []}, "epsilons"),
        ({"epsilons": [1.0, 1.0]}, "epsilons"),
        ({"epsilons": [0.0]}, "epsilon"),
        ({"epsilons": [1e-16]}, "epsilon"),
        ({"bounds": [1, 1]}, "bounds"),
        ({"bounds": [0]}, "bound"),
        ({"bounds": [0.5]}, "bound"),
        ({"rows_per_unit": 0}, "rows_per_unit"),
        ({"rows_per_unit": 1.5}, "rows_per_unit"),
        ({"random": np.random.default_rng(1)}, "SecureRandom"),
    ],
)
def test_malformed_arguments_are_refused_without_entries(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidParameterError, match=named) as caught:
        noisy_tallies(**{**GOOD, **change})
    assert "771" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_law_of_the_tests_is_that_of_the_definition() -> None:
    with mpmath.workdps(50):
        ratio = mpmath.exp(-1 / mpmath.mpf(6))
        total = mpmath.nsum(lambda k: ratio ** abs(k), [-mpmath.inf, mpmath.inf])
        for k, p in law(6.0, 5).items():
            assert float(ratio ** abs(k) / total) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("entry", [MAX_TALLY, MAX_TALLY + 1, 2**63 - 1])
def test_entries_saturate_at_two_to_the_61(entry: int) -> None:
    for given in ([entry, 0], [-entry, 0], np.array([2 * entry, 0], np.uint64)):
        (noisy,) = noisy_tallies([given], epsilons=[1e9], bounds=[1])
        assert noisy.tolist() == [MAX_TALLY * (1 if given[0] > 0 else -1), 0]
        (noisy,) = noisy_histograms([given], noise_multiplier=1e-3)
        assert abs(int(noisy[0])) == MAX_TALLY


def test_wrong_numbers_of_values_are_counted_in_the_message() -> None:
    with pytest.raises(InvalidParameterError, match="one value per tally, 2, not 3"):
        noisy_tallies([[1], [2]], epsilons=[1.0] * 3, bounds=[1, 1])
    with pytest.raises(InvalidParameterError, match="one value per tally, 2, not 1"):
        noisy_tallies([[1], [2]], epsilons=[1.0] * 2, bounds=[1])
