"""Released examples: a sequence that stays what was paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from support.released_parts import QUESTIONS, record, released

from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.released import ReleasedExamples


def test_it_is_a_sequence_of_mappings_for_everybody_else() -> None:
    examples = released()
    assert isinstance(examples, Sequence)
    assert len(examples) == len(QUESTIONS)
    assert all(isinstance(example, Mapping) for example in examples)
    assert examples[0] == QUESTIONS[0]
    assert QUESTIONS[1] in examples
    assert examples[1:3] == QUESTIONS[1:3]
    assert examples != QUESTIONS[1:]
    plain = [dict(example) for example in examples]
    assert json.loads(json.dumps(plain)) == QUESTIONS
    prompt = FewShotPromptTemplate(
        examples=plain,
        example_prompt=PromptTemplate.from_template("{text} {label}"),
        suffix="{text}",
    )
    assert prompt.format(text="Who?").startswith("Who wrote Hamlet? person\n\n")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("\ud800", "\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("e\u0301 \u202e \x00 \ufeff", "e\u0301 \u202e \x00 \ufeff"),
    ],
)
def test_text_that_no_encoding_can_write_is_repaired_and_not_lost(
    given: str, kept: str
) -> None:
    examples = released([{"text": given, "label": "a"}], mechanism=f"few {given}")
    assert examples[0]["text"] == kept
    assert examples.record["mechanism"] == f"few {kept}"
    examples[0]["text"].encode()


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([{"text": "a"}, {"text": "b", "label": "c"}], "Example 1 .*other keys"),
        ([{"text": "secret", "label": None}], "Example 0 .*of text"),
        ([{}], "not a dictionary"),
        ([{"": "secret"}], "of text"),
        ([{1: "secret"}], "of text"),
        (["secret"], "not a dictionary"),
        ([["text", "secret"]], "not a dictionary"),
        ([{"\ud800": "a", "\udfff": "b"}], "tell apart"),  # noqa: F601 - they differ.
    ],
)
def test_examples_of_another_shape_are_refused(examples: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as error:
        ReleasedExamples(examples, record())
    assert isinstance(error.value, DPError)
    assert "secret" not in str(error.value)
