"""Prompts: what LangChain's own templates write, of one slot's records alone."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from support.few_shot_fakes import INSTRUCTION, budget_of, generator_of, records_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.prompting import FewShotPrompting, _writer
from langchain_dpicl.few_shot.records import LABEL
from langchain_dpicl.release.flow import result
from langchain_dpicl.sealed import Hidden

ODD = "\u00e9\u0301\u202e\u200d\U0001f469\u200d\U0001f52c\x00\x85\u2028{}{{label}}%s"
"""Combining marks, a change of direction, joiners, control characters, braces."""

texts = st.text(max_size=12) | st.sampled_from([ODD, "{", "}", "{{}}", "{x}", "%(a)s"])
fields = st.sampled_from(
    [
        "{label}",
        "{examples}",
        "{label:}",
        "{label!r}",
        "{label!s}",
        "{label!a}",
        "{label:>12}",
        "{examples:.3}",
        "{label!r:^20}",
    ]
)
literals = texts.map(lambda text: text.replace("{", "{{").replace("}", "}}"))
templates = st.lists(fields | literals, max_size=7).map("".join)


@settings(deadline=None, max_examples=200)
@given(templates, texts, texts)
def test_a_compiled_template_writes_what_langchain_does(
    template: str, examples: str, label: str
) -> None:
    prompt = PromptTemplate.from_template(template)
    values = {"examples": examples, "label": label}
    assert _writer(prompt)(values) == prompt.format(**values)


@settings(deadline=None, max_examples=25)
@given(texts, texts)
def test_so_does_a_jinja2_template(examples: str, label: str) -> None:
    prompt = PromptTemplate.from_template(
        "{% if examples %}{{ examples|upper }}{% endif %}[{{ label }}]",
        template_format="jinja2",
    )
    values = {"examples": examples, "label": label}
    assert _writer(prompt)(values) == prompt.format(**values)


def test_a_quick_writer_is_not_langchains_own() -> None:
    # Without this the comparison above would compare LangChain with itself.
    quick = _writer(PromptTemplate.from_template("{examples}{label}"))
    assert "template" not in quick.__code__.co_freevars
    slow = _writer(PromptTemplate.from_template("{examples}{label!r}"))
    assert "template" in slow.__code__.co_freevars


def prompting(prompt: Any = INSTRUCTION, example: Any = None, **more: Any) -> Any:
    terms = {"longest": 40, "one_line": False, **more}
    return FewShotPrompting.read(prompt, example, **terms)


def of(*shown: str, label: str = "color") -> list[Document]:
    return [Document(text, metadata={LABEL: label}) for text in shown]


INJECTIONS = [
    "{label} {examples} {text}",
    "{0} {} {text!r}",
    "{{ 7 * 7 }} {% for x in y %}",
    "{{examples}}",
    "%(label)s",
    ODD,
]


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize(
    ("prompt", "example"),
    [
        ("Write {{braces}}.", None),
        ("A {label}:", None),
        ("{examples}A {label}:", "{text} is {label};"),
        ("{examples}A {label}:", "{text!s} is {label};"),
        (
            PromptTemplate.from_template(
                "{{ examples }}{{ label }}", template_format="jinja2"
            ),
            PromptTemplate.from_template("<{{ text }}>", template_format="jinja2"),
        ),
    ],
)
def test_a_records_text_is_never_a_template(
    prompt: Any, example: Any, text: str
) -> None:
    written = prompting(prompt, example).group("color", of(text, text))
    assert written.count(text[:40]) == 2


def test_a_prompt_of_no_records_is_the_public_one() -> None:
    for prompt in ("Say it.", "A {label}:", "{examples}|{label}"):
        made = prompting(prompt)
        assert made.group("color", []) == made.public("color")


def test_variables_that_were_bound_stay_bound() -> None:
    bound = PromptTemplate.from_template("{tone} {label}:").partial(tone="A kind")
    made = prompting(bound)
    assert made.public("color") == "A kind color:"
    assert made.group("color", of("red")) == "A kind color: red\n\nA kind color:"
    whole = PromptTemplate.from_template("{tone}\n{examples}{label}").partial(tone="T")
    assert prompting(whole, "{text};").group("x", of("red")) == "T\nred;x"


def test_templates_of_other_kinds_are_asked_to_format() -> None:
    nested = FewShotPromptTemplate(
        examples=[{"q": "1"}],
        example_prompt=PromptTemplate.from_template("q{q}"),
        suffix="{examples}{label}",
        input_variables=["examples", "label"],
        example_separator="/",
    )
    assert prompting(nested, "{text}.").group("x", of("red")) == "q1/red.x"


class Large(str):
    """A text that must not be gone through as a whole."""

    __slots__ = ()

    def split(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("A megabyte was split.")

    strip = lstrip = rstrip = splitlines = __iter__ = split  # type: ignore[assignment]


@pytest.mark.parametrize("one_line", [True, False])
def test_a_text_of_a_megabyte_is_cut_before_anything_else(one_line: bool) -> None:
    made = prompting(longest=10, one_line=one_line)
    large = Large("ab \n" * 250_000)
    assert made._shortened(large) == ("ab ab ab a" if one_line else "ab \nab \nab")
    shown = made.group("color", of("q" * 1_000_000, "z" * 1_000_000))
    assert (shown.count("q"), shown.count("z")) == (10, 10)


def test_shortening_is_a_function_of_one_text() -> None:
    made = prompting(longest=5, one_line=True)
    assert made._shortened("a  b\n\tc d") == "a b c"
    assert made._shortened("abcdefgh") == "abcde"
    assert len(made._shortened("\U0001f469" * 9)) == 5


class Slots:
    """Draws what it was given."""

    def __init__(self, slots: list[list[Document]]) -> None:
        self.slots = slots

    def draw_prepared(self, prepared: None) -> list[list[Document]]:
        return self.slots

    def draw_shared(self) -> list[list[Document]]:
        return self.slots


def asked_of(slots: list[list[Document]], template: Any = INSTRUCTION) -> Any:
    made = generator_of(
        labels=["color"], budget=budget_of(accounting="renyi", epsilon=50)
    )
    records = [record for record in records_of() if record["label"] == "color"]
    order = made._order(Hidden(records), 1, resume=False)
    begun = result(order.begin())
    step = begun._step(result(begun.asking.top(begun.drafts)))
    step = dataclasses.replace(
        step,
        sources={"color": Slots(slots)},
        prompting=prompting(template),
    )
    return step.draw()


def prompts_of(slots: list[list[Document]]) -> list[str]:
    return [prompt.text for prompt in asked_of(slots).prompts]


@pytest.fixture(scope="module")
def alone() -> list[str]:
    return prompts_of([of("red"), of("green", "blue"), []])


@pytest.mark.parametrize(
    "changed", [[], of("x"), of("x" * 10**6), of(*"abcdefgh" * 40), of(*INJECTIONS)]
)
def test_a_slots_prompt_depends_on_that_slot_alone(
    alone: list[str], changed: list[Document]
) -> None:
    found = prompts_of([of("red"), changed, []])
    assert [found[0], *found[2:]] == [alone[0], *alone[2:]]
    assert len(found) == 4, "three groups and the public prompt"
    assert found[1] != alone[1]
    assert found[-1] == found[-2]


def test_a_slot_whose_template_fails_is_left_out_and_no_other() -> None:
    class Failing(PromptTemplate):
        def format(self, **values: Any) -> str:
            if "BAD" in values["examples"]:
                raise RuntimeError(values["examples"])
            return super().format(**values)

    template = Failing.from_template("{examples}{label}")
    asked = asked_of([of("red"), of("BAD"), of("blue")], template)
    # It asks without records, so that no other moves, and has no say.
    red, bad, blue, public = (prompt.text for prompt in asked.prompts)
    assert "red" in red
    assert "blue" in blue
    assert bad == public
    assert asked.slots == [[0, None, 2]]


def test_a_crowded_slot_is_cut_by_its_public_size() -> None:
    found = prompts_of([of(*map(str, range(500))), of("red")])
    assert found[0].count("Text:") == 4 * 2 + 8 + 1
    assert "Text: red" in found[1]


def test_a_subclass_with_a_format_of_its_own_is_asked() -> None:
    class Loud(PromptTemplate):
        def format(self, **values: Any) -> str:
            return super().format(**values).upper()

    template = "{examples}{label}"
    loud = prompting(Loud.from_template(template))
    assert loud.public("x") == "X"
    # Or a generation with one would be gone on with by the other.
    assert loud.templates() != prompting(template).templates()
    assert json.dumps(loud.templates())


def test_bound_functions_are_refused() -> None:
    # What they return could be another prompt for every group, and in every process.
    bound = PromptTemplate.from_template("{day} {label}:").partial(day=lambda: "Today")
    with pytest.raises(InvalidParameterError, match="not functions"):
        prompting(bound)


def test_an_unusable_template_is_named() -> None:
    with pytest.raises(InvalidParameterError, match="example_prompt"):
        prompting(example="{unclosed")
