"""What a completions server may do wrong: said before a private call, or one slot."""

from __future__ import annotations

import dataclasses
import logging
import math
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tokenizers
from langchain_openai import ChatOpenAI, OpenAI
from support.servers.recording_proxy import Answer, Drop, Exchange
from support.servers.scripted_provider import KEY
from support.servers.scripted_tokens import (
    SIZE,
    Letters,
    TokenServer,
    decode,
    log_probs,
)

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.model import TokenPrompt
from langchain_dpicl.few_shot.vllm import OpenAICompatibleNextToken
from langchain_dpicl.sealed import sealed

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]

CANARY = "Zebra-7431"
PRIVATE = [TokenPrompt(f"{CANARY} {i} Sentence:") for i in range(6)]
OTHERS = [TokenPrompt(f"Harmless {i} Sentence:") for i in range(6)]
TOKENS = np.array([5, 6, 7])
SERVERS_WORDS = "own words"


class Shifted(Letters):
    """The tokenizer of another model."""

    def encode(self, text: str) -> list[int]:
        return [(token + 1) % SIZE for token in super().encode(text)]


def texts_of(exchange: Exchange) -> str:
    """Return the texts whose tokens are asked about."""
    prompts = exchange.body.get("prompt", [])
    return " ".join(p if isinstance(p, str) else decode(p) for p in prompts)


def without_ids(_ids: list[int], choice: dict[str, Any]) -> dict[str, Any]:
    """Leave out which tokens the prompt has."""
    return {key: kept for key, kept in choice.items() if key != "prompt_token_ids"}


def told(figures: dict[int, Any]) -> dict[str, Any]:
    top = {f"token_id:{token}": value for token, value in figures.items()}
    return {"tokens": ["token_id:5"], "top_logprobs": [top]}


Wrong = tuple[Any, dict[str, Any], type[Exception], str]
WRONG: dict[str, Wrong] = {
    "key": (TokenServer(), {"llm": {"api_key": "x"}}, PublicCallError, "api_key"),
    "model": (TokenServer(), {"llm": {"model": "x"}}, InvalidParameterError, "no such"),
    "silent": (TokenServer(silent=True), {}, PublicCallError, "no log-prob"),
    "few": (TokenServer(most=4), {}, PublicCallError, "--max-logprobs 10"),
    "capped": (TokenServer(most=4, capped=True), {}, PublicCallError, "fewer than 10"),
    "too many": (TokenServer(), {"k": SIZE + 1}, InvalidParameterError, "128 tokens"),
    "texts": (TokenServer(marks=False), {}, PublicCallError, "use vLLM"),
    "old": (TokenServer(strict=True), {}, PublicCallError, "status 400"),
    "hidden tokens": (
        TokenServer(edit=without_ids),
        {},
        InvalidParameterError,
        "return_token_ids",
    ),
    "other tokens": (
        TokenServer(),
        {"tokenizer": Shifted()},
        InvalidParameterError,
        "not the model",
    ),
    "logits": (
        TokenServer(edit=lambda _ids, choice: {**choice, "logprobs": told({1: 3.5})}),
        {},
        PublicCallError,
        "raw_logprobs",
    ),
    "broken": (lambda _e: Answer.of({"own words": 1}, 500), {}, PublicCallError, "500"),
    "gone": (lambda _e: Drop(), {}, PublicCallError, "Connection"),
    "login page": (
        lambda _e: Answer(200, (b"<html>own words",), {"content-type": "text/html"}),
        {},
        PublicCallError,
        "did not answer",
    ),
    "list": (lambda _e: Answer.of([1]), {}, PublicCallError, "unreadable"),
    "error with 200": (
        lambda _e: Answer.of({"error": "own words"}),
        {},
        PublicCallError,
        "unreadable",
    ),
}
"""Servers and arguments, and what is said of them before any private prompt is sent."""


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_what_is_wrong_is_said_before_any_private_call(
    next_token: Make, wrong: Any
) -> None:
    server, changes, kind, words = wrong
    k = changes.get("k", 10)
    arguments = {name: value for name, value in changes.items() if name != "k"}
    upstream = server
    if not isinstance(server, TokenServer):
        upstream = TokenServer()
    model, proxy = next_token(upstream, **arguments)
    if upstream is not server:
        proxy.rule = server
    for ask in (
        lambda: model.top_tokens(OTHERS, k),
        lambda: sealed(lambda: model.top_tokens(OTHERS, k)),
    ):
        with pytest.raises(kind, match=words) as failed:
            ask()
        assert SERVERS_WORDS not in "".join(traceback.format_exception(failed.value))
    if not set(changes) & {"k"} and "few" not in words and "max" not in words:
        with pytest.raises(kind, match=words):
            sealed(lambda: model.log_probabilities(PRIVATE, [TOKENS] * 6))
    assert not any(CANARY in texts_of(exchange) for exchange in proxy.exchanges)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"llm": "gpt"}, "langchain_openai.OpenAI"),
        ({"llm": ChatOpenAI(api_key="x")}, "chat completions"),
        ({"llm": OpenAI(api_key="x").bind(stop="a")}, "RunnableBinding"),
        ({"llm": OpenAI(api_key="x", logit_bias={"5": 1})}, "logit_bias"),
        ({"llm": OpenAI(api_key="x", extra_body={"echo": True})}, "echo"),
        ({"tokenizer": "gpt2"}, "encode"),
        ({"end_tokens": [-1]}, "end_tokens"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"tokenizer": tokenizers.Tokenizer(tokenizers.models.BPE())}, "end_tokens"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], words: str) -> None:
    arguments = {"llm": OpenAI(api_key="x"), "tokenizer": Letters(), **changes}
    with pytest.raises(InvalidParameterError, match=words):
        OpenAICompatibleNextToken(**arguments)


GOOD = {5: -1.0, 6: -2.0, 7: -3.0}
IMPOSSIBLE: dict[str, Any] = {
    "nan": told({**GOOD, 6: math.nan}),
    "infinity": told({**GOOD, 6: math.inf}),
    "above": told({**GOOD, 6: 0.1}),
    "mass": told({5: math.log(0.6), 6: math.log(0.3), 7: math.log(0.11)}),
    "text": told({**GOOD, 6: "-2.0"}),
    "null": told({**GOOD, 6: None}),
    "truth": told({**GOOD, 6: False}),
    "fewer": told({5: -1.0, 6: -2.0}),
    "others": told({1: -1.0, 2: -2.0, 3: -3.0}),
    "no ids": {"tokens": ["a"], "top_logprobs": [{"a": -1.0, "b": -2.0, "c": -3.0}]},
    "odd ids": {"tokens": ["a"], "top_logprobs": [{"token_id:x": -1.0}]},
    "nothing": None,
    "no top": {"tokens": ["a"], "top_logprobs": None},
    "empty top": {"tokens": ["a"], "top_logprobs": []},
    "odd top": {"tokens": ["a"], "top_logprobs": [[-1.0]]},
    "list": [1],
}
"""What may stand for one prompt's log-probabilities, and can't be any."""


@pytest.mark.parametrize("logprobs", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
async def test_an_impossible_answer_is_none_and_no_other(
    next_token: Make, logprobs: Any
) -> None:
    def edit(ids: list[int], choice: dict[str, Any]) -> dict[str, Any]:
        said = "".join(map(chr, ids))
        return {**choice, "logprobs": logprobs} if f"{CANARY} 3" in said else choice

    model, _ = next_token(TokenServer(edit=edit))
    found = sealed(lambda: model.log_probabilities(PRIVATE, [TOKENS] * 6))
    assert [place for place, one in enumerate(found) if one is None] == [3]
    for prompt, one in zip(PRIVATE, found, strict=True):
        if one is not None:
            assert one == pytest.approx(log_probs(prompt.text)[TOKENS])
    if logprobs != IMPOSSIBLE["others"]:
        with pytest.raises(PublicCallError) as failed:
            model.top_tokens(PRIVATE[3:4], 3)
        assert CANARY not in str(failed.value)


def only(part: str, fault: Any) -> Callable[[Exchange], Any]:
    """Give the fault to every request with this in it."""

    return lambda exchange: fault if part in texts_of(exchange) else None


FAULTS = {
    "refused": Answer.of({"error": "own words"}, 400),
    "broken": Answer.of({"error": "own words"}, 500, retry_after_ms="1"),
    "busy": Answer.of({"error": "own words"}, 429, retry_after_ms="1"),
    "dropped": Drop(),
    "no json": Answer(200, (b"{own words",), {"content-type": "application/json"}),
    "two choices": Answer.of({"choices": [{"index": 0}] * 2}),
    "odd choice": Answer.of({"choices": [1]}),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("grown", [False, True], ids=["text", "tokens"])
async def test_a_prompt_whose_call_fails_takes_no_other_along(
    next_token: Make, fault: Any, grown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    prompts = [TokenPrompt(p.text, (72,) if grown else ()) for p in PRIVATE]
    model, proxy = next_token(TokenServer())
    model.check()
    proxy.rule = only(f"{CANARY} 3", fault)
    caplog.clear()
    found = sealed(lambda: model.log_probabilities(prompts, [TOKENS] * 6))
    assert [place for place, one in enumerate(found) if one is None] == [3]
    assert CANARY not in caplog.text
    assert not [r for r in caplog.records if r.name.startswith(("openai", "httpx"))]
    assert CANARY not in repr((model, prompts, vars(model)))


async def test_what_is_held_is_neither_shown_nor_pickled(next_token: Make) -> None:
    model, _ = next_token(TokenServer())
    model.log_probabilities(PRIVATE, [TOKENS] * 6)
    shown = f"{model!r} {model} {model.name}"
    assert KEY not in shown
    assert CANARY not in shown
    assert "127.0.0.1" not in model.name
    with pytest.raises(TypeError, match="in each process"):
        pickle.dumps(model)


async def test_an_address_with_a_password_is_shown_nowhere(next_token: Make) -> None:
    def let_in(exchange: Exchange) -> Answer:
        assert exchange.headers["authorization"].startswith("Basic ")
        headers = {"authorization": f"Bearer {KEY}"}
        return TokenServer()(dataclasses.replace(exchange, headers=headers))

    model, _ = next_token(TokenServer())
    _, proxy = next_token(let_in)
    url = proxy.url.replace("http://", "http://somebody:secret@") + "/v1"
    hidden, _ = next_token(TokenServer(), llm={"base_url": url})
    hidden.check()
    assert hidden.name == model.name
    assert "secret" not in f"{hidden!r} {hidden.name}"
