"""What a generator writes, what it charges, and what it refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.few_shot_fakes import (
    INSTRUCTION,
    LABELS,
    WORDS,
    WordModel,
    budget_of,
    generator_of,
    records_of,
    watched_heights,
    watched_noise,
)

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Parallel, read_events
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    NoBudgetError,
    PlanMismatchError,
    PublicCallError,
)
from langchain_dpicl.few_shot import Greedy, MostlyNoiseWarning, NoisyMax, Sampling
from langchain_dpicl.mechanisms.random import seeded

GOOD = records_of()
SIZES = {"color": 60, "number": 60}
COLORS = {"red", "green", "blue"}
UNEVEN = [{"text": "red green", "label": "color"} for _ in range(400)] + [
    {"text": "one two", "label": "number"} for _ in range(50)
]


async def test_both_ways_ask_one_batch_a_token_and_give_the_same() -> None:
    models = WordModel(ending=None), WordModel(ending=None)
    made = generator_of(models[0]).generate(GOOD, 3)
    again = await generator_of(models[1]).agenerate(GOOD, 3)
    drafts, groups = 6, 20
    for model in models:
        assert [len(call) for call in model.calls] == [drafts * groups + drafts] * 4
        assert [len(call) for call in model.top_calls] == [drafts] * 4
    assert [example["label"] for example in made] == [e["label"] for e in again]
    assert {**made.record, "created": ""} == {**again.record, "created": ""}


def test_the_record_says_what_was_promised_and_is_json() -> None:
    record = generator_of(budget=budget_of(delta=1e-4)).generate(GOOD, 2).record
    assert json.loads(json.dumps(record)) == record
    assert (record["unit"], record["unit_key"]) == ("one record", None)
    assert (record["relation"], record["status"]) == ("replace", "released")
    assert record["delta"] == 1e-4
    assert 7.9 < record["epsilon"] <= 8
    assert record["account"]["queries_spent"] == record["charge"] == 1
    terms = record["parameters"]
    assert (terms["labels"], terms["sizes"]) == (list(LABELS), None)
    assert terms["decoder"] == {"kind": "gaussian", "stop": ["\n"], "contrast": 0.0}
    assert terms["prompt"].startswith(INSTRUCTION)
    assert terms["complete"] is True
    # Sizes that nobody declared are counted, and so public.
    assert "number of units under each label is public" in record["neighbors"]
    declared = generator_of(labels=dict.fromkeys(LABELS, 60)).generate(GOOD, 2)
    assert "public" not in declared.record["neighbors"]
    assert "random" not in record


def test_every_group_is_asked_and_empty_ones_get_the_instruction_alone() -> None:
    model = WordModel(ending=None)
    with seeded(2):
        generator_of(model, labels=["color"], records_per_group=0.1).generate(GOOD[:60])
    public = f"{INSTRUCTION}\n\nLabel: color\nText:"
    for call in model.calls:
        assert len(call) == 21
        assert call[-1].text == public
        assert sum(prompt.text == public for prompt in call[:-1]) > 10


class Short(WordModel):
    """Takes texts of two tokens."""

    def require_room(self, prompts: Any) -> None:
        assert {each.text.count("Text:") for each in prompts} == {1}, "no record"
        if max(len(each.generated) for each in prompts) > 2:
            raise InvalidParameterError("A prompt has 9 tokens; the model takes 8.")


def test_a_text_too_long_for_the_model_costs_nothing() -> None:
    budget = budget_of()
    with pytest.raises(InvalidParameterError, match="takes 8"):
        generator_of(Short(), budget=budget).generate(GOOD)
    assert budget.spent().queries == 0
    assert generator_of(Short(), budget=budget, max_tokens=3).generate(GOOD)


def test_all_tokens_may_be_chosen_among() -> None:
    model = WordModel()
    with seeded(8):
        made = generator_of(model, top_k_public=None, n_groups=30)
        examples = made.generate(records_of(200))
    assert not model.top_calls
    assert set(examples[0]["text"].split()) <= COLORS


def test_a_draw_from_the_noisy_vector() -> None:
    with seeded(8):
        made = generator_of(
            WordModel(ending=1), mechanism=Sampling(), n_groups=50, max_tokens=2
        )
        examples = made.generate(records_of(3000), per_label=12)
    firsts = {e["text"] for e in examples if e["label"] == "color"}
    assert firsts >= COLORS, "a draw is not always the likeliest"


class Spelling(WordModel):
    """Writes the same text whatever it is asked."""

    def __init__(self, text: list[str]) -> None:
        words = ["a", "b", "c", "d", " ", "\n", ". ", "b.c"]
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
        (["\n", "a", "\n", "b"], ["\n"], ["a"]),
        (["a", ". ", "b"], ["\n", "."], ["a"]),
        (["a", "b.c", "d"], ["."], ["ab"]),
        (["a", "<end>", "b"], ["\n"], ["a"]),
        ([" ", " ", "<end>"], ["\n"], []),
        (["a"] * 9, ["\n"], ["aaaa"]),
    ],
)
def test_an_example_ends_at_a_stop_text_an_end_token_or_its_length(
    text: list[str], stop: list[str], expected: list[str]
) -> None:
    made = generator_of(Spelling(text), labels=["color"], mechanism=Greedy(stop=stop))
    assert [example["text"] for example in made.generate(None)] == expected
    with seeded(1):
        private = made.generate([{"text": "x", "label": "color"}] * 1000)
    assert [example["text"] for example in private] == expected


def test_progress_is_shown_to_who_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    generator_of().generate(GOOD, progress=True)
    shown = capsys.readouterr().err
    assert "Writing examples" in shown
    assert "tokens/s" in shown
    generator_of().generate(GOOD)
    assert not capsys.readouterr().err, "off where nobody looks"


@pytest.mark.parametrize("mechanism", [Greedy(), Sampling(), NoisyMax()])
async def test_without_records_it_writes_for_nothing(mechanism: Any) -> None:
    model, budget = WordModel(), budget_of()
    made = generator_of(model, budget=budget, mechanism=mechanism)
    free = made.generate(None, 2)
    assert len(free) == 4
    asked = [prompt.text for call in model.top_calls for prompt in call]
    assert {text.count("Text:") for text in asked} == {1}
    record = free.record
    assert (record["status"], record["epsilon"], record["events"]) == ("public", 0, [])
    assert (record["charge"], budget.spent().queries) == (None, 0)
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


def test_a_contrast_brings_out_what_records_add_at_the_same_price() -> None:
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


# ---- the charge ----------------------------------------------------------------------


def branches(examples: Any) -> list[Any]:
    (event,) = read_events(examples.record["events"])
    assert isinstance(event, Parallel)
    return [branch[0] for branch in event.branches]


# Tang et al., ICLR 2024: groups, units a group, tokens, units of a label; the noise
# that they print for epsilon 4 at delta = 1 / units, and its epsilon by dp-accounting.
# (Their table says 20 tokens for MIT; only the 80 of their script fit.)
PAPER = {
    "agnews": (10, 2, 100, 30_000, 0.39, 3.815),
    "mit-d": (20, 4, 80, 1_561, 0.77, 3.881),
    "trec": (80, 1, 15, 835, 0.69, 3.955),
}


@pytest.mark.parametrize(
    "name",
    [
        "trec",
        *(pytest.param(name, marks=pytest.mark.whole) for name in ("agnews", "mit-d")),
    ],
)
def test_a_generation_pays_what_the_paper_says(name: str) -> None:
    groups, each, tokens, size, noise, epsilon = PAPER[name]
    budget = budget_of(epsilon=epsilon, delta=1 / size)
    terms = {"n_groups": groups, "records_per_group": each, "max_tokens": tokens}
    forecast = generator_of(labels={"color": size}, budget=budget, **terms).forecast()
    deviation = noise * math.sqrt(2) / groups
    assert forecast.noise["color"] == pytest.approx(deviation, rel=5e-3)


def test_each_label_has_its_own_noise_for_all_its_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used, per_label = watched_noise(monkeypatch), 3
    common, rare = branches(generator_of().generate(UNEVEN, per_label))
    assert (common.sampling_rate, rare.sampling_rate) == (40 / 400, 40 / 50)
    assert common.count == rare.count == 4 * per_label
    assert rare.noise_multiplier > 1.5 * common.noise_multiplier
    for branch in (common, rare):
        uses, rate = branch.count, branch.sampling_rate
        cost = accounting.epsilon(
            branch.noise_multiplier, 1e-5, uses=uses, sampling_rate=rate
        )
        assert 7.9 < cost <= 8
    assert set(used) == {common.noise_multiplier, rare.noise_multiplier}


def test_a_plan_pays_for_as_many_generations_as_it_says() -> None:
    budget = budget_of(queries=2)
    first = generator_of(budget=budget).generate(GOOD)
    for other in ((GOOD, 2), (records_of(70), 1)):
        with pytest.raises(PlanMismatchError):
            generator_of(budget=budget).generate(*other)
    second = generator_of(budget=budget).generate(GOOD)
    assert first.record["events"] == second.record["events"]
    assert budget.spent().epsilon <= 8
    model = WordModel()
    with pytest.raises(BudgetExhaustedError, match="resume=True"):
        generator_of(model, budget=budget).generate(GOOD)
    assert not model.top_calls


def test_a_plan_of_several_generations_needs_labels_that_stay() -> None:
    records = [{**record, "who": n} for n, record in enumerate(GOOD)]
    model, planned = WordModel(), budget_of(queries=2)
    with pytest.raises(PlanMismatchError, match="renyi"):
        generator_of(model, unit_key="who", budget=planned).generate(records)
    assert (model.top_calls, planned.spent().queries) == ([], 0)
    # One generation, or a filter: nothing to assume.
    generator_of(unit_key="who").generate(records)
    filtered = budget_of(queries=2, accounting="renyi")
    for _ in range(2):
        generator_of(unit_key="who", budget=filtered).generate(records)
    assert filtered.spent().epsilon <= 8


def test_a_forecast_is_of_public_numbers() -> None:
    forecast = generator_of().forecast(SIZES, per_label=2)
    assert (forecast.tokens, forecast.model_calls) == (2 * 2 * 4, 16 * 22)
    assert forecast.is_possible
    assert "model calls" in str(forecast)
    assert generator_of(labels=SIZES).forecast(per_label=2) == forecast
    hopeless = generator_of(n_groups=2, records_per_group=30, max_tokens=90)
    advice = str(hopeless.forecast({"color": 60, "number": 9000}))
    assert "'color'" in advice
    assert "'number'" not in advice
    for sizes in ({"color": 60}, {**SIZES, "other": 1}, {**SIZES, "number": 0}, None):
        with pytest.raises(InvalidParameterError):
            generator_of().forecast(sizes)


# ---- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": []}, "labels"),
        ({"labels": "color"}, "labels"),
        ({"labels": ["color", "color"]}, "once"),
        ({"labels": ["color", 7]}, "labels"),
        ({"labels": {"color": 10, "number": 0}}, "sizes"),
        ({"labels": {"color": 10, "number": True}}, "sizes"),
        ({"n_groups": 2.5}, "n_groups"),
        ({"records_per_group": float("nan")}, "records_per_group"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_k_public": 1}, "top_k_public"),
        ({"budget": "sqlite:///a.db"}, "budget must be a PrivacyBudgetHandler"),
        ({"mechanism": "laplace"}, "decoder"),
        ({"unit_key": ""}, "unit_key"),
        ({"model": object()}, "NextTokenModel"),
    ],
)
def test_terms(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        generator_of(**changes)
    assert named in str(caught.value)


def test_budgets_that_can_not_pay() -> None:
    with pytest.raises(NoBudgetError, match="budget=PrivacyBudgetHandler"):
        generator_of(budget=None).generate(GOOD)
    with pytest.raises(InvalidParameterError, match="scope='corpus'"):
        generator_of(budget=budget_of(scope="unit")).generate(GOOD)
    for per_label in (0, 1.5, True):
        with pytest.raises(InvalidParameterError, match="per_label"):
            generator_of().generate(GOOD, per_label)
    weak, terms = budget_of(epsilon=0.1), {"n_groups": 2, "records_per_group": 30}
    with pytest.raises(PlanMismatchError, match="too small for one example"):
        generator_of(budget=weak, **terms).generate(GOOD)
    with pytest.warns(MostlyNoiseWarning, match="mostly chance"):
        generator_of(n_groups=4, records_per_group=15).generate(GOOD)


def test_with_declared_sizes_no_number_of_people_is_refused() -> None:
    corpora = [records_of(each) for each in (1, 59, 60, 300)]
    # A label that nobody has; one unit more; nobody.
    corpora += [corpora[1][:59], [*corpora[2], {"text": "red", "label": "color"}], []]
    for records in corpora:
        budget = budget_of(delta=1 / 121, people_at_most=120, epsilon=50)
        generator_of(budget=budget, labels=SIZES).generate(records)


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


class Panic(BaseException):
    """What a compiled extension raises."""


def raising(error: type[BaseException]) -> Callable[[Any], Any]:
    """Return what raises instead of an answer."""

    def fail(found: Any) -> Any:
        raise error("poison")

    return fail


BAD: dict[str, Any] = {
    "nothing": lambda found: None,
    "no number": lambda found: found * np.nan,
    "impossible": lambda found: found * -np.inf,
    "too much": lambda found: found + 5,
    "short": lambda found: found[:-1],
    "nested": lambda found: found[np.newaxis],
    "text": lambda found: ["a"] * len(found),
    "error": raising(ValueError),
    "ours": raising(PublicCallError),
    "panic": raising(Panic),
}


@pytest.mark.parametrize(
    ("tamper", "top"),
    [*((tamper, 6) for tamper in BAD.values()), (BAD["short"], None)],
    ids=[*BAD, "short of all"],
)
def test_what_is_no_log_probability_leaves_a_slot_out_or_costs_nothing(
    tamper: Any, top: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = watched_heights(monkeypatch)
    budget, spoiled = budget_of(), WordModel(lambda prompt, found: tamper(found))
    with pytest.raises((PublicCallError, Panic)):
        generator_of(spoiled, budget=budget, top_k_public=top).generate(GOOD)
    assert budget.spent().queries == 0

    def answer(prompt: Any, found: Any) -> Any:
        return tamper(found) if "BAD" in prompt.text else found

    # Everybody is in the sample, once.
    records = [{"text": f"red {n}", "label": "color"} for n in range(39)]
    records.append({"text": "red BAD", "label": "color"})
    model = WordModel(answer, ending=None)
    generator_of(model, labels=["color"], top_k_public=top).generate(records)
    # Noise may end the example before its fourth token.
    assert set(heights) == {19}
