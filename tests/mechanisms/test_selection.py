from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    SeededRandom,
    choose_k,
    sensitivity,
)

COUNTS = {"a": 12, "b": 10, "c": 9, "d": 3, "e": 3}
GAPS = {1: 2, 2: 1, 3: 6, 4: 0, 5: 3, 6: 0, 7: 0}
DELTA = {Relation.ADD_REMOVE: 1, Relation.REPLACE: 2}


def softmax(ks: Sequence[int], slope: float) -> dict[int, float]:
    weights = {k: math.exp(slope * GAPS[k]) for k in ks}
    return {k: weight / sum(weights.values()) for k, weight in weights.items()}


def chosen(
    counts: dict[str, int],
    k_range: tuple[int, int] | Sequence[int],
    relation: Relation | str,
    epsilon: float = 1.0,
) -> list[int]:
    source = SeededRandom(1)
    return [
        choose_k(counts, k_range, epsilon=epsilon, relation=relation, random=source)
        for _ in range(8000)
    ]


@pytest.mark.parametrize("relation", list(Relation))
def test_k_follows_the_exponential_mechanism(
    fits: Callable[..., bool], relation: Relation
) -> None:
    law = softmax(range(1, 8), 1.0 / (2 * DELTA[relation]))
    assert fits(chosen(COUNTS, (1, 7), relation), law)


def test_a_scale_of_2_over_epsilon_under_replace_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gap's sensitivity is 2 there: the scale must be 4 / epsilon."""
    law = softmax(range(1, 8), 1.0 / 4)
    monkeypatch.setattr(sensitivity, "keyword_gap", lambda relation: 1)
    assert not fits(chosen(COUNTS, (1, 7), "replace"), law)


def test_the_range_does_not_depend_on_the_words_that_were_seen(
    fits: Callable[..., bool],
) -> None:
    """With one word, or none, every k of the public range can still come out."""
    assert fits(chosen({}, (2, 6), "replace"), dict.fromkeys(range(2, 7), 1 / 5))
    one = {1: math.exp(0.5 * 3)} | dict.fromkeys(range(2, 6), 1.0)
    law = {k: weight / sum(one.values()) for k, weight in one.items()}
    assert fits(chosen({"a": 3}, (1, 5), "add_remove"), law)


def test_a_list_gives_the_values_themselves(fits: Callable[..., bool]) -> None:
    law = softmax([1, 3, 6], 0.5)
    assert fits(chosen(COUNTS, [6, 1, 3, 3], "add_remove"), law)
    assert fits(chosen(COUNTS, range(2, 5), "add_remove"), softmax([2, 3, 4], 0.5))


def test_a_range_of_one_value_has_no_choice() -> None:
    assert set(chosen(COUNTS, (4, 4), "replace")) == {4}
