"""What the tests of stores share."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

import chromadb
from chromadb.config import Settings
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, VectorParams

from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
from support.chain_parts import EMBEDDING
from support.fakes import notes
from support.list_store import BadStore, ListStore

DIMENSION = len(EMBEDDING.embed_query("cough"))
OTHER = "Ramipril gave a skin rash."


def records(units: int = 200, others: int = 100) -> list[Document]:
    """Return two notes of each unit; the others' are of something else."""
    documents = [*notes(units), *notes(units, "Lisinopril: a cough, later.")]
    documents += [
        Document(f"{OTHER} Note {i}.", metadata={"patient": f"other-{i}"})
        for i in range(others)
    ]
    return [
        Document(one.page_content, metadata=one.metadata, id=str(uuid.UUID(int=i)))
        for i, one in enumerate(documents)
    ]


@cache
def chroma_client() -> Any:
    """Return the process's Chroma in memory: it wants equal settings every time."""
    return chromadb.EphemeralClient(Settings(anonymized_telemetry=False))


def chroma(documents: list[Document], embedding: Any = EMBEDDING) -> Chroma:
    store = Chroma(f"c{uuid.uuid4().hex}", embedding, client=chroma_client())
    if documents:
        store.add_documents(documents)
    return store


def qdrant(documents: list[Document], embedding: Any = EMBEDDING) -> QdrantVectorStore:
    client = QdrantClient(":memory:")
    params = VectorParams(size=DIMENSION, distance=Distance.COSINE)
    client.create_collection("notes", vectors_config=params)
    store = QdrantVectorStore(client, "notes", embedding)
    if documents:
        store.add_documents(documents)
    return store


def in_memory(
    documents: list[Document], embedding: Any = EMBEDDING
) -> InMemoryVectorStore:
    store = InMemoryVectorStore(embedding)
    store.add_documents(documents)
    return store


def searching(
    documents: list[Document],
    store: type[ListStore] = ListStore,
    embedding: Any = EMBEDDING,
) -> Any:
    return store(documents, embedding, unit_key="patient", dimension=DIMENSION)


def spoiled(documents: list[Document]) -> Any:
    return searching(documents, BadStore)


def opened(store: Any, **changes: Any) -> RetrievedGroups:
    terms: dict[str, Any] = {"unit_key": "patient", "n_groups": 20}
    return RetrievedGroups.from_vectorstore(store, **{**terms, **changes})


def account(scope: str = "corpus", accounting: Any = None) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=60,
        delta=1e-6,
        queries=12,
        scope=scope,
        accounting=accounting,
        ledger=":memory:",
    )


def ids(slots: list[list[Document]]) -> list[list[str | None]]:
    return [[document.id for document in slot] for slot in slots]


def patients(slots: list[list[Document]]) -> list[set[str]]:
    return [{document.metadata["patient"] for document in slot} for slot in slots]


def shared(slots: list[list[Document]]) -> set[str]:
    """Return the units that sit in more than one slot."""
    seen: set[str] = set()
    twice: set[str] = set()
    for slot in patients(slots):
        twice |= seen & slot
        seen |= slot
    return twice
