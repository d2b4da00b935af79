"""The table of `bench_stores` for PostgreSQL with pgvector, and for Qdrant.

    python benchmarks/bench_stores_databases.py [--quick] [--repeats N] [--store ...]

PostgreSQL is a real server on a socket, from a package index's wheel. Target: one draw
within 0.05 s. Qdrant is its local mode, in process; it is read out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bench_stores
from bench_stores import DIMENSION, PER_SHARD, Corpus, Times, measure
from postgres_server import temporary_postgres

BY_HAND = (
    "SELECT langchain_id, content, unit FROM (SELECT *, row_number() OVER "
    "(PARTITION BY shard ORDER BY embedding <=> %s) AS place FROM notes) AS ranked "
    "WHERE place <= %s"
)
"""A window over the shards that trusts the table: no check of what comes back."""


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


def copy(url: str, corpus: Corpus) -> None:
    import psycopg

    names = "langchain_id, content, embedding, shard, unit, langchain_metadata"
    with (
        psycopg.connect(url.replace("+psycopg", "")) as connection,
        connection.cursor().copy(f"COPY notes ({names}) FROM STDIN") as rows,
    ):
        for number, one in enumerate(corpus.documents):
            vector = str(corpus.embedding.rows[number].tolist())
            own = one.metadata["shard"], one.metadata["unit"], "{}"
            rows.write_row((one.id, one.page_content, vector, *own))


def pgvector_store(corpus: Corpus, repeats: int) -> Iterator[Times]:
    import psycopg
    from langchain_postgres import Column, PGEngine, PGVectorStore

    from langchain_dpicl.groups.stores import PGVectorPartitions

    columns = [Column("shard", "INTEGER"), Column("unit", "TEXT")]
    least = 0.75 * bench_stores.SHARDS * PER_SHARD
    with pgvector_url() as url:
        engine = PGEngine.from_connection_string(url)
        engine.init_vectorstore_table("notes", DIMENSION, metadata_columns=columns)
        store = PGVectorStore.create_sync(
            engine,
            corpus.embedding,
            "notes",
            metadata_columns=[column.name for column in columns],
        )
        copy(url, corpus)
        shards = PGVectorPartitions(store, "unit")
        with psycopg.connect(url.replace("+psycopg", "")) as connection:

            def by_hand(vector: list[float]) -> None:
                given = [str(vector), PER_SHARD]
                assert len(connection.execute(BY_HAND, given).fetchall()) > least

            for adapter in (None, shards):
                yield measure(
                    corpus,
                    store,
                    lambda shard: {"shard": shard},
                    repeats,
                    adapter=adapter,
                    by_hand=by_hand,
                )
        shards.close()
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
