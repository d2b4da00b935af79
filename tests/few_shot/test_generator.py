"""What a generator gives: examples, their record, progress; both ways of calling it."""

from __future__ import annotations

import json

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate
from support.few_shot_fakes import (
    INSTRUCTION,
    LABELS,
    WordModel,
    budget_of,
    generator_of,
    records_of,
)

from langchain_dpicl.few_shot import DPFewShotGenerator, Sampling
from langchain_dpicl.mechanisms.random import SeededRandom

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


def test_one_batch_of_calls_for_all_lanes() -> None:
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
    assert record["parameters"]["tokens_charged"] == {"color": 8, "number": 8}
    assert record["parameters"]["label_sizes"] == "counted"
    assert record["parameters"]["complete"] is True
    (event,) = record["events"]
    (color,), (number,) = event["branches"]
    assert color["count"] == number["count"] == 8
    assert color["sampling_rate"] == number["sampling_rate"] == 40 / 60
    assert "random" not in record


def test_every_group_is_asked_and_empty_ones_get_the_instruction_alone() -> None:
    model = WordModel(ending=None)
    generator_of(
        model, labels=["color"], records_per_group=0.1, random=SeededRandom(2)
    ).generate([r for r in records_of() if r["label"] == "color"])
    public = f"{INSTRUCTION}\n\nLabel: color\nText:"
    for call in model.calls:
        assert len(call) == 21
        assert call[-1].text == public
        assert sum(prompt.text == public for prompt in call[:-1]) > 10


def test_prompts_show_records_in_one_line_up_to_a_length() -> None:
    model = WordModel()
    records = [{"text": f"red\n\n green {'x' * 99}", "label": "color"}] * 40
    generator_of(
        model, labels=["color"], records_per_group=1, max_record_chars=12
    ).generate(records)
    shown = {prompt.text for call in model.calls for prompt in call}
    assert any("\nText: red green xx\n" in text for text in shown)
    assert not any("xxx" in text for text in shown)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (
            "Say {{braces}}.",
            "Say {braces}.\n\nLabel: color\nText: a b\n\nLabel: color\nText:",
        ),
        ("A {label}:", "A color: a b\n\nA color:"),
        ("{examples}A {label}:", "Label: color\nText: a b\n\nA color:"),
        (
            PromptTemplate.from_template(
                "{{ examples }}= {{ label }}", template_format="jinja2"
            ),
            "Label: color\nText: a b\n\n= color",
        ),
    ],
)
def test_prompts_of_all_kinds(prompt: object, expected: str) -> None:
    model = WordModel()
    DPFewShotGenerator(
        model,
        prompt,
        ["color"],
        n_groups=20,
        records_per_group=1,
        max_tokens=4,
        top_k_public=6,
        budget=budget_of(),
    ).generate([{"text": "a b", "label": "color"}] * 60)
    assert expected in {prompt.text for call in model.calls for prompt in call}


def test_documents_and_units_with_several_records() -> None:
    documents = [
        Document(f"red green p{n // 3}.", metadata={"label": "color", "person": n // 3})
        for n in range(120)
    ]
    model = WordModel()
    examples = generator_of(
        model, labels=["color"], unit_key="person", records_per_unit=2
    ).generate(documents)
    assert examples.record["unit_key"] == "person"
    assert "person" in examples.record["unit"]
    # 40 units, not 120 records, set the rate; a unit's records are in one group.
    assert examples.record["parameters"]["sampling_rates"] == {"color": 1.0}
    for call in model.calls:
        held = [
            {word for word in prompt.text.split() if word.startswith("p")}
            for prompt in call[:-1]
        ]
        assert sum(map(len, held)) == len(set().union(*held)) == 40
        assert max(text.text.count(" p0.") for text in call) == 2


def test_all_tokens_may_be_chosen_among() -> None:
    model = WordModel()
    examples = generator_of(
        model, top_k_public=None, n_groups=30, random=SeededRandom(8)
    ).generate(records_of(200))
    assert not model.top_calls
    assert set(examples[0]["text"].split()) <= COLORS


def test_noisy_max() -> None:
    examples = generator_of(
        mechanism="noisy_max",
        n_groups=60,
        random=SeededRandom(8),
        budget=budget_of(epsilon=50),
    ).generate(records_of(600))
    assert set(examples[1]["text"].split()) <= NUMBERS
    assert examples.record["mechanism"] == "few-shot/noisy-max"
    assert set(examples.record["parameters"]["epsilons"]) == set(LABELS)


def test_other_decoders_of_the_noisy_vector() -> None:
    model = WordModel(ending=1)
    examples = generator_of(
        model, decoder=Sampling(), n_groups=50, max_tokens=2, random=SeededRandom(8)
    ).generate(records_of(5000), per_label=20)
    firsts = {e["text"] for e in examples if e["label"] == "color"}
    assert firsts >= COLORS, "a draw is not always the likeliest"
    assert examples.record["parameters"]["decoder"] == "Sampling"


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
