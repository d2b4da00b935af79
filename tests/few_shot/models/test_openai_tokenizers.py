"""Tokenizers behind one face, and texts that mean one token only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.openai.tokenizers import LocalTokenizer, Spellings

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


def of_tiktoken() -> tiktoken.Encoding:
    single = {bytes([byte]): byte for byte in range(256)}
    return tiktoken.Encoding(
        "letters",
        pat_str=r"\w+|\W",
        mergeable_ranks={**single, b"an": 256},
        special_tokens={"<|endoftext|>": 258},
    )


END = {"eos_token": "<|end|>"}

KINDS: dict[str, Any] = {
    "tokenizers": byte_level(),
    "transformers": PreTrainedTokenizerFast(tokenizer_object=byte_level(), **END),
    "tiktoken": of_tiktoken(),
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
    assert LocalTokenizer.of(KINDS["tiktoken"]).ends == {258}
    assert LocalTokenizer.of(KINDS["tokenizers"]).ends == frozenset()
    assert LocalTokenizer.of(KINDS["own"]).ends == frozenset()


def test_marks_in_a_record_are_text_to_tiktoken() -> None:
    assert 258 not in LocalTokenizer.of(KINDS["tiktoken"]).encode("<|endoftext|>")


@pytest.mark.parametrize("kind", ["tokenizers", "transformers", "own"])
def test_texts_that_look_the_same_mean_no_token(kind: str) -> None:
    local = LocalTokenizer.of(KINDS[kind])
    spellings = Spellings.of(local)
    assert "\ufffd" not in spellings.ids
    # The bytes that are no text by themselves.
    assert len(spellings.known) == (local.size or 0) - 128
    for text, token in spellings.ids.items():
        assert local.decode([token]) == text
    told = {"a": -1.0, "\ufffd": -2.0, "no such token": -3.0}
    assert list(spellings.by_id(told).values()) == [-1.0]


def test_openais_bytes_are_told_apart() -> None:
    local = LocalTokenizer.of(KINDS["tiktoken"])
    spellings = Spellings.of(local)
    assert spellings.ids["bytes:\\xe2"] == 0xE2
    assert spellings.ids["an"] == 256
    assert spellings.ids["<|endoftext|>"] == 258
    # 257 is no token.
    assert spellings.known == {*range(257), 258}


@pytest.mark.parametrize("wrong", ["gpt2", None, SimpleNamespace(encode=len)])
def test_what_is_no_tokenizer_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidParameterError, match="encode"):
        LocalTokenizer.of(wrong)


def test_texts_need_to_know_all_tokens() -> None:
    unknown = SimpleNamespace(encode=KINDS["own"].encode, decode=KINDS["own"].decode)
    with pytest.raises(InvalidParameterError, match="vocabulary_size"):
        Spellings.of(LocalTokenizer.of(unknown))
