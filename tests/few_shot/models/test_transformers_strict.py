"""One slot's figures are a function of that slot, to the last bit."""

from __future__ import annotations

import copy
import gc
import logging
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.tiny_models import tiny_model, tiny_tokenizer

from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.few_shot.models.huggingface.model import TransformersNextToken
from langchain_dpicl.few_shot.models.huggingface.passes import ForwardPasses

INSTRUCTION = "Answer the question from the records below in one short sentence: "
SLOT = TokenPrompt(INSTRUCTION + "Lisinopril gave a dry cough. Answer:", (70, 80))
SHORT = TokenPrompt("no")
MIDDLE = TokenPrompt(INSTRUCTION + "Rash. Answer:", (70, 80))
LONG = TokenPrompt(INSTRUCTION + "a skin rash " * 9 + "Answer:", (70, 80))
TOO_LONG = TokenPrompt("Lisinopril! " * 90)
NEIGHBORS = [
    [SHORT, MIDDLE],
    [MIDDLE, MIDDLE],
    [SLOT, SLOT],
    [LONG, MIDDLE],
    [TOO_LONG, SHORT],
    *([TokenPrompt("x" * n), SHORT] for n in range(2, 60, 4)),
]


@cache
def model_of(family: str, precision: str = "float32") -> Any:
    import torch

    return tiny_model(family).to(getattr(torch, precision))


def answers(model: Any, *, public: bool = False) -> set[bytes]:
    """Return all that is said of one slot as the others change, as bytes."""
    asked = TransformersNextToken(model, tiny_tokenizer())
    if public:
        asked.top_tokens([TokenPrompt(INSTRUCTION, (70, 80))], 1)
    found = set()
    for neighbors in NEIGHBORS:
        first, last = neighbors
        _, said, _ = asked.log_probabilities([first, SLOT, last], [None] * 3)
        assert said is not None
        found.add(said.tobytes())
    return found


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "mixtral"])
def test_a_prompt_alone_in_its_pass_depends_on_itself_alone(
    family: str, precision: str, public: bool
) -> None:
    assert len(answers(model_of(family, precision), public=public)) == 1


def test_a_scale_of_a_whole_pass_follows_one_prompt() -> None:
    model = copy.deepcopy(model_of("llama"))

    def rounded(_module: Any, _given: Any, out: Any) -> Any:
        # So do some quantized models.
        step = out.abs().max() / 127
        return (out / step).round() * step

    model.model.layers[0].mlp.register_forward_hook(rounded)
    assert len(answers(model)) == 1


def test_what_a_pass_leaves_for_the_next_is_seen() -> None:
    model = copy.deepcopy(model_of("llama"))
    before = [0.0]

    def leave(_module: Any, _given: Any, out: Any) -> Any:
        added, before[0] = before[0], float(out.mean())
        return out + added

    model.model.layers[0].mlp.register_forward_hook(leave)
    assert len(answers(model)) > 1


def test_a_prompt_that_fails_leaves_the_others_as_they_are() -> None:
    model = copy.deepcopy(model_of("gpt2"))
    asked = TransformersNextToken(model, tiny_tokenizer())
    before = asked.log_probabilities([SLOT, LONG], [None] * 2)
    bad = tiny_tokenizer()("Rash")["input_ids"][-1]

    def fail(_module: Any, given: tuple[Any, ...]) -> None:
        if (given[0] == bad).any():
            raise RuntimeError("Rash")

    model.transformer.wte.register_forward_pre_hook(fail)
    after = asked.log_probabilities([MIDDLE, SLOT], [None] * 2)
    assert after[0] is None
    assert np.array_equal(after[1], before[0])


def tensors() -> dict[int, Any]:
    import torch

    gc.collect()
    # By type: some of torch's objects warn when they are asked for their class.
    found = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    return {id(one): one for one in found}


def test_what_prompts_say_does_not_order_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = TransformersNextToken(tiny_model("gpt2"), tiny_tokenizer())
    prompts = [TokenPrompt("a rash " * n) for n in (2, 5, 1, 4, 3)]
    seen: list[tuple[int, ...]] = []
    compute = ForwardPasses.logits

    def spy(self: Any, row: Any, **named: Any) -> Any:
        seen.append(row)
        return compute(self, row, **named)

    monkeypatch.setattr(ForwardPasses, "logits", spy)
    said = asked.log_probabilities(prompts, [None] * len(prompts))
    assert all(one is not None for one in said)
    assert seen == [asked._row(prompt) for prompt in prompts]


def test_nothing_of_a_private_prompt_is_kept() -> None:
    model = model_of("gpt2")
    asked = TransformersNextToken(model, tiny_tokenizer())
    asked.top_tokens([TokenPrompt(INSTRUCTION)], 1)
    before = tensors()
    asked.log_probabilities([SLOT, LONG], [None] * 2)
    assert tensors().keys() == before.keys()
    assert len(asked._prefixes._kept) == 1
    public = asked._tokens.ids(TokenPrompt(INSTRUCTION))
    assert asked._prefixes._kept[0].tokens == public
    assert asked._prefixes._kept[0].cache.get_seq_length() == len(public)
    assert not model.get_output_embeddings()._forward_pre_hooks
    # What a public prompt leaves is seen.
    asked.top_tokens([MIDDLE], 1)
    assert tensors().keys() != before.keys()


def test_reprs_are_free_of_text() -> None:
    asked = TransformersNextToken(model_of("gpt2"), tiny_tokenizer())
    asked.top_tokens([SLOT], 1)
    assert repr(asked) == "TransformersNextToken('gpt2')"
    assert "tokens" not in repr(asked._prefixes._kept[0])


def test_a_long_text_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    from transformers.utils import logging as theirs

    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.model_max_length = 10
    theirs.enable_propagation()
    try:
        with caplog.at_level(logging.DEBUG):
            asked = TransformersNextToken(model_of("gpt2"), tokenizer)
            assert asked.log_probabilities([TOO_LONG], [None]) == [None]
            assert caplog.records == []
            tokenizer(TOO_LONG.text)
            assert "longer than" in caplog.text
    finally:
        theirs.disable_propagation()
