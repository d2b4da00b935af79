"""What can't be done is refused before it costs anything; the error says what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pandas as pd
import pytest
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from support.few_shot_fakes import (
    LABELS,
    BrokenModel,
    WordModel,
    budget_of,
    generator_of,
    records_of,
    watched_heights,
)

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PlanMismatchError,
    PublicCallError,
    UnitError,
)
from langchain_dpicl.few_shot import (
    DPFewShotGenerator,
    MostlyNoiseWarning,
    Sampling,
)


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
        ({"budget": "sqlite:///a.db"}, "budget must be a PrivacyBudgetHandler"),
        ({"mechanism": "laplace"}, "mechanism"),
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
        "Subject: {labels}",
        "{examples} {Label}",
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


@pytest.mark.parametrize("way", ["sync", "async"])
def test_with_declared_sizes_no_number_of_people_is_refused(way: str) -> None:
    sizes = {"color": 60, "number": 60}

    def outcome(records: list[dict[str, str]]) -> str:
        budget = budget_of(
            delta=1 / 120, people_at_most=119, epsilon=50, accounting="renyi"
        )
        generator = generator_of(budget=budget, noise_multiplier=3.0, label_sizes=sizes)
        try:
            if way == "sync":
                generator.generate(records)
            else:
                asyncio.run(generator.agenerate(records))
        except InvalidParameterError as error:
            return str(error)
        return "written"

    corpora = [records_of(each) for each in (1, 59, 60, 61, 300)]
    # A label that nobody has; one unit more.
    corpora += [corpora[1][:59], [*corpora[2], {"text": "red", "label": "color"}]]
    assert {outcome(records) for records in corpora} == {"written"}


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
    heights = watched_heights(monkeypatch)

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


@pytest.mark.parametrize(
    "said",
    [
        lambda found: found * np.nan,
        np.exp,
        lambda found: found[:-1],
        lambda found: -found,
        lambda found: ["a"] * len(found),
        lambda found: None,
    ],
)
@pytest.mark.parametrize("top", [6, None])
async def test_what_is_no_log_probability_is_found_out_before_it_costs(
    said: Any, top: int | None
) -> None:
    budget = budget_of()
    model = WordModel(lambda prompt, found: said(found))
    for way in ("generate", "agenerate"):
        with pytest.raises(PublicCallError):
            made = getattr(generator_of(model, budget=budget, top_k_public=top), way)
            result = made(GOOD)
            await result
    assert budget.spent().queries == 0


@pytest.mark.parametrize(
    "tokens",
    [
        lambda k: np.arange(k) + 0.5,
        lambda k: np.arange(k) - 3,
        lambda k: np.arange(k) + 100,
        lambda k: np.zeros(k, np.int64),
        lambda k: None,
        lambda k: 1 / 0,
    ],
)
def test_tokens_that_are_none_are_found_out_before_they_cost(tokens: Any) -> None:
    model, budget = WordModel(), budget_of()
    model.top_tokens = lambda prompts, k: [tokens(k) for _ in prompts]  # type: ignore[method-assign]
    generator = generator_of(model, budget=budget)
    with pytest.raises(PublicCallError):
        generator.generate(GOOD)
    assert budget.spent().queries == 0


def test_a_small_vocabulary_is_taken_whole() -> None:
    examples = generator_of(top_k_public=100).generate(GOOD)
    assert len(examples) == 2


def test_data_frames_and_numbers_as_labels() -> None:
    frame = pd.DataFrame(GOOD)
    assert len(generator_of().generate(frame)) == 2
    with pytest.raises(InvalidParameterError, match="holds a number under 'label'"):
        generator_of().generate([{"text": "x", "label": 1}])


def test_ways_out() -> None:
    with pytest.raises(NoBudgetError, match="budget=PrivacyBudgetHandler"):
        generator_of(budget=None).generate(GOOD)
    with pytest.raises(InvalidParameterError, match="scope='corpus'"):
        generator_of(budget=budget_of(scope="unit")).generate(GOOD)
    with pytest.raises(InvalidParameterError, match="label_sizes is a mapping"):
        generator_of().forecast(GOOD)
    with pytest.raises(InvalidParameterError, match="needs label_sizes"):
        generator_of().forecast()
    budget = budget_of()
    generator_of(budget=budget).generate(GOOD)
    with pytest.raises(BudgetExhaustedError, match="resume=True"):
        generator_of(budget=budget).generate(GOOD)
    changed = budget_of(queries=2)
    generator_of(budget=changed).generate(GOOD)
    with pytest.raises(PlanMismatchError, match="label_sizes="):
        generator_of(budget=changed).generate(records_of(70))


def test_an_interrupt_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        generator_of(BrokenModel(4, KeyboardInterrupt())).generate(GOOD)
    assert "Stopped at 2 tokens" in capsys.readouterr().err


def test_a_forecast_reads_as_its_advice() -> None:
    found = generator_of().forecast({"color": 60, "number": 60}, per_label=2)
    assert found.tokens == 2 * 2 * 4
    assert found.model_calls == 16 * 22
    assert str(found) == found.advice()
    assert "question" in str(found)
    hopeless = generator_of(n_groups=2, records_per_group=30, max_tokens=90)
    assert not hopeless.forecast({"color": 60, "number": 60}).is_possible
    with pytest.raises(PlanMismatchError, match="too small for one example"):
        generator_of(
            n_groups=2, records_per_group=30, budget=budget_of(epsilon=0.1)
        ).generate(GOOD)
    with pytest.warns(MostlyNoiseWarning, match="mostly chance"):
        generator_of(n_groups=4, records_per_group=15).generate(GOOD)
