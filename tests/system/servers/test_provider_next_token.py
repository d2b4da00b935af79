"""Figures from a completions server whose every probability is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.servers.scripted_provider import MODEL
from support.servers.scripted_tokens import (
    END,
    LONGEST,
    SIZE,
    TokenServer,
    encode,
    log_probs,
)

from langchain_dpicl.errors import PublicCallError
from langchain_dpicl.few_shot import vllm
from langchain_dpicl.few_shot.model import TokenPrompt
from langchain_dpicl.few_shot.vllm import ROUNDING

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]

PROMPTS = [TokenPrompt(f"Note {i}. Sentence:") for i in range(7)]
GROWN = [TokenPrompt(f"Note {i}.", (72, 105)) for i in range(7)]


def exact(prompt: TokenPrompt) -> np.ndarray:
    return log_probs([*encode(prompt.text), *prompt.generated])


def likeliest(prompt: TokenPrompt, k: int) -> list[int]:
    return [int(token) for token in np.argsort(-exact(prompt), kind="stable")[:k]]


def bounded(prompt: TokenPrompt, tokens: Any, k: int) -> np.ndarray:
    """Return the figures that K reported tokens allow to know."""
    found, top = exact(prompt), likeliest(prompt, k)
    left = max(1 - float(np.exp(found[top]).sum()), ROUNDING)
    missing = min(float(found[top].min()), math.log(left))
    return np.array([found[t] if t in top else missing for t in tokens])


def same(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(
        one is not None and np.allclose(one, other, rtol=0, atol=1e-9)
        for one, other in zip(found, expected, strict=True)
    )


SERVERS = {
    "by-id": TokenServer(),
    "likeliest": TokenServer(names=False),
    "likeliest-and-a-drawn-token": TokenServer(
        names=False, draw=lambda p: int(p.argmin())
    ),
}
"""Servers that tell what there is to know."""


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_figures_are_those_that_the_server_tells(
    next_token: Make, server: TokenServer
) -> None:
    model, _ = next_token(server)
    for prompts in (PROMPTS, GROWN, [*PROMPTS, *GROWN]):
        top = model.top_tokens(prompts, 5)
        assert [each.tolist() for each in top] == [likeliest(p, 5) for p in prompts]
        tokens = [np.array([*likeliest(p, 4)[::-1]]) for p in prompts]
        expected = [exact(p)[ids] for p, ids in zip(prompts, tokens, strict=True)]
        assert same(model.log_probabilities(prompts, tokens), expected)
    assert model.vocabulary_size == SIZE
    assert model.end_tokens == {END}
    assert (model.decode([72, 105]), model.decode([])) == ("Hi", "")
    assert model.name.startswith(f"{MODEL}#")


def test_missing_tokens_get_the_bound_that_the_server_implies(
    next_token: Make,
) -> None:
    # The token that is drawn is the least likely one: no bound for anything.
    server = TokenServer(names=False, most=6, draw=lambda p: int(p.argmin()))
    model, _ = next_token(server)
    (top,) = model.top_tokens(PROMPTS[:1], 6)
    assert END not in top
    tokens = np.array([*top, END])
    found = model.log_probabilities(PROMPTS, [tokens] * len(PROMPTS))
    # What was asked before, and failed or not, decides nothing.
    model.top_tokens(PROMPTS[:1], 2)
    assert same(model.log_probabilities(PROMPTS, [tokens] * len(PROMPTS)), found)
    assert same(found, [bounded(p, tokens, 6) for p in PROMPTS])
    for prompt, row in zip(PROMPTS, found, strict=True):
        assert (row >= exact(prompt)[tokens] - 1e-9).all()


def test_the_mass_that_is_left_is_a_bound_too(next_token: Make) -> None:
    def edit(ids: list[int], choice: dict[str, Any]) -> dict[str, Any]:
        if ids == encode("second"):
            top = {"token_id:7": math.log(0.6), "token_id:8": math.log(0.39)}
            choice["logprobs"]["top_logprobs"] = [{**top, "token_id:9": -5.0}]
        return choice

    model, _ = next_token(TokenServer(names=False, most=3, edit=edit))
    prompts = [TokenPrompt("first of the list"), TokenPrompt("second")]
    found = model.log_probabilities(prompts, [np.array([8, 50, 9])] * 2)[1]
    left = 1 - 0.6 - 0.39 - math.exp(-5)
    assert left < math.exp(-5)
    assert np.exp(found) == pytest.approx([0.39, left, math.exp(-5)])


def test_many_tokens_are_asked_for_in_parts(
    next_token: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "MOST_BY_ID", 50)
    model, proxy = next_token(TokenServer())
    model.check()
    proxy.forget()
    tokens = np.arange(SIZE)[::-1]
    found = model.log_probabilities(PROMPTS, [tokens] * 7)
    assert same(found, [exact(p)[tokens] for p in PROMPTS])
    asked = [(len(e.prompts), e.body["logprobs"]) for e in proxy.exchanges]
    assert sorted(asked) == sorted([(1, 50), (1, 50), (1, 28)] * 7)


def test_a_public_answer_that_comes_back_mutilated_is_asked_for_again(
    next_token: Make,
) -> None:
    left = {"times": 3}

    def edit(ids: list[int], choice: dict[str, Any]) -> dict[str, Any]:
        # As vLLM does where another request names its tokens by id.
        if ids == encode("public") and left["times"]:
            left["times"] -= 1
            choice["logprobs"]["top_logprobs"] = [{"token_id:9": -6.0}]
        return choice

    model, _ = next_token(TokenServer(edit=edit))
    public = TokenPrompt("public")
    assert model.top_tokens([public], 3)[0].tolist() == likeliest(public, 3)
    left["times"] = 100
    with pytest.raises(PublicCallError, match="fewer than 3"):
        model.top_tokens([public], 3)


def test_each_call_has_one_prompt_as_the_tokens_that_it_is(next_token: Make) -> None:
    model, proxy = next_token(TokenServer())
    model.check()
    proxy.forget()
    model.log_probabilities(GROWN, [np.array([5, 6, 7])] * 7)
    assert all(len(exchange.prompts) == 1 for exchange in proxy.exchanges)
    sent = [exchange.prompts[0] for exchange in proxy.exchanges]
    assert sorted(sent) == [[*encode(p.text), *p.generated] for p in GROWN]


def test_one_prompt_too_long_is_none_and_no_other(next_token: Make) -> None:
    prompts = [*PROMPTS, TokenPrompt("x" * (LONGEST + 1)), TokenPrompt(""), *GROWN]
    model, _ = next_token(TokenServer())
    tokens = np.array([5, 6])
    found = model.log_probabilities(prompts, [tokens] * 16)
    assert found[7] is found[8] is None
    answered = [*found[:7], *found[9:]]
    assert same(answered, [exact(p)[tokens] for p in [*PROMPTS, *GROWN]])
    with pytest.raises(PublicCallError, match="status 400"):
        model.top_tokens(prompts, 3)
