"""Tables of records on a real PostgreSQL server, and what a draw from one must be."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
from langchain_core.documents import Document
from langchain_postgres import Column, PGEngine, PGVectorStore
from sqlalchemy import Engine, event

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.groups.postgres import PostgresGroups
from support.known_corpus import DIMENSION, KnownEmbedding
from support.postgres import PostgresServer

SALT = bytes(range(32))
EMBEDDING = KnownEmbedding()
ASKED = "Who coughs?"
COLUMNS = {"unit": "text", "visit": "integer", "ward": "text"}


class VectorServer:
    """A server with pgvector, and the tables made on it."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._opened: list[PostgresGroups] = []
        plain = server.new_database()
        self.schema = plain.rpartition("%3D")[2]
        self.url = f"{plain}%2Cpublic"
        self._engine = PGEngine.from_connection_string(self.url)
        self.run("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        # Nothing here is to last.
        self.run("ALTER SYSTEM SET synchronous_commit = off")
        self.run("SELECT pg_reload_conf()")

    def connect(self) -> psycopg.Connection[Any]:
        return self._server.connect(self.url)

    def run(self, statement: str, table: str = "") -> list[Any]:
        """Run a statement, in which {} is a table."""
        with self.connect() as connection:
            named = statement.replace("{}", quoted(table))
            done = connection.execute(named)
            return done.fetchall() if done.description else []

    def table(self, documents: Sequence[Document] = (), /, **columns: str) -> str:
        """Make a table of a name that has to be quoted; further columns by type."""
        name = f'Notes {next(self._numbers)}: 100% {{of}} "them"'
        kinds = {**COLUMNS, **columns}
        own = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
        self.run(
            "CREATE TABLE {} (langchain_id uuid PRIMARY KEY, content text, embedding "
            f"vector({DIMENSION}), {own}, langchain_metadata json)",
            name,
        )
        self.fill(name, documents, kinds)
        return name

    def fill(
        self,
        name: str,
        documents: Sequence[Document],
        columns: Collection[str] = COLUMNS,
    ) -> None:
        """Add documents to a table; what has no column goes into the JSON."""
        names = ["langchain_id", "content", "embedding", "langchain_metadata", *columns]
        places = ", ".join(["%s"] * len(names))
        own = ", ".join(map(quoted, names))
        form = f"INSERT INTO {quoted(name)} ({own}) VALUES ({places})"
        form = form.replace("%", "%%").replace("%%s", "%s")
        rows = []
        for one in documents:
            further = {k: v for k, v in one.metadata.items() if k not in columns}
            cells = [one.metadata.get(column) for column in columns]
            vector = str(EMBEDDING.embed_query(one.page_content))
            own = one.id or str(uuid.uuid4())
            rows.append((own, one.page_content, vector, json.dumps(further), *cells))
        with self.connect() as connection, connection.transaction():
            connection.cursor().executemany(form, rows)

    def store(self, documents: Sequence[Document]) -> tuple[PGVectorStore, str]:
        """Make a PGVectorStore that holds documents; return its table, too."""
        name = f"their notes {next(self._numbers)}"
        self._engine.init_vectorstore_table(
            name,
            DIMENSION,
            schema_name=self.schema,
            metadata_columns=[Column("unit", "TEXT"), Column("visit", "INTEGER")],
        )
        store = PGVectorStore.create_sync(
            self._engine,
            EMBEDDING,
            name,
            schema_name=self.schema,
            metadata_columns=["unit", "visit"],
        )
        store.add_documents(list(documents))
        return store, name

    def groups(self, name: str, /, **terms: Any) -> PostgresGroups:
        """Open a table."""
        given: dict[str, Any] = {
            "unit_key": "unit",
            "n_groups": 1,
            "salt": SALT,
            "url": self.url,
        }
        given |= terms
        for used in self._opened:  # The server takes so many connections.
            used.close()
        made = PostgresGroups(given.pop("url"), name, EMBEDDING, **given)
        self._opened.append(made)
        return made

    def drawn(self, documents: Sequence[Document], **terms: Any) -> PostgresGroups:
        """Return groups over some documents."""
        return self.groups(self.table(documents), **terms)

    def close(self) -> None:
        for made in self._opened:
            made.close()
        asyncio.run(self._engine.close())


@contextmanager
def statements(change: Callable[[str], str] = str) -> Iterator[list[tuple[str, Any]]]:
    """See the statements of draws inside the block, with what is given; change them."""
    seen: list[tuple[str, Any]] = []

    def see(_c: Any, _cursor: Any, statement: str, given: Any, *_: Any) -> Any:
        changed = change(statement)
        seen.append((changed, given))
        return changed, given

    event.listen(Engine, "before_cursor_execute", see, retval=True)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", see)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def ids(slots: list[list[Document]]) -> list[list[str | None]]:
    return [[one.id for one in slot] for slot in slots]


def best(
    documents: Sequence[Document],
    *,
    n_groups: int = 1,
    docs_per_group: int = 8,
    score_threshold: float | None = None,
    takes_part: Callable[[Document], bool] = lambda _: True,
) -> list[list[str | None]]:
    """Return the ids of a draw as the module's docstring has it, in plain Python."""
    question = np.asarray(EMBEDDING.embed_query(ASKED))
    shards: list[list[tuple[float, bytes, str]]] = [[] for _ in range(n_groups)]
    for one in filter(takes_part, documents):
        vector = np.asarray(EMBEDDING.embed_query(one.page_content))
        size = np.linalg.norm(vector) * np.linalg.norm(question)
        score = round(float(vector @ question / size), 5)
        if score_threshold is None or score >= score_threshold:
            digest = hashlib.sha256(SALT + person(one).encode()).digest()
            shard = int.from_bytes(digest[:7], "big") % n_groups
            shards[shard].append((-score, digest, str(one.id)))
    return [[own for *_, own in sorted(shard)[:docs_per_group]] for shard in shards]


def person(document: Document) -> str:
    return str(canonical_unit_id(document.metadata["unit"]))
