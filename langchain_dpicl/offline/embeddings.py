"""Hashing embeddings: vectors without a model, a download, or a key."""

from __future__ import annotations

import struct
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_dpicl.common.parameters import count
from langchain_dpicl.offline.words import GENERIC_STEMS, STOP_STEMS, stems

_STOP_WEIGHT, _GENERIC_WEIGHT, _PAIR_WEIGHT = 0.05, 0.4, 0.3


class HashingEmbeddings(Embeddings):
    """Embeddings by signed feature hashing; a stand-in, not a language model.

    They know which words two texts share, and nothing about what they mean. A text's
    lemmas, and pairs of neighboring ones, are hashed (BLAKE2b, the same in every
    process and release) to four signed coordinates each. Words that occur around any
    subject weigh little. Vectors have Euclidean norm 1.

    Example:
        >>> embedding = HashingEmbeddings(dimensions=256)
        >>> a, b, c = embedding.embed_documents(
        ...     ["reported a cough", "Reports coughing", "a broken arm"]
        ... )
        >>> cosine = lambda x, y: sum(i * j for i, j in zip(x, y))
        >>> cosine(a, b) > cosine(a, c)
        True
    """

    def __init__(self, dimensions: int = 384) -> None:
        """Take the length of the vectors, at least 1.

        Below about 128 dimensions, unrelated words meet often enough in a coordinate
        to disturb the ranking.
        """
        self.dimensions = count(dimensions, "dimensions")

    def __repr__(self) -> str:
        return f"HashingEmbeddings(dimensions={self.dimensions})"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector of `dimensions` floats per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the text's unit vector of `dimensions` floats."""
        held = _features(text)
        # Four coordinates each: two words that meet in one, with opposite signs, would
        # vanish from a question if it were their only one.
        codes = np.array([*map(_codes, held)], np.int64).reshape(-1, 4)
        weights = np.array([*held.values()]).reshape(-1, 1)
        vector = np.bincount(
            (codes // 2 % self.dimensions).ravel(),
            weights=((1 - 2 * (codes % 2)) * weights).ravel(),
            minlength=self.dimensions,
        )
        length = float(np.linalg.norm(vector))
        if not length:
            return [1.0, *[0.0] * (self.dimensions - 1)]
        unit: list[float] = (vector / length).tolist()
        return unit


@lru_cache(maxsize=65536)
def _codes(feature: str) -> tuple[int, ...]:
    """Return four numbers, each of which tells a coordinate and a sign."""
    text = feature.encode("utf-8", "surrogatepass")
    return struct.unpack("<4I", blake2b(text, digest_size=16).digest())


def _features(text: str) -> dict[str, float]:
    """Return the weights of a text's lemmas, and of pairs of neighboring ones."""
    held = stems(text)
    content = [stem for stem in held if stem not in STOP_STEMS]
    counts = Counter(held) + Counter(map(" ".join, pairwise(content)))
    return {feature: _weight(feature) * n**0.5 for feature, n in counts.items()}


def _weight(feature: str) -> float:
    if feature in STOP_STEMS:
        return _STOP_WEIGHT
    if " " in feature:
        return _PAIR_WEIGHT
    return _GENERIC_WEIGHT if feature in GENERIC_STEMS else 1.0
