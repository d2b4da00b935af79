"""A next-token model without a network: it knows what its prompt's records say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from langchain_dpicl.few_shot.model import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)

_RECORD = re.compile(r"^Text: ([^.\n]+)", re.MULTILINE)
_UNSEEN = 0.01


class OfflineNextToken(NextTokenModel):
    """After a word comes what follows it in the first sentence of the prompt's records.

    A token is a word. The model has learned nothing: without records every word is as
    likely as the others.

    Args:
        words: The vocabulary, public.

    Example:
        >>> from langchain_dpicl.few_shot import TokenPrompt
        >>> model = OfflineNextToken(["parcel", "my", "lost"])
        >>> prompt = TokenPrompt("Text: my parcel", (2,))
        >>> [model.decode(best) for best in model.top_tokens([prompt], 1)]
        ['parcel']
    """

    name: str = "offline next token"
    end_tokens: frozenset[int] = frozenset({0})
    vocabulary_size: int | None = None

    def __init__(self, words: Iterable[str]) -> None:
        self._words = ["", *sorted(set(words))]
        self._ids = {word: number for number, word in enumerate(self._words)}
        self.vocabulary_size = len(self._words)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the words of tokens."""
        return " ".join(self._words[token] for token in tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the k likeliest words after each prompt."""
        rows = [self._row(prompt) for prompt in prompts]
        return [np.argsort(-row, kind="stable")[:k] for row in rows]

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely the given words are after each prompt."""
        rows = [self._row(prompt) for prompt in prompts]
        return [
            row if asked is None else row[asked]
            for row, asked in zip(rows, tokens, strict=True)
        ]

    def _row(self, prompt: TokenPrompt) -> LogProbabilities:
        counts = np.full(len(self._words), _UNSEEN)
        last = prompt.generated[-1] if prompt.generated else 0
        for text in _RECORD.findall(prompt.text):
            ids = [self._ids[word] for word in text.split() if word in self._ids]
            for before, after in zip([0, *ids], [*ids, 0], strict=True):
                counts[after] += before == last
        return np.asarray(np.log(counts / counts.sum()), np.float64)
