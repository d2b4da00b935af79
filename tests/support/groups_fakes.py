"""Records, embeddings and measures shared by the tests of group sources."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.groups.base import RetrievalTerms
from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.records import embed_documents, no_rows, read_documents
from langchain_dpicl.mechanisms.random import SecureRandom

SALT = bytes(range(32))
WORDS = ("rash", "cough", "nausea", "fever", "sleep")
QUESTION = "rash cough cough"


class WordEmbedding(Embeddings):
    """Counts words on a few hashed axes: short texts tie often, as they should."""

    def __init__(self, size: int = 6) -> None:
        self.size = size

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * self.size
        for word in text.split():
            digest = hashlib.blake2b(
                word.encode(errors="replace"), digest_size=4
            ).digest()
            vector[int.from_bytes(digest, "big") % self.size] += 1.0
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class Given(Embeddings):
    """Gives each document the vector that its text's last number counts to."""

    def __init__(self, documents: Any, question: Any = (1.0, 0.0)) -> None:
        self.documents = documents
        self.question = question

    def embed_query(self, text: str) -> list[float]:
        return self.question

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.documents[int(text.split()[-1])] for text in texts]


class Returns(Given):
    """Returns the same vectors for each call, and one for every question."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.documents


class Till:
    """Charges units as a per-unit account does, and remembers who was asked."""

    def __init__(self, poor: Iterable[str] = ()) -> None:
        self.poor = set(poor)
        self.asked: list[list[str]] = []

    def __call__(self, unit_ids: Iterable[str]) -> set[str]:
        self.asked.append(list(unit_ids))
        return {*self.asked[-1]} - self.poor


def note(unit: Any, text: str, **metadata: Any) -> Document:
    return Document(text, metadata={"unit": unit, **metadata})


NOTES = [note(i % 12, f"rash {'cough ' * (i % 5)}{i}") for i in range(48)]


def build(documents: Any = NOTES, embedding: Any = None, **changes: Any) -> Any:
    terms = {"unit_key": "unit", "n_groups": 4, **changes}
    return RetrievedGroups.from_documents(
        documents, embedding or WordEmbedding(), **terms
    )


def retrieved(
    documents: Sequence[Document],
    *,
    salt: bytes = SALT,
    embedding: Embeddings | None = None,
    random: SecureRandom | None = None,
    **changes: Any,
) -> RetrievedGroups:
    """Build as `from_documents` does, of any number of units, with a given salt."""
    given = {"unit_key": "unit", "n_groups": 4, "docs_per_group": 2, **changes}
    terms, embedding = RetrievalTerms(**given), embedding or WordEmbedding()
    lines, unit_ids = read_documents(documents, "unit")
    rows = no_rows(WordEmbedding().size)
    if unit_ids:
        rows = embed_documents(embedding, lines, unit_ids)
    index = ShardIndex.of(rows, n_shards=terms.n_groups, salt=salt)
    return RetrievedGroups(terms, embedding, index, random=random)


def contents(slots: Iterable[Iterable[Document]]) -> list[tuple[tuple[str, str], ...]]:
    """Reduce slots to what can be compared and counted."""
    return [
        tuple((str(doc.metadata["unit"]), doc.page_content) for doc in slot)
        for slot in slots
    ]


def units(slots: Iterable[Iterable[Document]]) -> set[Any]:
    """Return whose documents are in the slots."""
    return {doc.metadata["unit"] for slot in slots for doc in slot}


def bits(groups: RetrievedGroups) -> list[tuple[str, str, bytes]]:
    """Return all records as they are saved: each one's unit, text, and vector's bits.

    Those of a shard stand side by side, in the order of the search.
    """
    with tempfile.TemporaryDirectory() as name:
        groups.save(Path(name) / "saved")
        (notes,) = Path(name).rglob("*.jsonl")
        (vectors,) = Path(name).rglob("*.npy")
        lines = map(json.loads, notes.read_text().splitlines())
        return [
            (str(line["metadata"]["unit"]), line["page_content"], row.tobytes())
            for line, row in zip(lines, np.load(vectors), strict=True)
        ]


_texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@st.composite
def corpora(draw: st.DrawFn) -> list[Document]:
    """Draw a corpus; some units have records in several wards."""
    row = st.tuples(st.integers(0, 7), _texts, st.integers(0, 2))
    rows = draw(st.lists(row, min_size=1, max_size=24))
    return [note(f"p{unit}", text, ward=ward) for unit, text, ward in rows]
