"""Tokenizers of the user's behind one face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.errors import InvalidParameterError


@dataclass(frozen=True, repr=False)
class LocalTokenizer:
    """One of the common tokenizers behind one face.

    `encode` puts what the model wants before a prompt.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    ends: frozenset[int] = frozenset()
    size: int | None = None

    @classmethod
    def of(cls, tokenizer: Any) -> LocalTokenizer:
        """Read a tokenizer of `tokenizers` or `transformers`, or your own.

        Anything with `encode(text)` and `decode(ids)` will do.
        """
        encode, decode = (getattr(tokenizer, n, None) for n in ("encode", "decode"))
        if not callable(encode) or not callable(decode):
            raise InvalidParameterError(
                "tokenizer must have encode(text) and decode(ids): pass a tokenizer of "
                f"transformers or tokenizers, not {type(tokenizer).__name__}."
            )
        if hasattr(tokenizer, "get_vocab_size"):
            return _of_tokenizers(tokenizer)
        if hasattr(tokenizer, "eos_token_id"):
            return _of_transformers(tokenizer)
        size = getattr(tokenizer, "vocabulary_size", None)
        return cls(
            encode=lambda text: [int(token) for token in encode(text)],
            decode=lambda ids: str(decode(ids)),
            size=size if isinstance(size, int) else None,
        )


def _of_tokenizers(tokenizer: Any) -> LocalTokenizer:
    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    return LocalTokenizer(
        encode=lambda text: list(tokenizer.encode(text).ids),
        decode=decode,
        size=int(tokenizer.get_vocab_size()),
    )


def _of_transformers(tokenizer: Any) -> LocalTokenizer:
    def decode(ids: list[int]) -> str:
        return str(
            tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    end = tokenizer.eos_token_id
    return LocalTokenizer(
        encode=lambda text: list(tokenizer(text)["input_ids"]),
        decode=decode,
        ends=frozenset() if end is None else frozenset({int(end)}),
        size=len(tokenizer),
    )
