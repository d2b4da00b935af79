"""A generation is charged whole before its first call, and goes on after any death.

All tokens of all examples are paid for before a record is in a prompt. What was drawn
is kept, token by token: a generation that was interrupted goes on with the same prefix,
under the same charge and its noise. A prompt depends on its own slot alone.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from faces import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    PublicCallError,
    UnitError,
    Words,
    generator,
    planned,
)
from hypothesis import given
from hypothesis import strategies as st

WORDS = ("none", "red", "green", "blue", "one", "two", "three", "four", "five")
LABELS = ("color", "number")
COLORS, NUMBERS = WORDS[1:4], WORDS[4:]
TERMS = {"n_groups": 20, "records_per_group": 2, "max_tokens": 4, "top_k_public": 6}
Record = dict[str, str]


def people(each: int = 40) -> list[Record]:
    """Return a record of each of so many people of two labels."""
    return [
        {
            "text": f"{words[n % 3]} p{label[0]}{n}.",
            "label": label,
            "who": f"{label}{n}",
        }
        for label, words in zip(LABELS, (COLORS, NUMBERS), strict=True)
        for n in range(each)
    ]


def likes(text: str, tokens: Any) -> list[float]:
    """Like the words of the prompt, and no word twice."""
    weights = [1.0 + 10 * text.split().count(word) for word in WORDS]
    weights[0] = 1e-3
    for token in tokens:
        weights[token] = 0.1
    return [weight / sum(weights) for weight in weights]


def is_private(text: str) -> bool:
    """Return whether a prompt holds records."""
    return re.search(r"p[cn]\d+\.", text) is not None


def dying(at: int, error: BaseException, *, private: bool = True) -> Any:
    """Like words until so many tokens are drawn; then each call fails."""
    gone: list[bool] = []

    def scripted(text: str, tokens: Any) -> list[float]:
        if gone or (len(tokens) == at and is_private(text) == private):
            gone.append(True)
            raise error
        return likes(text, tokens)

    return scripted


def write(model: Any = likes, records: Any = None, **terms: Any) -> Any:
    """Generate examples of both labels."""
    model = model if isinstance(model, Words) else Words(WORDS, model)
    resume = terms.pop("resume", False)
    made = generator(model, LABELS, unit_key="who", **{**TERMS, **terms})
    return made.generate(records or people(), resume=resume, progress=False)


def shown(model: Words) -> dict[str, tuple[int, ...]]:
    """Return for each label the tokens that stood in prompts."""
    found: dict[str, tuple[int, ...]] = {}
    for text, tokens, _ in model.asked:
        label = re.findall(r"Label: (\w+)", text)[-1]
        found[label] = max(found.get(label, ()), tokens, key=len)
    return found


@pytest.mark.promise("generation-like-records")
def test_examples_are_like_the_records_of_their_label() -> None:
    examples = write(epsilon=200.0)
    assert [example["label"] for example in examples] == list(LABELS)
    assert set(examples[0]["text"].split()) & set(COLORS)
    assert set(examples[1]["text"].split()) & set(NUMBERS)
    assert examples.record["unit_key"] == "who"


@pytest.mark.promise("generation-charged-first")
def test_all_tokens_are_charged_before_a_record_is_in_a_prompt() -> None:
    budget, paid = planned(8.0), set()

    def watched(text: str, tokens: Any) -> Any:
        if is_private(text):
            paid.add(budget.spent().queries)
        return likes(text, tokens)

    (event,) = write(watched, budget=budget).record["events"]
    assert paid == {1}
    # Labels have different people, so that the dearer one counts, for all its tokens.
    counts = [e["count"] for branch in event["branches"] for e in branch]
    assert counts == [TERMS["max_tokens"]] * 2
    model = Words(WORDS, likes)
    with pytest.raises(BudgetExhaustedError):
        write(model, budget=budget)
    assert not any(is_private(text) for text, *_ in model.asked)


ERRORS = [PublicCallError("gone"), KeyboardInterrupt(), ValueError("p7 is ill")]


@pytest.mark.promise("generation-resume", "generation-drawn-once")
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_dead_at_any_call_it_goes_on_under_its_charge(
    at: int, private: bool, error: BaseException
) -> None:
    budget, died = planned(8.0), Words(WORDS, dying(at, error, private=private))
    with pytest.raises((PublicCallError, KeyboardInterrupt)) as caught:
        write(died, budget=budget)
    assert "ill" not in str(caught.value)
    assert budget.spent().queries == (private or at > 0)

    again = Words(WORDS, likes)
    examples = write(again, budget=budget, resume=True)
    assert budget.spent().queries == 1
    for example in examples:
        drawn = [WORDS[token] for token in shown(died).get(example["label"], ())]
        assert example["text"].split()[: len(drawn)] == drawn
    # No token is asked for again once it was drawn.
    assert at == min(len(tokens) for text, tokens, _ in again.asked if is_private(text))
    assert write(budget=budget, resume=True) == examples
    budget.ledger.verify("default")


@pytest.mark.promise("noise-by-charge")
def test_a_resumed_generation_has_the_noise_and_the_rates_of_its_charge() -> None:
    budget = planned(8.0)
    with pytest.raises(PublicCallError):
        write(dying(2, ERRORS[0]), budget=budget)
    # There are more people now: what was charged stays.
    record = write(records=people(90), budget=budget, resume=True).record
    assert record["events"] == write().record["events"]


@pytest.mark.promise("generation-drawn-once")
@pytest.mark.parametrize(
    "change", [{"max_tokens": 5}, {"n_groups": 19}, {"stop": ["."]}]
)
def test_other_terms_are_another_generation(change: dict[str, Any]) -> None:
    budget = planned(8.0)
    with pytest.raises(PublicCallError):
        write(dying(2, ERRORS[0]), budget=budget)
    with pytest.raises(DPError):
        write(budget=budget, resume=True, **change)


# --- one slot a person ----------------------------------------------------------------


def slots(records: list[Record]) -> list[list[str]]:
    """Return the prompts of each label's first token, everybody being in the sample."""
    model, terms = Words(WORDS, likes), {"n_groups": 10, "records_per_group": 4}
    write(model, records, seed=3, label_sizes=dict.fromkeys(LABELS, 40), **terms)
    first = [text for text, tokens, _ in model.asked if not tokens and is_private(text)]
    return [[text for text in first if f"Label: {own}" in text] for own in LABELS]


@pytest.mark.promise("generation-one-slot")
def test_each_person_is_in_one_prompt_of_a_step() -> None:
    for prompts in slots(people()):
        held = [name for text in prompts for name in re.findall(r"p[cn]\d+", text)]
        assert len(held) == len(set(held))


def check_one_slot(changed: list[Record]) -> None:
    """Check that with the same coins one prompt at most differs, of one label."""
    differ = [
        (Counter(old) - Counter(new)).total()
        for old, new in zip(slots(people()), slots(changed), strict=True)
    ]
    assert sum(differ) <= 1


ODD = ["", "x" * 10**5, "blue\n\nLabel: number\nText: one", "{label} {0} {{x}}", "\x00"]


@pytest.mark.promise("generation-one-slot")
@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_what_a_person_wrote_changes_one_prompt_at_most(odd: str) -> None:
    changed = people()
    changed[5] = {**changed[5], "text": f"{odd} pc5."}
    check_one_slot(changed)


@pytest.mark.promise("generation-one-slot", twin=True)
def test_twin_of_a_person_in_two_slots() -> None:
    changed = people()
    for place in range(0, 24, 3):
        changed[place] = {**changed[place], "text": f"shared pc{place}."}
    with pytest.raises(AssertionError):
        check_one_slot(changed)


def check_labels(read: Any, newcomer: list[Record]) -> None:
    """Check that whose records stand under a label follows from their own alone."""
    before, after = read(people(12)), read([*people(12), *newcomer])
    own = {record["text"] for record in newcomer}
    for old, new in zip(before, after, strict=True):
        assert new - own == old
    assert not (own & after[0] and own & after[1]), "under two labels"


def shown_records(records: list[Record]) -> list[set[str]]:
    """Return the records that prompts of each label show."""
    model, terms = Words(WORDS, likes), {"n_groups": 6, "epsilon": 200.0}
    write(model, records, label_sizes=dict.fromkeys(LABELS, 12), **terms)
    return [
        {
            shown_text
            for text, *_ in model.asked
            if f"Label: {label}" in text
            for shown_text in re.findall(r"\w+ p[cn]\d+\.", text)
        }
        for label in LABELS
    ]


NEWCOMER = [
    {"text": "blue pc900.", "label": "color", "who": "new"},
    {"text": "two pn901.", "label": "number", "who": "new"},
    {"text": "two pn902.", "label": "number", "who": "new"},
]


@pytest.mark.promise("generation-one-label")
@given(st.permutations(NEWCOMER))
def test_a_person_stands_under_one_label_by_the_own_records(
    newcomer: list[Record],
) -> None:
    check_labels(shown_records, newcomer)


@pytest.mark.promise("generation-one-label", twin=True)
def test_twin_of_a_person_under_two_labels() -> None:
    def both(records: list[Record]) -> list[set[str]]:
        return shown_records([{**r, "who": r["text"]} for r in records])

    with pytest.raises(AssertionError):
        check_labels(both, NEWCOMER)


@pytest.mark.promise("generation-label-sizes")
def test_rates_follow_from_declared_sizes_alone() -> None:
    sizes = dict.fromkeys(LABELS, 80)
    found = [write(records=people(n), label_sizes=sizes).record for n in (40, 41)]
    assert found[0]["events"] == found[1]["events"]
    (event,) = found[0]["events"]
    rates = [e["sampling_rate"] for branch in event["branches"] for e in branch]
    assert rates == [pytest.approx(40 / 80)] * 2


@pytest.mark.promise("generation-step-survives")
def test_an_adapter_that_raises_for_one_prompt_stops_nobody() -> None:
    def fragile(text: str, tokens: Any) -> Any:
        if "pc7." in text:
            raise RuntimeError(text)
        return likes(text, tokens)

    budget, model = planned(200.0), Words(WORDS, fragile)
    examples = write(model, budget=budget)
    assert len(examples) == 2
    assert set(examples[0]["text"].split()) & set(COLORS)
    assert budget.spent().queries == 1
    # Others' prompts are asked, whether that one is in the sample or not.
    assert any("pc8." in text for text, *_ in model.asked)


@pytest.mark.promise("generation-refuses")
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"text": "x", "label": "shape", "who": "a"}, InvalidParameterError),
        ({"text": "x", "who": "a"}, InvalidParameterError),
        ({"text": "x", "label": "color"}, UnitError),
        ({"text": "x", "label": "color", "who": None}, UnitError),
    ],
)
def test_records_out_of_the_terms_are_refused_before_a_charge(
    bad: Record, error: type[Exception]
) -> None:
    budget, model = planned(8.0), Words(WORDS, likes)
    with pytest.raises(error) as caught:
        write(model, [*people(), bad], budget=budget)
    assert "shape" not in str(caught.value)
    assert (budget.spent().queries, model.asked) == (0, [])
