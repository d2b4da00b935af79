"""Several histograms of table rows with Gaussian noise, against its exact law."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    SeededRandom,
    histograms_template,
    noisy_histograms,
    table_statistics,
)
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

Fits = Callable[..., bool]

DRAWS = 60_000
Z = 0.9
ROWS = 2
TABLES = 3


def law(sigma: float, reach: int = 60) -> dict[int, float]:
    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / (sigma * math.sqrt(2)))

    return {k: below(k + 0.5) - below(k - 0.5) for k in range(-reach, reach + 1)}


@pytest.fixture(scope="module")
def noises() -> list[list[int]]:
    exact = [np.full((DRAWS // 2, 2), 17), np.zeros(DRAWS, int), np.full(DRAWS, 5)]
    noisy = noisy_histograms(
        exact, noise_multiplier=Z, rows_per_unit=ROWS, random=SeededRandom(1)
    )
    assert [each.shape for each in noisy] == [each.shape for each in exact]
    assert {each.dtype for each in noisy} == {np.dtype(np.int64)}
    return [(a - b).ravel().tolist() for a, b in zip(noisy, exact, strict=True)]


@pytest.mark.parametrize("table", range(TABLES))
def test_every_cell_gets_the_noise_of_all_tables_together(
    fits: Fits, noises: list[list[int]], table: int
) -> None:
    assert fits(noises[table], law(Z * ROWS * math.sqrt(TABLES)))


@pytest.mark.parametrize(
    "sigma",
    [
        Z * ROWS,  # As if there were one table.
        Z * ROWS * math.sqrt(TABLES - 1),  # A table too many.
        Z * math.sqrt(TABLES),  # Without the rows of a unit.
        Z * math.sqrt(ROWS * TABLES),  # As if a unit's rows were in different cells.
        Z * ROWS * TABLES,  # The bound in L1.
    ],
)
def test_wrong_scales_are_caught(
    fits: Fits, noises: list[list[int]], sigma: float
) -> None:
    assert not fits(noises[0], law(sigma))


def test_a_mechanism_that_counts_one_table_only_is_caught(
    fits: Fits, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = table_statistics.tally_l2
    monkeypatch.setattr(
        table_statistics,
        "tally_l2",
        lambda relation, tables, rows: real(relation, 1, 1),
    )
    noisy = noisy_histograms(
        [np.zeros(DRAWS, int), np.zeros(4, int)],
        noise_multiplier=2.0,
        random=SeededRandom(2),
    )
    assert not fits(noisy[0].tolist(), law(2.0 * math.sqrt(2)))
    assert fits(noisy[0].tolist(), law(2.0))


def test_cells_get_noise_of_their_own(noises: list[list[int]]) -> None:
    bound = 5 / math.sqrt(DRAWS)
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs(np.corrcoef(noises[one], noises[other])[0, 1]) < bound
    assert abs(np.corrcoef(noises[0][1:], noises[0][:-1])[0, 1]) < bound


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.99, 1.01, 7.5])
def test_the_stated_standard_deviation_is_that_of_the_rounded_noise(
    sigma: float,
) -> None:
    variance = math.fsum(k * k * p for k, p in law(sigma, 100).items())
    stated = RoundedGaussian(sigma).standard_deviation
    assert stated == pytest.approx(math.sqrt(variance), rel=1e-6, abs=1e-12)


def test_the_event_is_one_gaussian_for_all_tables() -> None:
    template = histograms_template("tables", sampling_rate=0.1)
    (event,) = template.events(3.0, 0.0)
    assert (event.noise_multiplier, event.sampling_rate, event.count) == (3.0, 0.1, 1)
    assert template.read((event,)).noise_multiplier == 3.0
    assert histograms_template("tables", 2.5).is_fixed


GOOD = {"tallies": [[1, 2]], "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tallies": []}, "tallies"),
        ({"tallies": [[771.5]]}, r"tallies\[0\]"),
        ({"tallies": [[1], ["771"]]}, r"tallies\[1\]"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": 1e6, "rows_per_unit": 2**40}, "noise_multiplier"),
        ({"rows_per_unit": 0}, "rows_per_unit"),
        ({"random": np.random.default_rng(1)}, "SecureRandom"),
    ],
)
def test_malformed_arguments_are_refused_without_entries(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidParameterError, match=named) as caught:
        noisy_histograms(**{**GOOD, **change})
    assert "771" not in str(caught.value)
