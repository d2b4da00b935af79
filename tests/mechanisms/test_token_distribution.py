from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    noisy_next_token,
    token_distribution,
    token_distributions,
)

INF = math.inf


def test_probabilities_are_restricted_and_divided_by_their_sum() -> None:
    logs = np.log([0.5, 0.2, 0.1, 0.15, 0.05])
    row = token_distribution(logs, [3, 2])
    assert row == pytest.approx([0.6, 0.4])
    # Without the division the tokens that a slot may choose from would have 0.25.
    assert np.exp(logs[[3, 2]]).sum() == pytest.approx(0.25)


def test_all_tokens_are_public_without_places() -> None:
    row = token_distribution(np.log([0.5, 0.5]))
    assert row == pytest.approx([0.5, 0.5])


def test_very_unlikely_tokens_keep_their_proportions() -> None:
    for shift in (-800.0, -1e6, -1e15):
        row = token_distribution([0.0, shift, shift - 2], [1, 2])
        assert row is not None
        assert row.sum() == pytest.approx(1)
        if shift > -1e15:
            assert row[0] / row[1] == pytest.approx(math.exp(2))


@pytest.mark.parametrize(
    ("logs", "places"),
    [
        ([-INF, -INF, -INF], [0, 1]),
        ([-INF, -INF, 0.0], [0, 1]),
        ([math.nan, -1.0], [0, 1]),
        ([math.nan, -1.0], [1]),
        ([INF, -1.0], [0, 1]),
        ([INF, -1.0], [1]),
        ([1e-4, -9.0], [0, 1]),
        ([-1.0, -2.0], [0, 2]),
        ([], [0]),
        ([], None),
        ([[-1.0, -2.0]], [0, 1]),
        (-1.0, [0]),
        ([[-1.0], [-1.0, -2.0]], [0]),
        (["-1", "-2"], [0]),
        ("patient 17", [0]),
        (None, [0]),
        ([None, -1.0], [1]),
        ([-1.0 + 0j, -1.0], [1]),
        ([True, False], [1]),
        (object(), [0]),
        ({"a": 1}, None),
    ],
)
def test_what_cannot_be_abstains(logs: Any, places: Any) -> None:
    assert token_distribution(logs, places) is None


class Unreadable:
    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise RuntimeError("patient 17")


def test_no_answer_raises() -> None:
    assert token_distribution(Unreadable(), [0]) is None  # type: ignore[arg-type]


def test_rounding_above_0_and_single_precision_are_accepted() -> None:
    assert token_distribution([1e-7, -16.0]) == pytest.approx([1.0, 0.0], abs=1e-6)
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(1000))).astype(np.float32)
    row = token_distribution(logs, np.arange(100))
    assert row is not None
    assert row.dtype == np.float64
    assert abs(row.sum() - 1) < 1e-12


@pytest.mark.parametrize("places", [[], [-1], [0.0], [[0]], [True], 0, "0", [None]])
def test_places_are_checked_whatever_the_answer(places: Any) -> None:
    """They are public; an error tells nothing of the answer."""
    for logs in ([-1.0, -1.0], [math.nan], None):
        with pytest.raises(InvalidParameterError, match="places"):
            token_distribution(logs, places)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.floats() | st.floats(-50, 0) | st.just(-INF), max_size=8),
    st.none() | st.lists(st.integers(0, 8), min_size=1, max_size=8),
)
def test_a_slot_gives_a_distribution_or_nothing(logs: Any, places: Any) -> None:
    row = token_distribution(logs, places)
    if row is not None:
        assert row.shape == (len(logs if places is None else places),)
        assert row.min() >= 0
        assert abs(row.sum() - 1) < 1e-9
        noisy_next_token([row], noise_multiplier=1.0)


def test_a_row_of_nothing_turned_into_an_argmax_is_caught() -> None:
    """Reference code divides nothing by nothing, and its argmax is the first token."""

    def naive(logs: np.ndarray) -> np.ndarray:
        weights = np.exp(logs)
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(weights / weights.sum(), nan=1.0)

    logs = np.full(4, -INF)
    assert int(np.argmax(naive(logs))) == 0
    assert token_distribution(logs) is None
    with pytest.raises(InvalidParameterError):
        noisy_next_token([naive(logs)], noise_multiplier=1.0)


def one_by_one(answers: Any, size: int, places: Any) -> list[bytes | None]:
    """Return what each answer says by itself, to the last bit."""
    found = []
    for answer in answers:
        row = None if answer is None else token_distribution(answer, places)
        fits = row is not None and len(answer) == size
        found.append(row.tobytes() if fits else None)
    return found


def together(answers: Any, size: int, places: Any) -> list[bytes | None]:
    found = token_distributions(answers, size, places)
    return [None if row is None else row.tobytes() for row in found]


def malformed(size: int) -> list[Any]:
    """Return answers that can't be, and some of another kind."""
    good = np.log(np.full(size, 1 / size))
    nan, above, none = good.copy(), good.copy(), np.full(size, -INF)
    nan[size // 2], above[-1] = math.nan, 0.1
    others = [nan, above, none, np.full(size, INF), good[:-1], np.append(good, -1.0)]
    kinds = [good.tolist(), good.astype(np.float32), good[::-1], good.astype(">f8")]
    odd = [None, "patient 17", [*good.tolist()[:-1], "-1"], [good], object(), True, []]
    return [*others, *kinds, *odd, Unreadable()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 101, 1000])
@pytest.mark.parametrize("spread", [0.02, 1.0])
def test_many_slots_give_what_each_gives_to_the_last_bit(
    size: int, spread: float
) -> None:
    random = np.random.default_rng(size)
    shares = random.dirichlet(np.full(size, spread), 83)
    with np.errstate(divide="ignore"):
        answers: list[Any] = list(np.log(shares))
    mixed = [*answers, *malformed(size), *answers[:5]]
    random.shuffle(mixed)
    for places in (None, [0], np.arange(size), random.permutation(size)[: size // 2]):
        if places is not None and len(places) == 0:
            continue
        assert together(answers, size, places) == one_by_one(answers, size, places)
        expected = one_by_one(mixed, size, places)
        assert together(mixed, size, places) == expected
        assert sum(row is None for row in expected) > 6


def test_whole_vocabularies_are_taken_some_at_a_time() -> None:
    size = 50_257
    answers = list(np.log(np.random.default_rng(0).dirichlet(np.ones(size), 5)))
    assert together(answers, size, None) == one_by_one(answers, size, None)


def test_a_slot_does_not_see_what_others_say_or_where_they_fail() -> None:
    random = np.random.default_rng(1)
    own = np.log(random.dirichlet(np.full(37, 0.1)) + 1e-300)
    rest = np.log(random.dirichlet(np.full(37, 0.1), 20) + 1e-300)
    for slot in range(20):
        for others in (list(rest), [None] * 20, malformed(37)):
            answers = [*others[:slot], own, *others[slot:]]
            place = min(slot, len(others))
            assert together(answers, 37, None)[place] == one_by_one([own], 37, None)[0]


def test_a_sum_in_another_order_would_be_seen() -> None:
    """Why places are taken row by row: rows laid out by column add up otherwise."""
    size = 400
    answers = np.log(np.random.default_rng(2).dirichlet(np.ones(size), 40))
    places = np.arange(size)
    weights = np.exp(answers[:, places] - answers.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    assert [row.tobytes() for row in weights] != one_by_one(answers, size, None)


def test_no_slots_and_places_that_no_answer_has() -> None:
    assert token_distributions([], 3) == []
    assert token_distributions([[-1.0, -1.0]], 2, [2]) == [None]


@pytest.mark.parametrize("size", [0, -1, 2.0, None])
def test_the_size_is_checked(size: Any) -> None:
    with pytest.raises(InvalidParameterError, match="size"):
        token_distributions([], size)
