"""A draw of groups beside a plain search of the same vectors, and beside PostgreSQL.

In memory, FAISS's exact search for the best 400 of all vectors stands beside a draw of
100 shards with 4 each, in one process and in turn; FAISS runs with its own number of
threads and with one, and the faster counts. The full run has 1,000,000 vectors of 384
numbers around 2,000 centers with Zipf weights, and needs 7 GB of memory.

In PostgreSQL stand 10,000 vectors in the table of a `PGVectorStore`: a draw beside what
one would write without the library, the store's own search with a filter, shard after
shard.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.common import Line, Options, in_turn, postgres, show
from langchain_dpicl import RetrievedGroups
from langchain_dpicl.groups.postgres import PostgresGroups

DIMENSION, SHARDS, EACH = 384, 100, 4
CENTERS, PER_UNIT, BLOCK = 2_000, 10, 50_000
IN_POSTGRES = 10_000


class GivenVectors(Embeddings):
    """The vector of the text "17" is row 17; nothing is embedded."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        # A store may ask for the vector of any text, to learn its length.
        places = [int(text) if text.isdecimal() else 0 for text in texts]
        found: list[list[float]] = self.rows[places].tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def vectors(count: int) -> np.ndarray:
    """Return unit vectors around Zipf-weighted centers."""
    rng = np.random.default_rng(0)

    def normal(size: int) -> np.ndarray:
        rows = rng.standard_normal((size, DIMENSION), dtype=np.float32)
        return rows / np.float32(np.sqrt(DIMENSION))

    weights = np.arange(1, CENTERS + 1) ** -1.1
    centers, weights = normal(CENTERS), weights / weights.sum()
    found = np.empty((count, DIMENSION), np.float32)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        rows = centers[rng.choice(CENTERS, size, p=weights)]
        rows = rows + np.float32(0.3) * normal(size)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        found[start : start + size] = rows
    return found


def in_memory(count: int, runs: int) -> Iterator[Line]:
    """Yield a draw beside FAISS, without and with a secret sample of the people."""
    rows = vectors(count)
    embedding = GivenVectors(rows)
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(rows)
    columns = {
        "text": [str(i) for i in range(count)],
        "unit": [str(i // PER_UNIT) for i in range(count)],
        "embedding": rows,
    }
    questions = iter(np.random.default_rng(1).integers(0, count, 10_000).tolist())
    threads = faiss.omp_get_max_threads()
    k = SHARDS * EACH

    def plain(most: int) -> None:
        faiss.omp_set_num_threads(most)
        flat.search(rows[next(questions)][None], k)
        faiss.omp_set_num_threads(threads)

    for rate in (1.0, 0.25):
        groups = RetrievedGroups.from_embeddings(
            columns,
            embedding,
            unit_key="unit",
            n_groups=SHARDS,
            docs_per_group=EACH,
            sampling_rate=rate,
        )
        if rate == 1.0:
            check(groups, rows)
        ours, alone, several = in_turn(
            runs,
            lambda g=groups: g.draw(str(next(questions))),
            lambda: plain(1),
            lambda: plain(threads),
        )
        sample = "" if rate == 1.0 else f", {rate:.0%} of the people sampled"
        what = f"draw of {SHARDS} x {EACH} of {count:,}{sample}"
        against = f"FAISS flat top-{k}, the faster"
        yield Line(what, ours, against, min(alone, several), "<= 1.2")
        del groups


def check(groups: RetrievedGroups, rows: np.ndarray) -> None:
    """A fast wrong answer is no figure: the best of all must be in some group."""
    drawn = {int(one.page_content) for slot in groups.draw("17") for one in slot}
    assert set(np.argsort(rows @ rows[17])[-EACH:].tolist()) <= drawn


def in_postgres(url: str, runs: int) -> Line:
    """Return a draw inside PostgreSQL, beside a filtered search for each shard."""
    from langchain_postgres import Column, PGEngine, PGVectorStore

    count = IN_POSTGRES
    embedding = GivenVectors(vectors(count))
    engine = PGEngine.from_connection_string(url)
    columns = [Column("unit", "TEXT"), Column("part", "INTEGER")]
    engine.init_vectorstore_table("notes", DIMENSION, metadata_columns=columns)
    store: Any = PGVectorStore.create_sync(
        engine, embedding, "notes", metadata_columns=["unit", "part"]
    )
    copy(url, embedding.rows)
    groups = PostgresGroups(
        url, "notes", embedding, unit_key="unit", n_groups=SHARDS, docs_per_group=EACH
    )
    questions = iter(range(0, count, 7))

    def searches() -> None:
        vector = embedding.rows[next(questions)].tolist()
        for part in range(SHARDS):
            store.similarity_search_by_vector(vector, k=EACH, filter={"part": part})

    ours, theirs = in_turn(runs, lambda: groups.draw(str(next(questions))), searches)
    what = f"draw of {SHARDS} x {EACH} of {count:,}, in PostgreSQL"
    return Line(what, ours, f"{SHARDS} filtered searches", theirs, "<= 50 ms")


def copy(url: str, rows: np.ndarray) -> None:
    """Fill the table: the store's own way commits every record."""
    import psycopg

    names = "langchain_id, content, embedding, unit, part, langchain_metadata"
    with (
        psycopg.connect(url.replace("+psycopg", "")) as connection,
        connection.cursor().copy(f"COPY notes ({names}) FROM STDIN") as table,
    ):
        for number, row in enumerate(rows.tolist()):
            unit = number // PER_UNIT
            cells = str(uuid.UUID(int=number + 1)), str(number), str(row)
            table.write_row((*cells, str(unit), unit % SHARDS, "{}"))


def run(options: Options) -> None:
    """Print a table of each."""
    count, runs = (100_000, 7) if options.quick else (1_000_000, 15)
    show("In memory", *in_memory(count, runs))
    with postgres() as url:
        if url is not None:
            import psycopg

            plain = url.replace("+psycopg", "")
            with psycopg.connect(plain, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            show("In PostgreSQL", in_postgres(url, 3 if options.quick else 11))
