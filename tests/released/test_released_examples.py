"""Released examples: a list that stays what was paid for."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from support.released_parts import QUESTIONS, public_record, record, released

from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.released import ReleasedExamples

MINE = {"text": "What Ann told me", "label": "person"}

CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda x: x.append(MINE),
    "extend": lambda x: x.extend([MINE]),
    "insert": lambda x: x.insert(0, MINE),
    "pop": lambda x: x.pop(),
    "remove": lambda x: x.remove(QUESTIONS[0]),
    "clear": lambda x: x.clear(),
    "sort": lambda x: x.sort(key=len),
    "reverse": lambda x: x.reverse(),
    "set": lambda x: operator.setitem(x, 0, MINE),
    "set a slice": lambda x: operator.setitem(x, slice(None), [MINE]),
    "delete": lambda x: operator.delitem(x, 0),
    "+=": lambda x: operator.iadd(x, [MINE]),
    "*=": lambda x: operator.imul(x, 2),
    "made again": lambda x: x.__init__([MINE], record()),
    "an example's key": lambda x: operator.setitem(x[0], "text", "mine"),
    "an example's deletion": lambda x: operator.delitem(x[0], "text"),
    "an example's |=": lambda x: operator.ior(x[0], MINE),
    "an example's update": lambda x: x[0].update(MINE),
    "an example's setdefault": lambda x: x[0].setdefault("more", "mine"),
    "an example's pop": lambda x: x[0].pop("text"),
    "an example's popitem": lambda x: x[0].popitem(),
    "an example's clear": lambda x: x[0].clear(),
}

AROUND: dict[str, Callable[[Any], Any]] = {
    "append": lambda x: list.append(x, MINE),
    "something else": lambda x: list.append(x, None),
    "a set": lambda x: list.append(x, {1, 2}),
    "reverse": list.reverse,
    "an example": lambda x: dict.update(x[0], text="mine"),
    "an example's __init__": lambda x: x[0].__init__(text="mine"),
    "list's __init__": lambda x: list.__init__(x, [MINE]),
    "nothing left": list.clear,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused_and_changes_nothing(change: str) -> None:
    examples = released()
    with pytest.raises(
        InvalidParameterError, match=r"can't be changed.*list\(examples\)"
    ):
        CHANGES[change](examples)
    assert examples == QUESTIONS
    examples.verify()


def test_every_method_that_changes_a_list_or_a_dict_is_among_the_refused() -> None:
    harmless_list = {"copy", "count", "index"}
    harmless_dict = {"copy", "fromkeys", "get", "items", "keys", "values"}
    for kind, harmless, example in (
        (list, harmless_list, released()),
        (dict, harmless_dict, released()[0]),
    ):
        names = {name for name in vars(kind) if not name.startswith("__")}
        names |= {"__setitem__", "__delitem__"}
        names |= {n for n in vars(kind) if n in ("__iadd__", "__imul__", "__ior__")}
        for name in names - harmless:
            with pytest.raises(InvalidParameterError):
                getattr(example, name)(0, 0)


@pytest.mark.parametrize("change", AROUND)
def test_a_change_around_the_class_is_noticed(change: str, tmp_path: Any) -> None:
    examples = released()
    AROUND[change](examples)
    uses: list[Callable[[], object]] = [
        examples.verify,
        lambda: examples.record,
        lambda: examples.save(tmp_path / "examples.json"),
        examples.selector,
        lambda: pickle.dumps(examples),
    ]
    for use in uses:
        with pytest.raises(
            InvalidParameterError, match="not the ones that were released"
        ):
            use()
    assert not list(tmp_path.iterdir())


def test_it_is_a_list_of_dictionaries_for_everybody_else() -> None:
    examples = released()
    assert isinstance(examples, list)
    assert len(examples) == len(QUESTIONS)
    assert all(isinstance(example, dict) for example in examples)
    assert examples == QUESTIONS
    assert examples[0] == QUESTIONS[0]
    assert QUESTIONS[1] in examples
    assert json.loads(json.dumps(examples)) == QUESTIONS
    prompt = FewShotPromptTemplate(
        examples=examples,
        example_prompt=PromptTemplate.from_template("{text} {label}"),
        suffix="{text}",
    )
    assert prompt.format(text="Who?").startswith("Who wrote Hamlet? person\n\n")


@pytest.mark.parametrize(
    "derive",
    [
        list,
        lambda x: x[:],
        lambda x: x[1:3],
        lambda x: x.copy(),
        lambda x: x + [MINE],  # noqa: RUF005 - the operator is what is tested.
        lambda x: x * 2,
        lambda x: sorted(x, key=lambda example: example["text"]),
    ],
)
def test_what_is_derived_has_no_record_and_may_be_changed(
    derive: Callable[[Any], list[Any]],
) -> None:
    derived = derive(released())
    assert type(derived) is list
    derived.append(MINE)
    own = dict(derived[0])
    own["text"] = "mine"
    assert type(released()[0].copy()) is dict
    assert type(released()[0] | MINE) is dict


def test_copies_are_the_release_itself_and_pickles_keep_the_record() -> None:
    examples = released()
    assert copy.copy(examples) is examples
    assert copy.deepcopy({"a": examples})["a"] is examples
    assert copy.deepcopy(examples[0]) is examples[0]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(examples, protocol))
        assert again == examples
        assert type(again) is ReleasedExamples
        assert (again.record, again.digest) == (examples.record, examples.digest)
        with pytest.raises(InvalidParameterError):
            again[0]["text"] = "mine"
    assert pickle.loads(pickle.dumps(examples[0])) == QUESTIONS[0]


def test_the_record_is_handed_out_as_copies() -> None:
    made = record()
    examples = ReleasedExamples.of(QUESTIONS, made)
    digest = examples.digest
    made["epsilon"] = 0.1
    examples.record["epsilon"] = 0.1
    examples.record["parameters"]["labels"].append("mine")
    assert examples.record == record()
    assert examples.digest == digest


def test_the_digest_tells_releases_apart_and_not_the_order_of_keys() -> None:
    digest = released().digest
    assert released().digest == digest
    turned = [dict(reversed(example.items())) for example in QUESTIONS]
    assert released(turned).digest == digest
    assert released(QUESTIONS[:-1]).digest != digest
    assert released(QUESTIONS[::-1]).digest != digest
    assert released(model="another").digest != digest


def test_the_repr_shows_the_guarantee_and_no_text() -> None:
    shown = repr(released())
    assert "6 examples" in shown
    assert f"epsilon={record()['epsilon']:.6g}" in shown
    assert "delta=1e-05" in shown
    assert "patient_id" in shown
    assert "Hamlet" not in shown
    assert len(shown) < 200


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


def test_a_release_that_was_interrupted_at_once_is_empty() -> None:
    assert released([]) == []
    assert released([]).record == record()


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([{"text": "a"}, {"text": "b", "label": "c"}], "Example 1 .*other keys"),
        ([{"text": "secret", "label": None}], "Example 0 .*'label'"),
        ([{"text": 1}], "holds no text"),
        ([{}], "not a dictionary"),
        ([{"": "secret"}], "key that is not text"),
        ([{1: "secret"}], "key that is not text"),
        (["secret"], "not a dictionary"),
        (["secret", "other"], "not a dictionary"),
        ([None], "not a dictionary"),
        ([["text", "secret"]], "not a dictionary"),
        ([{"\ud800": "a", "\udfff": "b"}], "two keys"),  # noqa: F601 - they differ.
    ],
)
def test_examples_of_another_shape_are_refused(examples: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as error:
        ReleasedExamples.of(examples, record())
    assert isinstance(error.value, DPError)
    assert "secret" not in str(error.value)


def test_public_examples_are_a_release_that_cost_nothing() -> None:
    examples = ReleasedExamples.of(QUESTIONS, public_record())
    assert examples.record["epsilon"] == 0
    assert "epsilon=0" in repr(examples)
