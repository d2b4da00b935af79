"""Draws that units pay for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.groups.units import keyed_slot
from support.groups_fakes import (
    QUESTION,
    SALT,
    Till,
    WordEmbedding,
    contents,
    retrieved,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


SHARD: dict[str, Any] = {"score_threshold": 0.5}


NAMES = [f"p{i}" for i in range(8)]


Slots = list[tuple[tuple[str, str], ...]]


class Spread(WordEmbedding):
    """Spreads texts over the sphere, so that no two scores are equal."""

    def embed_query(self, text: str) -> list[float]:
        seed = keyed_slot(SALT, text, 1 << 32)
        return np.random.default_rng(seed).standard_normal(self.size).tolist()


def draw(
    documents: Sequence[Document],
    poor: Any,
    terms: dict[str, Any],
) -> tuple[Slots, list[str]]:
    """Draw; return the slots and who was asked."""
    groups = retrieved(documents, **terms)
    prepared = groups.prepare(QUESTION)
    till = Till(poor)
    slots = contents(groups.draw_prepared(prepared, collect=till))
    [asked] = till.asked
    return slots, asked
