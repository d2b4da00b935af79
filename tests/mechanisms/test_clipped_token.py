"""A token from clipped differences: its law, sensitivity and worst pairs.

Laws are enumerated in a formula of their own. Each way to get the input wrong is a
twin, whose loss leaves the interval that was paid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from suite import WHOLE
from support.exact_laws import keeps_to

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.accounting import Exponential, Gaussian
from langchain_dpicl.mechanisms import clipped_token as module
from langchain_dpicl.mechanisms.random import seeded

clipped_token = module.clipped_token
RELATIONS = {"add_remove": 2, "replace": 4}
PUBLIC = np.array([0.5, 0.3, 0.15, 0.05])
DRAWS = 40_000 if WHOLE else 2_000
SLOTS = 5

Rows = list[np.ndarray]


def softmax(scores: Any) -> np.ndarray:
    weights = np.exp(np.asarray(scores) - np.max(scores))
    return np.asarray(weights / weights.sum())


def law_of(
    rows: Rows,
    epsilon: float,
    relation: str,
    *,
    slots: int,
    temperature: float = 1.0,
    noise: float = 1.0,
) -> dict[int, float]:
    """Return the law, of real numbers: no grid, no integer weights."""
    limit = epsilon * slots * temperature / RELATIONS[relation]
    scores = np.log(PUBLIC) / temperature
    for row in rows:
        raw = np.log(row) - np.log(PUBLIC)
        raw -= np.sort(raw)[(len(raw) - 1) // 2]
        scores = scores + np.clip(raw, -limit, limit) / (slots * temperature * noise)
    return dict(enumerate(softmax(scores).tolist()))


def some_rows(count: int, seed: int = 4) -> Rows:
    random = np.random.default_rng(seed)
    return [softmax(np.log(PUBLIC) + random.normal(0, 2, 4)) for _ in range(count)]


@pytest.mark.parametrize(
    ("relation", "count", "epsilon", "temperature"),
    [
        ("add_remove", 0, 1.0, 1.0),
        ("replace", 5, 1.5, 1.0),
        ("add_remove", 5, 2.5, 0.6),
        ("replace", 3, 2.0, 1.7),
        ("add_remove", 40, 0.6, 1.0),
    ],
)
def test_tokens_have_the_law_that_was_paid(
    relation: str, count: int, epsilon: float, temperature: float
) -> None:
    rows, paid = some_rows(count), Exponential(epsilon=epsilon)
    terms: Any = {"slots": SLOTS, "temperature": temperature}
    with seeded(11):
        drawn = [
            clipped_token(np.reshape(rows, (-1, 4)), PUBLIC, paid, relation, **terms)
            for _ in range(DRAWS)
        ]
    assert keeps_to(drawn, law_of(rows, epsilon, relation, **terms))
    if count == SLOTS:
        twin = law_of(rows, epsilon, relation, noise=0.5, **terms)
        assert not keeps_to(drawn, twin)


def test_where_slots_outweigh_the_public_the_law_is_exact_and_soon_drawn() -> None:
    # 20 times as many as declared: of public proposals one in 10^21 would be kept.
    rare = np.array([1 - 3e-9, 1e-9, 2e-9])
    row = np.array([1e-30, 0.5, 0.5])
    with seeded(3):
        drawn = [
            clipped_token(
                [row] * 400, rare, Exponential(epsilon=0.2), "add_remove", slots=20
            )
            for _ in range(DRAWS // 3)
        ]
    raw = np.log(row) - np.log(rare)
    scores = np.log(rare) + 400 * np.clip(raw - np.sort(raw)[1], -2, 2) / 20
    assert keeps_to(drawn, dict(enumerate(softmax(scores))))


# ---- sensitivity ---------------------------------------------------------------------

BASE = np.array([0.6, 0.3, 0.1])
EDGES = [
    *(np.array(row) for row in ([1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.5, 0.5, 0])),
    np.array([1e-9, 0.5, 0.5]),
    np.zeros(3),
    *(softmax(np.log(BASE) + np.array(d)) for d in ([3, -3, 0], [-3, 3, 0])),
]
LIMIT = 3 * module.GRID // 2
Sum = Callable[[Rows], np.ndarray]


def sum_of(rows: Rows) -> np.ndarray:
    stacked = np.reshape(rows, (-1, 3)).astype(float)
    return np.asarray(module.differences(stacked, BASE, LIMIT).sum(axis=0))


def pairs(relation: str, slots: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield all neighbors of so many slots; where it changes, the first changes."""
    for others in itertools.combinations_with_replacement(EDGES, slots - 1):
        if relation == "add_remove":
            yield from (([row, *others], list(others)) for row in EDGES)
        else:
            changed = itertools.permutations(EDGES, 2)
            yield from (([a, *others], [b, *others]) for a, b in changed)


def most_moved(relation: str, total: Sum = sum_of) -> float:
    return max(float(np.abs(total(a) - total(b)).max()) for a, b in pairs(relation, 3))


@pytest.mark.promise("clipped-token")
def test_a_slot_moves_the_sum_by_its_limit_and_a_shared_one_by_twice_that() -> None:
    assert most_moved("add_remove") == LIMIT
    assert most_moved("replace") == 2 * LIMIT


@pytest.mark.promise("clipped-token", twin=True)
def test_twins_of_the_sum_move_farther() -> None:
    c = LIMIT / module.GRID

    def raw(row: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(np.maximum(row, 1e-300)) - np.log(BASE))

    def clipped_first(rows: Rows) -> np.ndarray:
        clipped = [np.clip(raw(row), -c, c) for row in rows]
        return sum((d - np.sort(d)[1] for d in clipped), np.zeros(3)) * module.GRID

    def of_a_few(rows: Rows) -> np.ndarray:
        return sum_of(rows[:2])

    assert most_moved("add_remove", clipped_first) > LIMIT, "a clip before the shift"
    assert most_moved("add_remove", of_a_few) > LIMIT, "a cap of slots"

    random = np.random.default_rng(1)
    differences = np.clip(random.normal(0, 3, (2000, 16)), -c, c).astype(np.float32)
    moves = np.abs(
        differences.sum(axis=1).astype(float)
        - differences[:, :15].sum(axis=1).astype(float)
    )
    assert moves.max() > c, "a sum in single precision"


@pytest.mark.parametrize("width", [3, 100, 1001])
def test_a_row_becomes_the_same_integers_whatever_stands_beside_it(width: int) -> None:
    random = np.random.default_rng(width)
    rows = random.dirichlet(np.full(width, 0.3), 41)
    public = random.dirichlet(np.ones(width))
    together = module.differences(rows, public, LIMIT)
    assert together.dtype == np.int64
    for place in (0, 7, 40):
        for some in (slice(place, place + 1), slice(place, None)):
            alone = module.differences(rows[some].copy(), public, LIMIT)
            assert (alone[0] == together[place]).all()


# ---- worst pairs ---------------------------------------------------------------------


def loss_range(p: np.ndarray, q: np.ndarray) -> float:
    losses = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-300))
    return float(losses.max() - losses.min())


def law(total: np.ndarray, slots: int) -> np.ndarray:
    return softmax(np.log(BASE) + total / (module.GRID * slots))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.promise("clipped-token")
def test_the_worst_pair_loses_what_was_paid_and_no_pair_more(relation: str) -> None:
    slots = 3
    epsilon = RELATIONS[relation] * LIMIT / module.GRID / slots
    found = max(
        loss_range(law(sum_of(a), slots), law(sum_of(b), slots))
        for a, b in pairs(relation, slots)
    )
    assert 0.999 * epsilon < found < epsilon + 1e-9
    paid = Exponential(epsilon=epsilon)
    clip = module.clip(paid, relation, slots=slots)
    assert 0 <= LIMIT / module.GRID - clip < 1.1 / module.GRID
    if relation == "replace":
        # Charged as if each slot were one person's.
        assert found > 1.9 * epsilon / 2


@pytest.mark.promise("clipped-token", twin=True)
def test_twins_of_the_draw_lose_more() -> None:
    slots = 3
    epsilon = 2 * LIMIT / module.GRID / slots

    def by_count(rows: Rows) -> np.ndarray:
        return law(sum_of(rows), max(1, len(rows)))

    def likeliest(rows: Rows) -> np.ndarray:
        p = law(sum_of(rows), slots)
        return np.asarray(np.where(p >= np.sort(p)[1], p, 0.0))

    for twin in (by_count, likeliest):
        found = max(loss_range(twin(a), twin(b)) for a, b in pairs("add_remove", slots))
        assert found > 1.2 * epsilon


def test_what_was_not_paid_is_refused_and_no_figure_is_told() -> None:
    rows, good = [[0.77, 0.23]], Exponential(epsilon=1.0)
    wrong: list[Any] = [Gaussian(noise_multiplier=1.0), Exponential(epsilon=None), 1.0]
    wrong.append(Exponential(epsilon=1.0, sampling_rate=0.5))
    for paid in wrong:
        with pytest.raises(InvalidParameterError):
            clipped_token(rows, [0.5, 0.5], paid, "replace", slots=2)
    for change in (
        {"distributions": [[77.0, 0.0]]},
        {"distributions": [[-0.77, 0.0]]},
        {"distributions": [[math.nan, 0.77]]},
        {"public": [0.77]},
        {"public": [0.0, 0.0]},
        {"slots": 0},
        {"temperature": 0.0},
        {"temperature": 1e-9},
        {"relation": "both"},
    ):
        given: dict[str, Any] = {
            "distributions": rows,
            "public": [0.5, 0.5],
            "paid": good,
            "relation": "replace",
            "slots": 2,
            **change,
        }
        with pytest.raises(InvalidParameterError) as caught:
            clipped_token(**given)
        assert "77" not in str(caught.value)
