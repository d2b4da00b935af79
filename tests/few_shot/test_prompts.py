"""Records and prompts: what is read, and what a group's prompt says of it."""

from __future__ import annotations

import unicodedata
from typing import Any

import pandas as pd
import pytest
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from support.few_shot_fakes import (
    INSTRUCTION,
    WordModel,
    budget_of,
    generator_of,
    records_of,
)

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.few_shot.records import LONGEST_TEXT, FewShotPrompts, template_of

GOOD = records_of()
ODD = "\u00e9\u0301\u202e\u200d\U0001f469\u200d\U0001f52c\x00\x85\u2028{}{{label}}%s"
"""Combining marks, a change of direction, joiners, control characters, braces."""

INJECTIONS = ["{label} {examples} {text}", "{0} {} {text!r}", "{% for x in y %}", ODD]


def prompts(prompt: Any = INSTRUCTION, *, one_line: bool = False) -> FewShotPrompts:
    return FewShotPrompts(template_of(prompt), one_line=one_line)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (
            "Say {{braces}}. ",
            "Say {braces}.\n\nLabel: color\nText: a b\n\nLabel: color\nText:",
        ),
        ("A {label}:", "A color: a b\n\nA color:"),
        ("Of {label}.\n{examples}Text:", "Of color.\nText: a b\n\nText:"),
        ("{{{label}}} {examples}", "{color}  a b\n\n"),
        (PromptTemplate.from_template("A {label}:"), "A color: a b\n\nA color:"),
    ],
)
def test_prompts_of_all_kinds(prompt: Any, expected: str) -> None:
    made = prompts(prompt)
    assert made.group("color", [Document("a b")]) == expected
    assert made.group("color", []) == made.public("color")
    assert "a b" not in made.public("color")


@pytest.mark.parametrize(
    "prompt",
    [
        *("", "  ", None, 7, "{label} {other}", "Subject: {labels}", "{label"),
        *("{examples} {Label}", "{examples} only", "{examples}{examples}{label}"),
        *("{label!r}", "{label:>9}", "{}", "}"),
        PromptTemplate.from_template("{tone} {label}:").partial(tone="A kind"),
        PromptTemplate.from_template("{{ label }}", template_format="jinja2"),
        ChatPromptTemplate.from_template("{label} {examples}"),
    ],
)
def test_what_is_no_such_template_is_refused(prompt: Any) -> None:
    with pytest.raises(InvalidParameterError, match="prompt must be"):
        generator_of(prompt=prompt)


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_records_text_is_never_a_template(text: str) -> None:
    assert prompts("A {label}:").group("color", [Document(text)] * 2).count(text) == 2


class Large(str):
    """A text that must not be gone through as a whole."""

    __slots__ = ()

    def split(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("A megabyte was split.")

    strip = lstrip = rstrip = splitlines = __iter__ = split  # type: ignore[assignment]


@pytest.mark.parametrize("one_line", [True, False])
def test_a_text_is_cut_before_anything_else_and_shown_in_one_line_where_a_line_ends_it(
    one_line: bool,
) -> None:
    large = Document.model_construct(page_content=Large("ab \n" * 250_000))
    shown = prompts(one_line=one_line).group("x", [large, Document("z" * 10**6)])
    assert shown.count("z") == LONGEST_TEXT
    assert ("ab ab ab" if one_line else "ab \nab \nab") in shown


def test_a_crowded_slot_is_cut_by_its_public_size() -> None:
    model = WordModel(ending=None)
    # Far more people than were declared: everybody is in the sample.
    generator_of(model, labels={"color": 40}).generate(
        [{"text": "x", "label": "color"}] * 900
    )
    counts = {prompt.text.count("Text:") for call in model.calls for prompt in call}
    assert max(counts) == 4 * 2 + 8 + 1


def test_documents_and_ids_in_several_spellings_are_read() -> None:
    composed = "Jos\u00e9"
    spelled = [composed, unicodedata.normalize("NFD", composed), f"\t{composed}\n"]
    documents = [
        Document(
            f"red p{n % 40}.",
            # A document's text is its content, whatever its metadata holds.
            metadata={"label": "color", "who": who, "text": "other", "x": [1]},
        )
        for n in range(120)
        for who in [n % 40 or spelled[n // 40]]
    ]
    model = WordModel(ending=None)
    made = generator_of(model, labels=["color"], unit_key="who")
    record = made.generate(iter(documents)).record
    # 40 units, not 120 records, set the rate; one record of each is shown.
    assert record["events"][0]["sampling_rate"] == 1.0
    assert "who" in record["unit"]
    for call in model.calls:
        words = " ".join(prompt.text for prompt in call[:-1]).split()
        held = [word for word in words if word.startswith("p")]
        assert len(held) == len(set(held)) == 40
        assert "other" not in words


@pytest.mark.parametrize(
    ("records", "error", "named"),
    [
        ("text", InvalidParameterError, "records"),
        ({"text": "x", "label": "color"}, InvalidParameterError, "records"),
        (pd.DataFrame(GOOD), InvalidParameterError, "records[0] is a str"),
        ([*GOOD, {"label": "color"}], InvalidParameterError, "records[120]"),
        ([*GOOD, {"text": " ", "label": "color"}], InvalidParameterError, "'text'"),
        ([*GOOD, {"text": "secret"}], InvalidParameterError, "'label'"),
        ([*GOOD, {"text": "secret", "label": "x"}], InvalidParameterError, "not in la"),
        ([*GOOD, {"text": "secret", "label": 1}], InvalidParameterError, "a number"),
        ([*GOOD, Document("secret")], InvalidParameterError, "'label'"),
        ([*GOOD, {"text": "a", "label": "color", "who": 1}], UnitError, "unit_key="),
        ([], UnitError, "no records"),
        (GOOD[:70], UnitError, "'number' has 10 units and n_groups is 20"),
        (GOOD[:85], InvalidParameterError, "Label 'number': 20 groups of 2 need 40"),
    ],
)
def test_records_that_can_not_be_used(
    records: Any, error: type[Exception], named: str
) -> None:
    budget, model = budget_of(), WordModel()
    with pytest.raises(error) as caught:
        generator_of(model, budget=budget).generate(records)
    assert "secret" not in str(caught.value)
    assert named in str(caught.value)
    assert (budget.spent().queries, model.calls, model.top_calls) == (0, [], [])


@pytest.mark.parametrize("value", [None, "  ", 1.5, ["a"], True])
def test_unit_ids(value: Any) -> None:
    records = [{**record, "who": n} for n, record in enumerate(GOOD)]
    records[7]["who"] = value
    with pytest.raises(UnitError, match=r"records\[7\]"):
        generator_of(unit_key="who").generate(records)
