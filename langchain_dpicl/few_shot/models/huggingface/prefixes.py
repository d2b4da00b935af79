"""What a model has computed of *public* prompts, for the prompts that begin like them.

Only public prompts are kept. A group's prompt is another one at every token, as every
token's sample is a fresh one: there is nothing of it to use again, and a cache of it
would be private text that outlives its release.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class Prefix:
    """A *public* beginning of prompts and the model's cache of it.

    Attributes:
        tokens: The tokens that the cache covers.
        cache: Keys and values of one row, never changed in place.
    """

    tokens: tuple[int, ...]
    cache: Any

    def taken(self, length: int, rows: int) -> Any:
        """Return a cache of the first `length` tokens, for so many rows.

        It shares memory with this one, which stays as it is: layers of this kind grow
        by making new tensors.
        """
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        if length < len(self.tokens):
            cache.crop(length - len(self.tokens))
        if rows > 1:
            cache.batch_repeat_interleave(rows)
        return cache


class PublicPrefixes:
    """The public rows of late, least recently used ones dropped first.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Prefix] = []

    def add(self, prefix: Prefix) -> None:
        """Keep a public prefix; one that it goes on from gives way to it."""
        kept = [
            other
            for other in self._kept
            if other.tokens != prefix.tokens[: len(other.tokens)]
        ]
        self._kept = [*kept, prefix][-self._most :] if self._most else []

    def best(
        self, rows: Sequence[tuple[int, ...]], *, least: int = 1
    ) -> tuple[Prefix | None, int]:
        """Return the prefix that saves most, and how many tokens of it are shared.

        For one row the answer depends on that row and on public rows alone.

        Args:
            rows: Token ids; all must begin with what is shared, and be longer.
            least: Fewest shared tokens that are worth it.
        """
        found: Prefix | None = None
        most = least - 1
        for prefix in self._kept:
            shared = min(_shared(row[:-1], prefix.tokens) for row in rows)
            if shared > most:
                found, most = prefix, shared
        return found, most if found else 0


def _shared(row: Sequence[int], other: Sequence[int]) -> int:
    for place, (one, two) in enumerate(zip(row, other, strict=False)):
        if one != two:
            return place
    return min(len(row), len(other))


def is_plain(cache: Any, length: int) -> bool:
    """Tell whether a cache is keys and values of all tokens and nothing else."""
    try:
        from transformers.cache_utils import DynamicCache, DynamicLayer
    except ImportError:
        return False
    return (
        type(cache) is DynamicCache
        and bool(cache.layers)
        and all(type(layer) is DynamicLayer for layer in cache.layers)
        and cache.get_seq_length() == length
    )
