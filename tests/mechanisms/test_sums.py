"""Tables, reports, sums and tokens: their laws, sensitivities and refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from support.exact_laws import gaussian_steps, keeps_to, laplace_steps

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.accounting import Gaussian, Pure
from langchain_dpicl.mechanisms import next_token, responses, tables
from langchain_dpicl.mechanisms.random import seeded

SINGLE = [(n,) for n in range(3)]
SETS = [own for k in range(3) for own in itertools.combinations(range(3), k)]


def tallied(rows: Any, second: int) -> list[Any]:
    """Return the counts of two columns and of their pairs, of rows of sets."""
    found = [np.zeros(3, int), np.zeros(second, int), np.zeros((3, second), int)]
    for own, other in rows:
        for x in own:
            found[0][x] += 1
            for y in other:
                found[2][x, y] += 1
        for y in other:
            found[1][y] += 1
    return found


def farthest(first: Any, rows: int) -> tuple[int, float]:
    """Return how far a unit moves all tables together, in L1 and in L2."""
    cells = itertools.product(first, [(0,), (1,)])
    moved = [
        np.concatenate([table.ravel() for table in tallied(own, 2)])
        for own in itertools.combinations_with_replacement(list(cells), rows)
    ]
    return max(int(m.sum()) for m in moved), max(map(np.linalg.norm, moved))


def spread(cells: list[int], rows: int) -> tuple[Any, Any]:
    """Return the noise's scales at epsilon 1 and at z = 1: the sensitivities."""
    laplace = tables.laplace_noises(Pure(epsilon=1.0), 3, cells=cells, rows=rows)
    unit = Gaussian(noise_multiplier=1.0)
    gaussian = tables.gaussian_noises(unit, 3, cells=cells, rows=rows)
    assert len({n.scale for n in laplace}) == len({n.scale for n in gaussian}) == 1
    return laplace[0].scale, gaussian[0].scale


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("first", "most"), [(SINGLE, 1), (SETS, 2)])
def test_no_unit_moves_tables_farther_than_the_sensitivity(
    first: Any, most: int, rows: int
) -> None:
    flat, long = farthest(first, rows)
    # A set of m values hits m cells, alone and in a pair; single values one.
    scale, sigma = spread([most, 1, most], rows)
    assert scale == flat
    assert sigma == pytest.approx(long)
    assert sigma >= long


@pytest.mark.parametrize("rows", [1, 2])
def test_twin_a_set_that_counts_once(rows: int) -> None:
    flat, long = farthest(SETS, rows)
    scale, sigma = spread([1, 1, 1], rows)
    assert scale < flat
    assert sigma < long


def test_tallies_and_histograms_keep_to_their_laws() -> None:
    zeros = np.zeros(20_000, int)
    given = {"bounds": [1, 5], "cells": [3, 1], "rows_per_unit": 2}
    for factor in (1.0, 2.0):
        with seeded(1):
            drawn = tables.noisy_tallies([zeros, zeros], Pure(epsilon=factor), **given)
            drawn += tables.noisy_histograms(
                [zeros, zeros], Gaussian(noise_multiplier=2.0 / factor), **given
            )
        # Four cells in all, of two rows.
        laws = [laplace_steps(8), laplace_steps(40), gaussian_steps(8)]
        laws.append(gaussian_steps(40))
        for found, law in zip(drawn, laws, strict=True):
            # The twin: half the noise.
            assert keeps_to(found.tolist(), law) == (factor == 1.0)


def test_a_bound_for_each_tally() -> None:
    paid = Pure(epsilon=0.3)
    for wrong in ({"bounds": [1]}, {"cells": [1, 1, 1]}, {"cells": [1, 0]}):
        with pytest.raises(InvalidParameterError):
            tables.noisy_tallies([[1], [2]], paid, **wrong)


def test_extreme_tallies_are_clipped_and_wrong_ones_refused() -> None:
    most = 1 << 61
    paid = Pure(epsilon=1e6)
    given = np.array([1 << 63, 5], np.uint64)
    found = tables.noisy_tallies([given, [-(1 << 63)]], paid, bounds=[1, 1])
    assert [t.tolist() for t in found] == [[most, 5], [-most]]
    for wrong in ([[0.5]], [["77"]], [[1 << 70]], [[1, [2]]], []):
        with pytest.raises(InvalidParameterError) as caught:
            tables.noisy_tallies(wrong, paid, bounds=[1] * len(wrong))
        assert "77" not in str(caught.value)
    with pytest.raises(InvalidParameterError):
        tables.gaussian_noises(Gaussian(noise_multiplier=1e6), 1, cells=[1 << 62])


@pytest.mark.parametrize(("size", "epsilon"), [(2, 0.4), (5, 2.0)])
def test_reports_keep_to_their_law(size: int, epsilon: float) -> None:
    with mp.workdps(30):
        other = 1 / (size - 1 + mp.exp(epsilon))
        law = {c: other * (mp.exp(epsilon) if c == 1 else 1) for c in range(size)}
    for factor in (1, 2):
        with seeded(2):
            drawn = responses.randomize(
                [1] * 20_000, domain_size=size, epsilon=factor * epsilon
            )
        assert keeps_to(drawn.tolist(), law) == (factor == 1)
    p, q = responses.response_chances(epsilon, size)
    assert (p, q) == pytest.approx((float(law[1]), float(law[0])))


def test_reports_keep_shapes_and_refuse_what_is_no_code() -> None:
    assert responses.randomize([], domain_size=2, epsilon=1.0).shape == (0,)
    codes = np.array([[0, 1], [2, 0]])
    found = responses.randomize(codes.T, domain_size=3, epsilon=500.0)
    assert found.tolist() == codes.T.tolist()
    assert responses.response_chances(1e6, 10) == (1.0, 0.0)
    for wrong, size in (([3], 3), ([-1], 3), ([0.5], 3), ([0], 1), ([0], 1 << 53)):
        with pytest.raises(InvalidParameterError):
            responses.randomize(wrong, domain_size=size, epsilon=1.0)


def test_no_row_is_longer_on_the_grid_than_the_limit() -> None:
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=50) * 10.0**n for n in (-300, -3, 0, 3, 200, 300)]
    rows += [np.full(50, 1.7e308), np.eye(50)[0], np.full(50, 50**-0.5), np.zeros(50)]
    for limit in (1e-9, 0.8, 3.0, 16384.0, 1e9):
        grid = next_token.on_grid(np.array(rows), limit)
        squares = [sum(int(x) ** 2 for x in row) for row in grid]
        assert max(squares) <= limit**2
    grid = next_token.on_grid(np.array([[0.6, 0.8]]), 16384.0)
    assert np.abs(grid / 16384 - [0.6, 0.8]).max() < 3e-4


def test_a_row_alone_decides_its_point() -> None:
    rows = np.random.default_rng(4).normal(size=(40, 7))
    whole = next_token.on_grid(rows, 9_000.0)
    alone = [next_token.on_grid(rows[n : n + 1], 9_000.0)[0] for n in range(40)]
    assert np.array_equal(whole, alone)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_tokens_have_the_noise_that_was_paid(relation: str) -> None:
    for z in (0.7, 30.0):
        paid, twin = (Gaussian(noise_multiplier=n) for n in (z, z / 2))
        far = {"add_remove": 1.0, "replace": math.sqrt(2)}[relation]
        with seeded(5):
            zeros = np.zeros((0, 20_000))
            drawn, half = (
                float(next_token.noisy_next_token(zeros, event, relation).std())
                for event in (paid, twin)
            )
        assert drawn == pytest.approx(z * far, rel=0.02)
        assert half != pytest.approx(z * far, rel=0.02)


def winner_law(scores: np.ndarray, epsilon: float) -> dict[Any, Any]:
    """Return the law of permute-and-flip, by integration over exponential noise."""
    rate = mp.mpf(epsilon) / 2
    points = [mp.mpf(float(s)) for s in scores]

    def density(n: int, x: mp.mpf) -> mp.mpf:
        value = rate * mp.exp(-rate * (x - points[n]))
        for place, own in enumerate(points):
            if place != n:
                value *= 1 - mp.exp(-rate * (x - own)) if x > own else 0
        return value

    top = max(points)
    edges = [top, top + 2, top + 10, top + 60]
    return {n: mp.quad(lambda x, n=n: density(n, x), edges) for n in range(len(points))}


def test_the_winner_of_noisy_max_keeps_to_its_law() -> None:
    rows = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.0, 0.0, 0.9]]
    scores = sum(np.array(row) / max(row) for row in rows)
    law = winner_law(scores, 1.0)
    for epsilon in (1.0, 2.0):
        paid = Pure(epsilon=epsilon)
        with seeded(6):
            drawn = [
                next_token.noisy_max_next_token(rows, paid, "replace")
                for _ in range(6_000)
            ]
        assert keeps_to(drawn, law) == (epsilon == 1.0)


def test_tokens_of_a_slot_are_its_own_and_wrong_ones_abstain() -> None:
    logs: list[Any] = [
        np.log([0.5, 0.25, 0.25]),
        np.log([0.1, 0.6, 0.3]),
        None,
        [0.0, np.nan, 0.0],
        [1.0, 0.0, 0.0],
        np.full(3, -np.inf),
        [0.0],
        "no",
        [["x"]],
        [-np.inf, -2.0, -np.inf],
    ]
    found = next_token.token_distributions(logs, 3, [0, 2])
    for row, given in zip(found[:2], logs, strict=False):
        assert np.array_equal(row, next_token.token_distribution(given, [0, 2]))
    assert all(next_token.token_distribution(x, [0, 2]) is None for x in logs[3:])
    assert [n for n, row in enumerate(found) if row is not None] == [0, 1]
    assert found[0] == pytest.approx([2 / 3, 1 / 3])
    assert next_token.token_distributions(logs, 3, [7]) == [None] * len(logs)
    for wrong in ([[0]], [], [-1], [0.5]):
        with pytest.raises(InvalidParameterError):
            next_token.token_distribution(np.zeros(3), wrong)


def test_rows_that_are_no_probabilities_are_refused_without_telling() -> None:
    paid = Gaussian(noise_multiplier=1.0)
    for rows in (
        [[0.77, 0.77]],
        [[-0.77, 0]],
        [[np.nan, 0]],
        [[1, 2], [3]],
        [0.7],
        [["x"]],
    ):
        with pytest.raises(InvalidParameterError) as caught:
            next_token.noisy_next_token(rows, paid, "replace")
        assert "77" not in str(caught.value)
        assert caught.value.__cause__ is None
