"""A language model in this process answers each prompt by itself, over all its tokens.

The figures are the model's own over its whole vocabulary. What it says of a prompt has
the same bits whatever else is asked with it, and a prompt that can't be asked is left
out, alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from faces import few_shot, generator

pytestmark = pytest.mark.whole
TEXTS = ["Label: color\nText:", "red green", "x", "Where is the town of Oak? " * 3]
CONTEXT, END = 128, "<end>"


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any]:
    """A tiny model with random weights, and a tokenizer of single bytes."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytes_alone = Tokenizer(models.BPE({c: n for n, c in enumerate(alphabet)}, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone, **dict.fromkeys(["eos_token", "pad_token"], END)
    )
    config = transformers.LlamaConfig(
        vocab_size=len(alphabet),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    torch.set_num_threads(1)
    torch.manual_seed(3)
    return transformers.LlamaForCausalLM(config).eval(), tokenizer


def ask(parts: tuple[Any, Any], texts: list[str]) -> list[Any]:
    """Return the log-probabilities of all tokens after each text."""
    adapter = few_shot.TransformersNextToken(*parts)
    prompts = [few_shot.TokenPrompt(text) for text in texts]
    return adapter.log_probabilities(prompts, [None] * len(texts))


@pytest.mark.promise("next-token-alone")
def test_figures_are_the_models_own_whatever_else_is_asked(parts: Any) -> None:
    import torch

    model, tokenizer = parts
    together = ask(parts, TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        tokens = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            logits = model(tokens).logits[0, -1].double()
        expected = torch.log_softmax(logits, -1).numpy()
        assert np.exp(found).sum() == pytest.approx(1)
        assert np.allclose(found, expected, atol=1e-4)
        (alone,) = ask(parts, [text])
        assert (alone == found).all(), "to the bit"


@pytest.mark.promise("next-token-alone")
def test_a_prompt_that_can_not_be_asked_is_left_out_alone(parts: Any) -> None:
    alone = ask(parts, TEXTS)
    first, long, *rest = ask(parts, [TEXTS[0], "x" * 2 * CONTEXT, *TEXTS[1:]])
    assert long is None
    for found, expected in zip([first, *rest], alone, strict=True):
        assert (found == expected).all()


@pytest.mark.promise("next-token-alone")
def test_it_writes_examples(parts: Any) -> None:
    records = [{"text": f"red {n}", "label": "color"} for n in range(30)]
    adapter = few_shot.TransformersNextToken(*parts)
    terms = {"n_groups": 15, "records_per_group": 2, "max_tokens": 3, "top_k_public": 9}
    made = generator(adapter, ["color"], epsilon=200.0, **terms)
    examples = made.generate(records, progress=False)
    assert examples.record["parameters"]["tokens_released"] == 3
    assert examples.record["model"] == adapter.name
