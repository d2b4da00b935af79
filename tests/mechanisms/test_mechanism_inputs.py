"""Malformed input: typed errors that name the argument and hold no private value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from langchain_dpicl import mechanisms
from langchain_dpicl.errors import InvalidParameterError

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "noisy_counts": (
        mechanisms.noisy_counts,
        {"counts": [3, 1], "noise_multiplier": 1.0, "relation": "replace"},
    ),
    "noisy_sum": (
        mechanisms.noisy_sum,
        {
            "vectors": [[1.0]],
            "radius": 1.0,
            "noise_multiplier": 1.0,
            "relation": "replace",
        },
    ),
    "ptr_top_k": (
        mechanisms.ptr_top_k,
        {
            "counts": {"a": 3},
            "k": 1,
            "noise_multiplier": 1.0,
            "delta0": 1e-6,
            "relation": "replace",
        },
    ),
    "ptr_pass_rate": (
        mechanisms.ptr_pass_rate,
        {"gap": 3, "noise_multiplier": 1.0, "delta0": 1e-6, "relation": "replace"},
    ),
    "required_gap": (
        mechanisms.required_gap,
        {"noise_multiplier": 1.0, "delta0": 1e-6, "relation": "replace"},
    ),
    "threshold_words": (
        mechanisms.threshold_words,
        {
            "counts": {"a": 3},
            "items_per_answer": 2,
            "noise_multiplier": 1.0,
            "delta0": 1e-6,
            "relation": "replace",
        },
    ),
    "threshold_pass_rate": (
        mechanisms.threshold_pass_rate,
        {
            "count": 3,
            "items_per_answer": 2,
            "noise_multiplier": 1.0,
            "delta0": 1e-6,
            "relation": "replace",
        },
    ),
    "required_count": (
        mechanisms.required_count,
        {
            "items_per_answer": 2,
            "noise_multiplier": 1.0,
            "delta0": 1e-6,
            "relation": "replace",
        },
    ),
    "choose_k": (
        mechanisms.choose_k,
        {"counts": {"a": 3}, "k_range": (1, 3), "epsilon": 1.0, "relation": "replace"},
    ),
    "joint_top_k": (
        mechanisms.joint_top_k,
        {"counts": [3, 1], "k": 1, "epsilon": 1.0, "relation": "replace"},
    ),
}

PLANNING = {
    "ptr_pass_rate",
    "required_gap",
    "threshold_pass_rate",
    "required_count",
}
"""Calls that draw nothing."""

PUBLIC: dict[str, list[Any]] = {
    "noise_multiplier": [0, -1.0, 1e-7, 1e7, math.nan, math.inf, "1", None, True],
    "relation": ["swap", None, 1],
    "epsilon": [0, -1.0, math.nan, math.inf, "1", None],
    "sensitivity": [0, -1.0, math.nan, math.inf, None],
    "delta0": [0, 1, -0.1, 1.5, 1e-310, math.nan, "x"],
    "radius": [0, -1.0, 1e-200, 1e200, math.nan, math.inf, None],
    "gap": [-1, math.nan, math.inf, 1e12, None],
    "count": [-1, math.nan, math.inf, 1e12, None],
    "threshold": [math.nan, math.inf, -1e12, 1e12, "1", None, True],
    "items_per_answer": [0, -1, 1.5, math.nan, 10**9, "1", None, True],
    "k": [0, -1, 1.5, "1", None, True],
    "k_range": [(0, 2), (3, 1), [], (), 5, "ab", (1, 2.5), None, [1, 0]],
    "random": [np.random.default_rng(0), 1],
}

SECRET = 31337
WORDS = ("fentanyl", "sertraline")
PRIVATE_COUNTS = [
    [],
    [SECRET, -SECRET],
    [SECRET, 0.5],
    [float(SECRET), math.nan],
    [math.inf, SECRET],
    [True, False],
    [str(SECRET)],
    [[SECRET]],
    [[SECRET], [1, 2]],
    [SECRET * 2**64],
    [SECRET * 2**20],
    np.array([-SECRET], np.int16),
    SECRET,
    None,
    {WORDS[0]: SECRET},
]
PRIVATE_MAPPINGS = [
    {WORDS[0]: -SECRET},
    {WORDS[0]: SECRET + 0.5},
    {WORDS[0]: math.nan},
    {WORDS[0]: True},
    {WORDS[0]: str(SECRET)},
    {WORDS[0]: SECRET * 2**20},
    {SECRET: 1},
    {WORDS: 1},
    [(WORDS[0], SECRET)],
    WORDS[0],
    None,
]
PRIVATE_VECTORS = [
    [[SECRET, math.nan]],
    [[math.inf, SECRET]],
    [[SECRET], [1, 2]],
    [SECRET, 1.0],
    [],
    [[]],
    [[str(SECRET)]],
    [[complex(SECRET, 1)]],
    [[[SECRET]]],
    np.empty((2, 0)),
    SECRET,
    None,
]


def refusal(name: str, **changes: object) -> str:
    call, arguments = CALLS[name]
    with pytest.raises(InvalidParameterError) as caught:
        call(**(arguments | changes))
    # Chained errors would be printed with their own, unfiltered, messages.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_the_plain_call_is_fine(name: str) -> None:
    call, arguments = CALLS[name]
    call(**arguments)


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        pytest.param(name, parameter, value, id=f"{name}-{parameter}-{value!r:.12}")
        for name, (call, arguments) in CALLS.items()
        for parameter, values in PUBLIC.items()
        if parameter in arguments or (parameter == "random" and name not in PLANNING)
        for value in values
    ],
)
def test_public_parameters_are_checked_and_named(
    name: str, parameter: str, value: object
) -> None:
    assert parameter in refusal(name, **{parameter: value})


@pytest.mark.parametrize(
    ("name", "parameter", "values"),
    [
        ("noisy_counts", "counts", PRIVATE_COUNTS),
        ("joint_top_k", "counts", PRIVATE_COUNTS),
        ("ptr_top_k", "counts", PRIVATE_MAPPINGS),
        ("threshold_words", "counts", PRIVATE_MAPPINGS),
        ("choose_k", "counts", PRIVATE_MAPPINGS),
        ("noisy_sum", "vectors", PRIVATE_VECTORS),
    ],
)
def test_private_data_are_checked_and_never_quoted(
    name: str, parameter: str, values: list[Any]
) -> None:
    for value in values:
        message = refusal(name, **{parameter: value})
        assert parameter in message
        assert str(SECRET) not in message
        assert not any(word in message for word in WORDS)


def test_a_domain_smaller_than_k_is_refused_with_the_way_out() -> None:
    message = refusal("joint_top_k", k=3)
    assert "k is 3" in message
    assert "2 words" in message
    assert "domain" in message


def test_too_many_columns_are_refused() -> None:
    assert "columns" in refusal("noisy_sum", vectors=np.zeros((1, 1_000_001), np.int8))


@pytest.mark.parametrize("name", ["required_gap", "required_count"])
def test_pass_rates_are_checked(name: str) -> None:
    assert "pass_rate" in refusal(name, pass_rate=1.0)


@pytest.mark.parametrize("name", ["ptr_top_k", "threshold_words", "choose_k"])
def test_no_word_at_all_is_no_error_because_that_is_private(name: str) -> None:
    call, arguments = CALLS[name]
    call(**(arguments | {"counts": {}}))


def test_no_answer_at_all_is_no_error_either() -> None:
    call, arguments = CALLS["noisy_sum"]
    assert call(**(arguments | {"vectors": np.empty((0, 4))})).shape == (4,)


# -- the last value that is taken, and the first that is refused -----------------------
