"""Tokenizers of the user's, and which tokens a server that tells texts may mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_dpicl.errors import InvalidParameterError

_SEVERAL = -1  # In place of an id: more than one token looks like this.


@dataclass(frozen=True, repr=False)
class LocalTokenizer:
    """One of the common tokenizers behind one face.

    `encode` puts what the model wants before a prompt; `spelled` is how a server that
    tells texts calls a token, None where there is no such token.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    ends: frozenset[int] = frozenset()
    size: int | None = None
    spelled: Callable[[int], str | None] = field(default=lambda _token: None)

    @classmethod
    def of(cls, tokenizer: Any) -> LocalTokenizer:
        """Read a tokenizer of `tiktoken`, `tokenizers` or `transformers`, or your own.

        Anything with `encode(text)` and `decode(ids)` will do.
        """
        encode, decode = (getattr(tokenizer, n, None) for n in ("encode", "decode"))
        if not callable(encode) or not callable(decode):
            raise InvalidParameterError(
                "tokenizer must have encode(text) and decode(ids): pass a tokenizer of "
                f"transformers, tokenizers or tiktoken, not {type(tokenizer).__name__}."
            )
        if hasattr(tokenizer, "decode_single_token_bytes"):
            return _of_tiktoken(tokenizer)
        if hasattr(tokenizer, "get_vocab_size"):
            return _of_tokenizers(tokenizer)
        if hasattr(tokenizer, "eos_token_id"):
            return _of_transformers(tokenizer)
        size = getattr(tokenizer, "vocabulary_size", None)
        return cls(
            encode=lambda text: [int(token) for token in encode(text)],
            decode=lambda ids: str(decode(ids)),
            size=size if isinstance(size, int) else None,
            spelled=lambda token: str(decode([token])),
        )


def _of_tiktoken(tokenizer: Any) -> LocalTokenizer:
    def spelled(token: int) -> str | None:
        try:
            raw: bytes = tokenizer.decode_single_token_bytes(token)
        except KeyError:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # As OpenAI's API writes what is no text by itself.
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    return LocalTokenizer(
        # Marks of special tokens in a record are text like any other.
        encode=lambda text: list(tokenizer.encode_ordinary(text)),
        decode=lambda ids: str(tokenizer.decode(ids)),
        ends=frozenset({int(tokenizer.eot_token)}),
        size=int(tokenizer.n_vocab),
        spelled=spelled,
    )


def _of_tokenizers(tokenizer: Any) -> LocalTokenizer:
    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    return LocalTokenizer(
        encode=lambda text: list(tokenizer.encode(text).ids),
        decode=decode,
        size=int(tokenizer.get_vocab_size()),
        spelled=lambda token: decode([token]),
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
        spelled=lambda token: decode([token]),
    )


@dataclass(frozen=True, repr=False)
class Spellings:
    """Which token a text means, where it means one only.

    Texts collide: of a byte-level tokenizer's tokens many are no text by themselves and
    all look the same. What can't be told apart is not named here, so that no
    probability is put down to the wrong token.
    """

    ids: dict[str, int]

    @classmethod
    def of(cls, tokenizer: LocalTokenizer) -> Spellings:
        """Spell all of a tokenizer's tokens, if it says how many it has."""
        if tokenizer.size is None:
            raise InvalidParameterError(
                "The server names tokens by their text, and the tokenizer does not say "
                "how many tokens there are. Pass a tokenizer of transformers, "
                "tokenizers or tiktoken, or one with a vocabulary_size."
            )
        ids: dict[str, int] = {}
        for token in range(tokenizer.size):
            if text := tokenizer.spelled(token):
                ids[text] = _SEVERAL if text in ids else token
        return cls({text: token for text, token in ids.items() if token != _SEVERAL})

    @property
    def known(self) -> frozenset[int]:
        """The tokens that can be told apart."""
        return frozenset(self.ids.values())

    def by_id(self, read: dict[str, float]) -> dict[int, float]:
        """Return the figures of those tokens that can be told apart."""
        return {self.ids[text]: p for text, p in read.items() if text in self.ids}
