from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import SeededRandom, embedding, noisy_sum, sensitivity
from langchain_dpicl.mechanisms.ball_grid import on_grid

RELATIONS = list(Relation)
FACTOR = {Relation.ADD_REMOVE: 1.0, Relation.REPLACE: 2.0}


def unit_rows(m: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(m, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("radius", "z"), [(1.0, 0.8), (0.03, 5.0)])
def test_the_noise_is_gaussian_of_the_relations_scale(
    is_gaussian: Callable[..., bool], relation: Relation, radius: float, z: float
) -> None:
    noise = noisy_sum(
        np.empty((0, 30_000)),
        radius=radius,
        noise_multiplier=z,
        relation=relation,
        random=SeededRandom(1),
    )
    assert is_gaussian(noise, z * FACTOR[relation] * radius)


def test_sensitivity_one_under_replace_is_caught(
    is_gaussian: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed paper's sensitivity: right for add/remove only."""
    monkeypatch.setattr(sensitivity, "embedding_l2", lambda relation, radius: radius)
    noise = noisy_sum(
        np.empty((0, 30_000)),
        radius=1.0,
        noise_multiplier=1.0,
        relation="replace",
        random=SeededRandom(1),
    )
    assert not is_gaussian(noise, 2.0)


finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-3, 3)


@settings(deadline=None, max_examples=300)
@given(
    st.integers(1, 12).flatmap(
        lambda d: st.lists(
            st.lists(moderate | finite, min_size=d, max_size=d), min_size=1, max_size=4
        )
    ),
    st.floats(1e-6, 1e6),
    st.floats(1e-100, 1e100),
)
def test_no_row_is_longer_than_its_limit(
    rows: list[list[float]], z: float, radius: float
) -> None:
    limit = 2.0**14 / z
    grid = on_grid(np.array(rows), radius, limit)
    exact = [sum(int(x) ** 2 for x in row) for row in grid.tolist()]
    assert all(square <= limit**2 * (1 + 1e-12) for square in exact)


@pytest.mark.parametrize("d", [1, 7, 1536])
@pytest.mark.parametrize("z", [0.01, 1.0, 30.0, 1e4])
def test_rows_on_the_sphere_stay_within_and_lose_little(d: int, z: float) -> None:
    rows = unit_rows(40, d)
    limit = 2.0**14 / z
    grid = on_grid(rows, 1.0, limit)
    norms = np.linalg.norm(grid, axis=1)
    assert np.all(norms <= limit)
    if z <= 30:
        assert np.all(norms >= limit - 6 - d / (2 * limit))


def released(rows: np.ndarray, relation: Relation, z: float = 2.0) -> np.ndarray:
    return noisy_sum(
        rows,
        radius=0.5,
        noise_multiplier=z,
        relation=relation,
        random=SeededRandom(5),
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_row_moves_the_sum_by_the_sensitivity_and_no_more(
    relation: Relation,
) -> None:
    """Also a huge row: without clipping this fails."""
    rows = unit_rows(6, 40)
    for scale in (1e-3, 1.0, 1e6, 1e200):
        other = rows.copy()
        other[2] = -scale * rows[2]
        if relation is Relation.ADD_REMOVE:
            other = np.delete(other, 2, axis=0)
        moved = np.linalg.norm(released(rows, relation) - released(other, relation))
        assert moved <= 0.5 * FACTOR[relation] * (1 + 1e-9)
    assert moved > 0.49 * FACTOR[relation]


def test_a_sum_without_clipping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        embedding,
        "on_grid",
        lambda rows, ball, limit: np.rint(rows * limit / ball).astype(np.int64),
    )
    rows = unit_rows(6, 40)
    other = rows.copy()
    other[2] *= -1e3
    relation = Relation.REPLACE
    moved = np.linalg.norm(released(rows, relation) - released(other, relation))
    assert moved > 1.0


def test_the_sum_is_that_of_the_clipped_rows() -> None:
    rows = np.vstack([unit_rows(50, 64) * 0.4, unit_rows(50, 64, 1) * 7])
    clipped = np.vstack([rows[:50], rows[50:] / 14])
    kept = released(rows, Relation.REPLACE, z=1e-3)
    noise = released(np.empty((0, 64)), Relation.REPLACE, z=1e-3)
    assert kept - noise == pytest.approx(clipped.sum(axis=0), abs=1e-4)


def test_rounding_does_not_pull_small_coordinates_to_zero() -> None:
    """Many equal rows: a bias per row would add up."""
    row = unit_rows(1, 256)
    rows = np.repeat(row, 400, axis=0) * 0.4 + 1e-4 * unit_rows(400, 256, 2)
    shift = released(rows, Relation.REPLACE, 10.0) - released(
        np.empty((0, 256)), Relation.REPLACE, 10.0
    )
    along = float(shift @ row[0]) / 400
    assert along == pytest.approx(0.4, rel=1e-3)


def test_rows_of_zeros_and_no_rows_release_noise_alone() -> None:
    nothing = released(np.empty((0, 9)), Relation.REPLACE)
    zeros = released(np.zeros((5, 9)), Relation.REPLACE)
    assert np.array_equal(nothing, zeros)
    assert np.all(nothing != 0)


def test_integers_and_single_precision_are_rows_too() -> None:
    exact = released(np.array([[0.25, 0.0], [0.0, 0.25]]), Relation.REPLACE)
    single = released(np.array([[0.25, 0], [0, 0.25]], np.float32), Relation.REPLACE)
    assert np.array_equal(exact, single)
    released(np.array([[1, 0], [0, 1]]), Relation.REPLACE)
