"""A real vLLM as a next-token model, against the same model's own arithmetic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.servers.vllm_server import VLLMServer
from transformers import AutoModelForCausalLM, AutoTokenizer

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.model import TokenPrompt
from langchain_dpicl.few_shot.vllm import PUBLIC_TEXTS
from langchain_dpicl.sealed import sealed

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]

TEXTS = [
    TokenPrompt(f"Note {i} of a patient with a skin rash. Answer:") for i in range(12)
]
GROWN = [TokenPrompt(f"Note {i}. Answer:", (5, 226, 7)) for i in range(12)]


class Exact:
    """The tiny model in this process, in floats of 64 bits."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        self.model = model.to(torch.float64).eval()

        self.known: dict[TokenPrompt, np.ndarray] = {}

    def ids(self, prompt: TokenPrompt) -> list[int]:
        return [*self.tokenizer(prompt.text)["input_ids"], *prompt.generated]

    def __call__(self, prompt: TokenPrompt) -> np.ndarray:
        if prompt not in self.known:
            with torch.no_grad():
                logits = self.model(torch.tensor([self.ids(prompt)])).logits[0, -1]
            self.known[prompt] = np.asarray(logits.log_softmax(-1))
        return self.known[prompt]


@pytest.fixture(scope="module")
def exact(vllm_of_the_session: VLLMServer) -> Exact:
    vllm_of_the_session.start()
    return Exact(vllm_of_the_session.model)


@pytest.fixture(scope="module")
def lesser_vllm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VLLMServer]:
    """A server that tells 20 figures at most."""
    environment = Path(str(request.config.getoption("--vllm")))
    options = ("--max-logprobs", "20")
    server = VLLMServer(environment, tmp_path_factory.mktemp("lesser"), options)
    server.start()
    yield server
    server.stop()


def are_likeliest(tokens: np.ndarray, expected: np.ndarray) -> bool:
    """Whether these are the likeliest tokens, in order, up to rounding."""
    found, best = expected[tokens], np.sort(expected)[::-1][: len(tokens)]
    return len(set(tokens.tolist())) == len(tokens) and np.allclose(
        found, best, rtol=0, atol=1e-4
    )


async def test_figures_are_the_models_own(
    next_token: Make, vllm: VLLMServer, exact: Exact
) -> None:
    model, proxy = next_token(vllm.url, tokenizer=exact.tokenizer)
    prompts = [*TEXTS, *GROWN]
    top = model.top_tokens(prompts, 100)
    tokens = np.sort(top[0])
    wanted: list[Any] = [tokens] * len(prompts)
    found = sealed(lambda: model.log_probabilities(prompts, wanted))
    for place, prompt in enumerate(prompts):
        expected = exact(prompt)
        assert are_likeliest(top[place], expected)
        assert found[place] == pytest.approx(expected[tokens], abs=1e-4)
    assert model.vocabulary_size == len(exact.tokenizer)
    assert model.end_tokens == {exact.tokenizer.eos_token_id}
    tail = [5, 226, 7]
    assert model.decode(tail) == exact.tokenizer.decode(tail)
    public = [exact.tokenizer(text)["input_ids"] for text in PUBLIC_TEXTS]
    sent = [*map(exact.ids, prompts), *public, *PUBLIC_TEXTS]
    assert all(p in sent for e in proxy.exchanges for p in e.prompts)


async def test_generated_tokens_are_not_cut_up_again(
    next_token: Make, vllm: VLLMServer, exact: Exact
) -> None:
    # Two tokens that, spelled and cut up again, would be one.
    whole = exact.tokenizer("cough")["input_ids"]
    parts = [token for letter in "cough" for token in exact.tokenizer(letter).input_ids]
    assert len(whole) < len(parts)
    model, _ = next_token(vllm.url, tokenizer=exact.tokenizer)
    prompts = [TokenPrompt("Answer:", tuple(ids)) for ids in (whole, parts)]
    tokens = np.arange(len(exact.tokenizer))
    as_one, as_many = model.log_probabilities(prompts, [tokens, tokens])
    assert as_one == pytest.approx(exact(prompts[0]), abs=1e-4)
    assert as_many == pytest.approx(exact(prompts[1]), abs=1e-4)
    assert np.abs(as_one - as_many).max() > 0.01


async def test_one_prompt_that_is_too_long_is_none_and_no_other(
    next_token: Make, vllm: VLLMServer, exact: Exact
) -> None:
    long, empty = TokenPrompt("Lisinopril " * 10_000), TokenPrompt("")
    prompts = [*TEXTS[:10], long, empty, *GROWN[:10], TokenPrompt(long.text, (5,))]
    model, _ = next_token(vllm.url, tokenizer=exact.tokenizer)
    tokens = np.arange(20)
    found = sealed(lambda: model.log_probabilities(prompts, [tokens] * 23))
    failed = [place for place, one in enumerate(found) if one is None]
    assert failed == [10, 11, 22]
    for prompt, one in zip(prompts, found, strict=True):
        if one is not None:
            assert one == pytest.approx(exact(prompt)[tokens], abs=1e-4)


async def test_public_figures_are_right_beside_others_that_name_tokens(
    next_token: Make, vllm: VLLMServer, exact: Exact
) -> None:
    """Requests that name their tokens mutilate those that don't, in one engine step."""
    model, _ = next_token(vllm.url, tokenizer=exact.tokenizer)
    model.check()
    done = threading.Event()
    wrong: list[int] = []

    def name_tokens() -> None:
        while not done.is_set():
            found = model.log_probabilities(TEXTS, [np.arange(60)] * len(TEXTS))
            wrong.extend(1 for row in found if row is None or row.min() < -50)

    other = threading.Thread(target=name_tokens)
    other.start()
    try:
        for prompt in TEXTS:
            try:
                (top,) = model.top_tokens([prompt], 50)
            except PublicCallError:
                continue  # Told too little, five times: it says so.
            assert are_likeliest(top, exact(prompt))
    finally:
        done.set()
        other.join()
    assert not wrong


@pytest.mark.parametrize(
    ("llm", "kind", "words"),
    [
        ({"model": "no-such-model"}, InvalidParameterError, "no such model"),
        ({"api_key": "wrong"}, PublicCallError, "api_key"),
        ({"base_url": "/v2"}, InvalidParameterError, "base_url"),
    ],
)
async def test_what_is_wrong_is_said_of_a_real_server(
    next_token: Make, vllm: VLLMServer, exact: Exact, llm: Any, kind: Any, words: str
) -> None:
    given = {name: vllm.url + v if v.startswith("/") else v for name, v in llm.items()}
    model, _ = next_token(vllm.url, llm=given, tokenizer=exact.tokenizer)
    with pytest.raises(kind, match=words):
        model.check()


async def test_a_tokenizer_of_another_model_is_refused(
    next_token: Make, vllm: VLLMServer, exact: Exact
) -> None:
    other = AutoTokenizer.from_pretrained(vllm.model)
    other.add_tokens([" weather"])
    model, _ = next_token(vllm.url, tokenizer=other)
    with pytest.raises(InvalidParameterError, match="not the model's"):
        model.check()


async def test_a_lesser_server_says_what_it_does_not_tell(
    next_token: Make, lesser_vllm: VLLMServer, exact: Exact
) -> None:
    model, _ = next_token(lesser_vllm.url, tokenizer=exact.tokenizer)
    with pytest.raises(PublicCallError, match="--max-logprobs 21"):
        model.top_tokens(TEXTS, 21)
    tokens = np.arange(300)
    found = model.log_probabilities(TEXTS, [tokens] * len(TEXTS))
    for prompt, row in zip(TEXTS, found, strict=True):
        assert row == pytest.approx(exact(prompt)[tokens], abs=1e-4)
