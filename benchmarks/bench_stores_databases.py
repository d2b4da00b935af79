"""The table of `bench_stores` for PostgreSQL with pgvector, and for Qdrant.

    python benchmarks/bench_stores_databases.py [--quick] [--repeats N] [--store ...]

PostgreSQL is a real server on a socket, from a package index's wheel. Target: one draw
within 0.05 s. Qdrant is its local mode, in process, which is read out; a server's
grouped search is not measured here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bench_stores
from bench_stores import DIMENSION, Corpus, Times, measure
from postgres_server import temporary_postgres


@contextmanager
def pgvector_url() -> Iterator[str]:
    import psycopg

    with temporary_postgres() as url:
        assert url is not None, "Install pgserver."
        plain = url.replace("+psycopg", "")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            # Filling a PGVectorStore commits every record.
            connection.execute("ALTER SYSTEM SET synchronous_commit = off")
            connection.execute("SELECT pg_reload_conf()")
        yield url


def pgvector_store(corpus: Corpus, repeats: int) -> Iterator[Times]:
    from langchain_postgres import Column, PGEngine, PGVectorStore

    columns = [Column("shard", "INTEGER"), Column("unit", "TEXT")]
    with pgvector_url() as url:
        engine = PGEngine.from_connection_string(url)
        engine.init_vectorstore_table("notes", DIMENSION, metadata_columns=columns)
        store = PGVectorStore.create_sync(
            engine,
            corpus.embedding,
            "notes",
            metadata_columns=[column.name for column in columns],
        )
        yield measure(
            corpus, corpus.fill(store), lambda shard: {"shard": shard}, repeats
        )
        engine._run_as_sync(engine._pool.dispose())  # noqa: SLF001  # while it runs


def qdrant(corpus: Corpus, repeats: int) -> Iterator[Times]:
    from langchain_qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    client.create_collection("notes", vectors_config=params)
    # It would embed a text of its own to look how long the vectors are.
    store: Any = QdrantVectorStore(
        client, "notes", corpus.embedding, validate_collection_config=False
    )

    def of_shard(shard: int) -> models.Filter:
        match = models.MatchValue(value=shard)
        own = models.FieldCondition(key="metadata.shard", match=match)
        return models.Filter(must=[own])

    # A hundred filtered searches look at 10,000 payloads in Python each.
    yield measure(corpus, corpus.fill(store), of_shard, min(repeats, 3))


STORES = {"pgvector": pgvector_store, "qdrant": qdrant}

if __name__ == "__main__":
    bench_stores.STORES = STORES
    bench_stores.main()
