"""Opening a store: which adapter fits it, and which key is used.

An adapter is found by the names of the store's base classes, so a library is imported
only if the user has an object of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_core.vectorstores import VectorStoreRetriever

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.ingest import check_embedding
from langchain_dpicl.groups.stores.contract import ShardStore, VectorReader
from langchain_dpicl.groups.stores.live import LiveRecords
from langchain_dpicl.groups.stores.snapshot import SnapshotRecords
from langchain_dpicl.groups.terms import check_enough_units
from langchain_dpicl.groups.units import check_salt

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.groups.records import Records
    from langchain_dpicl.groups.terms import RetrievalTerms

_HERE = "langchain_dpicl.groups.stores"

_OLD = "PGVector"

# Package and name of a class: module and name of the adapter that reads it out.
_READERS = {
    ("langchain_core", "InMemoryVectorStore"): ("readers", "InMemoryReader"),
    ("langchain_chroma", "Chroma"): ("readers", "ChromaReader"),
    ("langchain_qdrant", "QdrantVectorStore"): ("readers", "QdrantReader"),
}
_SEARCHERS = {
    ("langchain_postgres", "PGVectorStore"): ("pgvector.store", "PGVectorShards"),
    # Refused by the adapter, which says how its records move.
    ("langchain_postgres", _OLD): ("pgvector.store", "PGVectorShards"),
}
"""The same, for stores that search by themselves."""


def open_records(
    store: Any,
    terms: RetrievalTerms,
    *,
    embedding: Embeddings | None,
    salt: bytes | None,
    exact: bool,
) -> Records:
    """Return the records of a store; see `RetrievedGroups.from_vectorstore`."""
    adapter = adapter_of(store, terms.unit_key)
    embedding = _embedding_of(store) if embedding is None else embedding
    if embedding is None:
        raise InvalidParameterError(
            f"The {type(store).__name__} has no embedding of its own: pass the one "
            "that its vectors were made with as embedding=."
        )
    check_embedding(embedding)
    if salt is not None:
        check_salt(salt)
    if not isinstance(exact, bool):
        raise InvalidParameterError("exact must be True or False.")
    records: Records
    if isinstance(adapter, VectorReader):
        records = SnapshotRecords(
            adapter, terms, embedding=embedding, salt=salt, given=store
        )
    else:
        records = LiveRecords(
            adapter, terms, embedding=embedding, salt=salt, exact=exact, given=store
        )
    check_enough_units(records.index.n_units, terms.n_groups)
    _check_sampling(records, terms, store)
    return records


def adapter_of(store: Any, unit_key: str) -> ShardStore | VectorReader:
    """Return the adapter for a store: itself, or one of ours; or refuse."""
    if isinstance(store, ShardStore | VectorReader):
        return store
    for ancestor in type(store).__mro__:
        named = ancestor.__module__.partition(".")[0], ancestor.__name__
        if named in _READERS:
            reader: VectorReader = _adapter_class(_READERS[named])(store)
            return reader
        if named in _SEARCHERS:
            searcher: ShardStore = _adapter_class(_SEARCHERS[named])(store, unit_key)
            return searcher
    if isinstance(store, list | tuple):
        raise InvalidParameterError(
            "These are documents, not a store: use RetrievedGroups.from_documents()."
        )
    if isinstance(store, VectorStoreRetriever):
        raise InvalidParameterError(
            "This is a retriever: pass its store, retriever.vectorstore."
        )
    known = sorted({name for _, name in (*_READERS, *_SEARCHERS)} - {_OLD})
    raise InvalidParameterError(
        f"There is no adapter for {type(store).__name__}; there is one for "
        f"{', '.join(known)}. Write your own, about 30 lines, from {_HERE}. A "
        "VectorReader hands out documents and vectors once: for a store whose search "
        "is approximate or filters late (HNSW, IVF, FAISS, Milvus and most others), "
        "and for a small one. A ShardStore searches every shard exactly by itself. "
        "docs/guides/stores.md has an example. Or build the groups with "
        "from_documents()."
    )


def _adapter_class(named: tuple[str, str]) -> Any:
    module, name = named
    return getattr(import_module(f"{_HERE}.{module}"), name)


def _embedding_of(store: Any) -> Any:
    try:
        return getattr(store, "embeddings", None)
    except Exception:  # noqa: BLE001  # Qdrant's raises where there is none
        return None


def _check_sampling(records: Records, terms: RetrievalTerms, store: Any) -> None:
    is_open = terms.is_sampled and terms.score_threshold is None
    if is_open and not records.index.can_sample:
        raise InvalidParameterError(
            f"The {type(store).__name__} can search by shard alone, not a sample of "
            "the units: give a score_threshold=, which finds the eligible units "
            "before they are sampled here."
        )
