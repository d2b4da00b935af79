"""Dividing epsilon among columns: never more than there is, and by the rule asked."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.split import share_epsilon, split_epsilon

NAMES = ("a", "b", "label")

EPSILONS = st.floats(1e-9, 1e6)
MANY_NAMES = st.integers(1, 40).map(lambda count: [f"c{n}" for n in range(count)])


def exact_sum(parts: dict[str, float]) -> Fraction:
    return sum(map(Fraction, parts.values()), Fraction(0))


@given(EPSILONS, MANY_NAMES)
def test_parts_never_add_up_to_more_and_hardly_to_less(
    epsilon: float, names: list[str]
) -> None:
    parts = split_epsilon(epsilon, names)
    assert list(parts) == names
    assert min(parts.values()) > 0
    assert exact_sum(parts) <= Fraction(epsilon)
    assert sum(parts.values()) <= epsilon
    assert sum(parts.values()) >= epsilon * (1 - 1e-9)


@given(EPSILONS, st.integers(1, 500))
def test_shares_never_add_up_to_more(epsilon: float, shares: int) -> None:
    part = share_epsilon(epsilon, shares)
    assert Fraction(part) * shares <= Fraction(epsilon)
    assert part * shares >= epsilon * (1 - 1e-12)


def test_even_parts_are_equal() -> None:
    assert set(split_epsilon(6.0, NAMES).values()) == {2.0}


def test_a_split_by_hand_is_kept() -> None:
    by_hand = {"label": 3.0, "a": 1, "b": 2.0}
    assert split_epsilon(6, NAMES, by_hand) == {"a": 1.0, "b": 2.0, "label": 3.0}


def test_decimals_that_overshoot_are_rounded_down() -> None:
    # 0.1 + 0.2 is more than 0.3, in floats and exactly.
    parts = split_epsilon(0.3, ["a", "b"], {"a": 0.1, "b": 0.2})
    assert exact_sum(parts) <= Fraction(0.3)
    assert parts == pytest.approx({"a": 0.1, "b": 0.2}, rel=1e-12)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"a": 1.0, "b": 5.0}, "'label'"),
        ({"a": 1.0, "b": 2.0, "label": 2.0, "age": 1.0}, "'age'"),
        ({"a": 1.0, "b": 2.0, "label": 2.9}, "sums to 5.9, and epsilon is 6"),
        ({"a": 1.0, "b": 2.0, "label": 3.1}, "sums to 6.1, and epsilon is 6"),
        ({"a": 0.0, "b": 2.0, "label": 4.0}, "split['a']"),
        ({"a": -1.0, "b": 3.0, "label": 4.0}, "split['a']"),
        ({"a": math.nan, "b": 2.0, "label": 4.0}, "split['a']"),
        ({"a": math.inf, "b": 2.0, "label": 4.0}, "split['a']"),
        ({"a": "1", "b": 2.0, "label": 4.0}, "split['a']"),
        ({"a": 1e308, "b": 1e308, "label": 1e308}, "sums to inf"),
        ("fair", "split must be"),
        (None, "split must be"),
    ],
)
def test_a_split_that_does_not_fit_is_refused_by_name(how: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        split_epsilon(6.0, NAMES, how)
    assert said in str(caught.value)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, True, "1"])
def test_an_epsilon_that_is_none_is_refused(epsilon: Any) -> None:
    with pytest.raises(InvalidParameterError, match="epsilon"):
        split_epsilon(epsilon, NAMES)


def test_nothing_is_given_out_where_nothing_is_left() -> None:
    with pytest.raises(InvalidParameterError, match="so small"):
        split_epsilon(5e-324, NAMES)
    with pytest.raises(InvalidParameterError, match="so small"):
        share_epsilon(5e-324, 2)


def test_no_columns_are_refused() -> None:
    with pytest.raises(InvalidParameterError):
        split_epsilon(1.0, [])
