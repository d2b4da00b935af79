"""Write a Llama with random weights and a tokenizer of its own, without any download.

It runs in the server's environment: `python make_tiny_model.py FOLDER`. What the model
says is noise; what it *can* be made to say (labels, token by token) is what the server
tests need. All sizes are as small as vLLM's CPU build takes: it refuses head sizes
below 32, and 64 is the smallest that all its attention kernels have.
"""

from __future__ import annotations

import sys
from pathlib import Path

CONTEXT = 2048
"""Most tokens of a prompt and its answer together."""

MOST_TOKENS = 512
HEAD = 64
SEED = 20

# Words that should be one token each; the rest falls apart into pieces and bytes.
TRAINING_TEXT = (
    "Lisinopril gave a dry cough. Note one of a patient with a skin rash. "
    "Answer the question from the records below in one short sentence. "
    "If the records do not say, answer I do not know. Records: Question: Answer: "
    "with the following word suggestions ranked by their frequency "
    "positive negative yes no cough rash nausea delivery billing refund "
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tiny_model(folder: Path) -> None:
    """Write the model and its tokenizer to a folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=2 * HEAD,
        intermediate_size=4 * HEAD,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    folder.mkdir(parents=True, exist_ok=True)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer():  # noqa: ANN202 - transformers is not where this file is checked
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    roles = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=MOST_TOKENS,
        special_tokens=roles,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Once with a space before each word and once without one.
    words = TRAINING_TEXT.split()
    bpe.train_from_iterator([TRAINING_TEXT, *words] * 4, trainer)
    end = {"eos_token": "<|end|>", "pad_token": "<|end|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **end)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


if __name__ == "__main__":
    make_tiny_model(Path(sys.argv[1]))
