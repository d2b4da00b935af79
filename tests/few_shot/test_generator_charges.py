"""What a generation is charged: tokens times examples, by label, in parallel."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from support.few_shot_fakes import (
    WordModel,
    budget_of,
    generator_of,
    records_of,
    watched_noise,
)

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Event, Gaussian, Parallel
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.few_shot import Greedy, calibrate

UNEVEN = [{"text": "red green", "label": "color"} for _ in range(400)] + [
    {"text": "one two", "label": "number"} for _ in range(50)
]


def charged(examples: Any) -> Any:
    (event,) = examples.record["events"]
    return TypeAdapter[Any](Event).validate_json(json.dumps(event))


@pytest.mark.parametrize("per_label", [1, 3])
def test_each_label_has_its_own_noise_for_all_its_examples(
    per_label: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = watched_noise(monkeypatch)
    examples = generator_of().generate(UNEVEN, per_label)
    event = charged(examples)
    assert isinstance(event, Parallel)
    common, rare = (branch[0] for branch in event.branches)
    assert (common.sampling_rate, rare.sampling_rate) == (40 / 400, 40 / 50)
    assert common.count == rare.count == 4 * per_label
    assert rare.noise_multiplier > 1.5 * common.noise_multiplier
    for branch, size in ((common, 400), (rare, 50)):
        expected = calibrate(
            8.0,
            1e-5,
            label_size=size,
            n_groups=20,
            records_per_group=2,
            max_tokens=4,
            per_label=per_label,
        )
        assert branch.noise_multiplier == pytest.approx(expected, rel=2e-3)
        # A rate by the size of the whole corpus would be another figure.
        whole = calibrate(
            8.0,
            1e-5,
            label_size=450,
            n_groups=20,
            records_per_group=2,
            max_tokens=4,
            per_label=per_label,
        )
        assert branch.noise_multiplier > 1.01 * whole
    assert set(used) == {common.noise_multiplier, rare.noise_multiplier}


def test_the_rates_are_by_declared_sizes_where_there_are_any() -> None:
    examples = generator_of(label_sizes={"color": 500, "number": 100}).generate(UNEVEN)
    rates = [branch[0].sampling_rate for branch in charged(examples).branches]
    assert rates == [40 / 500, 40 / 100]
    assert examples.record["parameters"]["label_sizes"] == "declared"


def test_one_more_unit_never_changes_how_labels_compose() -> None:
    # Were it looked up in the records, the one who has two labels would be told of.
    records = [{**r, "who": n} for n, r in enumerate(records_of())]
    more = [
        *records,
        {"text": "red", "label": "color", "who": "x"},
        {"text": "one", "label": "number", "who": "x"},
    ]
    sizes = {"color": 60, "number": 60}
    kinds = [
        type(charged(generator_of(unit_key="who", label_sizes=sizes).generate(held)))
        for held in (records, more)
    ]
    assert kinds == [Parallel, Parallel]


def test_a_generation_for_each_label_adds_up() -> None:
    parallel = generator_of().generate(records_of())
    budget = budget_of(queries=2, accounting="renyi")
    events = []
    for label in ("color", "number"):
        own = [record for record in records_of() if record["label"] == label]
        events.append(
            charged(generator_of(labels=[label], budget=budget).generate(own))
        )
    assert all(isinstance(event, Gaussian) for event in events)
    assert sum(event.count for event in events) == 2 * 4
    one = charged(parallel).branches[0][0].noise_multiplier
    assert events[0].noise_multiplier > 1.1 * one
    assert accounting.compose(events, 1e-5) <= 8
    # Had they been charged in parallel, epsilon would have been exceeded.
    cheap = [Gaussian(noise_multiplier=one, sampling_rate=40 / 60, count=8)]
    assert accounting.compose(cheap, 1e-5) > 8


def test_a_plan_pays_for_as_many_generations_as_it_says() -> None:
    budget = budget_of(queries=2)
    one = generator_of(budget=budget).generate(records_of())
    with pytest.raises(PlanMismatchError):
        generator_of(budget=budget).generate(records_of(), per_label=2)
    two = generator_of(budget=budget).generate(records_of())
    assert one.record["events"] == two.record["events"]
    assert budget.spent().epsilon <= 8
    with pytest.raises(BudgetExhaustedError):
        generator_of(budget=budget).generate(records_of())


def test_noise_that_is_given_is_used_and_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = watched_noise(monkeypatch)
    examples = generator_of(noise_multiplier=3.0).generate(records_of())
    assert set(used) == {3.0}
    assert charged(examples).branches[0][0].noise_multiplier == 3.0
    assert examples.record["epsilon"] < 8


def test_noisy_max_is_charged_with_amplification() -> None:
    examples = generator_of(mechanism="noisy_max").generate(records_of())
    event = charged(examples).branches[0][0]
    assert (event.count, event.sampling_rate) == (4, 40 / 60)
    assert event.epsilon == examples.record["parameters"]["epsilons"]["color"]
    each = math.log1p(40 / 60 * math.expm1(event.epsilon))
    assert examples.record["epsilon"] <= 4 * each * (1 + 1e-6) < 4 * event.epsilon


def test_a_per_unit_account_is_refused() -> None:
    with pytest.raises(ValueError, match="units one by one"):
        generator_of(budget=budget_of(scope="unit")).generate(records_of())


def test_a_plan_of_several_generations_needs_labels_that_stay() -> None:
    records = [{**record, "who": n} for n, record in enumerate(records_of())]
    model = WordModel()
    planned = budget_of(queries=2)
    with pytest.raises(PlanMismatchError, match="renyi"):
        generator_of(model, unit_key="who", budget=planned).generate(records)
    assert not model.top_calls
    assert planned.spent().queries == 0
    # One generation, one label, or a filter: nothing to assume.
    generator_of(unit_key="who").generate(records)
    filtered = budget_of(queries=2, accounting="renyi")
    for _ in range(2):
        generator_of(unit_key="who", budget=filtered).generate(records)
    assert filtered.spent().epsilon <= 8


def test_what_could_not_be_recorded_is_not_charged() -> None:
    class Nameless(WordModel):
        name = ""

    class Odd(Greedy):
        def described(self) -> dict[str, Any]:
            return {"decoder": "odd", "limit": float("-inf")}

    budget = budget_of()
    with pytest.raises(InvalidParameterError):
        generator_of(Nameless(), budget=budget).generate(records_of())
    with pytest.raises(InvalidParameterError, match="described"):
        generator_of(decoder=Odd(), budget=budget).generate(records_of())
    assert budget.spent().queries == 0


def test_numbers_of_numpy_are_numbers() -> None:
    examples = generator_of(
        n_groups=np.int64(20),
        max_tokens=np.int32(4),
        top_k_public=np.int64(6),
        noise_multiplier=np.float32(2),
        label_sizes={"color": np.int64(60), "number": 60},
    ).generate(records_of())
    assert examples.record["parameters"]["n_groups"] == 20
