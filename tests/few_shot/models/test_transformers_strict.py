"""One slot's figures are a function of that slot, to the last bit."""

from __future__ import annotations

import copy
import gc
import logging
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.tiny_models import CONTEXT, tiny_model, tiny_tokenizer

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.few_shot.models.huggingface.batching import FixedBatches
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
FIXED = {"batching": "fixed", "batch_size": 4, "prompt_tokens": CONTEXT}


@cache
def model_of(family: str, precision: str = "float32") -> Any:
    import torch

    return tiny_model(family).to(getattr(torch, precision))


def with_shared_scale(family: str = "llama") -> Any:
    """Return a model that rounds by the largest value of a whole pass.

    So do some quantized models. What one prompt says depends on the others, and on any
    hardware.
    """
    model = copy.deepcopy(model_of(family))

    def rounded(_module: Any, _given: Any, out: Any) -> Any:
        step = out.abs().max() / 127
        return (out / step).round() * step

    model.model.layers[0].mlp.register_forward_hook(rounded)
    return model


def answers(model: Any, *, place: int = 1, public: bool = False, **options: Any) -> set:
    """Return all that is said of one slot as the others change, as bytes."""
    asked = TransformersNextToken(model, tiny_tokenizer(), **options)
    if public:
        asked.top_tokens([TokenPrompt(INSTRUCTION, (70, 80))], 1)
    found = set()
    for neighbors in NEIGHBORS:
        prompts = [*neighbors]
        prompts.insert(place, SLOT)
        said = asked.log_probabilities(prompts, [None] * 3)[place]
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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
def test_rows_of_a_fixed_shape_depend_on_themselves_alone(
    family: str, precision: str
) -> None:
    model = model_of(family, precision)
    at_one_place = answers(model, **FIXED)
    assert len(at_one_place) == 1
    assert answers(model, place=0, **FIXED) == at_one_place


def test_prompts_that_share_a_pass_change_each_other() -> None:
    # Among so many shapes some are added up in another order, in any of the families.
    found = [answers(model_of(name), batching="mixed") for name in ("gpt2", "llama")]
    assert max(map(len, found)) > 1


def test_a_scale_of_the_whole_pass_is_seen() -> None:
    model = with_shared_scale()
    assert len(answers(model)) == 1
    assert len(answers(model, batching="mixed")) > 1


def test_a_fixed_shape_is_refused_where_rows_change_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = with_shared_scale()
    with pytest.raises(InvalidParameterError, match="not safe here"):
        TransformersNextToken(model, tiny_tokenizer(), **FIXED)
    monkeypatch.setattr(FixedBatches, "_try_rows_apart", lambda self: None)
    assert len(answers(model, **FIXED)) > 1


def test_a_fixed_shape_is_refused_where_a_rows_place_matters() -> None:
    import torch

    model = copy.deepcopy(model_of("llama"))

    def placed(_module: Any, _given: Any, out: Any) -> Any:
        return out + 1e-3 * torch.arange(len(out))[:, None, None]

    model.model.layers[0].mlp.register_forward_hook(placed)
    with pytest.raises(InvalidParameterError, match="not safe here"):
        TransformersNextToken(model, tiny_tokenizer(), **FIXED)


def test_a_fixed_shape_is_refused_for_models_that_mix_rows() -> None:
    with pytest.raises(InvalidParameterError, match="experts or quantization"):
        TransformersNextToken(model_of("mixtral"), tiny_tokenizer(), **FIXED)
    model = copy.deepcopy(model_of("llama"))
    model.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(InvalidParameterError, match="experts or quantization"):
        TransformersNextToken(model, tiny_tokenizer(), **FIXED)


def test_a_failing_row_leaves_the_others_of_a_fixed_shape_as_they_are() -> None:
    model = copy.deepcopy(model_of("gpt2"))
    asked = TransformersNextToken(model, tiny_tokenizer(), **FIXED)
    before = asked.log_probabilities([SLOT, LONG], [None] * 2)
    bad = tiny_tokenizer()("Rash")["input_ids"][-1]

    def fail(_module: Any, given: tuple[Any, ...]) -> None:
        if (given[0] == bad).any():
            raise RuntimeError("Rash")

    model.transformer.wte.register_forward_pre_hook(fail)
    after = asked.log_probabilities([SLOT, MIDDLE], [None] * 2)
    assert after[1] is None
    assert np.array_equal(after[0], before[0])


def tensors() -> dict[int, Any]:
    import torch

    gc.collect()
    # By type: some of torch's objects warn when they are asked for their class.
    found = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    return {id(one): one for one in found}


@pytest.mark.parametrize("batching", ["single", "fixed", "mixed"])
def test_only_mixed_batches_order_passes_by_what_prompts_say(
    batching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"batch_size": 2, "prompt_tokens": 64} if batching == "fixed" else {}
    asked = TransformersNextToken(
        tiny_model("gpt2"), tiny_tokenizer(), batching=batching, **shape
    )
    prompts = [TokenPrompt("a rash " * n) for n in (2, 5, 1, 4, 3)]
    seen: list[tuple[int, ...]] = []
    compute = ForwardPasses.logits

    def spy(self: Any, rows: Any, **named: Any) -> Any:
        seen.extend(row for row in rows if len(row) > 1)
        return compute(self, rows, **named)

    monkeypatch.setattr(ForwardPasses, "logits", spy)
    said = asked.log_probabilities(prompts, [None] * len(prompts))
    assert all(one is not None for one in said)
    in_order = seen == [asked._row(prompt) for prompt in prompts]
    assert in_order == (batching != "mixed")


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
    assert repr(asked) == "TransformersNextToken('gpt2', batching='single')"
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
