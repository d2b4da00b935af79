from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.mechanisms import noisy_next_token, token_distribution
from langchain_dpicl.parameters import ParameterError

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
        with pytest.raises(ParameterError, match="places"):
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
    with pytest.raises(ParameterError):
        noisy_next_token([naive(logs)], noise_multiplier=1.0)
