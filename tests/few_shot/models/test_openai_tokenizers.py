"""Tokenizers behind one face."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.openai.tokenizers import LocalTokenizer

TEXT = "Two  spaces, naïve café 北京 🙂 <|end|>"


def byte_level() -> Tokenizer:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["two spaces and a café"] * 4, trainer)
    return bpe


END = {"eos_token": "<|end|>"}

KINDS: dict[str, Any] = {
    "tokenizers": byte_level(),
    "transformers": PreTrainedTokenizerFast(tokenizer_object=byte_level(), **END),
    "own": SimpleNamespace(
        encode=lambda text: list(text.encode()),
        decode=lambda ids: bytes(ids).decode(errors="replace"),
        vocabulary_size=256,
    ),
}


@pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS.keys())
def test_texts_come_back_as_they_were(tokenizer: Any) -> None:
    local = LocalTokenizer.of(tokenizer)
    ids = local.encode(TEXT)
    assert all(type(token) is int for token in ids)
    assert local.decode(ids) == TEXT
    assert local.size is not None
    assert set(ids) <= set(range(local.size))


def test_ends_are_the_tokenizers_own() -> None:
    assert LocalTokenizer.of(KINDS["transformers"]).ends == {0}
    assert LocalTokenizer.of(KINDS["tokenizers"]).ends == frozenset()
    assert LocalTokenizer.of(KINDS["own"]).ends == frozenset()


@pytest.mark.parametrize("wrong", ["gpt2", None, SimpleNamespace(encode=len)])
def test_what_is_no_tokenizer_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidParameterError, match="encode"):
        LocalTokenizer.of(wrong)
