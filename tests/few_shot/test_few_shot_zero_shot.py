"""The control: examples of the instruction alone, which cost nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from support.few_shot_fakes import (
    INSTRUCTION,
    LABELS,
    BrokenModel,
    WordModel,
    records_of,
)

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot import Greedy, Sampling, ZeroShotGenerator
from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.released import ReleasedExamples


def control(model: Any = None, **changes: Any) -> ZeroShotGenerator:
    terms: dict[str, Any] = {"labels": LABELS, "max_tokens": 4, "top_k_public": 6}
    return ZeroShotGenerator(model or WordModel(), INSTRUCTION, **{**terms, **changes})


class Untouchable:
    """Records that nobody may look at."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("A record was read.")

    __len__ = __getitem__ = __bool__ = __contains__ = __iter__  # type: ignore[assignment]


def unreadable() -> Iterator[Any]:
    raise AssertionError("A record was read.")
    yield


@pytest.mark.parametrize("records", [Untouchable(), unreadable(), None])
async def test_no_record_is_looked_at(records: Any) -> None:
    model = WordModel()
    for made in (
        control(model).generate(records),
        await control(model).agenerate(records),
    ):
        assert made.record["epsilon"] == 0.0
    asked = {
        prompt.text for call in [*model.calls, *model.top_calls] for prompt in call
    }
    assert asked == {f"{INSTRUCTION}\n\nLabel: {label}\nText:" for label in LABELS}


def test_records_change_nothing_of_what_is_asked() -> None:
    asked = []
    for records in ([], records_of()):
        model = WordModel()
        control(model, random=SeededRandom(3)).generate(records, per_label=2)
        asked.append([model.calls, model.top_calls])
    assert asked[0] == asked[1]


async def test_the_record_says_that_it_cost_nothing() -> None:
    made = control(decoder=Greedy()).generate(per_label=3)
    record = made.record
    for name in ("epsilon", "delta"):
        assert record[name] == 0.0
    assert record["events"] == []
    assert record["status"] == "public"
    assert record["mechanism"] == "few-shot/zero-shot"
    for name in ("unit_key", "relation", "neighbors", "charge", "account"):
        assert record[name] is None
    assert record["model"] == "words of 10"
    assert record["parameters"] == {
        "labels": list(LABELS),
        "max_tokens": 4,
        "top_k_public": 6,
        "stop": ["\n"],
        "decoder": "Greedy",
        "per_label": 3,
        "text_key": "text",
        "label_key": "label",
    }
    again = await control(decoder=Greedy()).agenerate(per_label=3)
    assert again == made
    assert {**again.record, "created": ""} == {**record, "created": ""}


def test_what_it_releases_can_be_saved_and_loaded(tmp_path: Path) -> None:
    made = control().generate(per_label=2)
    made.save(tmp_path / "examples.json")
    loaded = ReleasedExamples.load(tmp_path / "examples.json")
    assert loaded == made
    assert loaded.record == made.record


def test_what_it_releases_stands_in_a_few_shot_prompt() -> None:
    made = control(decoder=Greedy(), text_key="sentence", label_key="kind").generate()
    prompt = FewShotPromptTemplate(
        examples=[dict(one) for one in made],
        example_prompt=PromptTemplate.from_template("{kind}: {sentence}"),
        suffix="{kind}:",
        input_variables=["kind"],
        example_separator="\n",
    )
    first, second, last = prompt.format(kind="color").split("\n")
    assert first == f"color: {made[0]['sentence']}"
    assert second.startswith("number: ")
    assert last == "color:"
    selected = FewShotPromptTemplate(
        example_selector=made.selector(k=1),
        example_prompt=PromptTemplate.from_template("{kind}: {sentence}"),
        suffix="{kind}:",
        input_variables=["kind"],
    )
    assert made[0]["sentence"] in selected.format(kind="color") or (
        made[1]["sentence"] in selected.format(kind="color")
    )


def test_greedy_examples_are_all_the_same_and_sampled_ones_are_not() -> None:
    same = control(decoder=Greedy()).generate(per_label=6)
    assert (
        len({example["text"] for example in same if example["label"] == "color"}) == 1
    )
    many = control(random=SeededRandom(2)).generate(per_label=12)
    assert len({example["text"] for example in many if example["label"] == "color"}) > 4
    assert many.record["parameters"]["decoder"] == "Sampling"


def test_sampling_follows_the_models_own_probabilities() -> None:
    class Coin(WordModel):
        """Says one of two words, three times of four the first, and ends."""

        def probabilities(self, prompt: Any) -> Any:
            shares = np.full(10, 1e-12)
            shares[[1, 2]] = 0.75, 0.25
            if prompt.generated:
                shares[:] = 1e-12
                shares[0] = 1
            return shares / shares.sum()

    made = control(
        Coin(), labels=["color"], decoder=Sampling(floor=0), random=SeededRandom(4)
    ).generate(per_label=1500)
    counts = Counter(example["text"] for example in made)
    assert set(counts) == {"red", "green"}
    # 5.2 deviations: a probability of 2e-7 on either side.
    deviation = (1500 * 0.75 * 0.25) ** 0.5
    assert abs(counts["red"] - 1500 * 0.75) < 5.2 * deviation
    assert abs(counts["red"] - 1500 * 0.65) > 5.2 * deviation


def test_all_tokens_may_be_chosen_among() -> None:
    model = WordModel()
    made = control(model, top_k_public=None, decoder=Greedy()).generate()
    assert len(made) == 2
    assert model.top_calls == []


def test_the_end_comes_when_the_model_says_so_and_never_first() -> None:
    class Short(WordModel):
        """Would rather say nothing at all."""

        def probabilities(self, prompt: Any) -> Any:
            shares = np.full(10, 0.01)
            shares[0] = 0.91
            return shares

    made = control(Short(), decoder=Greedy()).generate()
    assert [example["text"] for example in made] == ["red", "red"]


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_model_that_fails_is_reported(at: int) -> None:
    with pytest.raises(PublicCallError):
        control(BrokenModel(at)).generate()
    with pytest.raises(PublicCallError):
        await control(BrokenModel(at)).agenerate()


@pytest.mark.parametrize(
    "answers",
    [
        lambda found: [None, *found[1:]],
        lambda found: found[:-1],
        lambda found: [],
        lambda found: [each * np.nan for each in found],
    ],
)
def test_a_model_that_does_not_answer_is_reported(answers: Any) -> None:
    class Mute(WordModel):
        def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
            return answers(super().log_probabilities(prompts, tokens))

    with pytest.raises(PublicCallError):
        control(Mute()).generate()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": []}, "labels"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_k_public": 1}, "top_k_public"),
        ({"decoder": "greedy"}, "decoder"),
        ({"stop": [""]}, "stop"),
        ({"text_key": "label"}, "not the same"),
        ({"example_prompt": "no text"}, "{text}"),
        ({"random": np.random.default_rng(1)}, "random"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        control(**changes)
    assert named in str(caught.value)


@pytest.mark.parametrize("per_label", [0, -1, 1.5, None])
def test_counts_of_examples_are_checked(per_label: Any) -> None:
    with pytest.raises(InvalidParameterError, match="per_label"):
        control().generate(per_label=per_label)


def test_the_repr_names_the_terms() -> None:
    assert repr(control()) == (
        "ZeroShotGenerator(model='words of 10', labels=2, max_tokens=4)"
    )
