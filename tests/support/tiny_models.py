"""Tiny causal models of several families with random weights, made without a download.

What they say is noise, but far from flat: a flat model would hide a wrong position.
The tokenizer is the one that the provider tests serve (tests/system/servers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from support.servers.make_tiny_model import _tokenizer

CONTEXT = 96
SPARE_IDS = 7
"""Ids that the models have and the tokenizer has not."""

WIDTH = 32


@cache
def tiny_tokenizer(*, bos: bool = False) -> Any:
    """Return the tokenizer, with a BOS token before every text if asked."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = _tokenizer()
    if bos:
        first = "<|system|>"
        tokenizer.bos_token = first
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{first} $A",
            special_tokens=[(first, tokenizer.convert_tokens_to_ids(first))],
        )
    return tokenizer


def tiny_model(family: str = "llama", *, seed: int = 3, **changes: Any) -> Any:
    """Return a model of a family in evaluation mode, the same for the same seed."""
    import torch
    import transformers as tf

    common: dict[str, Any] = {
        "vocab_size": len(tiny_tokenizer()) + SPARE_IDS,
        "bos_token_id": None,
        "eos_token_id": tiny_tokenizer().eos_token_id,
        "pad_token_id": tiny_tokenizer().eos_token_id,
    }
    rotary: dict[str, Any] = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT,
    }
    makers: dict[str, Callable[[], Any]] = {
        "gpt2": lambda: tf.GPT2LMHeadModel(
            tf.GPT2Config(
                n_embd=WIDTH,
                n_layer=2,
                n_head=4,
                n_positions=CONTEXT,
                **common,
                **changes,
            )
        ),
        "llama": lambda: tf.LlamaForCausalLM(
            tf.LlamaConfig(**{**rotary, **common, **changes})
        ),
        "opt": lambda: tf.OPTForCausalLM(
            tf.OPTConfig(
                hidden_size=WIDTH,
                ffn_dim=2 * WIDTH,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=CONTEXT,
                word_embed_proj_dim=WIDTH,
                **common,
                **changes,
            )
        ),
        "bloom": lambda: tf.BloomForCausalLM(
            tf.BloomConfig(hidden_size=WIDTH, n_layer=2, n_head=4, **common, **changes)
        ),
        "qwen2": lambda: tf.Qwen2ForCausalLM(
            tf.Qwen2Config(**{**rotary, "num_key_value_heads": 2, **common, **changes})
        ),
        "mistral": lambda: tf.MistralForCausalLM(
            tf.MistralConfig(
                **{**rotary, "num_key_value_heads": 2, "sliding_window": 8},
                **common,
                **changes,
            )
        ),
        "mixtral": lambda: tf.MixtralForCausalLM(
            tf.MixtralConfig(
                **{**rotary, "num_key_value_heads": 2, **common, **changes}
            )
        ),
    }
    # Threads cost models of this size more than they save.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = makers[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Weights of the size that families start from say the same of every text.
            parameter.add_(0.15 * torch.randn(parameter.shape))
    return model
