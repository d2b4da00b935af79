"""Hashing embeddings: vectors without a model, a download, or a key."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.common.parameters import count
from langchain_dpicl.offline.words import GENERIC_STEMS, STOP_STEMS, stems

_STOP_WEIGHT = 0.05
_GENERIC_WEIGHT = 0.4
_BIGRAM_WEIGHT = 0.3
_MASK = (1 << 64) - 1
# Odd, so that multiplying permutes the 64-bit hashes (the golden ratio's bits).
_MIX = 0x9E3779B97F4A7C15
# One multiplier per coordinate of a feature. With a single coordinate, two words of a
# question that meet there with opposite signs would vanish from it.
_SPREAD = np.array(
    [_MIX, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93],
    dtype=np.uint64,
)
# No word is empty, so this feature belongs to texts without words alone.
_NO_WORDS = ""


class HashingEmbeddings(Embeddings):
    """Embeddings by signed feature hashing; a stand-in, not a language model.

    For trying things out and for tests: it knows which words two texts share and
    nothing about what they mean. Texts are cut into case-folded Unicode words, each
    reduced to a light English stem; stems and pairs of neighboring content stems are
    hashed (BLAKE2b, the same in every process and release) to four signed coordinates.
    A feature's weight grows with the logarithm of its count; stop words and words
    that occur around any subject weigh little. Vectors have Euclidean norm 1. A text
    without words gets one fixed unit vector of its own.

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
        """Prepare the embeddings.

        Args:
            dimensions: Length of the vectors, at least 1. Below about 128, unrelated
                words meet in a coordinate often enough to disturb the ranking.

        Raises:
            InvalidParameterError: If `dimensions` is not an integer of at least 1.
        """
        self.dimensions = count(dimensions, "dimensions")

    def __repr__(self) -> str:
        return f"HashingEmbeddings(dimensions={self.dimensions})"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector of `dimensions` floats per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the text's unit vector of `dimensions` floats."""
        hashes, weights = _features(stems(text))
        vector = self._fold(hashes, weights)
        norm = math.sqrt(float(vector @ vector))
        if norm == 0.0:  # No words, or features that canceled each other exactly.
            vector = self._fold([_hash(_NO_WORDS)], [1.0])
            norm = math.sqrt(float(vector @ vector))
        unit: list[float] = (vector / norm).tolist()
        return unit

    async def aembed_query(self, text: str) -> list[float]:
        """Return the text's unit vector; too quick to be worth a thread."""
        return self.embed_query(text)

    def _fold(self, hashes: list[int], weights: list[float]) -> NDArray[np.float64]:
        """Add up signed weights by coordinate, several coordinates per feature."""
        # Multiplication wraps around: 64-bit hashes to 64-bit hashes.
        codes = np.array(hashes, dtype=np.uint64)[:, None] * _SPREAD
        signs = 1.0 - 2.0 * (codes >> np.uint64(63)).astype(np.float64)
        places = (codes >> np.uint64(20)) % np.uint64(self.dimensions)
        folded: NDArray[np.float64] = np.bincount(
            places.astype(np.intp).ravel(),
            weights=(signs * np.array(weights)[:, None]).ravel(),
            minlength=self.dimensions,
        ).astype(np.float64)  # Without features, NumPy counts in integers.
        return folded


@lru_cache(maxsize=65536)
def _hash(feature: str) -> int:
    digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@lru_cache(maxsize=65536)
def _weight(word: str) -> float:
    if word in STOP_STEMS:
        return _STOP_WEIGHT
    return _GENERIC_WEIGHT if word in GENERIC_STEMS else 1.0


def _features(text_stems: list[str]) -> tuple[list[int], list[float]]:
    """Return hashes and weights of the distinct stems and of their pairs."""
    hashes: list[int] = []
    weights: list[float] = []
    for word, times in Counter(text_stems).items():
        hashes.append(_hash(word))
        weights.append(_weight(word) * (1.0 + math.log(times)))
    content = [word for word in text_stems if word not in STOP_STEMS]
    for (first, second), times in Counter(pairwise(content)).items():
        # Not symmetric in the two, so that a pair keeps its order.
        code = ((_hash(first) * _MIX & _MASK) ^ _hash(second)) * _MIX & _MASK
        hashes.append(code)
        heft = math.sqrt(_weight(first) * _weight(second))
        weights.append(_BIGRAM_WEIGHT * heft * (1.0 + math.log(times)))
    return hashes, weights
