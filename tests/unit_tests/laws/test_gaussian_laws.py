"""Releases with Gaussian noise: the noise is z times what one person can change.

For each release and relation all small neighbors are tried. The release is drawn with
next to no noise to see what it adds noise to, and with the noise that was paid for to
see how large it is. So the sensitivity is measured, and not read in the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import pytest
from faces import Coins, Gaussian, charged, draw
from scipy import stats

QUIET, Z = 1e-6, 3.0
Worlds = Iterator[tuple[Any, Any]]


def votes(slots: list[int | None]) -> np.ndarray:
    """Three bins; a slot without records is in none."""
    return np.bincount([slot for slot in slots if slot is not None], minlength=3)


def slot_worlds(change: str, answers: list[Any], most: int = 3) -> Worlds:
    """Each pair of answers of up to `most` slots that differ in one slot."""
    for rest in itertools.combinations_with_replacement(answers, most - 1):
        for mine in answers:
            others = [None] if change == "add_remove" else [None, *answers]
            for other in others:
                yield [*rest, mine], [*rest, other]


def rows(slots: list[Any], size: int) -> np.ndarray:
    """What the slots say, a row each; a slot without records has none."""
    return np.array([slot for slot in slots if slot is not None]).reshape(-1, size)


def vote_worlds(change: str) -> Worlds:
    for one, two in slot_worlds(change, [0, 1, 2]):
        yield votes(one), votes(two)


TOKENS = [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.5, 0.5, 0]]


def token_worlds(change: str) -> Worlds:
    for one, two in slot_worlds(change, TOKENS, most=2):
        yield (
            *(
                np.array([x for x in w if x is not None]).reshape(-1, 3)
                for w in (one, two)
            ),
        )


def table_worlds(_change: str) -> Worlds:
    """Two tables; all of a person's two rows come or go."""
    cells = list(itertools.product(range(2), range(2)))
    for rest in cells:
        for mine in itertools.combinations_with_replacement(cells, 2):
            yield tuple(
                [votes([a for a, _ in rows])[:2], votes([b for _, b in rows])[:2]]
                for rows in ([rest, *mine], [rest])
            )


@dataclass(frozen=True)
class Row:
    """A release, its neighbors, the most that one person changes, and public terms."""

    release: str
    worlds: Callable[[str], Worlds]
    most: dict[str, float]
    public: dict[str, Any] = field(default_factory=dict)
    zeros: Callable[[int], Any] = lambda n: np.zeros(n, int)

    def drawn(self, data: Any, z: float, relation: str, coins: int) -> np.ndarray:
        public = {**self.public, "relation": relation, "coins": coins}
        if self.release == "tables":
            del public["relation"]
        found = draw(self.release, data, charged(self.release, z), **public)
        parts = found if self.release == "tables" else [found]
        return np.concatenate([np.ravel(part) for part in parts]).astype(float)


SQRT2 = 2**0.5
ROWS = [
    Row("votes", vote_worlds, {"add_remove": 1.0, "replace": SQRT2}),
    Row(
        *("token", token_worlds, {"add_remove": 1.0, "replace": SQRT2}),
        {},
        lambda n: np.zeros((0, n)),
    ),
    Row(
        *("tables", table_worlds, {"add_remove": 2 * SQRT2}),
        {"rows_per_unit": 2},
        lambda n: [np.zeros(n // 2, int), np.zeros(n - n // 2, int)],
    ),
]
CASES = [
    pytest.param(row, relation, id=f"{row.release}-{relation}")
    for row in ROWS
    for relation in row.most
]


def reach(row: Row, relation: str, tables_quiet: float = QUIET) -> float:
    """Return the largest distance between what neighbors are given noise to."""
    distances = []
    for number, (one, two) in enumerate(row.worlds(relation)):
        pair = [row.drawn(w, tables_quiet, relation, number) for w in (one, two)]
        distances.append(float(np.linalg.norm(pair[0] - pair[1])))
    return max(distances)


def check_noise(row: Row, relation: str, drawn_at: float) -> None:
    """The noise is Gaussian, of z times the sensitivity, in each coordinate alone."""
    sigma = Z * row.most[relation]
    noise = row.drawn(row.zeros(20_000), drawn_at, relation, 7)
    # Whole numbers, where they are, are spread out evenly over their cell.
    step = np.min(np.diff(np.unique(noise)))
    spread = noise + (np.random.default_rng(1).random(noise.size) - 0.5) * step
    exact = np.hypot(sigma, step / 12**0.5)
    assert stats.kstest(spread / exact, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.04


@pytest.mark.promise("gaussian-sensitivity", "embedding-sensitivity")
@pytest.mark.parametrize(("row", "relation"), CASES)
def test_no_neighbor_is_farther_than_the_sensitivity(row: Row, relation: str) -> None:
    assert reach(row, relation) == pytest.approx(row.most[relation], rel=1e-3)


@pytest.mark.promise("gaussian-law")
@pytest.mark.parametrize(("row", "relation"), CASES)
def test_the_noise_is_what_was_paid_for(row: Row, relation: str) -> None:
    assert charged(row.release, Z) == (Gaussian(Z),)
    check_noise(row, relation, Z)


@pytest.mark.promise("gaussian-law", twin=True)
@pytest.mark.parametrize(("row", "relation"), CASES)
def test_half_the_noise_is_noticed(row: Row, relation: str) -> None:
    with pytest.raises(AssertionError):
        check_noise(row, relation, Z / 2)


@pytest.mark.promise("gaussian-sensitivity", "embedding-sensitivity", twin=True)
@pytest.mark.parametrize(("row", "relation"), CASES[:-1])
def test_a_neighbor_two_slots_away_is_too_far(row: Row, relation: str) -> None:
    def twice(change: str) -> Worlds:
        worlds = list(row.worlds(change))
        for (one, two), (three, four) in itertools.islice(
            itertools.product(worlds, worlds), 150
        ):
            if row.release == "votes":
                yield one + three, two + four
            else:
                yield np.concatenate([one, three]), np.concatenate([two, four])

    far = Row(row.release, twice, row.most, row.public, row.zeros)
    assert reach(far, relation) > row.most[relation] * 1.2


@pytest.mark.promise("gaussian-law")
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_sampled_release_draws_the_noise_before_sampling(rate: float) -> None:
    paid = charged("votes", Z, rate=rate)
    assert paid == (Gaussian(Z, sampling_rate=rate),)
    one = draw("votes", [5, 1], paid, rate=rate, relation="replace", coins=3)
    other = draw("votes", [5, 1], charged("votes", Z), relation="replace", coins=3)
    assert list(one) == list(other)


def inverse(word: int, sigma: float) -> float:
    """The quantile that a 64-bit word stands for: a sign, and 63 bits of one half."""
    share = mpmath.mpf(0.5) + mpmath.mpf(word % 2**63) / 2**64
    return float(sigma * mpmath.sqrt(2) * mpmath.erfinv(2 * share - 1))


def check_quantiles(sigma: float) -> None:
    rng = np.random.default_rng(5)
    for word in [int(w) for w in rng.integers(2**40, 2**63 - 2**40, 200)]:
        paid = charged("votes", 512.0)
        drawn = draw("votes", [0], paid, relation="add_remove", coins=Coins(word))[0]
        assert drawn == round(drawn), "a vote is whole"
        assert abs(drawn - inverse(word, sigma)) <= 0.5


@pytest.mark.promise("exact-sampler")
def test_one_word_is_one_quantile_to_the_last_vote() -> None:
    with mpmath.workdps(40):
        check_quantiles(512.0)


@pytest.mark.promise("exact-sampler", twin=True)
def test_a_quantile_of_another_noise_is_noticed() -> None:
    with mpmath.workdps(40), pytest.raises(AssertionError):
        check_quantiles(507.0)


def check_fresh(coins: int | None) -> None:
    """Of twenty draws no two are alike."""
    paid = charged("votes", Z)
    drawn = [
        draw("votes", [3] * 99, paid, coins, relation="replace") for _ in range(20)
    ]
    assert len(set(map(tuple, drawn))) == 20


@pytest.mark.promise("system-randomness")
@pytest.mark.promise("system-randomness", twin=True)
def test_without_a_seed_no_two_draws_are_alike() -> None:
    paid = charged("votes", Z)
    check_fresh(None)
    with pytest.raises(AssertionError):  # The twin: a seed that is fixed.
        check_fresh(4)
    seeded = {
        tuple(draw("votes", [3, 1], paid, relation="replace", coins=4))
        for _ in range(3)
    }
    assert len(seeded) == 1
