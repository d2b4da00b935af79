"""Groups from the records of a vector store: the adapters, and how to write one.

| store | how | adapter |
|---|---|---|
| LangChain's in-memory store | read out | `readers` |
| Chroma | read out; its HNSW graph is never searched | `readers` |
| PGVectorStore | searches every shard itself, in one statement | `pgvector.store` |
| the same, for millions | by an index for each shard | `PGVectorPartitions` |
| Qdrant | read out; its HNSW graph is never searched | `readers` |
| yours | either | a subclass of `VectorReader` or `ShardStore` |

`RetrievedGroups.from_vectorstore` takes the store or the adapter. `check_shard_store`
and `check_vector_reader` test an adapter of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit, VectorReader

if TYPE_CHECKING:
    from langchain_dpicl.groups.stores.conformance import (
        check_shard_store,
        check_vector_reader,
    )
    from langchain_dpicl.groups.stores.pgvector.partitions import PGVectorPartitions

__all__ = [
    "PGVectorPartitions",
    "ShardStore",
    "StoredHit",
    "VectorReader",
    "check_shard_store",
    "check_vector_reader",
]


def __getattr__(name: str) -> Any:
    # With SQLAlchemy and a database alone.
    if name == "PGVectorPartitions":
        from langchain_dpicl.groups.stores.pgvector import partitions

        return partitions.PGVectorPartitions
    # For tests alone: no service loads it.
    if name in ("check_shard_store", "check_vector_reader"):
        from langchain_dpicl.groups.stores import conformance

        return getattr(conformance, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
