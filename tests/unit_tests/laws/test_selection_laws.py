"""Releases that come out or do not: their exact laws, and what neighbors' laws differ.

Each row of the table has a law in a formula of its own. Draws keep to it, and the laws
of neighbors keep to the price of what was paid, in both directions.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from faces import (
    Exponential,
    Failure,
    Gaussian,
    Pure,
    accounting,
    charged,
    draw,
    seeded,
)
from scipy import stats

Law = dict[Hashable, float]
Z, DELTA0, EPS = 2.0, 0.05, 1.0
CHANGE = {"add_remove": 1, "replace": 2}


def quantile(share: float, sigma: float) -> float:
    """Where noise that is drawn on a grid passes with probability `share` at most."""
    return float(sigma * stats.norm.isf(share))


def ranked(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def gap(counts: dict[str, int], k: int) -> int:
    heights = [height for _, height in ranked(counts)] + [0] * (k + 1)
    return heights[k - 1] - heights[k]


def top_words(counts: dict[str, int], relation: str, k: int = 2) -> Law:
    """The set of the top k, if their gap passes the noisy test; else nothing."""
    most = CHANGE[relation]
    sigma = Z * most
    lead = max(most, gap(counts, k))
    passes = stats.norm.sf((most + quantile(DELTA0, sigma) - lead) / sigma)
    words = frozenset(word for word, _ in ranked(counts)[:k])
    return {words: passes, None: 1 - passes} if len(counts) >= k else {None: 1.0}


def common_words(counts: dict[str, int], relation: str, c: int = 2) -> Law:
    """Each word for itself: it is in if its noisy count passes."""
    sigma = Z * math.sqrt(c * CHANGE[relation])
    least = 1 + quantile(DELTA0 / c, sigma)
    chances = {w: stats.norm.sf((least - n) / sigma) for w, n in counts.items()}
    law: Law = {}
    for inside in itertools.product([True, False], repeat=len(counts)):
        pairs = list(zip(chances, inside, strict=True))
        chance = math.prod(chances[w] if yes else 1 - chances[w] for w, yes in pairs)
        law[frozenset(word for word, yes in pairs if yes)] = chance
    return law


def soft(utilities: dict[Hashable, float], epsilon: float) -> Law:
    """The exponential mechanism."""
    weights = {s: math.exp(epsilon * u) for s, u in utilities.items()}
    total = sum(weights.values())
    return {s: weight / total for s, weight in weights.items()}


def ranked_words(counts: list[int], relation: str, k: int = 2) -> Law:
    heights = sorted(counts, reverse=True)
    loss = {
        s: max(heights[i] - counts[place] for i, place in enumerate(s))
        for s in itertools.permutations(range(len(counts)), k)
    }
    most = CHANGE[relation]
    return soft({s: -u / most for s, u in loss.items()}, EPS / 2)


def how_many_words(counts: dict[str, int], relation: str) -> Law:
    utilities = {k: gap(counts, k) / CHANGE[relation] for k in (1, 2, 3)}
    return soft(utilities, EPS / 2)


def likely_token(rows: list[list[float]], relation: str) -> Law:
    """Noisy max of two scores with exponential noise of scale 2/eps."""
    scores = sum((np.array(row) / max(row) for row in rows), np.zeros(2))
    behind = math.exp(-EPS / 2 * abs(scores[0] - scores[1])) / 2
    first = 1 - behind if scores[0] >= scores[1] else behind
    return {0: first, 1: 1 - first}


def sums(tallies: list[list[int]], relation: str, reach: int = 2, far: int = 60) -> Law:
    """Discrete Laplace of scale reach/eps, each number alone: the first one's law."""
    decay = math.exp(-EPS / reach)
    center = tallies[0][0]
    flat = (1 - decay) / (1 + decay)
    return {center + k: flat * decay ** abs(k) for k in range(-far, far + 1)}


def reports(codes: list[int], relation: str, size: int = 4) -> Law:
    other = 1 / (size - 1 + math.exp(EPS))
    return {
        code: other * (math.exp(EPS) if code == codes[0] else 1) for code in range(size)
    }


def replaced(counts: dict[str, int], words: str, most: int) -> list[dict[str, int]]:
    """Neighbors: one answer's words less, and another's more, at most `most` each."""
    found = []
    for less in itertools.combinations(sorted(counts), most):
        for more in itertools.combinations(sorted({*counts, *words}), most):
            changed = Counter(counts) - Counter(less) + Counter(more)
            found.append({word: n for word, n in changed.items() if n > 0})
    return found


def added(counts: dict[str, int], words: str, most: int) -> list[dict[str, int]]:
    return [
        dict(Counter(counts) + Counter(more))
        for more in itertools.combinations(sorted({*counts, *words}), most)
    ]


@dataclass(frozen=True)
class Row:
    """A release: what is paid, its law, what is drawn, data and their neighbors."""

    release: str
    noise: tuple[float, ...]
    paid: tuple[Any, ...]
    law: Callable[..., Law]
    data: list[Any]
    neighbors: Callable[[Any], list[Any]]
    relation: str = "replace"
    delta0: float = 0.0
    public: dict[str, Any] = field(default_factory=dict)
    shown: Callable[[Any], Hashable] = lambda drawn: drawn

    def draws(self, data: Any, count: int, paid: Any = None) -> Counter[Hashable]:
        coins = seeded(11)
        events = paid or charged(self.release, *self.noise, delta0=self.delta0)
        return Counter(
            self.shown(draw(self.release, data, events, coins, **self.public))
            for _ in range(count)
        )


def with_relation(relation: str, **public: Any) -> dict[str, Any]:
    return {"relation": relation, **public}


WORDS = [{"a": 9, "b": 6, "c": 1}, {"a": 4, "b": 4, "c": 4}, {"a": 3, "b": 2}, {"a": 1}]
HEIGHTS = [[5, 3, 0, 0], [2, 2, 2, 2], [7, 1, 1, 0]]


def moved(counts: list[int], relation: str) -> list[list[int]]:
    """One answer with at most two words: those of the old one less, new ones more."""
    sets = [s for n in (0, 1, 2) for s in itertools.combinations(range(len(counts)), n)]
    olds = sets if relation == "replace" else [()]
    found = []
    for less, more in itertools.product(olds, sets):
        new = [n - (i in less) + (i in more) for i, n in enumerate(counts)]
        if min(new) >= 0:
            found.append(new)
    return found


ROWS = (
    [
        Row(
            "top words",
            (Z,),
            (Gaussian(Z), Failure(DELTA0)),
            lambda data, relation=relation: top_words(data, relation),
            WORDS,
            lambda data, n=neighbors: n(data, "xy", 2) + n(data, "xy", 1),
            relation,
            DELTA0,
            with_relation(relation, k=2),
        )
        for relation, neighbors in (("replace", replaced), ("add_remove", added))
    ]
    + [
        Row(
            "common words",
            (Z,),
            (Gaussian(Z), Failure(DELTA0)),
            lambda data, relation=relation: common_words(data, relation),
            WORDS,
            lambda data, n=neighbors: n(data, "xy", 2),
            relation,
            DELTA0,
            with_relation(relation, items_per_answer=2),
            frozenset,
        )
        for relation, neighbors in (("replace", replaced), ("add_remove", added))
    ]
    + [
        Row(
            "ranked words",
            (EPS,),
            (Exponential(EPS),),
            lambda data, relation=relation: ranked_words(data, relation),
            HEIGHTS,
            lambda data, relation=relation: moved(data, relation),
            relation,
            0.0,
            with_relation(relation, k=2),
            tuple,
        )
        for relation in CHANGE
    ]
    + [
        Row(
            "how many words",
            (EPS,),
            (Exponential(EPS), Gaussian(1.0)),
            lambda data: how_many_words(data, "replace"),
            WORDS,
            lambda data: replaced(data, "xy", 2),
            "replace",
            1e-9,
            with_relation("replace", k_range=(1, 3)),
        ),
        Row(
            "likely token",
            (EPS,),
            (Pure(EPS),),
            lambda data: likely_token(data, "replace"),
            [[[0.5, 0.5], [0.9, 0.1]], [[1.0, 0.0]], [[0.6, 0.4]] * 3],
            lambda data: [
                [*data[1:], row] for row in ([1.0, 0.0], [0.0, 1.0], [0.2, 0.8])
            ],
            public=with_relation("replace"),
        ),
        Row(
            "sums",
            (EPS,),
            (Pure(EPS),),
            lambda data: sums(data, "add_remove"),
            [[[0]], [[41]]],
            lambda data: [[[data[0][0] + change]] for change in (-2, -1, 1, 2)],
            public={"bounds": [2]},
            shown=lambda drawn: int(drawn[0][0]),
        ),
        Row(
            "reports",
            (EPS,),
            (Pure(EPS),),
            lambda data: reports(data, "replace"),
            [[0], [3]],
            lambda data: [[code] for code in range(4)],
            public={"domain_size": 4},
            shown=lambda drawn: int(drawn[0]),
        ),
    ]
)
IDS = [f"{row.release}-{row.relation}" for row in ROWS]


def check_law(row: Row, data: Any, paid: Any = None, count: int = 600) -> None:
    """Draws keep to the law: a chi-square test at one in a million."""
    law, seen = row.law(data), row.draws(data, count, paid)
    assert set(seen) <= set(law), "an outcome that the law does not have"
    expected = np.array([law[outcome] * count for outcome in law])
    found = np.array([seen[outcome] for outcome in law])
    # Rare outcomes share a cell.
    order = np.argsort(expected)
    rare = int(np.searchsorted(np.cumsum(expected[order]), 10)) + 1
    expected = np.array([expected[order][:rare].sum(), *expected[order][rare:]])
    found = np.array([found[order][:rare].sum(), *found[order][rare:]])
    if len(expected) > 1:
        score = float(((found - expected) ** 2 / expected).sum())
        # The formulas are those of continuous noise, the draws those of whole steps.
        assert stats.chi2.sf(score, len(expected) - 1) > 1e-6


def hockey_stick(one: Law, other: Law, epsilon: float) -> float:
    grow = math.exp(epsilon)
    return sum(
        max(0.0, p - grow * other.get(outcome, 0.0)) for outcome, p in one.items()
    )


def excess(row: Row, law: Callable[[Any], Law], paid: tuple[Any, ...]) -> float:
    """By how much delta at the paid epsilon is passed, at most, over all neighbors."""
    worst = -1.0
    for delta in (1e-6 + sum(e.delta0 for e in paid if isinstance(e, Failure)), 0.2):
        epsilon = accounting.compose(paid, delta)
        for data in row.data:
            for neighbor in row.neighbors(data):
                for one, two in ((data, neighbor), (neighbor, data)):
                    worst = max(
                        worst, hockey_stick(law(one), law(two), epsilon) - delta
                    )
    return worst


@pytest.mark.promise("selection-law", "joint-sensitivity", "randomized-response")
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_draws_keep_to_the_exact_law(row: Row) -> None:
    assert (
        charged(row.release, *row.noise, delta0=row.delta0)[: len(row.paid)] == row.paid
    )
    for data in row.data:
        check_law(row, data)


LOUDER = {
    "top words": (Gaussian(Z / 2), Failure(DELTA0)),
    "common words": (Gaussian(Z / 2), Failure(DELTA0)),
    "ranked words": (Exponential(2 * EPS),),
    "how many words": (Exponential(2 * EPS), Gaussian(1.0), Failure(1e-9)),
    "likely token": (Pure(2 * EPS),),
    "sums": (Pure(2 * EPS),),
    "reports": (Pure(2 * EPS),),
}


@pytest.mark.promise(
    "selection-law", "joint-sensitivity", "randomized-response", twin=True
)
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_half_the_noise_breaks_the_law(row: Row) -> None:
    with pytest.raises(AssertionError):
        check_law(row, row.data[0], LOUDER[row.release], count=2_000)


@pytest.mark.promise("selection-price")
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_neighbors_keep_to_what_was_paid(row: Row) -> None:
    paid = row.paid + (
        (Failure(row.delta0),) if row.release == "how many words" else ()
    )
    assert excess(row, row.law, paid) <= 1e-9


def at_the_next_gap(counts: dict[str, int], relation: str) -> Law:
    """The test looks at one word too many: k words come out by the gap of k + 1."""
    law = top_words(counts, relation, k=3)
    words = frozenset(word for word, _ in ranked(counts)[:2])
    return {words if key is not None else None: p for key, p in law.items()}


def with_order(counts: dict[str, int], relation: str) -> Law:
    """What passes comes out ranked."""
    words = tuple(word for word, _ in ranked(counts)[:2])
    law = top_words(counts, relation)
    return {words if key is not None else None: p for key, p in law.items()}


def unshared_failures(counts: dict[str, int], relation: str) -> Law:
    """The threshold of one word, for two words of an answer."""
    sigma = Z * math.sqrt(2 * CHANGE[relation])
    least = 1 + quantile(DELTA0, sigma)
    law = {frozenset(): 1.0}
    for word, count in counts.items():
        chance = float(stats.norm.sf((least - count) / sigma))
        law = {
            words | extra: p * (chance if extra else 1 - chance)
            for words, p in law.items()
            for extra in (frozenset([word]), frozenset())
        }
    return law


TWINS = {
    "gap-at-k": (0, at_the_next_gap, {"a": 90, "b": 50, "c": 50}),
    "no-order": (0, with_order, {"a": 40, "b": 39}),
    "shared-failures": (3, unshared_failures, {"a": 30}),
}


@pytest.mark.promise("gap-at-k", "no-order", "shared-failures")
@pytest.mark.parametrize("twin", TWINS)
def test_the_release_itself_passes_where_its_twin_fails(twin: str) -> None:
    place, _, data = TWINS[twin]
    row = replace(ROWS[place], data=[*ROWS[place].data, data])
    assert excess(row, row.law, row.paid) <= 1e-9


@pytest.mark.promise("gap-at-k", "no-order", "shared-failures", twin=True)
@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_release_passes_what_was_paid(twin: str) -> None:
    place, law, data = TWINS[twin]
    row = replace(ROWS[place], data=[data])
    broken = partial(law, relation=row.relation)
    assert excess(row, broken, row.paid) > 1e-3


@pytest.mark.promise("no-order")
def test_a_set_comes_out_without_its_ranking() -> None:
    paid = charged("top words", Z, delta0=DELTA0)
    for counts in ({"a": 50, "b": 60}, {"b": 50, "a": 60}):
        drawn = draw("top words", counts, paid, k=2, relation="replace")
        assert isinstance(drawn, frozenset)


@pytest.mark.promise("public-range-of-k")
@pytest.mark.promise("public-range-of-k", twin=True)
@pytest.mark.parametrize("counts", [{}, {"a": 3}, {f"w{i}": 1 for i in range(40)}])
def test_each_k_of_the_range_can_be_chosen_whatever_was_seen(counts: Any) -> None:
    events = charged("how many words", 0.01, delta0=1e-9)
    drawn = {
        draw("how many words", counts, events, seed, k_range=(2, 5), relation="replace")
        for seed in range(120)
    }
    check_range(drawn)
    # The twin: no k beyond the words that were seen.
    with pytest.raises(AssertionError):
        check_range({k for k in drawn if k <= min(len(counts), 4)})


def check_range(drawn: set[int]) -> None:
    """Each k of the public range came out."""
    assert drawn == {2, 3, 4, 5}


@pytest.mark.promise("public-length")
@pytest.mark.promise("public-length", twin=True)
@pytest.mark.parametrize("heights", [[0, 0, 0, 0], [9, 0, 0, 0], [9, 8, 7, 6]])
def test_as_many_words_come_out_as_were_asked_for(heights: list[int]) -> None:
    events = charged("ranked words", 20.0)
    found = [
        draw("ranked words", heights, events, seed, k=3, relation="replace")
        for seed in range(20)
    ]
    check_lengths(found)
    # The twin: words that nobody said are left out.
    if heights != [9, 8, 7, 6]:
        with pytest.raises(AssertionError):
            check_lengths([[w for w in words if heights[w]] for words in found])


def check_lengths(found: list[Any]) -> None:
    """Each draw has three different words, whatever was said."""
    assert {len(set(words)) for words in found} == {3}
