"""Groups from vector stores: one draw, beside a hundred filtered searches.

    python benchmarks/bench_stores.py [--quick] [--repeats N] [--store NAME ...]

10,000 documents of 1,000 units, 384 dimensions, 100 shards, 4 documents of each. "100
filtered searches" is what a team would write without this library: the store's own
`similarity_search_by_vector` with a filter on the shard, shard after shard (with an
approximate index, as most stores have, it also ties units together). "One draw" is
`draw_prepared` of `RetrievedGroups.from_vectorstore`, checks included, over the same
store in the same process. Both take turns; medians.

The earlier figures were taken before the library was written, on another machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from rich.console import Console
from rich.table import Table

from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.groups.units import keyed_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DIMENSION = 384
DOCUMENTS = 10_000
CHUNKS_PER_UNIT = 10
SHARDS = 100
PER_SHARD = 4
SALT = b"benchmark" * 3 + b"12345"
BATCH = 1_000

EARLIER = {
    "InMemoryVectorStore": ("4.3 s", "(matrix product by hand)"),
    "PGVectorStore": ("1.1 s", "0.03 s"),
    "QdrantVectorStore": ("25.8 s", "0.52 s"),
    "Chroma": ("1.4 s", "none"),
}
"""Filtered searches and one grouped call, measured when the design was made."""


class GivenVectors(Embeddings):
    """The vector of the text "17" is row 17."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        # An adapter may ask for the vector of any text, to learn its length.
        own = [int(text) if text.isdecimal() else 0 for text in texts]
        return self.rows[own].tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Corpus:
    """Vectors around 200 centers, and documents that know their shard."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        centers = rng.standard_normal((200, DIMENSION))
        rows = centers[rng.integers(0, 200, n)]
        rows = rows + 0.5 * rng.standard_normal((n, DIMENSION))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.embedding = GivenVectors(rows.astype(np.float32))
        self.documents = [self.document(number) for number in range(n)]
        self.questions = [str(number) for number in rng.integers(0, n, 50)]

    def document(self, number: int) -> Document:
        unit = f"unit-{number // CHUNKS_PER_UNIT}"
        shard = keyed_slot(SALT, unit, SHARDS)
        return Document(
            str(number),
            metadata={"unit": unit, "shard": shard},
            id=str(uuid.UUID(int=number + 1)),
        )

    def fill(self, store: Any) -> Any:
        for start in range(0, len(self.documents), BATCH):
            store.add_documents(self.documents[start : start + BATCH])
        return store


@dataclass(frozen=True)
class Times:
    """Seconds."""

    store: str
    filtered: list[float]
    grouped: list[float]
    threshold: list[float]
    opening: float
    by_hand: list[float]  # One call that the store's own language can express.


def measure(
    corpus: Corpus,
    store: Any,
    filter_of: Callable[[int], Any],
    repeats: int,
    *,
    adapter: Any = None,
    by_hand: Callable[[list[float]], Any] | None = None,
    **terms: Any,
) -> Times:
    """Time one store, filled.

    Args:
        corpus: What it holds.
        store: The LangChain store.
        filter_of: The store's own filter for a shard.
        repeats: Number of questions.
        adapter: What is drawn from; None: the store.
        by_hand: The search in one call, without this library.
        terms: Further arguments of `from_vectorstore`.
    """
    start = time.perf_counter()
    plain = source(adapter or store, **terms)
    opening = time.perf_counter() - start
    # The same assignment: a store that keeps it keeps one.
    passing = source(adapter or store, score_threshold=0.3, **terms)
    filtered, grouped, threshold, hand = [], [], [], []
    for question in corpus.questions[:repeats]:
        vector = corpus.embedding.embed_query(question)
        prepared, asked = plain.prepare(question), passing.prepare(question)

        def search(vector: list[float] = vector) -> list[list[str]]:
            return [
                [
                    document.page_content
                    for document in store.similarity_search_by_vector(
                        vector, k=PER_SHARD, filter=filter_of(shard)
                    )
                ]
                for shard in range(SHARDS)
            ]

        seconds, own = timed(search)
        filtered.append(seconds)
        if by_hand is not None:
            hand.append(timed(lambda v=vector: by_hand(v))[0])
        seconds, slots = timed(lambda p=prepared: plain.draw_prepared(p))
        grouped.append(seconds)
        check_overlap(own, slots)
        seconds, _ = timed(lambda p=asked: passing.draw_prepared(p))
        threshold.append(seconds)
    name = type(adapter or store).__name__
    return Times(name, filtered, grouped, threshold, opening, hand)


def source(store: Any, **terms: Any) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(
        store,
        unit_key="unit",
        n_groups=SHARDS,
        docs_per_group=PER_SHARD,
        salt=SALT,
        **terms,
    )


def check_overlap(own: list[list[str]], slots: list[list[Document]]) -> None:
    """A fast wrong answer is no figure. The store's own search may be approximate."""
    same = sum(
        len(set(found) & {document.page_content for document in slot})
        for found, slot in zip(own, slots, strict=True)
    )
    assert same >= 0.9 * sum(map(len, slots)), f"{same} documents in common"


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def in_memory(corpus: Corpus, repeats: int) -> Iterator[Times]:
    from langchain_core.vectorstores import InMemoryVectorStore

    store = corpus.fill(InMemoryVectorStore(corpus.embedding))
    # A search looks at 10,000 rows in Python, a hundred times: few will do.
    yield measure(
        corpus,
        store,
        lambda shard: lambda document: document.metadata["shard"] == shard,
        min(repeats, 3),
    )


def chroma(corpus: Corpus, repeats: int) -> Iterator[Times]:
    import chromadb
    from chromadb.config import Settings
    from langchain_chroma import Chroma

    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    store = corpus.fill(Chroma("bench", corpus.embedding, client=client))
    yield measure(corpus, store, lambda shard: {"shard": shard}, repeats)


STORES: dict[str, Callable[[Corpus, int], Iterator[Times]]] = {
    "in-memory": in_memory,
    "chroma": chroma,
}
"""One function for each store: it fills the store and yields what was measured."""


def row(times: Times) -> list[str]:
    filtered, grouped = map(statistics.median, (times.filtered, times.grouped))
    before = EARLIER.get(times.store, ("", ""))
    return [
        times.store,
        ms(filtered),
        ms(grouped),
        f"{filtered / grouped:,.0f}x",
        ms(statistics.median(times.by_hand)) if times.by_hand else "",
        ms(statistics.median(times.threshold)),
        ms(times.opening),
        *before,
    ]


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 documents")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--store", nargs="*", choices=list(STORES), default=[])
    arguments = parser.parse_args()
    globals()["SHARDS"] = arguments.shards
    n = DOCUMENTS // 5 if arguments.quick else arguments.documents
    table = Table(title=f"{n:,} x {DIMENSION}, {SHARDS} shards, {PER_SHARD} each")
    for column in (
        "store",
        f"{SHARDS} filtered searches",
        "one draw",
        "faster",
        "one call by hand",
        "one draw, cosine >= 0.3",
        "from_vectorstore",
        "earlier: 100 searches",
        "earlier: one call",
    ):
        table.add_column(column)
    corpus = Corpus(n)
    for name in arguments.store or STORES:
        with warnings.catch_warnings():
            # What a store's library says of itself is no part of the figures.
            warnings.simplefilter("ignore")
            for times in STORES[name](corpus, arguments.repeats):
                table.add_row(*row(times))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
