"""A made-up corpus with all known problems of stores."""

from __future__ import annotations

import hashlib
import unicodedata
import uuid
from collections.abc import Iterator

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

UNIT_KEY = "unit"  # The metadata key that holds the unit ids of the corpus.
DIMENSION = 8  # Length of the vectors of `KnownEmbedding`.
MANY = "p-many"  # The unit of 40 documents, more than any slot takes.
# Of one unit: 7 and "7"; the two of José; those that differ by outer spaces. Of two:
# "P-1" and "p-1".
_ODD_IDS: tuple[str | int, ...] = (
    7,
    "7",
    " 7 ",
    0,
    "-1",
    -1,
    unicodedata.normalize("NFC", "José"),
    unicodedata.normalize("NFD", "José"),
    "P-1",
    "two words",
    " two words",
    "o'hara\"; drop %s_\\",
    "100% {braces} [brackets] $1",
    "line\nbreak",
    "患者-🧪",
    "null",
    "true",
    "1.0",
    "x" * 400,
)
_ORDINARY = 60
_TEXTS = 90
_BOILERPLATE = "No complaints."
_SPACE = uuid.UUID("7d9b9d9e-2f0c-4d3c-9f5e-0d8f2f6c1a11")


class KnownEmbedding(Embeddings):
    """Gives each text a meaningless vector, the same on every machine.

    Vectors have different lengths, which reveals a store that compares inner products.

    Example:
        >>> len(KnownEmbedding().embed_query("Who coughs?")) == DIMENSION
        True
    """

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text."""
        digest = hashlib.blake2b(text.encode(), digest_size=8 * DIMENSION).digest()
        words = np.frombuffer(digest, "<u4")[: 2 * DIMENSION].astype(np.float64)
        vector = words[::2] / 2**31 - 1 + (words[1::2] / 2**31 - 1) / 2
        length = 0.5 + int(words[0]) % 4
        scaled = vector / np.linalg.norm(vector) * length
        values: list[float] = scaled.astype(np.float32).tolist()
        return values

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of some texts."""
        return [self.embed_query(text) for text in texts]


def known_corpus() -> list[Document]:
    """Return 307 documents, with ids that every store takes (UUIDs).

    Texts repeat, within a unit and across units, so that scores tie exactly.

    Example:
        >>> len(known_corpus())
        307
    """
    return [
        Document(
            text,
            metadata={UNIT_KEY: unit, "visit": visit, "ward": "north \"1\" 'a'"},
            id=str(uuid.uuid5(_SPACE, str(number))),
        )
        for number, (unit, visit, text) in enumerate(_rows())
    ]


def _rows() -> Iterator[tuple[str | int, int, str]]:
    for unit in range(_ORDINARY):
        name = f"p-{unit}"
        yield name, 0, _BOILERPLATE
        for visit in range(1, 1 + unit % 6):
            yield name, visit, _text(unit * unit + 13 * visit)
    for place, odd in enumerate(_ODD_IDS):
        for visit in range(3):
            yield odd, visit, _text(5 * place + visit)
    for visit in range(40):
        yield MANY, visit, _text(3 * visit)


def _text(number: int) -> str:
    return f"Visit report {number % _TEXTS}: résumé, 'quoted', 5 % better."
