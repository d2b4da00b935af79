"""Whose answer is whose in the reply to a list of prompts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.outputs import Generation, LLMResult
from langchain_openai import AzureOpenAI, OpenAI
from support.fakes import ScriptedModel

from langchain_dpicl.common.slots import ABSTAIN, FAILED, Slot
from langchain_dpicl.errors import GroupCallError, InvalidParameterError
from langchain_dpicl.sealed.lists import (
    _by_number,
    _in_order,
    _is_numbered,
    aask_list,
    ask_list,
    require_lists,
)


def openai(kind: Any = OpenAI, **more: Any) -> Any:
    return kind(model="none", api_key="none", **more)


class OwnCalls(OpenAI):
    def _generate(self, *args: Any, **kwargs: Any) -> LLMResult:
        return super()._generate(*args, **kwargs)


class OwnAsyncCalls(OpenAI):
    async def _agenerate(self, *args: Any, **kwargs: Any) -> LLMResult:
        return await super()._agenerate(*args, **kwargs)


class OwnName(OpenAI):
    """Changes nothing of the calls."""


def azure() -> Any:
    terms = {"azure_endpoint": "https://none.invalid", "api_version": "1"}
    return AzureOpenAI(model="none", api_key="none", **terms)


def test_only_calls_that_are_langchains_own_are_numbered() -> None:
    numbered = [openai(), openai(OwnName), azure(), openai(OwnCalls)]
    assert [_is_numbered(model) for model in numbered] == [True, True, True, False]
    assert not _is_numbered(openai(OwnAsyncCalls))
    assert not _is_numbered(ScriptedModel())
    for model in numbered[:3]:
        require_lists(model)
    for kind in (OwnCalls, OwnAsyncCalls):
        with pytest.raises(InvalidParameterError, match=f"must be 1: {kind.__name__}"):
            require_lists(openai(kind))
    with pytest.raises(InvalidParameterError, match="streams one prompt at a time"):
        require_lists(openai(streaming=True))


# -- by their numbers ------------------------------------------------------------------


def reply(*choices: tuple[Any, Any]) -> dict[str, Any]:
    return {"choices": [{"index": i, "text": text} for i, text in choices]}


def test_answers_are_sorted_by_their_numbers() -> None:
    mixed = reply((2, "c"), (0, "a"), (1, " "))
    assert _by_number(mixed, 3, {}) == [Slot("a"), ABSTAIN, Slot("c")]
    assert _by_number(mixed, 3, {"n": None}) == _by_number(mixed, 3, {"n": 1})
    pairs = reply((3, "d"), (2, "c"), (1, "b"), (0, "a"))
    assert _by_number(pairs, 2, {"n": 2}) == [Slot("a"), Slot("c")]
    three = reply(*((n, str(n)) for n in range(6)))
    assert _by_number(three, 2, {"n": 3}) == [Slot("0"), Slot("3")]


@pytest.mark.parametrize("text", [None, 3, b"a", ["a"]])
def test_an_answer_that_is_no_text_fails_alone(text: Any) -> None:
    assert _by_number(reply((0, "a"), (1, text)), 2, {}) == [Slot("a"), FAILED]


@pytest.mark.parametrize(
    "choices",
    [
        [(0, "a")],
        [(0, "a"), (2, "b")],
        [(1, "a"), (2, "b")],
        [(-1, "a"), (0, "b")],
        [(0, "a"), (1, "b"), (2, "c")],
        [(0, "a"), (1, "b"), (1, "c")],
        [(0, "a"), (True, "b")],
        [(False, "a"), (1, "b")],
        [(0, "a"), (1.0, "b")],
        [(0, "a"), ("1", "b")],
        [(None, "a"), (1, "b")],
        [],
    ],
)
@pytest.mark.parametrize("n", [None, 1])
def test_numbers_that_are_not_those_of_the_prompts_fail_all(
    choices: list[Any], n: int | None
) -> None:
    with pytest.raises(GroupCallError, match="not numbered"):
        _by_number(reply(*choices), 2, {"n": n})


def test_as_many_candidates_as_were_asked_for_must_come() -> None:
    short = reply((0, "a"), (1, "b"))
    with pytest.raises(GroupCallError, match="not numbered"):
        _by_number(short, 2, {"n": 2})
    with pytest.raises(GroupCallError, match="not numbered"):
        _by_number(reply((0, "a"), (1, "b"), (2, "c"), (3, "d")), 2, {"n": 1})


class Body:
    """A reply of the SDK, which warns of what a server added unless told not to."""

    def __init__(self) -> None:
        self.how: list[dict[str, Any]] = []

    def model_dump(self, **how: Any) -> dict[str, Any]:
        self.how.append(how)
        return reply((1, "b"), (0, "a"))


def test_a_reply_of_the_sdk_is_read_without_warnings() -> None:
    body = Body()
    assert _by_number(body, 2, {}) == [Slot("a"), Slot("b")]
    assert body.how == [{"warnings": False}]


async def test_the_clients_are_asked_with_the_models_own_parameters() -> None:
    asked: list[dict[str, Any]] = []

    def create(**given: Any) -> Any:
        asked.append(given)
        return reply((1, "b"), (0, "a"))

    async def acreate(**given: Any) -> Any:
        return create(**given)

    model = openai(temperature=0.25, max_tokens=9)
    model.client = SimpleNamespace(create=create)
    model.async_client = SimpleNamespace(create=acreate)
    wanted = [Slot("a"), Slot("b")]
    bound = {"temperature": 0.5, "logit_bias": {}}
    assert ask_list(model, ["x", "y"], ["end"], bound) == wanted
    assert await aask_list(model, ["x", "y"], ["end"], bound) == wanted
    assert asked[0] == asked[1]
    assert asked[0]["prompt"] == ["x", "y"]
    assert asked[0]["stop"] == ["end"]
    assert asked[0]["temperature"] == 0.5
    assert asked[0]["logit_bias"] == {}
    assert asked[0]["max_tokens"] == 9


# -- by their order --------------------------------------------------------------------


def lists(*counts: int) -> list[list[Generation]]:
    return [
        [Generation(text=f"{place} {n}") for n in range(count)]
        for place, count in enumerate(counts)
    ]


@pytest.mark.parametrize("candidates", [1, 2, 3])
@pytest.mark.parametrize("prompts", [1, 2, 5])
def test_the_first_candidate_of_each_prompt_counts(
    candidates: int, prompts: int
) -> None:
    found = _in_order(lists(*[candidates] * prompts), prompts)
    assert found == [Slot(f"{place} 0") for place in range(prompts)]


@pytest.mark.parametrize(
    "counts", [(1,), (1, 1, 1), (1, 2), (2, 1), (0, 1), (0, 0), ()]
)
def test_another_number_of_answers_fails_all(counts: tuple[int, ...]) -> None:
    with pytest.raises(GroupCallError, match="another number"):
        _in_order(lists(*counts), 2)
