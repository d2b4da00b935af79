"""Models that give log-likelihoods: their figures, and what they ask for."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from langchain_core.prompt_values import StringPromptValue
from langchain_openai import ChatOpenAI
from langchain_openai.decisions import OpenAIDecisions
from questions import ASKED, account, clinic, exact_vote, note, stored, votes
from support.tiny_models import tiny_model, tiny_tokenizer

from langchain_dpicl import DPChain
from langchain_dpicl.common.replies import read_figures
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot import NextTokenModel, TransformersNextToken
from langchain_dpicl.likelihoods import (
    DecisionsLLM,
    LetteredOptions,
    LikelihoodModel,
    NextTokenLLM,
)
from langchain_dpicl.sealed import SealedModel

OPTIONS = ["cough", "cough or rash", "rash"]
PROMPT = "Which? A dry cough. Answer:"
GROUPS = 4


# ---- next-token models ---------------------------------------------------------------


def expected(prompt: str, option: str, *, bos: bool) -> float:
    """Return a continuation's log-likelihood, of one pass over all of its text."""
    import torch

    tokenizer = tiny_tokenizer(bos=bos)
    first = tokenizer(prompt)["input_ids"]
    whole = [*first, *tokenizer(option, add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        logits = tiny_model()(torch.tensor([whole])).logits[0].double().numpy()
    total = 0.0
    for place in range(len(first), len(whole)):
        row = logits[place - 1]
        total += row[whole[place]] - row.max()
        total -= math.log(sum(math.exp(x - row.max()) for x in row))
    return total


@pytest.mark.parametrize(
    ("bos", "ending", "space"), [(False, "\n", ""), (True, "", " ")]
)
def test_a_continuation_is_the_sum_over_its_tokens(
    bos: bool, ending: str, space: str
) -> None:
    tokens = TransformersNextToken(tiny_model(), tiny_tokenizer(bos=bos))
    model = NextTokenLLM(model=tokens, template=lambda text: text + ending)
    (row,) = model.log_likelihoods([PROMPT], OPTIONS)
    want = [expected(PROMPT + ending, space + each, bos=bos) for each in OPTIONS]
    assert row == pytest.approx(want, abs=1e-4)
    wrong = [expected(PROMPT + ending, "x" + each, bos=bos) for each in OPTIONS]
    assert row != pytest.approx(wrong, abs=1e-4)
    # The prompt's figures are its own, whatever else is asked.
    both = model.log_likelihoods([PROMPT + " x" * 9, PROMPT], OPTIONS)
    assert both[1] == row


class OneThread:
    """A tokenizer that notes whether several threads are in it at once."""

    def __init__(self) -> None:
        self.inner, self.inside, self.most = tiny_tokenizer(), 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.001)
        self.inside -= 1
        return self.inner(*args, **options)


def test_groups_that_are_asked_at_once_do_not_meet_in_the_tokenizer() -> None:
    tokenizer = OneThread()
    model = NextTokenLLM(model=TransformersNextToken(tiny_model(), tokenizer))
    asked = [[StringPromptValue(text=f"{PROMPT} {n}")] for n in range(24)]
    told = SealedModel(model, max_concurrency=8).score(asked, OPTIONS)
    assert all(row for rows in told for row in rows)
    assert tokenizer.most == 1


def test_a_text_is_what_the_model_generates_greedily() -> None:
    import torch

    tokenizer, model = tiny_tokenizer(), tiny_model()
    made = NextTokenLLM(model=TransformersNextToken(model, tokenizer), max_tokens=8)
    ids = torch.tensor([tokenizer(PROMPT)["input_ids"]])
    known = torch.arange(len(tokenizer), model.config.vocab_size).tolist()
    out = model.generate(ids, max_new_tokens=8, do_sample=False, suppress_tokens=known)
    text = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
    assert made.invoke(PROMPT) == text
    assert made.invoke(PROMPT, stop=[text[3]]) == text[: text.index(text[3])]
    assert made.model_name == "llama"


def test_a_prompt_or_an_option_that_can_not_be_asked_is_refused() -> None:
    tokens = TransformersNextToken(tiny_model(), tiny_tokenizer())
    model = NextTokenLLM(model=tokens)
    with pytest.raises(PublicCallError):
        model.log_likelihoods(["x" * 900], OPTIONS)

    class Mute(NextTokenModel):
        name = vocabulary_size = end_tokens = top_tokens = log_probabilities = None  # type: ignore[assignment]
        decode = None  # type: ignore[assignment]

    with pytest.raises(InvalidParameterError, match="encode"):
        NextTokenLLM(model=Mute()).log_likelihoods([PROMPT], OPTIONS)  # type: ignore[abstract]


# ---- servers -------------------------------------------------------------------------


class Lettered(LetteredOptions, ChatOpenAI):
    """ChatOpenAI, with log_likelihoods."""


Body = dict[str, Any]


def client(reply: Callable[[Body], Body], sent: list[Body]) -> dict[str, Any]:
    """Return the settings of a client whose server answers by a function."""

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=reply(sent[-1]))

    transport = httpx.MockTransport(handle)
    settings: dict[str, Any] = {"http_client": httpx.Client(transport=transport)}
    return {**settings, "api_key": "key", "base_url": "http://server/v1", "model": "m"}


def completion(top: Any) -> Body:
    token = {"token": "A", "logprob": -0.1, "bytes": None, "top_logprobs": top}
    logprobs = None if top is None else {"content": [token], "refusal": None}
    message = {"role": "assistant", "content": "A"}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "length",
        "logprobs": logprobs,
    }
    terms = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**terms, "choices": [choice]}


def top(**figures: float) -> list[Body]:
    return [
        {"token": token.replace("_", " "), "logprob": figure, "bytes": None}
        for token, figure in figures.items()
    ]


def test_options_are_asked_for_by_letters() -> None:
    """One request a prompt; tokens that differ in spaces add up; others are bounded."""
    sent: list[Body] = []
    told = top(A=math.log(0.5), _A=math.log(0.25), x=math.log(0.125), y=math.log(0.1))
    model = Lettered(**client(lambda _: completion(told), sent))
    assert isinstance(model, LikelihoodModel)
    (row,) = model.log_likelihoods([PROMPT], OPTIONS, temperature=0.5)
    assert [math.exp(x) for x in row] == pytest.approx([0.75, 0.025, 0.025])
    (asked,) = sent
    (message,) = asked["messages"]
    assert message["content"].startswith(PROMPT)
    assert message["content"].endswith("A. cough\nB. cough or rash\nC. rash")
    terms = {"logprobs": True, "top_logprobs": 20, "temperature": 0.5}
    assert terms.items() <= asked.items()
    assert 1 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))
    with pytest.raises(InvalidParameterError, match="21 options"):
        model.log_likelihoods([PROMPT], [str(n) for n in range(21)])


@pytest.mark.parametrize("told", [None, [], [{"token": "A"}], "x"])
def test_a_server_that_tells_no_figures_is_named(told: Any) -> None:
    model = Lettered(**client(lambda _: completion(told), []))
    with pytest.raises(PublicCallError, match="no top_logprobs"):
        model.log_likelihoods([PROMPT], OPTIONS)


def test_decisions_are_asked_for_a_choice() -> None:
    sent: list[Body] = []

    def reply(body: Body) -> Body:
        answer = {"type": "choice", "name": "answer", "choice": "rash"}
        shares = [{"value": "cough", "probability": 0.25}]
        shares += [{"value": "rash", "probability": 0.75}]
        answer |= {"probabilities": shares, "confidence": 0.5}
        return {"model": "m", "answers": [answer]}

    with pytest.warns(Warning, match="beta"):
        decisions = OpenAIDecisions(**client(reply, sent))
    model = DecisionsLLM(decisions=decisions)
    assert model.model_name == "m"
    (row,) = model.log_likelihoods([PROMPT], OPTIONS)
    assert read_figures(row, 3) == pytest.approx((math.log(0.25), -100, math.log(0.75)))
    assert sent[0]["input"] == PROMPT


@pytest.mark.parametrize("way", ["plain", "bound"])
def test_a_chain_asks_a_server(way: str) -> None:
    """The model likes its first option; its records raise the second."""

    def reply(body: Body) -> Body:
        second = 0.3 if "<" in body["messages"][0]["content"] else 0.1
        return completion(top(A=math.log(0.6), B=math.log(second)))

    sent: list[Body] = []
    model: Any = Lettered(**client(reply, sent))
    if way == "bound":
        model = model.bind(extra_body={"cache_salt": "s"})
    documents = [*clinic(), note("p99", "fever <99>", ward="3")]
    groups = stored(documents, n_groups=GROUPS)
    parser = exact_vote(["oak", "elm"], read="likelihood")
    chain = DPChain(groups=groups, model=model, parser=parser, budget=account())
    assert votes(chain.invoke(ASKED)) == {"elm": GROUPS}
    assert len(sent) == 1 + GROUPS
    assert {body.get("cache_salt") for body in sent} == {
        "s" if way == "bound" else None
    }
