"""The noisy threshold: its distribution, who pays for it, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.groups_fakes import (
    Till,
)
from support.threshold_parts import BINS, COUNTS, CROWD, TWICE, Found

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.groups import NoisyThreshold, threshold
from langchain_dpicl.groups.threshold import choose_threshold
from langchain_dpicl.mechanisms.source import SecureRandom, SeededRandom

SIGNIFICANCE = 1e-6


DRAWS = 2_000


TERMS = NoisyThreshold(8, BINS)


Z = 2.0


FOUND = Found(CROWD)


class PoorTill(Till):
    def __call__(self, unit_ids: Sequence[str]) -> list[bool]:
        super().__call__(unit_ids)
        return [not unit_id.startswith("poor") for unit_id in unit_ids]


def edge_probabilities(counts: Sequence[int], target: float, z: float) -> np.ndarray:
    """Return the exact distribution of the chosen edge: a walk's first passage.

    The density of the noisy sum, of walks that have not stopped yet, is carried from
    bin to bin on Gauss-Legendre nodes below the target.
    """
    low = min(-9 * z * np.sqrt(len(counts)), target - 1)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    half = (target - low) / 2
    sums, weights = low + half * (nodes + 1), half * weights
    stops = [stats.norm.sf(target, counts[0], z)]
    density = stats.norm.pdf(sums, counts[0], z)
    for count in counts[1:-1]:
        stops.append(weights * density @ stats.norm.sf(target, sums + count, z))
        step = stats.norm.pdf(sums[:, None], sums + count, z)
        density = step @ (weights * density)
    return np.array([*stops, 1 - sum(stops)])


def p_values(choose: Callable[[], Any]) -> dict[str, float]:
    """Test draws against the exact edges, and against the noise of the last sum."""
    chosen = [choose() for _ in range(DRAWS)]
    edges = Counter(result.edge for result in chosen)
    expected = DRAWS * edge_probabilities(COUNTS, TERMS.units, Z)
    assert expected.min() > 20
    observed = [edges[edge] for edge in BINS]
    first = [result.noisy_units for result in chosen if result.edge == BINS[0]]
    # Given that it stopped at once, the first noisy count is a Gaussian's upper tail.
    tail = stats.norm.sf(TERMS.units + 1.5, COUNTS[0], Z)
    tail /= stats.norm.sf(TERMS.units, COUNTS[0], Z)
    beyond = sum(units > TERMS.units + 1 for units in first)
    return {
        "edge": stats.chisquare(observed, expected).pvalue,
        "sum": stats.binomtest(beyond, len(first), tail).pvalue if first else 0.0,
    }


def test_exact_probabilities_are_those_of_a_multivariate_gaussian() -> None:
    found = edge_probabilities(COUNTS, TERMS.units, Z)
    assert found.sum() == pytest.approx(1)
    steps = np.minimum.outer(np.arange(1, 5), np.arange(1, 5)) * Z**2
    below = [
        stats.multivariate_normal(np.cumsum(COUNTS)[:n], steps[:n, :n]).cdf(
            np.full(n, TERMS.units)
        )
        for n in (1, 2, 3)
    ]
    assert found == pytest.approx(-np.diff([1, *below, 0]), abs=1e-3)


def test_the_edge_is_a_first_passage_of_noisy_sums() -> None:
    random = SeededRandom(1)
    found = p_values(lambda: choose(random))
    assert min(found.values()) > SIGNIFICANCE, found


def choose(random: SecureRandom, z: float = Z, **changes: Any) -> Any:
    terms = {"found": FOUND, "charge_units": PoorTill(), **changes}
    return choose_threshold(
        terms["found"],
        TERMS,
        noise_multiplier=z,
        charge_units=terms["charge_units"],
        random=random,
    )


class OneWord(SecureRandom):
    """Defect: the same noise in every bin."""

    secure = False

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word

    def words(self, count: int) -> np.ndarray:
        return np.full(count, self.word, np.uint64)


def shared_noise(random: SecureRandom) -> Any:
    return choose(OneWord(random.bits(64)))


def halved_noise(random: SecureRandom) -> Any:
    return choose(random, Z / 2)


def counted_in_two_bins(random: SecureRandom) -> Any:
    return choose(random, found=TWICE)


def poor_are_counted(random: SecureRandom) -> Any:
    return choose(random, charge_units=Till())


@pytest.mark.parametrize(
    "twin", [shared_noise, halved_noise, counted_in_two_bins, poor_are_counted]
)
def test_twins_are_caught(twin: Any) -> None:
    random = SeededRandom(2)
    found = p_values(lambda: twin(random))
    assert found["edge"] < SIGNIFICANCE, found


def test_production_noise_is_fresh() -> None:
    found = {choose(None, 1000.0).noisy_units for _ in range(10)}
    assert len(found) > 5


def without_noise(monkeypatch: Any) -> list[int]:
    """Switch the noise off and record the counts and how they were asked for."""
    counts: list[int] = []

    def exact(values: Any, **terms: Any) -> np.ndarray:
        assert terms["relation"] is Relation.ADD_REMOVE
        assert terms["noise_multiplier"] == Z
        counts.extend(values)
        return np.array(values, float)

    monkeypatch.setattr(threshold, "noisy_counts", exact)
    return counts


def test_touched_bins_pay_and_others_do_not(monkeypatch: Any) -> None:
    counts = without_noise(monkeypatch)
    till = PoorTill()
    chosen = choose(SeededRandom(1), charge_units=till)
    assert chosen.edge == 0.4
    assert chosen.noisy_units == 9
    assert counts == [4, 3, 2]
    asked = [sorted(u for u, s in CROWD.items() if in_bin(s, j)) for j in range(3)]
    assert till.asked == asked


def in_bin(score: float, number: int) -> bool:
    above = 2.0 if number == 0 else BINS[number - 1]
    return BINS[number] <= score < above


scores = st.one_of(
    st.sampled_from([*BINS, *np.nextafter(BINS[:3], -1), *np.nextafter(BINS, 1), 1.0]),
    st.floats(0.2, 1),
)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(st.text(min_size=1, max_size=3), scores, max_size=12),
    st.text(min_size=1, max_size=3),
    scores,
    st.integers(1, 12),
)
def test_one_unit_is_in_one_bin_and_changes_nothing_before_it(
    units: Any, name: Any, score: Any, target: Any
) -> None:
    terms = NoisyThreshold(target, BINS)
    units.pop(name, None)
    joined = dict(sorted({**units, name: score}.items()))

    def noisy(crowd: dict[str, float], poor: Any = ()) -> tuple[Any, Any, Any]:
        with pytest.MonkeyPatch.context() as patch:
            counts, till = without_noise(patch), Till(poor)
            chosen = choose_threshold(
                Found(crowd), terms, noise_multiplier=Z, charge_units=till
            )
        return chosen, counts, till.asked

    chosen, counts, asked = noisy(units)
    _, more, asked_after = noisy(joined)
    n = min(len(counts), len(more))
    extra = [b - a for a, b in zip(counts[:n], more[:n], strict=True)]
    own = next(j for j in range(4) if in_bin(score, j))
    # Up to its own bin nothing differs, and in the bins that both reach, one count.
    assert extra == [int(j == own) for j in range(n)]
    times = Counter(unit for ids in asked_after for unit in ids)
    assert times[name] == (own < len(more))
    assert set(times.values()) <= {0, 1}
    # Who is not in a position to pay is asked, and changes nothing.
    alike, same, asked_poor = noisy(joined, {name})
    assert (alike, same) == (chosen, counts)
    assert [[u for u in ids if u != name] for ids in asked_poor] == asked
    # Without a ledger everybody's charge has been made.
    with pytest.MonkeyPatch.context() as patch:
        everyone = without_noise(patch)
        choose_threshold(Found(joined), terms, noise_multiplier=Z)
    assert everyone == more


@pytest.mark.parametrize(
    "crowd", [{}, {"only": 0.7}, {f"u{i}": 1.0 for i in range(50)}]
)
def test_few_and_many(monkeypatch: Any, crowd: Any) -> None:
    without_noise(monkeypatch)
    till = Till()
    chosen = choose_threshold(
        Found(crowd), NoisyThreshold(50, BINS), noise_multiplier=Z, charge_units=till
    )
    assert chosen.edge == (0.8 if len(crowd) == 50 else 0.2)
    assert chosen.noisy_units == len(crowd)
    # The ledger is asked for each touched bin, an empty one as well.
    assert len(till.asked) == (1 if len(crowd) == 50 else 4)
