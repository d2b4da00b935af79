"""What can't be done is refused before it costs anything; the error says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from few_shot_fakes import (
    LABELS,
    WordModel,
    budget_of,
    generator_of,
    records_of,
)
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate

from langchain_dpicl.exceptions import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PublicCallError,
    UnitError,
)
from langchain_dpicl.few_shot import DPFewShotGenerator, Sampling


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": []}, "labels"),
        ({"labels": "color"}, "labels"),
        ({"labels": ["color", "color"]}, "once"),
        ({"labels": ["color", " "]}, "non-empty"),
        ({"labels": ["color", 7]}, "labels"),
        ({"n_groups": 0}, "n_groups"),
        ({"n_groups": 2.5}, "n_groups"),
        ({"records_per_group": 0}, "records_per_group"),
        ({"records_per_group": float("nan")}, "records_per_group"),
        ({"records_per_unit": 0}, "records_per_unit"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"max_record_chars": 0}, "max_record_chars"),
        ({"top_k_public": 1}, "top_k_public"),
        ({"top_k_public": 11}, "top_k_public is 11 and the model has 10"),
        ({"mechanism": "laplace"}, "mechanism"),
        ({"labels_of_unit": "two"}, "labels_of_unit"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"noise_multiplier": float("inf")}, "noise_multiplier"),
        ({"epsilon": 1.0}, "noisy_max"),
        ({"mechanism": "noisy_max", "epsilon": -1.0}, "epsilon"),
        ({"mechanism": "noisy_max", "noise_multiplier": 1.0}, "epsilon="),
        ({"mechanism": "noisy_max", "decoder": Sampling()}, "winning token alone"),
        ({"decoder": "nucleus"}, "decoder"),
        ({"stop": [""]}, "stop"),
        ({"stop": 7}, "stop"),
        ({"unit_key": ""}, "unit_key"),
        ({"text_key": "label"}, "not the same"),
        ({"label_sizes": {"color": 10}}, "label_sizes"),
        ({"label_sizes": {"color": 10, "number": 0}}, "label_sizes"),
        ({"label_sizes": {"color": 10, "number": 9.5}}, "label_sizes"),
        ({"random": np.random.default_rng(1)}, "random"),
        ({"example_prompt": "no text"}, "{text}"),
        ({"example_prompt": "{text} {other}"}, "example_prompt"),
        ({"example_prompt": 7}, "example_prompt"),
    ],
)
def test_terms(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        generator_of(**changes)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "  ",
        None,
        7,
        "{label} {other}",
        "{label",
        PromptTemplate.from_template("{label} {examples} {other}"),
        PromptTemplate.from_template("{examples} only"),
        ChatPromptTemplate.from_template("{label} {examples}"),
    ],
)
def test_prompts(prompt: Any) -> None:
    with pytest.raises(InvalidParameterError):
        DPFewShotGenerator(
            WordModel(), prompt, LABELS, n_groups=2, records_per_group=1, max_tokens=2
        )


def test_models_that_are_none() -> None:
    with pytest.raises(InvalidParameterError, match="NextTokenModel"):
        generator_of(object())

    class Unsized(WordModel):
        vocabulary_size = None

    with pytest.raises(InvalidParameterError, match="top_k_public"):
        generator_of(Unsized(), top_k_public=None)


GOOD = records_of()


@pytest.mark.parametrize(
    ("records", "error", "named"),
    [
        ([], UnitError, "no records"),
        (None, InvalidParameterError, "records"),
        ("text", InvalidParameterError, "records"),
        ({"text": "x", "label": "color"}, InvalidParameterError, "records"),
        ([*GOOD, "secret"], InvalidParameterError, "records[120] is a str"),
        ([*GOOD, {"label": "color"}], InvalidParameterError, "records[120]"),
        ([*GOOD, {"text": " ", "label": "color"}], InvalidParameterError, "'text'"),
        ([*GOOD, {"text": "secret"}], InvalidParameterError, "'label'"),
        ([*GOOD, {"text": 7, "label": "color"}], InvalidParameterError, "'text'"),
        ([*GOOD, {"text": "secret", "label": "x"}], InvalidParameterError, "not in la"),
        ([*GOOD, {"text": "secret", "label": 1}], InvalidParameterError, "'label'"),
        ([*GOOD, Document("secret")], InvalidParameterError, "'label'"),
        ([*GOOD, {"text": "a", "label": "color", "who": 1}], UnitError, "unit_key="),
        (GOOD[:60], UnitError, "'number' has 0 units"),
        (GOOD[:70], UnitError, "'number' has 10 units and n_groups is 20"),
        (GOOD[:85], InvalidParameterError, "Label 'number': 20 groups of 2 need 40"),
    ],
)
def test_records(records: Any, error: type[Exception], named: str) -> None:
    budget, model = budget_of(), WordModel()
    with pytest.raises(error) as caught:
        generator_of(model, budget=budget).generate(records)
    assert "secret" not in str(caught.value)
    assert named in str(caught.value)
    assert budget.spent().queries == 0
    assert not model.calls
    assert not model.top_calls


@pytest.mark.parametrize("value", [None, "", "  ", 1.5, ["a"], True])
def test_unit_ids(value: Any) -> None:
    records = [{**record, "who": n} for n, record in enumerate(GOOD)]
    records[7]["who"] = value
    with pytest.raises(UnitError, match=r"records\[7\]"):
        generator_of(unit_key="who").generate(records)


@pytest.mark.parametrize("per_label", [0, -1, 1.5, None, True])
def test_per_label(per_label: Any) -> None:
    with pytest.raises(InvalidParameterError, match="per_label"):
        generator_of().generate(GOOD, per_label)


def test_budgets() -> None:
    with pytest.raises(NoBudgetError):
        generator_of(budget=None).generate(GOOD)
    closed = budget_of()
    closed.ledger.close_account("default")
    model = WordModel()
    with pytest.raises(LedgerError, match="closed"):
        generator_of(budget=closed).generate(GOOD)
    spent = budget_of()
    generator_of(budget=spent).generate(GOOD)
    with pytest.raises(BudgetExhaustedError):
        generator_of(model, budget=spent).generate(GOOD)
    assert not model.top_calls
    with pytest.raises(InvalidParameterError, match="delta"):
        generator_of(budget=budget_of(delta=0.01)).generate(GOOD)


def few(prompts: Any, k: int) -> Any:
    return [np.arange(k - 1)] * len(prompts)


@pytest.mark.parametrize("answer", [few, lambda prompts, k: []])
def test_models_that_tell_too_little_cost_nothing(answer: Any) -> None:
    model, budget = WordModel(), budget_of()
    model.top_tokens = answer  # type: ignore[method-assign]
    with pytest.raises(PublicCallError):
        generator_of(model, budget=budget).generate(GOOD)
    assert budget.spent().queries == 0

    silent = WordModel(lambda *_: None)
    with pytest.raises(PublicCallError):
        generator_of(silent, budget=budget, top_k_public=None).generate(GOOD)
    assert budget.spent().queries == 0


def nothing(prompt: Any, found: Any) -> Any:
    return None


def not_a_number(prompt: Any, found: Any) -> Any:
    return found * np.nan


def impossible(prompt: Any, found: Any) -> Any:
    return found * -np.inf


def too_much(prompt: Any, found: Any) -> Any:
    return found + 5


def short(prompt: Any, found: Any) -> Any:
    return found[:-1]


def nested(prompt: Any, found: Any) -> Any:
    return found[np.newaxis]


def text(prompt: Any, found: Any) -> Any:
    return ["a"] * len(found)


@pytest.mark.parametrize(
    "tamper", [nothing, not_a_number, impossible, too_much, short, nested, text]
)
@pytest.mark.parametrize("top", [6, None])
def test_what_a_slot_answers_wrongly_leaves_it_out(
    tamper: Any, top: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langchain_dpicl.few_shot import step

    heights: list[int] = []
    real = step.noisy_next_token

    def watched(rows: Any, **more: Any) -> Any:
        heights.append(len(rows))
        return real(rows, **more)

    monkeypatch.setattr(step, "noisy_next_token", watched)

    def answer(prompt: Any, found: Any) -> Any:
        return tamper(prompt, found) if prompt.text.startswith("BAD") else found

    model = WordModel(answer)
    records = [{"text": "red BAD green", "label": "color"}] * 60
    generator = generator_of(model, labels=["color"], top_k_public=top)

    def marked(prompts: Any, tokens: Any) -> Any:
        return WordModel.log_probabilities(
            model,
            [
                type(p)(f"BAD{p.text}", p.generated) if n == 3 else p
                for n, p in enumerate(prompts)
            ],
            tokens,
        )

    model.log_probabilities = marked  # type: ignore[method-assign]
    generator.generate(records)
    assert set(heights) == {19}
