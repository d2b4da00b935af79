"""Qdrant's local mode: scores that depend on nothing but the record and the question.

The local mode computes all scores by one product of a matrix and a vector. In it, the
last digit of a score depends on the row in which the record stands, and so on who else
is there. One person less could swap two records of somebody else's, in another shard.
So its scores only narrow the choice, with a margin; those that count are computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_dpicl.groups.ingest import Vectors

EVERYTHING = 2**31
"""More points than the local mode can hold."""

_MARGIN = 2e-6
"""Above twice what rounding changes: 1e-6 for a thousand numbers of norm 1."""


class LocalPoint(NamedTuple):
    """A point, with a score of its own."""

    id: Any
    payload: dict[str, Any] | None
    score: float


def is_local(client: Any) -> bool:
    """Return whether a client keeps its collections itself, without a server."""
    inner = getattr(client, "_client", client)
    return type(inner).__module__.startswith("qdrant_client.local")


def near_the_best(groups: Iterable[Sequence[Any]], n: int) -> list[Any]:
    """Return the ids of all points that may be among the n best of their group.

    Args:
        groups: All points of each group, best first by the scores of the local mode.
        n: How many count.
    """
    return [
        point.id
        for points in groups
        for point in points
        if point.score >= points[:n][-1].score - _MARGIN
    ]


def rescored(
    points: Iterable[Any], vector: Vectors, using: str | None
) -> list[LocalPoint]:
    """Return points with cosines that depend on their own vector alone.

    Args:
        points: With their vectors, as the local mode keeps them, of norm 1.
        vector: The question's, norm 1, shape (1, dimension).
        using: Name of the vectors, None where there is one without a name.
    """
    question = vector[0].astype(np.float64)
    scored = []
    for point in points:
        own = point.vector[using] if using else point.vector
        # One by one, and in double precision: always the same sum of the same numbers.
        score = float(np.sum(np.asarray(own, np.float64) * question))
        scored.append(LocalPoint(point.id, point.payload, score))
    return scored
