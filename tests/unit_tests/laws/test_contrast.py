"""A slot's contrast with the public distribution stays a distribution, before the sum.

So the sum of slots keeps its sensitivity: 1 where a slot comes or goes, sqrt 2 where it
changes. The twin takes the contrast of the mean instead, and has no such bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from faces import next_token
from hypothesis import given
from hypothesis import strategies as st

contrasted = next_token.contrasted
TINY = 1e-6
POWERS = (0.0, 0.5, 1.0, 3.0)
CORNERS = [np.eye(3)[k] for k in range(3)]
ROWS = [
    *CORNERS,
    *(np.array(row) for row in ([0.5, 0.5, 0.0], [1 / 3] * 3, [0.98, 0.01, 0.01])),
    np.array([1 - 2 * TINY, TINY, TINY]),
]
PUBLIC = [*ROWS[3:], np.array([TINY, TINY, 1 - 2 * TINY])]

Rows = list[np.ndarray]


def sum_of(rows: Rows, public: np.ndarray, power: float) -> Any:
    """Add up the slots' contrasts, as a step does."""
    return sum((contrasted(row, public, power) for row in rows), np.zeros(3))


def contrast_of_mean(rows: Rows, public: np.ndarray, power: float) -> Any:
    """The twin: sharpen the mean, which all slots share, on the scale of a sum."""
    mean = sum(rows, np.zeros(3)) / len(rows)
    return len(rows) * contrasted(mean, public, power)


def distances(slots: int) -> tuple[float, float]:
    """Return the largest moves of a sum: a slot more or less, a slot changed."""
    come, change = 0.0, 0.0
    for power, public in itertools.product(POWERS, PUBLIC):
        for base in itertools.combinations_with_replacement(ROWS[:4], slots - 1):
            sums = [sum_of([*base, row], public, power) for row in ROWS]
            without = sum_of(list(base), public, power)
            come = max(come, *norms(each - without for each in sums))
            pairs = itertools.combinations(sums, 2)
            change = max(change, *norms(a - b for a, b in pairs))
    return come, change


def norms(vectors: Iterable[np.ndarray]) -> list[float]:
    return [float(np.linalg.norm(vector)) for vector in vectors]


@pytest.mark.promise("contrast-per-slot")
def test_a_sum_of_contrasts_moves_as_a_sum_of_distributions_does() -> None:
    come, change = distances(slots=3)
    assert come == pytest.approx(1.0, abs=1e-9)
    assert change == pytest.approx(math.sqrt(2), abs=1e-9)


@pytest.mark.promise("contrast-per-slot", twin=True)
def test_twin_the_contrast_of_a_mean_has_no_such_bound() -> None:
    public = PUBLIC[-2]
    worlds = [[*[CORNERS[0]] * 19, CORNERS[k]] for k in (0, 1)]
    moves = {
        total: norms([total(worlds[0], public, 1.0) - total(worlds[1], public, 1.0)])[0]
        for total in (sum_of, contrast_of_mean)
    }
    assert moves[sum_of] == pytest.approx(math.sqrt(2))
    assert moves[contrast_of_mean] == pytest.approx(20 * math.sqrt(2), rel=0.01)


weights = st.lists(
    st.floats(0, 1) | st.sampled_from([0.0, 1e-300, 1.0]), min_size=4, max_size=4
).filter(lambda row: sum(row) > 0)


@pytest.mark.promise("contrast-per-slot")
@given(weights, weights, st.floats(0, 10))
def test_it_is_a_distribution_of_one_slot(
    row: list[float], public: list[float], power: float
) -> None:
    given_row, own = np.array(row) / sum(row), np.array(public) / sum(public)
    made = contrasted(given_row, own, power)
    assert made.sum() == pytest.approx(1.0)
    assert (made >= 0).all()
    assert (made[given_row == 0] == 0).all(), "nothing impossible becomes possible"
    if power == 0:
        assert made == pytest.approx(given_row)
    assert contrasted(own, own, power) == pytest.approx(own, abs=1e-4)
