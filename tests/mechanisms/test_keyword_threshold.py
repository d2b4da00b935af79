"""Threshold release of keywords: what is drawn is what the formulas say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    SeededRandom,
    required_count,
    sensitivity,
    threshold_pass_rate,
    threshold_words,
)
from langchain_dpicl.mechanisms.keyword_threshold import _word_test, _WordTest

RELATIONS = list(Relation)
COUNTS = {"cough": 9, "rash": 4, "fever": 1, "nausea": 0}
Z = 1.5
DELTA0 = 0.4

Twin = Callable[[pytest.MonkeyPatch], None]


def spread(c: int, relation: Relation) -> float:
    return math.sqrt(c if relation is Relation.ADD_REMOVE else 2 * c)


def reference_rate(count: int, c: int, relation: Relation) -> float:
    """The continuous mechanism, which the rounded one follows to about 1/512 sigma."""
    if count == 0:
        return 0.0
    sigma = Z * spread(c, relation)
    threshold = 1 + sigma * stats.norm.isf(DELTA0 / c)
    return float(stats.norm.sf((threshold - count) / sigma))


def reference_law(c: int, relation: Relation) -> dict[frozenset[str], float]:
    law = {}
    for size in range(len(COUNTS) + 1):
        for out in itertools.combinations(COUNTS, size):
            rates = {w: reference_rate(n, c, relation) for w, n in COUNTS.items()}
            law[frozenset(out)] = math.prod(
                rate if word in out else 1 - rate for word, rate in rates.items()
            )
    return law


def drawn(c: int, relation: Relation, runs: int = 8000) -> list[frozenset[str]]:
    source = SeededRandom(1)
    return [
        frozenset(
            threshold_words(
                COUNTS,
                c,
                noise_multiplier=Z,
                delta0=DELTA0,
                relation=relation,
                random=source,
            )
        )
        for _ in range(runs)
    ]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("c", [1, 2, 3])
def test_every_set_is_as_frequent_as_the_formula_says(
    fits: Callable[..., bool], relation: Relation, c: int
) -> None:
    law = reference_law(c, relation)
    assert sum(law.values()) == pytest.approx(1)
    assert fits(drawn(c, relation), law)


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    right = sensitivity.keyword_l2
    patch.setattr(sensitivity, "keyword_l2", lambda r, c: right(r, c) / 2)


def words_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = sensitivity.keyword_l2
    patch.setattr(sensitivity, "keyword_l2", lambda r, _c: right(r, 1))


def replacement_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = sensitivity.keyword_l2
    patch.setattr(
        sensitivity, "keyword_l2", lambda _r, c: right(Relation.ADD_REMOVE, c)
    )


def delta0_not_shared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sensitivity, "new_keywords", lambda _r, _c: 1)


def rare_words_without_noise(patch: pytest.MonkeyPatch) -> None:
    right = _WordTest.passes

    def passes(test: _WordTest, counts: Any, noise: Any) -> Any:
        return right(test, counts, np.where(counts > 1, noise, 0))

    patch.setattr(_WordTest, "passes", passes)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "twin",
    [half_the_noise, words_forgotten, delta0_not_shared, rare_words_without_noise],
)
def test_a_broken_twin_is_caught(
    fits: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    twin: Twin,
    relation: Relation,
) -> None:
    twin(monkeypatch)
    assert not fits(drawn(2, relation), reference_law(2, relation))


@pytest.mark.parametrize("c", [1, 2])
def test_the_noise_of_the_other_relation_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, c: int
) -> None:
    replacement_forgotten(monkeypatch)
    assert not fits(drawn(c, Relation.REPLACE), reference_law(c, Relation.REPLACE))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("c", [1, 2, 7])
@pytest.mark.parametrize("z", [1e-6, 0.3, 2.0, 1e6])
@pytest.mark.parametrize("delta0", [1e-290, 1e-9, 0.3, 0.9])
def test_a_lone_word_passes_with_at_most_its_share_of_delta0(
    relation: Relation, c: int, z: float, delta0: float
) -> None:
    test = _word_test(c, z, delta0, relation)
    one = np.ones(2, np.int64)
    edge = np.array([test.quantile, test.quantile + 1], np.int64)
    assert test.passes(one, edge).tolist() == [False, True]
    terms = {"noise_multiplier": z, "delta0": delta0, "relation": relation}
    rate = threshold_pass_rate(1, items_per_answer=c, **terms)
    assert 0.9 * delta0 / c < rate <= delta0 / c
    assert threshold_pass_rate(0, items_per_answer=c, **terms) == 0.0


def test_common_words_come_out_and_rare_ones_do_not() -> None:
    counts = {"cough": 60, "fever": 60, "rash": 59, "canary": 1, "nausea": 2}
    for seed in range(50):
        released = threshold_words(
            counts,
            2,
            noise_multiplier=1.5,
            delta0=1e-6,
            relation="replace",
            random=SeededRandom(seed),
        )
        assert released.keys() == {"cough", "fever", "rash"}
        assert list(released.values()) == sorted(released.values(), reverse=True)


mappings = st.dictionaries(st.text(max_size=4), st.integers(0, 12), max_size=8)


def loose(counts: dict[str, int], seed: int) -> dict[str, float]:
    return threshold_words(
        counts,
        2,
        noise_multiplier=1.5,
        delta0=0.9,
        relation="replace",
        random=SeededRandom(seed),
    )


@settings(deadline=None, max_examples=100)
@given(mappings, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_neither_the_order_nor_words_of_count_zero_matter(
    counts: dict[str, int], seed: int, order: Any
) -> None:
    items = list(counts.items())
    order.shuffle(items)
    released = loose(counts, seed)
    assert released.keys() <= {word for word, count in counts.items() if count > 0}
    assert list(loose(dict(items), seed)) == list(released)
    assert loose({w: n for w, n in counts.items() if n > 0}, seed) == released


@settings(deadline=None, max_examples=100)
@given(mappings, st.integers(0, 1000))
def test_with_the_same_noise_larger_counts_release_no_less(
    counts: dict[str, int], seed: int
) -> None:
    more = {word: count + (count > 0) for word, count in counts.items()}
    assert loose(counts, seed).keys() <= loose(more, seed).keys()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("z", [0.2, 2.0, 50.0])
@pytest.mark.parametrize("rate", [0.5, 0.95, 0.999])
def test_the_required_count_is_enough_and_least(
    relation: Relation, c: int, z: float, rate: float
) -> None:
    terms = {
        "items_per_answer": c,
        "noise_multiplier": z,
        "delta0": 1e-7,
        "relation": relation,
    }
    count = required_count(**terms, pass_rate=rate)
    step = 1 / _word_test(c, z, 1e-7, relation).weight
    assert threshold_pass_rate(count, **terms) >= rate * (1 - 1e-12)
    assert threshold_pass_rate(count - 2 * step, **terms) < rate
    sigma = z * spread(c, relation)
    expected = 1 + sigma * (stats.norm.isf(1e-7 / c) + stats.norm.ppf(rate))
    assert count == pytest.approx(expected, abs=0.01 * sigma)


def test_a_word_that_nobody_used_is_never_the_required_one() -> None:
    count = required_count(
        items_per_answer=1,
        noise_multiplier=1.0,
        delta0=0.5,
        relation="replace",
        pass_rate=0.01,
    )
    assert count == 1.0


def test_a_failure_probability_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="delta0"):
        threshold_words({}, 2, noise_multiplier=1.0, delta0=1e-291, relation="replace")
