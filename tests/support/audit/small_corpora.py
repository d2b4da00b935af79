"""Corpora of a few people whose scores on each question are given."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.records import embed_documents, no_rows, read_documents

SALT = bytes(range(32))
X = "x"
_QUESTIONS = 4
_PAD = 0.25
_PADS = 16

Content = tuple[str, ...]
"""A slot's documents, in their order."""


@dataclass(frozen=True)
class Unit:
    """A person: for each document its score on each question."""

    name: str
    documents: tuple[tuple[float, ...], ...]

    def records(self) -> list[Document]:
        return [
            Document(
                f"{self.name}/{number}: {' '.join(map(str, scores))};",
                metadata={"unit": self.name},
            )
            for number, scores in enumerate(self.documents)
        ]


def people(*profiles: tuple[tuple[float, ...], ...]) -> tuple[Unit, ...]:
    """Return the other units: a, b, c, ..."""
    return tuple(Unit(chr(ord("a") + i), found) for i, found in enumerate(profiles))


def unit_x(*documents: tuple[float, ...]) -> Unit:
    """Return the unit by which the worlds differ."""
    return Unit(X, documents)


def names(content: Content) -> list[str]:
    """Return whose documents they are."""
    return [document.split("/")[0] for document in content]


class GivenScores(Embeddings):
    """A document's text holds its scores; question i is the i-th axis.

    Multiples of a quarter are exact in every step of the library, so that ties at a
    threshold are ties.
    """

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * (_QUESTIONS + _PADS)
        vector[int(text)] = 1.0
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._document(text) for text in texts]

    def _document(self, text: str) -> list[float]:
        scores = [float(score) for score in text.rstrip(";").split(": ")[1].split()]
        scores += [0.0] * (_QUESTIONS - len(scores))
        rest = 1 - sum(score**2 for score in scores)
        pads = rest / _PAD**2
        if pads != int(pads):
            return [*scores, math.sqrt(rest), *[0.0] * (_PADS - 1)]
        return [*scores, *[_PAD] * int(pads), *[0.0] * (_PADS - int(pads))]


EMBEDDING = GivenScores()


@functools.cache
def built_index(units: tuple[Unit, ...], n_groups: int) -> ShardIndex:
    """Return the index of a corpus, which may be empty."""
    documents = [record for unit in units for record in unit.records()]
    lines, unit_ids = read_documents(documents, "unit")
    rows = no_rows(_QUESTIONS + _PADS)
    if unit_ids:
        rows = embed_documents(EMBEDDING, lines, unit_ids)
    return ShardIndex.of(rows, n_shards=n_groups, salt=SALT)
