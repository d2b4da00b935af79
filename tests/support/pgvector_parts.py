"""PGVector stores on a real server, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_postgres import Column, PGEngine, PGVector, PGVectorStore

from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards
from support.known_corpus import DIMENSION, KnownEmbedding
from support.postgres import PostgresServer

SALT = bytes(range(32))
EMBEDDING = KnownEmbedding()


class VectorServer:
    """A server with pgvector, and the stores made on it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._numbers = itertools.count(1)
        self._engines: list[Any] = []
        self._made: list[PGEngine] = []
        plain = server.new_database()
        self.schema = plain.rpartition("%3D")[2]
        self.url = f"{plain}%2Cpublic"
        self.asyncpg_url = plain.replace("+psycopg", "+asyncpg").split("&")[0]
        self.asyncpg = self._engine(self.asyncpg_url)
        self.psycopg = self._engine(self.url)
        self.run("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        # Stores commit each record, and nothing here is to last.
        self.run("ALTER SYSTEM SET synchronous_commit = off")
        self.run("SELECT pg_reload_conf()")

    def run(self, statement: str) -> list[Any]:
        """Run one statement beside the library."""
        with self.connect() as connection:
            done = connection.execute(statement)  # type: ignore[arg-type] # ours
            return done.fetchall() if done.description else []

    def connect(self) -> psycopg.Connection[Any]:
        return self.server.connect(self.url)

    def name(self) -> str:
        return f"Notes {next(self._numbers)}: 100%"

    def by_json(
        self, documents: Sequence[Document] = (), embedding: Embeddings = EMBEDDING
    ) -> PGVectorStore:
        """Make a store whose unit key is in its JSON column, as is refused."""
        return self._store(self.psycopg, documents, embedding, [])

    def by_column(
        self,
        documents: Sequence[Document] = (),
        embedding: Embeddings = EMBEDDING,
        *,
        kind: str = "TEXT",
        further: Sequence[Column] = (),
    ) -> PGVectorStore:
        """Make a store whose unit key has a column."""
        columns = [Column("unit", kind), Column("visit", "INTEGER"), *further]
        made = str if kind in ("TEXT", "VARCHAR") else int
        texts = [
            one.model_copy(
                update={
                    "metadata": {**one.metadata, "unit": made(one.metadata["unit"])}
                }
                if "unit" in one.metadata
                else {}
            )
            for one in documents
        ]
        return self._store(self.asyncpg, texts, embedding, columns)

    def legacy(
        self, documents: Sequence[Document] = (), embedding: Embeddings = EMBEDDING
    ) -> PGVector:
        """Make a collection of the old kind, as is refused, in a schema of its own."""
        url = f"{self.server.new_database()}%2Cpublic"
        store = PGVector(embedding, connection=url, collection_name=self.name())
        self._engines.append(store._engine)
        if documents:
            store.add_documents(list(documents))
        return store

    def engine_of(self, store: PGVector) -> PGEngine:
        """Return an engine that finds the tables of a collection."""
        return self._engine(store._engine.url)

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()
        for made in self._made:
            made._run_as_sync(made._pool.dispose())

    def _engine(self, url: Any) -> PGEngine:
        self._made.append(PGEngine.from_connection_string(url))
        return self._made[-1]

    def _store(
        self,
        engine: PGEngine,
        documents: Sequence[Document],
        embedding: Embeddings,
        columns: Sequence[Column],
    ) -> PGVectorStore:
        name = self.name()
        engine.init_vectorstore_table(
            name, DIMENSION, schema_name=self.schema, metadata_columns=list(columns)
        )
        store = PGVectorStore.create_sync(
            engine,
            embedding,
            name,
            schema_name=self.schema,
            metadata_columns=[column.name for column in columns],
        )
        if documents:
            store.add_documents(list(documents))
        return store


def table_of(store: PGVectorStore) -> str:
    """Return the table of a store, quoted."""
    inner = store._PGVectorStore__vs
    return f'"{inner.schema_name}"."{inner.table_name}"'


@contextmanager
def shards_of(store: Any, unit_key: str = "unit", **more: Any) -> Iterator[Any]:
    """Open a store's shards, and close their connections."""
    shards = PGVectorShards(store, unit_key, **more)
    yield shards
    shards.close()
