"""Embedding the groups' answers: each by itself, so no failure affects another.

Privacy:
    By default an answer's vector is a function of that answer, whatever the embedding
    does with the texts of one call. An answer that can't be embedded abstains: its call
    raises, or its vector is zero, not finite or of another length. If answers share a
    call that fails, each is embedded again by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.exceptions import GroupCallError
from langchain_dpicl.release.flow import Do, Flow
from langchain_dpicl.sealed import attempt, attempted
from langchain_dpicl.sealed.embedding_calls import calls_of, embed_call, embed_calls

Vectors = NDArray[np.float64]


def answer_vectors(
    embedding: Embeddings, texts: Sequence[str], batch_size: int, size: int
) -> Flow[list[Vectors]]:
    """Return a row for each answer that can be embedded.

    Args:
        embedding: The embedding.
        texts: The answers.
        batch_size: How many of them share a call.
        size: Length of the candidates' vectors.

    Returns:
        Rows of norm at most 1, shape (size,), in the order of their answers.
    """

    def embed(calls: list[list[int]]) -> Do:
        each = [
            embed_call(
                embedding,
                [texts[place] for place in places],
                partial(_rows, expected=len(places), size=size),
            )
            for places in calls
        ]
        return embed_calls(list(map(attempted, each)), embedding)

    calls = calls_of(texts, batch_size)
    found = yield embed(calls)
    # One odd answer fails the whole call: embed each alone.
    failed = [own for own, rows in zip(calls, found, strict=True) if rows is None]
    alone = [[place] for own in failed if len(own) > 1 for place in own]
    again = yield embed(alone)
    row_of = {
        place: row
        for own, rows in zip(chain(calls, alone), chain(found, again), strict=True)
        for place, row in zip(own, rows or (), strict=False)
    }
    ordered = (row_of.get(place) for own in calls for place in own)
    return [row for row in ordered if row is not None]


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


def _rows(vectors: Any, expected: int, size: int) -> list[Vectors | None]:
    """Return one call's vector for each text; None where it is not usable."""
    found = list(vectors)
    if len(found) != expected:
        raise GroupCallError("The embedding returned another number of vectors.")
    return [attempt(partial(usable_row, vector, size)) for vector in found]
