"""The public candidates of a question, as points: how answers and sums lie to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from langchain_dpicl.parsers.answer_vectors import Vectors

_SAME = 1e-9  # Candidates that are nearer to each other are the same.


@dataclass(frozen=True)
class Candidates:
    """What is public about a question.

    Attributes:
        texts: The K candidates.
        vectors: Their embeddings, shape (K, D).
        center: The public center, shape (D,).
        nothing: Embeddings of the ways to say that the records do not tell, (N, D).
    """

    texts: tuple[str, ...]
    vectors: Vectors
    center: Vectors
    nothing: Vectors

    def votes(self, rows: Sequence[Vectors]) -> list[int]:
        """Count which candidate each answer is nearest to; none is the last bin."""
        known = len(self.texts)
        both = np.concatenate([self.vectors, self.nothing])
        counts = [0] * (known + 1)
        for row in rows:
            counts[min(_nearest(row, both), known)] += 1
        return counts

    def lead(self, total: Vectors) -> float:
        """Return how far a sum lies on its first candidate's side of each other one.

        All ways to say that the records do not tell are one candidate. Along the line
        from one candidate to another, an answer is a number between -R and R.
        """
        own, nothing = self.vectors, self.nothing
        first = own[int(np.argmax(own @ total))]
        most = nothing[int(np.argmax(nothing @ total))]
        if float(most @ total) >= float(first @ total):
            first, rivals = most, own
        else:
            same = (own == first).all(axis=1)
            rivals = np.concatenate([own[~same], nothing])
        away = first - rivals
        long = np.linalg.norm(away, axis=1)
        return float(np.min((away @ total) / np.maximum(long, _SAME)))

    def nearest(self, total: Vectors) -> float:
        """Return the length of a sum in the direction of its nearest candidate.

        Directions are seen from the center. "The records do not tell" is a candidate.
        """
        away = np.concatenate([self.vectors, self.nothing]) - self.center
        long = np.linalg.norm(away, axis=1)
        return float(np.max((away @ total) / np.maximum(long, _SAME)))

    def direction(self, place: int) -> Vectors:
        """Return where a candidate lies as seen from the center, of length 1, or 0."""
        away: Vectors = self.vectors[place] - self.center
        return away / (float(np.linalg.norm(away)) or 1.0)


def _nearest(row: Vectors, vectors: Vectors) -> int:
    """Return the index of the candidate nearest to one answer.

    Computed for each answer by itself, and not by a matrix product of all: there a
    row's last bits depend on the number of rows and on its place among them, so one
    more answer could flip tied votes of all the others.
    """
    return int(np.argmax((vectors * row).sum(axis=1)))
