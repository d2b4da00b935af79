"""What a generator gives: examples, their record, progress; both ways of calling it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.few_shot_fakes import (
    INSTRUCTION,
    LABELS,
    WORDS,
    WordModel,
    budget_of,
    generator_of,
    records_of,
)

from langchain_dpicl.few_shot import Greedy, NoisyMax, Sampling
from langchain_dpicl.mechanisms.random import seeded

COLORS = {"red", "green", "blue"}
NUMBERS = {"one", "two", "three"}


async def test_both_ways_give_the_same() -> None:
    models = WordModel(ending=None), WordModel(ending=None)
    made = generator_of(models[0]).generate(records_of(), 2)
    again = await generator_of(models[1]).agenerate(records_of(), 2)
    assert [len(call) for call in models[0].calls] == [
        len(call) for call in models[1].calls
    ]
    assert [example["label"] for example in made] == [e["label"] for e in again]
    assert {**made.record, "created": ""} == {**again.record, "created": ""}


def test_one_batch_of_calls_for_all_examples() -> None:
    model = WordModel(ending=None)
    generator_of(model).generate(records_of(), per_label=3)
    drafts, groups = 6, 20
    assert [len(call) for call in model.calls] == [drafts * groups + drafts] * 4
    assert [len(call) for call in model.top_calls] == [drafts] * 4


def test_the_record_says_what_was_promised_and_is_json() -> None:
    budget = budget_of(delta=1e-4)
    examples = generator_of(budget=budget).generate(records_of(), 2)
    record = examples.record
    assert json.loads(json.dumps(record)) == record
    assert record["unit"] == "one record"
    assert record["unit_key"] is None
    assert record["relation"] == "replace"
    assert record["status"] == "released"
    assert record["delta"] == 1e-4
    assert 7.9 < record["epsilon"] <= 8
    assert record["charge"] == 1
    assert record["account"]["queries_spent"] == 1
    terms = record["parameters"]
    assert terms["tokens_charged"] == {"color": 8, "number": 8}
    assert (terms["labels"], terms["sizes"]) == (list(LABELS), None)
    assert terms["mechanism"] == {"kind": "gaussian", "stop": ["\n"], "contrast": 0.0}
    assert terms["prompt"].startswith(INSTRUCTION)
    assert terms["complete"] is True
    assert "random" not in record


def test_every_group_is_asked_and_empty_ones_get_the_instruction_alone() -> None:
    model = WordModel(ending=None)
    with seeded(2):
        generator_of(model, labels=["color"], records_per_group=0.1).generate(
            [r for r in records_of() if r["label"] == "color"]
        )
    public = f"{INSTRUCTION}\n\nLabel: color\nText:"
    for call in model.calls:
        assert len(call) == 21
        assert call[-1].text == public
        assert sum(prompt.text == public for prompt in call[:-1]) > 10


def test_documents_and_units_with_several_records() -> None:
    documents = [
        Document(f"red green p{n // 3}.", metadata={"label": "color", "person": n // 3})
        for n in range(120)
    ]
    model = WordModel()
    made = generator_of(model, labels=["color"], unit_key="person")
    examples = made.generate(documents)
    assert examples.record["unit_key"] == "person"
    assert "person" in examples.record["unit"]
    # 40 units, not 120 records, set the rate; one record of each is shown.
    assert examples.record["parameters"]["sampling_rates"] == {"color": 1.0}
    for call in model.calls:
        held = [
            word
            for prompt in call[:-1]
            for word in prompt.text.split()
            if word.startswith("p")
        ]
        assert len(held) == len(set(held)) == 40


def test_all_tokens_may_be_chosen_among() -> None:
    model = WordModel()
    with seeded(8):
        made = generator_of(model, top_k_public=None, n_groups=30)
        examples = made.generate(records_of(200))
    assert not model.top_calls
    assert set(examples[0]["text"].split()) <= COLORS
    assert len(generator_of(top_k_public=100).generate(records_of())) == 2


def test_noisy_max() -> None:
    with seeded(8):
        made = generator_of(
            mechanism="noisy_max", n_groups=60, budget=budget_of(epsilon=50)
        )
        examples = made.generate(records_of(600))
    assert set(examples[1]["text"].split()) <= NUMBERS
    assert examples.record["mechanism"] == "few-shot/noisy-max"
    assert set(examples.record["parameters"]["epsilons"]) == set(LABELS)


def test_a_draw_from_the_noisy_vector() -> None:
    model = WordModel(ending=1)
    with seeded(8):
        made = generator_of(model, mechanism=Sampling(), n_groups=50, max_tokens=2)
        examples = made.generate(records_of(5000), per_label=20)
    firsts = {e["text"] for e in examples if e["label"] == "color"}
    assert firsts >= COLORS, "a draw is not always the likeliest"
    assert examples.record["parameters"]["mechanism"]["kind"] == "sampling"


class Spelling(WordModel):
    """Writes the same text whatever it is asked."""

    def __init__(self, words: list[str], text: list[str]) -> None:
        super().__init__(words=["<end>", *words], ending=None)
        self.text = [self.words.index(word) for word in text]

    def decode(self, tokens: Any) -> str:
        return "".join(self.words[token] for token in tokens)

    def probabilities(self, prompt: Any) -> np.ndarray:
        place = len(prompt.generated)
        wanted = self.text[place] if place < len(self.text) else 0
        return np.where(np.arange(len(self.words)) == wanted, 0.99, 0.01 / 9)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        (["a", "b", "c"], ["\n"], ["abc"]),
        (["a", "\n", "b"], ["\n"], ["a"]),
        (["\n", "a", "\n", "b"], ["\n"], ["a"]),
        (["a", ". ", "b"], ["\n", "."], ["a"]),
        (["a", "b.c", "d"], ["."], ["ab"]),
        (["a", "<end>", "b"], ["\n"], ["a"]),
        (["a", " ", "\n"], ["\n"], ["a"]),
        ([" ", " ", "<end>"], ["\n"], []),
        (["a"] * 9, ["\n"], ["aaaa"]),
    ],
)
def test_an_example_ends_at_a_stop_text_an_end_token_or_its_length(
    text: list[str], stop: list[str], expected: list[str]
) -> None:
    words = ["a", "b", "c", "d", " ", "\n", ". ", "b.c"]
    made = generator_of(
        Spelling(words, text), labels=["color"], mechanism=Greedy(stop=stop)
    )
    assert [example["text"] for example in made.generate(None)] == expected
    records = [{"text": "x", "label": "color"}] * 5000
    with seeded(1):
        private = made.generate(records)
    assert [example["text"] for example in private] == expected


def test_progress_shows_speed_and_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    generator_of().generate(records_of(), progress=True)
    shown = capsys.readouterr().err
    assert "Writing examples" in shown
    assert "tokens/s" in shown
    generator_of().generate(records_of())
    assert not capsys.readouterr().err, "off where nobody looks"


def test_the_repr_names_the_terms_alone() -> None:
    shown = repr(generator_of())
    assert "words of 10" in shown
    assert "n_groups=20" in shown


# ---- the control ---------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [Greedy(), Sampling(), NoisyMax()])
async def test_without_records_it_writes_for_nothing(mechanism: Any) -> None:
    model, budget = WordModel(), budget_of()
    made = generator_of(model, budget=budget, mechanism=mechanism)
    free = made.generate(None, 2)
    assert len(free) == 4
    assert not model.calls
    asked = [prompt.text for call in model.top_calls for prompt in call]
    assert {text.count("Text:") for text in asked} == {1}
    record = free.record
    assert (record["status"], record["epsilon"], record["charge"]) == (
        "public",
        0,
        None,
    )
    assert record["events"] == []
    assert budget.spent().queries == 0
    assert len(await made.agenerate(None)) == 2
    assert generator_of(budget=None).generate(None).record["model"] == model.name


# ---- the contrast --------------------------------------------------------------------


class Habit(WordModel):
    """Says a habitual word anyway, and a group's own a little oftener with records."""

    def probabilities(self, prompt: Any) -> np.ndarray:
        weights = np.full(len(WORDS), 0.001)
        weights[WORDS.index("wide")] = 0.6
        weights[WORDS.index("red")] = 0.3 if "red" in prompt.text else 0.02
        return weights / weights.sum()


def test_a_contrast_brings_out_what_records_add() -> None:
    texts, events = {}, []
    for contrast in (0.0, 1.0):
        mechanism = Greedy(contrast=contrast)
        made = generator_of(
            Habit(), labels=["color"], mechanism=mechanism, max_tokens=1
        )
        with seeded(4):
            examples = made.generate([{"text": "red", "label": "color"}] * 5000)
        texts[contrast] = examples[0]["text"]
        events.append(examples.record["events"])
    # The same price: a slot's distribution stays one.
    assert events[0] == events[1]
    assert texts == {0.0: "wide", 1.0: "red"}


def test_public_figures_of_a_contrast_come_from_calls_without_records() -> None:
    model = WordModel(ending=None)
    public: list[bool] = []
    real = model.log_probabilities

    def watched(prompts: Any, tokens: Any) -> Any:
        public.append(all(p.text.count("Text:") == 1 for p in prompts))
        return real(prompts, tokens)

    model.log_probabilities = watched  # type: ignore[method-assign]
    made = generator_of(model, labels=["color"], mechanism=Greedy(contrast=0.5))
    made.generate([{"text": "red", "label": "color"}] * 60)
    assert public == [True, False] * 4


# ---- the forecast --------------------------------------------------------------------


def test_a_forecast_reads_as_its_advice() -> None:
    sizes = {"color": 60, "number": 60}
    forecast = generator_of().forecast(sizes, per_label=2)
    assert forecast.tokens == 2 * 2 * 4
    assert forecast.model_calls == 16 * 22
    assert forecast.is_possible
    assert str(forecast) == forecast.advice()
    assert "question" in str(forecast)
    assert generator_of(labels=sizes).forecast(per_label=2) == forecast
    hopeless = generator_of(n_groups=2, records_per_group=30, max_tokens=90)
    advice = hopeless.forecast({"color": 60, "number": 9000}).advice()
    assert "'color'" in advice
    assert "'number'" not in advice
