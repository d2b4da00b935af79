"""Reading a completions server's figures, without a server."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.few_shot.models.openai.replies import (
    MASS_TOLERANCE,
    ROUNDING,
    bound,
    by_id,
    choices,
    figures,
    filled,
    is_possible,
    likeliest,
)


def one(top: Any, index: int = 0) -> dict[str, Any]:
    return {
        "index": index,
        "finish_reason": "length",
        "logprobs": {"tokens": ["token_id:1"], "top_logprobs": [top]},
    }


def read(top: Any) -> dict[str, float] | None:
    found = choices({"choices": [one(top)]}, 1)
    assert found is not None
    return figures(found[0])


def distributions(size: int = 40) -> st.SearchStrategy[np.ndarray]:
    weights = st.lists(st.floats(1e-12, 1.0), min_size=size, max_size=size)
    return weights.map(lambda w: np.log(np.array(w) / sum(w)))


@settings(deadline=None, max_examples=200)
@given(distributions(), st.integers(1, 40), st.integers(0, 39))
def test_the_bound_holds_whatever_is_left_out(
    exact: np.ndarray, k: int, drawn: int
) -> None:
    order = np.argsort(-exact, kind="stable")
    told = {int(t): float(exact[t]) for t in order[:k]}
    # What a server adds is chance, and must not be read as a bound.
    with_drawn = {drawn: float(exact[drawn]), **told}
    top = likeliest(with_drawn, k)
    found = filled(top, np.arange(40), bound(top))
    assert (found >= exact - 1e-9).all()
    assert found[order[:k]] == pytest.approx(exact[order[:k]])
    left = max(1 - float(np.exp(exact[order[:k]]).sum()), ROUNDING)
    assert np.exp(found[order[k:]]) == pytest.approx(
        min(left, math.exp(exact[order[:k]].min()))
    )
    assert (found <= 0).all()


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 0.01, 10**400, -(10**400), "-1", None, True, [-1.0], {}],
)
def test_what_is_no_log_probability_makes_the_answer_impossible(value: Any) -> None:
    assert read({"token_id:1": -1.0, "token_id:2": value}) is None


def test_rounding_is_forgiven_and_more_is_not() -> None:
    assert read({"token_id:1": ROUNDING / 2}) == {"token_id:1": 0.0}
    enough = math.log(1 - math.exp(-1) + MASS_TOLERANCE / 2)
    assert read({"a": -1.0, "b": enough}) == {"a": -1.0, "b": enough}
    too_much = math.log(1 - math.exp(-1) + 2 * MASS_TOLERANCE)
    assert read({"a": -1.0, "b": too_much}) is None
    assert is_possible(np.array([-1.0, enough]))
    assert not is_possible(np.array([-1.0, too_much]))


def test_nothing_left_is_a_little_and_not_nothing() -> None:
    assert math.exp(bound({1: 0.0})) == pytest.approx(ROUNDING)
    assert bound({1: 0.0, 2: -9999.0}) == -9999.0
    assert math.exp(bound({1: math.log(1.0005)})) == pytest.approx(ROUNDING)


def test_ties_are_ordered_by_id() -> None:
    assert list(likeliest({9: -1.0, 3: -1.0, 5: -0.5, 1: -1.0}, 3)) == [5, 1, 3]


def test_ids_are_read_or_refused_as_a_whole() -> None:
    assert by_id({"token_id:7": -1.0}) == {7: -1.0}
    assert by_id({"token_id:7": -1.0, "seven": -2.0}) is None
    assert by_id({"token_id:": -1.0}) is None


@pytest.mark.parametrize(
    "reply",
    [
        None,
        [],
        "text",
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [one({}), one({}, 1), one({}, 2)]},
        {"choices": [one({}), one({})]},
        {"choices": [one({}), one({}, 5)]},
        {"choices": [one({}), {**one({}), "index": "1"}]},
        {"choices": [one({}), None]},
    ],
)
def test_answers_that_match_no_prompts_are_refused(reply: Any) -> None:
    assert choices(reply, 2) is None


def test_answers_are_matched_by_their_numbers() -> None:
    found = choices({"choices": [one({"b": -2.0}, 1), one({"a": -1.0}, 0)]}, 2)
    assert found is not None
    assert [figures(choice) for choice in found] == [{"a": -1.0}, {"b": -2.0}]
    # Places are no numbers: a server may have left one prompt's answer out.
    unnumbered = [one({"a": -1.0}), one({"b": -1.0})]
    for answer in unnumbered:
        del answer["index"]
    assert choices({"choices": unnumbered}, 2) is None
    assert choices({"choices": unnumbered[:1]}, 1) is not None
