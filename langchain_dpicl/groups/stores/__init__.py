"""Groups from the records of a vector store: the adapters, and how to write one.

| store | how | adapter |
|---|---|---|
| LangChain's in-memory store | read out | `readers` |
| Chroma | read out; its HNSW graph is never searched | `readers` |
| PGVectorStore | searches every shard itself, in one statement | `pgvector.store` |
| Qdrant | read out; its HNSW graph is never searched | `readers` |
| yours | either | a subclass of `VectorReader` or `ShardStore` |

`RetrievedGroups.from_vectorstore` takes the store or the adapter.
"""

from __future__ import annotations

from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit, VectorReader

__all__ = ["ShardStore", "StoredHit", "VectorReader"]
