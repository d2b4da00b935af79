from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    SeededRandom,
    noisy_counts,
    sensitivity,
)

RELATIONS = list(Relation)
DELTA = {Relation.ADD_REMOVE: 1.0, Relation.REPLACE: math.sqrt(2)}


def halve(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    whole = getattr(sensitivity, name)
    monkeypatch.setattr(sensitivity, name, lambda *args: whole(*args) / 2)


def noise_of(relation: Relation, z: float, seed: int) -> np.ndarray:
    counts = np.arange(40_000) % 100
    noisy = noisy_counts(
        counts, noise_multiplier=z, relation=relation, random=SeededRandom(seed)
    )
    return noisy - counts


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [0.05, 1.3, 40.0])
def test_the_noise_is_gaussian_of_the_relations_scale(
    is_gaussian: Callable[..., bool], relation: Relation, z: float
) -> None:
    assert is_gaussian(noise_of(relation, z, 1), z * DELTA[relation])


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_for_half_the_sensitivity_is_caught(
    is_gaussian: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    relation: Relation,
) -> None:
    halve(monkeypatch, "vote_l2")
    assert not is_gaussian(noise_of(relation, 1.3, 1), 1.3 * DELTA[relation])


def test_a_noise_multiplier_ten_percent_low_is_caught(
    is_gaussian: Callable[..., bool],
) -> None:
    assert not is_gaussian(noise_of(Relation.REPLACE, 0.9, 1), math.sqrt(2))


def audited_mu(relation: Relation, z: float, runs: int) -> float:
    """A lower bound, at 1e-6, of mu in Gaussian DP of the noisy histogram."""
    one = [7, 3] if relation is Relation.REPLACE else [6, 3]
    other = [6, 4] if relation is Relation.REPLACE else [7, 3]
    difference = np.subtract(other, one)
    middle = float(np.dot(np.add(one, other), difference)) / 2
    source = SeededRandom(2)

    def rate(counts: list[int]) -> float:
        hits = 0
        for _ in range(runs):
            noisy = noisy_counts(
                counts, noise_multiplier=z, relation=relation, random=source
            )
            hits += float(np.dot(noisy, difference)) > middle
        return hits

    # Clopper-Pearson bounds of the false positives and of the false negatives.
    fp = stats.beta.ppf(1 - 5e-7, rate(one) + 1, runs - rate(one))
    fn = stats.beta.ppf(1 - 5e-7, runs - rate(other) + 1, rate(other))
    return float(stats.norm.ppf(1 - fp) - stats.norm.ppf(fn))


@pytest.mark.parametrize("relation", RELATIONS)
def test_an_audit_finds_no_more_than_the_claimed_loss(relation: Relation) -> None:
    mu = audited_mu(relation, 1.0, 4000)
    assert 0.7 < mu <= 1.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_an_audit_catches_half_the_noise(
    monkeypatch: pytest.MonkeyPatch, relation: Relation
) -> None:
    halve(monkeypatch, "vote_l2")
    assert audited_mu(relation, 1.0, 4000) > 1.0


def argmax_law(counts: list[int], sigma: float) -> dict[int, float]:
    def wins(i: int) -> float:
        def density(x: float) -> float:
            others = counts[:i] + counts[i + 1 :]
            below = np.prod([stats.norm.cdf((x - c) / sigma) for c in others])
            return float(stats.norm.pdf((x - counts[i]) / sigma) * below / sigma)

        return float(integrate.quad(density, -60, 80)[0])

    return {i: wins(i) for i in range(len(counts))}


def noisy_argmax(counts: Any, **terms: Any) -> int:
    return int(np.argmax(noisy_counts(counts, **terms)))


def argmax_draws(z: float) -> list[int]:
    source = SeededRandom(3)
    return [
        noisy_argmax(
            [8, 6, 7, 2], noise_multiplier=z, relation="replace", random=source
        )
        for _ in range(12_000)
    ]


def test_the_argmax_has_its_probabilities(fits: Callable[..., bool]) -> None:
    law = argmax_law([8, 6, 7, 2], 2.0 * math.sqrt(2))
    assert fits(argmax_draws(2.0), law)


def test_an_argmax_of_half_the_noise_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    law = argmax_law([8, 6, 7, 2], 2.0 * math.sqrt(2))
    halve(monkeypatch, "vote_l2")
    assert not fits(argmax_draws(2.0), law)


@pytest.mark.parametrize("z", [1e-6, 1e6])
def test_extreme_noise_multipliers_can_be_drawn(z: float) -> None:
    counts = [1 << 32, 0, 17]
    noisy = noisy_counts(
        counts, noise_multiplier=z, relation="replace", random=SeededRandom(4)
    )
    assert np.all(np.isfinite(noisy))
    assert np.all(np.abs(noisy - counts) < 8 * z * math.sqrt(2))


def test_one_source_serves_many_threads_and_calls_differ() -> None:
    one, two = (
        noisy_counts([5] * 8, noise_multiplier=1.0, relation="replace")
        for _ in range(2)
    )
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.uint8])
def test_counts_may_come_in_any_integer_container(kind: Callable[..., object]) -> None:
    counts = kind([9000, 2, 1]) if kind is not np.uint8 else np.array([250, 2], kind)
    assert noisy_argmax(counts, noise_multiplier=1.0, relation="replace") == 0
