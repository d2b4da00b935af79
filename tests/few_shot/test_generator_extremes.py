"""Generators and their forecasts, asked with numbers that nobody means."""

from __future__ import annotations

from typing import Any

import pytest
from support.extremes import NUMBERS, OTHERS, sweep
from support.few_shot_fakes import budget_of, generator_of, records_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot import calibrate

SIZES = {"color": 60, "number": 60}


def generator(**changes: Any) -> Any:
    budget = changes.pop("budget", None) or budget_of(accounting="renyi", epsilon=50)
    return generator_of(budget=budget, **{"noise_multiplier": 3.0, **changes})


def test_terms() -> None:
    good = {
        "n_groups": 20,
        "records_per_group": 2,
        "max_tokens": 4,
        "top_k_public": 6,
        "records_per_unit": 1,
        "max_record_chars": 100,
        "noise_multiplier": 3.0,
        "label_sizes": SIZES,
    }
    refused = sweep(generator, good)
    assert refused["label_sizes"] == len(NUMBERS) + len(OTHERS) - 1
    sweep(
        lambda epsilon: generator(
            mechanism="noisy_max", noise_multiplier=None, epsilon=epsilon
        ),
        {"epsilon": 3.0},
    )


@pytest.mark.parametrize(
    "sizes",
    [
        *(7, "color", ["color", "number"], {"color", "number"}, {}, {"color": 60}),
        *({**SIZES, "other": 1}, {**SIZES, 1: 2}),
        *({**SIZES, "number": bad} for bad in (None, "60", 60.0, True, 0, -1, 10**30)),
    ],
)
def test_label_sizes_of_a_wrong_type(sizes: Any) -> None:
    with pytest.raises(InvalidParameterError, match="label_sizes"):
        generator(label_sizes=sizes)
    with pytest.raises(InvalidParameterError, match="label_sizes"):
        generator().forecast(sizes)


@pytest.mark.parametrize("accounting", [None, "renyi"])
def test_forecasts(accounting: Any) -> None:
    def advice(label_sizes: Any, per_label: Any) -> str:
        budget = budget_of(accounting=accounting)
        made = generator(budget=budget, noise_multiplier=None)
        return str(made.forecast(label_sizes, per_label).advice())

    sweep(advice, {"label_sizes": SIZES, "per_label": 1})
    for wrong in (10**29, {**SIZES, "color": 10**29}):
        with pytest.raises(InvalidParameterError):
            advice(wrong, 1)


def test_numbers_of_examples() -> None:
    sweep(
        lambda per_label: generator().generate(records_of(), per_label),
        {"per_label": 1},
    )
    sweep(lambda per_label: generator().released(per_label), {"per_label": 1})


def test_figures_to_choose_by() -> None:
    good = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "label_size": 1000,
        "n_groups": 10,
        "records_per_group": 2,
        "max_tokens": 20,
        "per_label": 1,
    }
    sweep(calibrate, good)
