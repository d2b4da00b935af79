"""What one prompt a call costs a completion model, against lists.

    python benchmarks/bench_completions.py [--quick] [--repeats N]

100 prompts of different lengths, by `SealedModel`, which is how a chain asks its
groups. First a server over real HTTP on loopback, in a process of its own: 300 ms a
request, as long as an answer takes, and 0.2 ms more for each prompt, all computed
together. Then a random GPT-2 in this process, greedy, 8 tokens an answer, lists padded
to their longest prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseLLM
from langchain_core.outputs import Generation, LLMResult
from langchain_core.prompt_values import StringPromptValue
from langchain_openai import OpenAI
from pydantic import PrivateAttr
from rich.console import Console
from rich.table import Table

from langchain_dpicl.sealed import SealedModel

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

PROMPTS = 100
REQUEST_SECONDS, PROMPT_SECONDS = 0.3, 0.0002
SIZES = (1, 20, 100)
NOTE = "A dry cough. "


def prompts() -> list[StringPromptValue]:
    """Prompts of 1 to 5 notes."""
    texts = [f"{i}. {NOTE * (1 + i % 5)}" for i in range(PROMPTS)]
    return [StringPromptValue(text=text) for text in texts]


def _serve(told: Connection) -> None:
    from support.servers.recording_proxy import RecordingProxy
    from support.servers.scripted_provider import scripted_provider

    def slowly(exchange: Any) -> Any:
        time.sleep(REQUEST_SECONDS + PROMPT_SECONDS * len(exchange.prompts))
        return scripted_provider(exchange)

    with RecordingProxy(slowly) as running:
        told.send(running.url)
        told.recv()


@contextmanager
def server() -> Iterator[str]:
    """A slow completions server, in a process of its own."""
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


class LocalModel(BaseLLM):
    """A causal model of transformers that pads a list to its longest prompt."""

    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self._model, self._tokenizer = model, tokenizer

    @property
    def _llm_type(self) -> str:
        return "benchmark"

    def _generate(self, prompts: list[str], *_: Any, **__: Any) -> LLMResult:
        asked = self._tokenizer(prompts, return_tensors="pt", padding=True)
        found = self._model.generate(
            **asked, max_new_tokens=8, do_sample=False, pad_token_id=0
        )
        said = found[:, asked["input_ids"].shape[1] :].tolist()
        return LLMResult(generations=[[Generation(text=str(ids))] for ids in said])


def local_model() -> LocalModel:
    """Return a random GPT-2 with 4 layers of 128."""
    import torch
    import transformers
    from support.tiny_models import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=128,
        n_layer=4,
        n_head=4,
        n_positions=1024,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    return LocalModel(model, tokenizer)


def seconds(ask: Callable[[], Any], repeats: int) -> float:
    """Return the median time, after one run that fills caches and connections."""
    taken = []
    for turn in range(repeats + 1):
        start = time.perf_counter()
        ask()
        if turn:
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--repeats", type=int, default=0)
    arguments = parser.parse_args()
    repeats = arguments.repeats or (2 if arguments.quick else 5)

    table = Table("model", "prompts a call", "calls", "100 prompts")

    def line(model: str, size: int, way: Callable[[], Any]) -> None:
        taken = f"{1e3 * seconds(way, repeats):,.0f} ms"
        table.add_row(model, str(size), str(-(-PROMPTS // size)), taken)

    loop = asyncio.new_event_loop()
    with server() as url:
        model = OpenAI(model="tiny", base_url=f"{url}/v1", api_key="test-key")
        for size in SIZES:
            sealed = SealedModel(model, prompts_per_call=size)

            async def ask(sealed: SealedModel = sealed) -> None:
                await sealed.aanswer(prompts())

            line("server, answer", size, lambda s=sealed: s.answer(prompts()))
            line(
                "server, aanswer",
                size,
                lambda ask=ask: loop.run_until_complete(ask()),
            )
    local = local_model()
    for size in SIZES:
        sealed = SealedModel(local, prompts_per_call=size)
        line("this process", size, lambda s=sealed: s.answer(prompts()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
