"""What is said of a prompt is what the model says of it alone, in all families."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.tiny_models import FAMILIES, tiny_model, tiny_tokenizer

from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.few_shot.models.huggingface.model import (
    WORTH,
    TransformersNextToken,
)
from langchain_dpicl.few_shot.models.huggingface.passes import (
    ForwardPasses,
    Prefix,
    PublicPrefixes,
)

TOLERANCE = 1e-5

INSTRUCTION = (
    "Answer the question from the records below in one short sentence, or answer "
    "I do not know. Records: "
)
PUBLIC = TokenPrompt(INSTRUCTION + "Answer:", (70, 80))
RECORDS = ("", "Lisinopril gave a dry cough. ", "Rash! ", "A skin rash. Nausea? " * 4)
PROMPTS = [
    TokenPrompt(f"{INSTRUCTION}{records}Answer:", generated)
    for records in RECORDS
    for generated in ((), (70, 80), (70, 80, 95, 300))
]


@cache
def model_of(family: str) -> Any:
    return tiny_model(family)


@cache
def expected(family: str) -> list[np.ndarray]:
    """Log-probabilities in double precision, one prompt at a time, nothing reused."""
    import torch

    exact = copy.deepcopy(model_of(family)).double()
    said = []
    for prompt in PROMPTS:
        ids = [*tiny_tokenizer(bos=True)(prompt.text)["input_ids"], *prompt.generated]
        with torch.no_grad():
            logits = exact(input_ids=torch.tensor([ids])).logits[0, -1]
        said.append(torch.log_softmax(logits, 0).numpy())
    return said


def deviation(family: str, *, public: Sequence[TokenPrompt] = ()) -> float:
    """Return the largest difference from double precision; infinite if one is None."""
    asked = TransformersNextToken(model_of(family), tiny_tokenizer(bos=True))
    asked.top_tokens(public, 1)
    said = asked.log_probabilities(PROMPTS, [None] * len(PROMPTS))
    known = asked._tokens.known
    return max(
        np.inf if one is None else float(np.abs(one - exact)[known].max())
        for one, exact in zip(said, expected(family), strict=True)
    )


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
def test_figures_are_those_of_double_precision(family: str) -> None:
    assert deviation(family) < TOLERANCE


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
def test_a_public_prefix_changes_nothing(family: str) -> None:
    assert deviation(family, public=[PUBLIC]) < TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_at_the_wrong_positions_is_seen(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Prefix.taken

    def turned(self: Prefix, length: int) -> Any:
        taken = right(self, length)
        for layer in taken.layers:
            layer.keys = layer.keys.roll(1, dims=-2)
        return taken

    monkeypatch.setattr(Prefix, "taken", turned)
    assert deviation(family, public=[PUBLIC]) > 100 * TOLERANCE


def test_a_prefix_that_is_not_the_prompts_own_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = PublicPrefixes.best

    def too_long(self: PublicPrefixes, row: Any, *, least: int = 1) -> Any:
        prefix, shared = right(self, row, least=least)
        return prefix, min(len(row) - 1, len(prefix.tokens)) if prefix else shared

    monkeypatch.setattr(PublicPrefixes, "best", too_long)
    assert deviation("llama", public=[PUBLIC]) > 100 * TOLERANCE


# What transformers is about to remove, it tells as if torch had used it.
@pytest.mark.filterwarnings("error::FutureWarning")
def test_the_prefix_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    right = ForwardPasses.logits

    def watched(self: ForwardPasses, row: Any, **options: Any) -> Any:
        used.append(options.get("shared", 0))
        return right(self, row, **options)

    monkeypatch.setattr(ForwardPasses, "logits", watched)
    assert deviation("llama", public=[PUBLIC]) < TOLERANCE
    assert max(used) > WORTH
    used.clear()
    assert deviation("mistral", public=[PUBLIC]) < TOLERANCE
    # A window's cache has dropped what it begins with.
    assert set(used) == {0}


def test_a_public_prompts_cache_grows_token_by_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths = []
    right = ForwardPasses._pass

    def watched(
        self: ForwardPasses, row: Any, cache: Any, shared: int, **options: Any
    ) -> Any:
        widths.append(len(row) - shared)
        return right(self, row, cache, shared, **options)

    asked = TransformersNextToken(model_of("gpt2"), tiny_tokenizer())
    fresh = TransformersNextToken(model_of("gpt2"), tiny_tokenizer())
    monkeypatch.setattr(ForwardPasses, "_pass", watched)
    generated: tuple[int, ...] = ()
    for _ in range(4):
        top = asked.top_tokens([TokenPrompt(INSTRUCTION, generated)], 3)[0]
        generated += (int(top[0]),)
    assert widths[1:] == [1, 1, 1]
    monkeypatch.undo()
    again = fresh.top_tokens([TokenPrompt(INSTRUCTION, generated[:-1])], 3)[0]
    assert again.tolist() == top.tolist()


def test_lanes_of_one_prompt_have_a_cache_each() -> None:
    asked = TransformersNextToken(model_of("gpt2"), tiny_tokenizer())
    lanes = [TokenPrompt(INSTRUCTION, (token,)) for token in (70, 71)]
    asked.top_tokens([TokenPrompt(INSTRUCTION)], 1)
    asked.top_tokens(lanes, 1)
    kept = {prefix.tokens[-1] for prefix in asked._prefixes._kept}
    assert kept == {70, 71}
