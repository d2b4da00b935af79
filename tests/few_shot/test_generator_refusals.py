"""What can't be done is refused before it costs anything; the error says what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pandas as pd
import pytest
from langchain_core.documents import Document
from support.few_shot_fakes import (
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
from langchain_dpicl.few_shot import MostlyNoiseWarning

GOOD = records_of()
SIZES = {"color": 60, "number": 60}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": []}, "labels"),
        ({"labels": "color"}, "labels"),
        ({"labels": 7}, "labels"),
        ({"labels": ["color", "color"]}, "once"),
        ({"labels": ["color", " "]}, "labels"),
        ({"labels": ["color", 7]}, "labels"),
        ({"labels": {"color": 10, "number": 0}}, "sizes"),
        ({"labels": {"color": 10, "number": 9.5}}, "sizes"),
        ({"labels": {"color": 10, "number": True}}, "sizes"),
        ({"labels": {"color": 10**30, "number": 9}}, "sizes"),
        ({"n_groups": 0}, "n_groups"),
        ({"n_groups": 2.5}, "n_groups"),
        ({"n_groups": "7"}, "n_groups"),
        ({"records_per_group": 0}, "records_per_group"),
        ({"records_per_group": float("nan")}, "records_per_group"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"top_k_public": 1}, "top_k_public"),
        ({"budget": "sqlite:///a.db"}, "budget must be a PrivacyBudgetHandler"),
        ({"mechanism": "laplace"}, "mechanism"),
        ({"mechanism": None}, "mechanism"),
        ({"unit_key": ""}, "unit_key"),
        ({"unit_key": 7}, "unit_key"),
    ],
)
def test_terms(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        generator_of(**changes)
    assert named in str(caught.value)


def test_models_that_are_none() -> None:
    with pytest.raises(InvalidParameterError, match="NextTokenModel"):
        generator_of(object())

    class Unsized(WordModel):
        vocabulary_size = None

    with pytest.raises(InvalidParameterError, match="top_k_public"):
        generator_of(Unsized(), top_k_public=None)


@pytest.mark.parametrize(
    ("records", "error", "named"),
    [
        ("text", InvalidParameterError, "records"),
        ({"text": "x", "label": "color"}, InvalidParameterError, "records"),
        (pd.DataFrame(GOOD), InvalidParameterError, "records[0] is a str"),
        ([*GOOD, "secret"], InvalidParameterError, "records[120] is a str"),
        ([*GOOD, {"label": "color"}], InvalidParameterError, "records[120]"),
        ([*GOOD, {"text": " ", "label": "color"}], InvalidParameterError, "'text'"),
        ([*GOOD, {"text": "secret"}], InvalidParameterError, "'label'"),
        ([*GOOD, {"text": 7, "label": "color"}], InvalidParameterError, "'text'"),
        ([*GOOD, {"text": "secret", "label": "x"}], InvalidParameterError, "not in la"),
        ([*GOOD, {"text": "secret", "label": 1}], InvalidParameterError, "a number"),
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
    for ask in (
        lambda made: made.generate(GOOD, per_label),
        lambda made: made.forecast(SIZES, per_label),
        lambda made: made.released(per_label),
    ):
        with pytest.raises(InvalidParameterError, match="per_label"):
            ask(generator_of())


def test_budgets() -> None:
    with pytest.raises(NoBudgetError, match="budget=PrivacyBudgetHandler"):
        generator_of(budget=None).generate(GOOD)
    closed = budget_of()
    closed.ledger.close_account("default")
    with pytest.raises(LedgerError, match="closed"):
        generator_of(budget=closed).generate(GOOD)
    spent, model = budget_of(), WordModel()
    generator_of(budget=spent).generate(GOOD)
    with pytest.raises(BudgetExhaustedError, match="resume=True"):
        generator_of(model, budget=spent).generate(GOOD)
    assert not model.top_calls


@pytest.mark.parametrize(
    "sizes", [{"color": 60}, {**SIZES, "other": 1}, {**SIZES, "number": 0}, None]
)
def test_forecasts_without_sizes(sizes: Any) -> None:
    with pytest.raises(InvalidParameterError):
        generator_of().forecast(sizes)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_with_declared_sizes_no_number_of_people_is_refused(way: str) -> None:
    def outcome(records: list[dict[str, str]]) -> str:
        budget = budget_of(
            delta=1 / 121,
            people_at_most=120,
            epsilon=50,
            accounting="renyi",
        )
        generator = generator_of(budget=budget, labels=SIZES)
        try:
            if way == "sync":
                generator.generate(records)
            else:
                asyncio.run(generator.agenerate(records))
        except InvalidParameterError as error:
            return str(error)
        return "written"

    corpora = [records_of(each) for each in (1, 59, 60, 61, 300)]
    # A label that nobody has; one unit more; nobody.
    corpora += [corpora[1][:59], [*corpora[2], {"text": "red", "label": "color"}], []]
    assert {outcome(records) for records in corpora} == {"written"}


@pytest.mark.parametrize(
    "tokens",
    [
        lambda k: np.arange(k) + 0.5,
        lambda k: np.arange(k) - 3,
        lambda k: np.arange(k) + 100,
        lambda k: np.zeros(k, np.int64),
        lambda k: np.arange(k - 1),
        lambda k: None,
        lambda k: 1 / 0,
    ],
)
def test_tokens_that_are_none_are_found_out_before_they_cost(tokens: Any) -> None:
    model, budget = WordModel(), budget_of()
    for answer in (
        lambda prompts, k: [tokens(k) for _ in prompts],
        lambda prompts, k: [],
    ):
        model.top_tokens = answer  # type: ignore[method-assign]
        with pytest.raises(PublicCallError):
            generator_of(model, budget=budget).generate(GOOD)
    assert budget.spent().queries == 0


BAD: dict[str, Any] = {
    "nothing": lambda found: None,
    "no number": lambda found: found * np.nan,
    "impossible": lambda found: found * -np.inf,
    "too much": lambda found: found + 5,
    "probabilities": np.exp,
    "short": lambda found: found[:-1],
    "nested": lambda found: found[np.newaxis],
    "text": lambda found: ["a"] * len(found),
}


@pytest.mark.parametrize("tamper", BAD.values(), ids=BAD)
@pytest.mark.parametrize("top", [6, None])
def test_what_is_no_log_probability_leaves_a_slot_out_or_costs_nothing(
    tamper: Any, top: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = watched_heights(monkeypatch)
    spoiled = WordModel(lambda prompt, found: tamper(found))
    budget = budget_of()
    with pytest.raises(PublicCallError):
        generator_of(spoiled, budget=budget, top_k_public=top).generate(GOOD)
    assert budget.spent().queries == 0

    def answer(prompt: Any, found: Any) -> Any:
        return tamper(found) if "BAD" in prompt.text else found

    # Everybody is in the sample, once.
    records = [{"text": f"red {n}", "label": "color"} for n in range(39)]
    records.append({"text": "red BAD", "label": "color"})
    made = generator_of(
        WordModel(answer, ending=None), labels=["color"], top_k_public=top
    )
    made.generate(records)
    # Noise may end the example before its fourth token.
    assert set(heights) == {19}


def test_an_interrupt_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        generator_of(BrokenModel(4, KeyboardInterrupt())).generate(GOOD)
    assert "Stopped at 2 tokens" in capsys.readouterr().err


def test_noise_alone_is_refused_and_mostly_noise_is_told_of() -> None:
    with pytest.raises(PlanMismatchError, match="too small for one example"):
        generator_of(
            n_groups=2, records_per_group=30, budget=budget_of(epsilon=0.1)
        ).generate(GOOD)
    with pytest.warns(MostlyNoiseWarning, match="mostly chance"):
        generator_of(n_groups=4, records_per_group=15).generate(GOOD)
