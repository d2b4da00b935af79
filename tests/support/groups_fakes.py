"""Fakes and measures shared by the tests of group sources."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl.groups import RetrievedGroups, shard_of
from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.ingest import embed_documents, take_documents
from langchain_dpicl.groups.records import Records
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.mechanisms.random import SecureRandom

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


class Spread(WordEmbedding):
    """Spreads texts over the sphere, so that no two scores are equal."""

    def embed_query(self, text: str) -> list[float]:
        seed = shard_of(f"{text}.", SALT, 1 << 32)
        vector: list[float] = (
            np.random.default_rng(seed).normal(size=self.size).tolist()
        )
        return vector


class Given(Embeddings):
    """Gives each document the vector that its text's last number counts to."""

    def __init__(self, documents: Any, question: Any = (1.0, 0.0)) -> None:
        self.documents = documents
        self.question = question

    def embed_query(self, text: str) -> list[float]:
        return self.question

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.documents[int(text.split()[-1])] for text in texts]


class Returns(Embeddings):
    """Returns fixed vectors for each call, and one for every question."""

    def __init__(self, documents: Any, question: Any = (1.0, 0.0)) -> None:
        self.documents = documents
        self.question = question

    def embed_query(self, text: str) -> list[float]:
        return self.question

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.documents


class Scripted(SecureRandom):
    """Hands out the words that the test planned, call by call."""

    is_seeded = True

    def __init__(self, *calls: Iterable[int]) -> None:
        super().__init__()
        self.calls = [np.array(list(call), dtype=np.uint64) for call in calls]

    def words(self, count: int) -> np.ndarray:
        words = self.calls.pop(0)
        assert len(words) == count
        return words


class Till:
    """Charges units as a per-unit account does, and remembers who was asked."""

    def __init__(self, poor: Iterable[str] = ()) -> None:
        self.poor = set(poor)
        self.asked: list[list[str]] = []

    def __call__(self, unit_ids: Iterable[str]) -> set[str]:
        asked = sorted(unit_ids)
        self.asked.append(asked)
        return {*asked} - self.poor


def note(unit: Any, text: str, **metadata: Any) -> Document:
    return Document(text, metadata={"unit": unit, **metadata})


def retrieved(
    documents: Sequence[Document],
    *,
    n_groups: int = 4,
    docs_per_group: int = 2,
    score_threshold: Any = None,
    sampling_rate: float = 1.0,
    salt: bytes = SALT,
    embedding: Embeddings | None = None,
    random: SecureRandom | None = None,
) -> RetrievedGroups:
    """Build as `from_documents` does, with a salt of the test's choice."""
    terms = RetrievalTerms(
        unit_key="unit",
        n_groups=n_groups,
        docs_per_group=docs_per_group,
        score_threshold=score_threshold,
        sampling_rate=sampling_rate,
    )
    embedding = embedding or WordEmbedding()
    taken, unit_ids = take_documents(documents, "unit")
    if taken:
        vectors = embed_documents(embedding, taken, unit_ids)
    else:
        vectors = np.empty((0, WordEmbedding().size), np.float32)
    index = ShardIndex.of(vectors, taken, unit_ids, n_shards=n_groups, salt=salt)
    return RetrievedGroups(terms, Records(terms, embedding, index), random)


def contents(slots: Iterable[Iterable[Document]]) -> list[tuple[tuple[str, str], ...]]:
    """Reduce slots to what can be compared and counted."""
    return [
        tuple((str(doc.metadata["unit"]), doc.page_content) for doc in slot)
        for slot in slots
    ]


def slots_changed(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Count the numbered slots that differ."""
    assert len(before) == len(after)
    return sum(one != other for one, other in zip(before, after, strict=True))


def slots_in_and_out(before: Iterable[Any], after: Iterable[Any]) -> tuple[int, int]:
    """Count the slots that are new, and those that are gone, whatever their order."""
    old, new = Counter(before), Counter(after)
    return (new - old).total(), (old - new).total()


def units_in(slot: Iterable[tuple[str, str]]) -> set[str]:
    return {unit for unit, _ in slot}


def shared_units(slots: Sequence[Iterable[tuple[str, str]]]) -> set[str]:
    """Return the units that sit in more than one slot."""
    counts = Counter(unit for slot in slots for unit in units_in(slot))
    return {unit for unit, count in counts.items() if count > 1}


_texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[Document], list[Document], str]:
    """Draw a corpus, the same corpus without one unit, and the unit's id."""
    rows = draw(st.lists(st.tuples(st.integers(0, 7), _texts), min_size=1, max_size=24))
    documents = [note(f"p{unit}", text) for unit, text in rows]
    gone = draw(st.sampled_from(sorted({doc.metadata["unit"] for doc in documents})))
    rest = [doc for doc in documents if doc.metadata["unit"] != gone]
    return documents, rest, gone


NOTES = [note(i % 12, f"rash {'cough ' * (i % 5)}{i}") for i in range(48)]


def build(documents: Any = NOTES, embedding: Any = None, **changes: Any) -> Any:
    terms = {"unit_key": "unit", "n_groups": 4, **changes}
    return RetrievedGroups.from_documents(
        documents, embedding or WordEmbedding(), **terms
    )
