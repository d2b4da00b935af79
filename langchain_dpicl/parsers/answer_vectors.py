"""From the groups' answers to vectors: each answer alone, no failure of another's.

Privacy:
    By default an answer's vector is a function of that answer, whatever the embedding
    does with the texts of one call. An answer that can't be embedded abstains: its call
    raises, or its vector is zero, not finite or of another length. With more answers a
    call, a call that fails is made again answer by answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.embedding_calls import arun_calls, calls_of, run_calls
from langchain_dpicl.exceptions import GroupCallError
from langchain_dpicl.sealed import aattempt, attempt

Vectors = NDArray[np.float64]


def answer_vectors(
    embedding: Embeddings, texts: Sequence[str], batch_size: int, size: int
) -> list[Vectors]:
    """Return a row for each answer that can be embedded.

    Args:
        embedding: The embedding.
        texts: The answers.
        batch_size: How many of them share a call.
        size: Length of the candidates' vectors.

    Returns:
        Rows of norm at most 1, shape (size,), in the order of their answers.
    """

    def embed(places: list[int]) -> list[Vectors]:
        return _rows(_embedded(embedding, [texts[place] for place in places]), size)

    calls = calls_of(texts, batch_size)
    return list(chain.from_iterable(run_calls(embed, calls, embedding)))


async def aanswer_vectors(
    embedding: Embeddings, texts: Sequence[str], batch_size: int, size: int
) -> list[Vectors]:
    """Return a row for each answer; the async twin of `answer_vectors`."""

    async def embed(places: list[int]) -> list[Vectors]:
        asked = [texts[place] for place in places]
        return _rows(await _aembedded(embedding, asked), size)

    calls = calls_of(texts, batch_size)
    return list(chain.from_iterable(await arun_calls(embed, calls, embedding)))


def usable_row(vector: Any, size: int) -> Vectors | None:
    """Return a vector scaled to norm at most 1, or None if it can't be used.

    Example:
        >>> usable_row([3.0, 4.0], 2), usable_row([0.0, float("nan")], 2)
        (array([0.6, 0.8]), None)
    """
    try:
        # A copy: a client may fill the same array again at its next call.
        row = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if row.shape != (size,) or not np.isfinite(row).all():
        return None
    norm = float(np.linalg.norm(row))
    if not 0 < norm < np.inf:
        return None
    return row / norm if norm > 1 else row


def _embedded(embedding: Embeddings, texts: list[str]) -> list[Any]:
    """Return what one call gives for each text, None where it gives nothing."""
    found = attempt(lambda: _all(embedding.embed_documents(list(texts)), len(texts)))
    if found is None and len(texts) > 1:
        # One odd answer fails the whole call: embed each alone.
        return [_embedded(embedding, [text])[0] for text in texts]
    return found or [None]


async def _aembedded(embedding: Embeddings, texts: list[str]) -> list[Any]:
    """Return what one call gives for each text; the async twin of `_embedded`."""

    async def embed() -> list[Any]:
        return _all(await embedding.aembed_documents(list(texts)), len(texts))

    found = await aattempt(embed)
    if found is None and len(texts) > 1:
        return [(await _aembedded(embedding, [text]))[0] for text in texts]
    return found or [None]


def _all(vectors: Any, expected: int) -> list[Any]:
    """Return the vectors as a list, refusing another number than expected."""
    found = list(vectors)
    if len(found) != expected:
        raise GroupCallError("The embedding returned another number of vectors.")
    return found


def _rows(vectors: Sequence[Any], size: int) -> list[Vectors]:
    """Return the usable vectors; an answer whose vector can't be used abstains."""
    found = (attempt(partial(usable_row, vector, size)) for vector in vectors)
    return [row for row in found if row is not None]
