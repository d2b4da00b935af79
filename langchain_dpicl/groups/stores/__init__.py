"""Groups from the records of a vector store: the adapters, and how to write one.

| store | how | adapter |
|---|---|---|
| LangChain's in-memory store | read out | `readers` |
| Chroma | read out; its HNSW graph is never searched | `readers` |
| PGVectorStore | searches every shard itself, in one statement | `pgvector.store` |
| the same, for millions | by an index for each shard | `PGVectorPartitions` |
| Qdrant | read out; its HNSW graph is never searched | `readers` |
| yours | either | a subclass of `VectorReader` or `ShardStore` |

`RetrievedGroups.from_vectorstore` takes the store or the adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit, VectorReader

if TYPE_CHECKING:
    from langchain_dpicl.groups.stores.pgvector.partitions import PGVectorPartitions

__all__ = [
    "PGVectorPartitions",
    "ShardStore",
    "StoredHit",
    "VectorReader",
]


def __getattr__(name: str) -> Any:
    # With SQLAlchemy and a database alone.
    if name == "PGVectorPartitions":
        from langchain_dpicl.groups.stores.pgvector import partitions

        return partitions.PGVectorPartitions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
