"""Embedding the groups' answers: each by itself, so no failure affects another.

Privacy:
    An answer's vector is a function of that answer, whatever the embedding does with
    the texts of one call. An answer can't be read if it can't be embedded: its call
    raises, or its vector is zero, not finite or of another length. One call is made for
    each group that was asked, whatever it said, and none is made again: a bill counts
    the groups, which are public.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.release.flow import Flow
from langchain_dpicl.sealed import attempted
from langchain_dpicl.sealed.embedding_calls import embed_call, embed_calls

PADDING = "The records show it in several places."
"""A made-up answer, for a group that has said nothing to embed."""

Vectors = NDArray[np.float64]


def answer_vectors(
    embedding: Embeddings, texts: Sequence[str], slot_count: int, size: int
) -> Flow[list[Vectors | None]]:
    """Return a row for each answer, and None where it can't be embedded.

    Args:
        embedding: The embedding.
        texts: The answers.
        slot_count: The public number of calls; made-up answers fill up to it.
        size: Length of the candidates' vectors.

    Returns:
        Rows of norm at most 1, shape (size,), in the order of their answers.
    """
    padded = [*texts, *[PADDING] * (slot_count - len(texts))]
    each = [
        attempted(embed_call(embedding, [text], partial(_row, size=size)))
        for text in padded
    ]
    found: list[Vectors | None] = yield embed_calls(each, embedding)
    return found[: len(texts)]


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


def _row(vectors: Any, size: int) -> Vectors | None:
    """Return the vector of a call with one text, or None where it is not usable."""
    (vector,) = vectors
    return usable_row(vector, size)
