"""The clipped decoder: who is in which text, what a token costs, what calls tell.

The law of a token stands in `tests/mechanisms/test_clipped_token.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.few_shot_fakes import (
    INSTRUCTION,
    LABELS,
    WordModel,
    budget_of,
    generator_of,
)

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Exponential, Parallel, read_events
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import (
    InvalidParameterError,
    PlanMismatchError,
    PublicCallError,
)
from langchain_dpicl.few_shot import Clipped, MostlyNoiseWarning, step
from langchain_dpicl.mechanisms import clipped_token
from langchain_dpicl.mechanisms.random import seeded

SIZES = {"color": 60, "number": 60}
COLORS, NUMBERS = {"red", "green", "blue"}, {"one", "two", "three"}
PUBLIC = {f"{INSTRUCTION}\n\nLabel: {label}\nText:" for label in LABELS}


def clipped(model: Any = None, **changes: Any) -> Any:
    """Return a generator by the clipped decoder, of declared sizes."""
    terms: dict[str, Any] = {"n_groups": None, "labels": SIZES, "unit_key": "who"}
    terms["records_per_group"] = 1
    return generator_of(model, **{**terms, **changes})


def people(each: int = 60, start: int = 0) -> list[dict[str, str]]:
    """Return a record of each of so many people, who are told apart in a prompt."""
    return [
        {
            "text": f"{words[n % 3]} p{label[0]}{n}.",
            "label": label,
            "who": f"{label}{n}",
        }
        for label, words in zip(LABELS, (sorted(COLORS), sorted(NUMBERS)), strict=True)
        for n in range(start, start + each)
    ]


class Watched:
    """What each text's draw was handed: rows, public row, people expected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[tuple[Any, Any, Any, int]] = []
        real = step.clipped_token

        def watched(rows: Any, public: Any, paid: Any, to: Any, **terms: Any) -> Any:
            assert to is Relation.ADD_REMOVE
            self.given.append((rows, public, paid, terms["slots"]))
            return real(rows, public, paid, to, **terms)

        monkeypatch.setattr(step, "clipped_token", watched)

    def sums(self) -> list[tuple[np.ndarray, int]]:
        """Return each draw's sum in steps, with the limit of one person."""
        found = []
        for rows, public, paid, slots in self.given:
            clip = clipped_token.clip(paid, "add_remove", slots=slots)
            limit = round(clip * clipped_token.GRID)
            steps = clipped_token.differences(rows, public, limit)
            found.append((steps.sum(axis=0), limit))
        return found


def texts_of(model: WordModel, call: int) -> list[str]:
    """Return the private prompts of a step, in their order."""
    return [prompt.text for prompt in model.calls[call] if prompt.text not in PUBLIC]


# ---- its terms -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        ({"decoder": Clipped()}, "clipped"),
        ({"mechanism": "clipped"}, "clipped"),
        ({}, "clipped"),
        ({"decoder": "clipped", "labels": LABELS, "n_groups": 60}, "clipped"),
        ({"n_groups": 20, "records_per_group": 2}, "gaussian"),
    ],
)
def test_each_way_to_ask_for_it(terms: dict[str, Any], kind: str) -> None:
    record = clipped(**terms).generate(None).record
    assert record["parameters"]["decoder"]["kind"] == kind


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"decoder": "clipped", "labels": LABELS}, "number of people"),
        ({"decoder": "gaussian"}, "n_groups"),
        ({"decoder": "clipped", "mechanism": "gaussian"}, "mechanism"),
        ({"decoder": "likeliest"}, "decoder"),
    ],
)
def test_terms_that_are_refused(terms: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        clipped(**terms)
    for wrong in (0.0, math.nan, 1e9):
        with pytest.raises(InvalidParameterError, match="temperature"):
            Clipped(temperature=wrong)


def test_all_texts_together_cost_what_one_costs() -> None:
    examples = clipped(labels={"color": 160, "number": 80}).generate(people(), 4)
    assert examples.record["mechanism"] == "few-shot/clipped"
    assert examples.record["relation"] == "add_remove"
    (event,) = read_events(examples.record["events"])
    assert isinstance(event, Parallel)
    paid = [branch[0] for branch in event.branches]
    assert [(e.kind, e.count, e.sampling_rate) for e in paid] == [
        ("exponential", 4, 1.0)
    ] * 2
    assert 7.9 < accounting.compose(paid[:1], 1e-5) <= 8


# ---- who is in which prompt ----------------------------------------------------------


def test_each_person_is_alone_in_one_prompt_of_each_step() -> None:
    model = WordModel(ending=None)
    clipped(model, unit_key="who").generate(people() + people(), 3)
    for call in range(4):
        prompts = texts_of(model, call)
        assert len(prompts) == 120
        assert {text.count("Text:") for text in prompts} == {2}, "one record each"
    first, last = (
        [prompt for prompt in model.calls[call] if prompt.text not in PUBLIC]
        for call in (0, 3)
    )
    assert [prompt.text for prompt in first] == [prompt.text for prompt in last]
    # A person's text goes on with its own tokens alone.
    prefixes = Counter(p.generated for p in last)
    assert len(prefixes) <= 6


def test_a_person_shows_as_many_own_records_as_is_public() -> None:
    many = [
        {"text": f"red {n}", "label": "color", "who": who}
        for n in range(9)
        for who in ("ann", "ben")
    ]
    terms = {"labels": {"color": 60}, "unit_key": "who", "records_per_group": 4}
    shown = []
    # Which ones does not depend on their places in the list.
    for listed in (many, many[::-1]):
        model = WordModel(ending=None)
        clipped(model, **terms).generate(listed)
        shown.append(sorted(text for text in texts_of(model, 0) if "red" in text))
        assert all(text.count("red") == 4 for text in shown[-1])
    assert shown[0] == shown[1]


@pytest.mark.parametrize("unit_key", ["who", None])
def test_one_person_more_is_one_prompt_more_of_one_text(
    unit_key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = people(8)
    if unit_key is None:
        everybody = [{k: r[k] for k in ("text", "label")} for r in everybody]
    sums: dict[int, Any] = {}
    for gone in (None, 0, 5, 15):
        some = [r for n, r in enumerate(everybody) if n != gone]
        watched = Watched(monkeypatch)
        made = clipped(
            unit_key=unit_key,
            labels={"color": 12, "number": 12},
            max_tokens=1,
            budget=budget_of(epsilon=2.0),
        )
        # The order of a list is nobody's secret and decides nothing.
        made.generate(some[::-1] if gone == 5 else some, 3)
        sums[-1 if gone is None else gone] = watched.sums()
        assert len(watched.given) == 6
    for gone in (0, 5, 15):
        moved = [
            np.abs(ours - theirs).max() / limit
            for (ours, limit), (theirs, _) in zip(sums[-1], sums[gone], strict=True)
        ]
        assert sum(move > 0 for move in moved) == 1
        assert 0.5 < max(moved) <= 1


def test_a_person_whose_call_fails_abstains_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(prompt: Any, found: Any) -> Any:
        return np.full(3, math.nan) if "pc7." in prompt.text else found

    def raising(prompt: Any, found: Any) -> Any:
        if "pc7." in prompt.text:
            raise ValueError("pc7 is ill")
        return found

    heights, sums = [], []
    for tamper in (None, failing, raising):
        watched = Watched(monkeypatch)
        made = clipped(WordModel(tamper), max_tokens=1, unit_key="who")
        made.generate(people(), 2)
        heights.append([len(rows) for rows, *_ in watched.given])
        sums.append(watched.sums())
    whole, *less = heights
    assert sum(whole) == 120
    for height, found in zip(less, sums[1:], strict=True):
        assert sorted(np.subtract(whole, height)) == [0, 0, 0, 1]
        moved = [
            float(np.abs(a - b).max() / limit)
            for (a, limit), (b, _) in zip(sums[0], found, strict=True)
        ]
        assert sum(move > 0 for move in moved) == 1
        assert max(moved) <= 1


@pytest.mark.parametrize(
    ("count", "calls"), [(0, 60), (1, 60), (59, 60), (60, 60), (61, 80), (85, 100)]
)
def test_how_many_calls_are_made_does_not_tell_how_many_people_there_are(
    count: int, calls: int
) -> None:
    model = WordModel(ending=None)
    terms = {"labels": {"color": 60}, "max_tokens": 2}
    clipped(model, **terms).generate(people(count)[:count], 3)
    public = 3
    assert [len(call) for call in model.calls] == [calls + public] * 2


def test_an_end_is_always_among_what_is_drawn_from() -> None:
    # The end is the least likely of all until two tokens are there; then it is drawn.
    examples = clipped(top_k_public=3, max_tokens=9).generate(people(), 6)
    assert max(len(example["text"].split()) for example in examples) < 9


# ---- what comes out ------------------------------------------------------------------


async def test_texts_are_like_the_records_of_their_label() -> None:
    made = clipped(budget=budget_of(epsilon=40.0), decoder=Clipped(temperature=0.5))
    with seeded(5):
        examples = await made.agenerate(people(), 6)
    for label, words in zip(LABELS, (COLORS, NUMBERS), strict=True):
        told = [w for e in examples if e["label"] == label for w in e["text"].split()]
        others = (COLORS | NUMBERS) - words
        assert sum(w in words for w in told) > 4 * sum(w in others for w in told)


def test_without_records_it_draws_for_nothing() -> None:
    budget = budget_of()
    free = clipped(budget=budget).generate(None, 8)
    assert free.record["epsilon"] == budget.spent().queries == 0
    assert len({example["text"] for example in free}) > 1, "a draw, not the likeliest"


@pytest.mark.parametrize("at", [0, 2])
def test_a_generation_that_died_goes_on_with_the_same_texts(at: int) -> None:
    def dead(prompt: Any, found: Any) -> Any:
        return None if len(prompt.generated) == at else found

    budget, died, again = (
        budget_of(),
        WordModel(dead, ending=None),
        WordModel(ending=None),
    )
    with pytest.raises(PublicCallError):
        clipped(died, budget=budget).generate(people(), 3)
    assert budget.spent().queries == (at > 0)
    examples = clipped(again, budget=budget).generate(people()[::-1], 3, resume=True)
    assert budget.spent().queries == 1
    assert len(again.calls) == 4 - at
    if at:
        before = {p.text: p.generated for p in died.calls[1]}
        after = {p.text: p.generated for p in again.calls[-1]}
        private = before.keys() - PUBLIC
        assert private
        assert all(after[text][:1] == before[text] for text in private)
    assert clipped(budget=budget).generate(people(), 3, resume=True) == examples


# ---- the forecast --------------------------------------------------------------------


def test_a_forecast_tells_how_far_people_count() -> None:
    # As in the page of figures: 40 people a text, 100 tokens, epsilon 4.
    terms = {"labels": {"color": 200}, "max_tokens": 100}
    made = clipped(budget=budget_of(epsilon=4.0, delta=1e-6), **terms)
    forecast = made.forecast(per_label=5)
    assert forecast.people == {"color": 40}
    assert forecast.clips["color"] == pytest.approx(3.16, abs=0.02)
    assert forecast.model_calls == 5 * 100 * 43
    assert forecast.is_possible
    assert "40 people" in str(forecast)
    single = made.forecast(per_label=1)
    assert single.clips["color"] == pytest.approx(5 * forecast.clips["color"], rel=1e-4)
    assert "more examples cost the same" in str(single)
    # At another temperature the odds can move as far.
    cold = clipped(decoder=Clipped(temperature=0.5), budget=made._budget, **terms)
    assert cold.forecast(per_label=5).clips == pytest.approx(forecast.clips, rel=1e-4)
    event = Exponential(epsilon=2 * forecast.clips["color"] / 40, count=100)
    assert 3.99 < accounting.compose([event], 1e-6) <= 4


def test_a_budget_of_hardly_any_change_is_told_before_it_is_spent() -> None:
    budget = budget_of(epsilon=0.5)
    with pytest.warns(MostlyNoiseWarning, match="needs about"):
        clipped(budget=budget, labels={"color": 20}).generate(people(20)[:20], 2)
    model, budget = WordModel(), budget_of(epsilon=0.01)
    with pytest.raises(PlanMismatchError, match="too small"):
        clipped(model, budget=budget, labels={"color": 20}).generate(people(20)[:20], 2)
    assert budget.spent().queries == 0
    assert not model.calls


def test_a_contrast_is_not_for_it() -> None:
    with pytest.raises(InvalidParameterError, match="no field"):
        Clipped(contrast=1.0)  # type: ignore[call-arg]
