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

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.offline import HashingEmbeddings
from support.fakes import notes

EMBEDDING = HashingEmbeddings()
QUESTION = "What did lisinopril give?"
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


def opened(store: Any, **changes: Any) -> RetrievedGroups:
    terms: dict[str, Any] = {"unit_key": "patient", "n_groups": 20}
    return RetrievedGroups.from_vectorstore(store, **{**terms, **changes})


def ids(slots: list[list[Document]]) -> list[list[str | None]]:
    return [[document.id for document in slot] for slot in slots]


def patients(slots: list[list[Document]]) -> list[set[str]]:
    return [{document.metadata["patient"] for document in slot} for slot in slots]
