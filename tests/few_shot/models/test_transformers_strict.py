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
from langchain_dpicl.few_shot.models.transformers import TransformersNextToken

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


def answers(model: Any) -> set[bytes]:
    """Return all that is said of one slot as the others change, as bytes."""
    asked = TransformersNextToken(model, tiny_tokenizer())
    found = set()
    for neighbors in NEIGHBORS:
        first, last = neighbors
        _, said, _ = asked.log_probabilities([first, SLOT, last], [None] * 3)
        assert said is not None
        found.add(said.tobytes())
    return found


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "mixtral"])
def test_a_prompt_alone_in_its_pass_depends_on_itself_alone(
    family: str, precision: str
) -> None:
    assert len(answers(model_of(family, precision))) == 1


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


def test_nothing_of_a_private_prompt_is_kept() -> None:
    model = model_of("gpt2")
    asked = TransformersNextToken(model, tiny_tokenizer())
    asked.top_tokens([TokenPrompt(INSTRUCTION)], 1)
    before = tensors()
    asked.log_probabilities([SLOT, LONG], [None] * 2)
    assert tensors().keys() == before.keys()
    kept = asked.log_probabilities([SLOT], [None])
    assert tensors().keys() == before.keys()
    assert kept[0] is not None
    assert repr(asked) == "TransformersNextToken('gpt2')"


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
