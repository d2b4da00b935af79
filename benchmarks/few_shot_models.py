"""Models for `bench_few_shot.py`: a prepared one, a timed one, and a slow server's."""

# ruff: noqa: ARG002 - the models answer with what was prepared, whatever is asked.

from __future__ import annotations

import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from langchain_dpicl.few_shot import NextTokenModel, TokenPrompt

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

PUBLIC = 100
"""Public tokens of a step."""

REQUEST_SECONDS, PROMPT_SECONDS = 0.020, 0.0002
"""What a request takes by itself, and each prompt in it, as on a GPU server."""


class Prepared(NextTokenModel):
    """Answers at once, with arrays that were made before; its own time is known.

    Whenever it is asked about groups, `rival` takes a step of its own: both sides take
    turns, token by token, and neither's time counts as the other's.
    """

    def __init__(self, rival: Callable[[list[np.ndarray]], None]) -> None:
        rng = np.random.default_rng(0)
        self._tokens = np.arange(PUBLIC)
        shares = rng.dirichlet(np.full(PUBLIC, 0.05), 500) + 1e-30
        self._answers = [np.log(row / row.sum()) for row in shares]
        self._rival = rival
        self.theirs: list[float] = []
        self.ours: list[float] = []
        self.drafts = 1
        self._left_at = 0.0
        self._before = 0.0

    name = "prepared"
    vocabulary_size = 50_257
    end_tokens = frozenset()

    def decode(self, tokens: Sequence[int]) -> str:
        return "x" * len(tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[np.ndarray]:
        now = time.perf_counter()
        if self._left_at and self._before:
            # Since the groups were asked: mechanism, ledger, the next step's begin.
            self.ours.append((self._before + now - self._left_at) / self.drafts)
        self.drafts = len(prompts)
        found = [self._tokens] * len(prompts)
        self._left_at, self._before = time.perf_counter(), 0.0
        return found

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        if len(prompts) == self.drafts:
            # Before the charge, about the public prompts: no part of a step.
            return self._answers[: self.drafts]
        self._before = time.perf_counter() - self._left_at
        answers = (self._answers * (len(prompts) // len(self._answers) + 1))[
            : len(prompts)
        ]
        slots = len(prompts) // self.drafts - 1
        start = time.perf_counter()
        for draft in range(self.drafts):
            self._rival(answers[draft * slots : (draft + 1) * slots])
        self.theirs.append((time.perf_counter() - start) / self.drafts)
        self._left_at = time.perf_counter()
        return answers

    async def atop_tokens(self, prompts: Any, k: int) -> Any:
        return self.top_tokens(prompts, k)

    async def alog_probabilities(self, prompts: Any, tokens: Any) -> Any:
        return self.log_probabilities(prompts, tokens)


class BothWays(NextTokenModel):
    """Asks a model for a step's prompts together, and then again one by one.

    The generator goes on with the first answers; the second ones are timed and dropped.
    It never ends an example, so that each has as many steps as it may.

    Args:
        model: The model.
        alone: What is asked one by one; None: the same.
    """

    def __init__(
        self, model: NextTokenModel, alone: NextTokenModel | None = None
    ) -> None:
        self._model = model
        self._alone = alone or model
        self._drafts = 0
        self.public: list[float] = []
        self.together: list[float] = []
        self.one_by_one: list[float] = []

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def vocabulary_size(self) -> int | None:
        return self._model.vocabulary_size

    end_tokens = frozenset()

    def decode(self, tokens: Sequence[int]) -> str:
        return self._model.decode(tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[np.ndarray]:
        start = time.perf_counter()
        self._drafts = len(prompts)
        found = self._model.top_tokens(prompts, k)
        self.public.append(time.perf_counter() - start)
        return found

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        if len(prompts) == self._drafts:
            # Before the charge, about the public prompts: no part of a step.
            return self._model.log_probabilities(prompts, tokens)
        start = time.perf_counter()
        found = self._model.log_probabilities(prompts, tokens)
        middle = time.perf_counter()
        for prompt, wanted in zip(prompts, tokens, strict=True):
            self._alone.log_probabilities([prompt], [wanted])
        end = time.perf_counter()
        self.together.append(middle - start)
        self.one_by_one.append(end - middle)
        return found

    def seconds(self, total: float) -> tuple[float, float, float]:
        """Return seconds a step: the generator's, one by one, the model's together.

        Args:
            total: What the generation took, both ways of asking included.
        """
        steps = len(self.together)
        model = statistics.median(self.together) + statistics.median(self.public)
        overhead = total - sum(self.public) - sum(self.together) - sum(self.one_by_one)
        alone = statistics.median(self.one_by_one) + statistics.median(self.public)
        return model + overhead / steps, alone, model


class SlowServer:
    """The tests' completions server, as slow as one on a GPU.

    Requests overlap in what each takes by itself, and take turns in computing.
    """

    def __init__(self) -> None:
        from support.servers import scripted_tokens

        # Its shortest context would refuse full groups.
        scripted_tokens.LONGEST = 100_000
        self._answer = scripted_tokens.TokenServer()
        self._computing = threading.Lock()

    def __call__(self, exchange: Any) -> Any:
        if exchange.path == "/v1/completions":
            time.sleep(REQUEST_SECONDS)
            with self._computing:
                time.sleep(PROMPT_SECONDS * len(exchange.body["prompt"]))
        return self._answer(exchange)


def _serve(told: Connection) -> None:
    from support.servers.recording_proxy import RecordingProxy

    with RecordingProxy(SlowServer()) as running:
        told.send(running.url)
        told.recv()


@contextmanager
def slow_server() -> Iterator[str]:
    """A slow completions server, in a process of its own: it takes none of ours."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs,), daemon=True
    )
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


@contextmanager
def vllm_server(environment: str, folder: str) -> Iterator[str]:
    """A real vLLM with the tests' tiny model."""
    from support.servers.vllm_server import VLLMServer

    server = VLLMServer(Path(environment), Path(folder))
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def served_model(url: str, *, letters: bool) -> NextTokenModel:
    """Return the adapter of a server.

    Args:
        url: Where it is.
        letters: Whether the client has its tokenizer, that of the scripted server.
    """
    from langchain_openai import OpenAI
    from support.servers.scripted_provider import KEY, MODEL
    from support.servers.scripted_tokens import Letters

    from langchain_dpicl.few_shot import OpenAICompatibleNextToken

    llm = OpenAI(model=MODEL, base_url=f"{url}/v1", api_key=KEY, batch_size=40)
    return OpenAICompatibleNextToken(llm, tokenizer=Letters() if letters else None)


def transformers_models() -> tuple[NextTokenModel, NextTokenModel]:
    """Return a tiny random GPT-2 in this process: one prompt a pass, and 21."""
    import torch
    import transformers
    from support.tiny_models import tiny_tokenizer

    from langchain_dpicl.few_shot import TransformersNextToken

    tokenizer = tiny_tokenizer()
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=512,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    return TransformersNextToken(model, tokenizer), TransformersNextToken(
        model, tokenizer, batching="fixed", prompt_tokens=256, batch_size=21
    )
