"""Prompts: what a template says, of one slot's records alone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from support.few_shot_fakes import INSTRUCTION, WordModel, generator_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.prompts import LONGEST_TEXT, FewShotPrompts, template_of
from langchain_dpicl.mechanisms.random import seeded

ODD = "\u00e9\u0301\u202e\u200d\U0001f469\u200d\U0001f52c\x00\x85\u2028{}{{label}}%s"
"""Combining marks, a change of direction, joiners, control characters, braces."""

INJECTIONS = [
    "{label} {examples} {text}",
    "{0} {} {text!r}",
    "{{ 7 * 7 }} {% for x in y %}",
    "%(label)s",
    ODD,
]


def prompts(prompt: Any = INSTRUCTION, *, one_line: bool = False) -> FewShotPrompts:
    return FewShotPrompts(template_of(prompt), one_line=one_line)


def of(*shown: str, label: str = "color") -> list[Document]:
    return [Document(text, metadata={"label": label}) for text in shown]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (
            "Say {{braces}}. ",
            "Say {braces}.\n\nLabel: color\nText: a b\n\nLabel: color\nText:",
        ),
        ("A {label}:", "A color: a b\n\nA color:"),
        ("{examples}A {label}:", "A color: a b\n\nA color:"),
        ("Of {label}.\n{examples}Text:", "Of color.\nText: a b\n\nText:"),
        ("{{{label}}} {examples}", "{color}  a b\n\n"),
        (PromptTemplate.from_template("A {label}:"), "A color: a b\n\nA color:"),
    ],
)
def test_prompts_of_all_kinds(prompt: Any, expected: str) -> None:
    made = prompts(prompt)
    assert made.group("color", of("a b")) == expected
    assert made.group("color", []) == made.public("color")
    assert "a b" not in made.public("color")
    model = WordModel()
    generator_of(model, prompt=prompt, labels=["color"], records_per_group=1).generate(
        [{"text": "a b", "label": "color"}] * 60
    )
    assert expected in {prompt.text for call in model.calls for prompt in call}


@pytest.mark.parametrize(
    "prompt",
    [
        *("", "  ", None, 7, "{label} {other}", "Subject: {labels}", "{label"),
        *("{examples} {Label}", "{examples} only", "{examples}{examples}{label}"),
        *("{label!r}", "{label:>9}", "{}", "}"),
        PromptTemplate.from_template("{label} {examples} {other}"),
        PromptTemplate.from_template("{tone} {label}:").partial(tone="A kind"),
        PromptTemplate.from_template("{{ label }}", template_format="jinja2"),
        ChatPromptTemplate.from_template("{label} {examples}"),
    ],
)
def test_what_is_no_such_template_is_refused(prompt: Any) -> None:
    with pytest.raises(InvalidParameterError):
        generator_of(prompt=prompt)


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("prompt", ["Write {{braces}}.", "A {label}:"])
def test_a_records_text_is_never_a_template(prompt: str, text: str) -> None:
    assert prompts(prompt).group("color", of(text, text)).count(text) == 2


class Large(str):
    """A text that must not be gone through as a whole."""

    __slots__ = ()

    def split(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("A megabyte was split.")

    strip = lstrip = rstrip = splitlines = __iter__ = split  # type: ignore[assignment]


@pytest.mark.parametrize("one_line", [True, False])
def test_a_text_of_a_megabyte_is_cut_before_anything_else(one_line: bool) -> None:
    made = prompts(one_line=one_line)
    record = Document.model_construct(
        page_content=Large("ab \n" * 250_000), metadata={"label": "color"}
    )
    shown = made.group("color", [record, *of("z" * 10**6)])
    assert shown.count("z") == LONGEST_TEXT
    assert ("ab ab ab" if one_line else "ab \nab \nab") in shown


def test_a_text_is_shown_in_one_line_where_a_line_ends_it() -> None:
    assert " a b c\n" in prompts(one_line=True).group("x", of("a  b\n\tc "))
    assert " a  b\n\tc \n" in prompts().group("x", of("a  b\n\tc "))


CHANGED = ["x", "x" * 10**6, "", *INJECTIONS]


@pytest.mark.parametrize("text", CHANGED, ids=range(len(CHANGED)))
def test_a_slots_prompt_depends_on_that_slot_alone(text: str) -> None:
    def asked(first: str) -> list[str]:
        model = WordModel(ending=None)
        records = [{"text": f"{n}", "label": "color"} for n in range(60)]
        records[0]["text"] = f"{first} me"
        with seeded(3):
            made = generator_of(model, labels={"color": 60}, records_per_group=3)
            made.generate(records)
        return [prompt.text for prompt in model.calls[0]]

    differ = [a != b for a, b in zip(asked("first"), asked(text), strict=True)]
    assert sum(differ) == 1


def test_a_crowded_slot_is_cut_by_its_public_size() -> None:
    model = WordModel(ending=None)
    records = [{"text": "x", "label": "color"}] * 900
    # Far more people than were declared: everybody is in the sample.
    generator_of(model, labels={"color": 40}).generate(records)
    counts = {prompt.text.count("Text:") for call in model.calls for prompt in call}
    assert max(counts) == 4 * 2 + 8 + 1
