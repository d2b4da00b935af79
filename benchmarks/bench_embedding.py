"""What it costs that no call of the embedding holds texts of two people.

    python benchmarks/bench_embedding.py [--quick] [--repeats N]

Ingest: notes of 100 patients, 4 of each, by `RetrievedGroups.from_documents`, and by
`add_documents` to a Chroma store. Each by default (one patient's notes a call), and
beside it with an `embedding_batch_size` of 256. Both take turns in one process.
Medians.

The embeddings: the offline one; a small BERT of random weights in this process, on one
thread; `OpenAIEmbeddings` and a server of 20 ms a request and 0.2 ms a text. Time is
the processor's for the first two, so that other work on the machine counts for nothing,
and the clock's for the server. The second table says what the default is for: how far a
text's vector moves when another text of its call is longer. "One shape" pads each pass
to 32 texts of 128 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import chromadb
from chromadb.config import Settings
from embedding_models import Encoder, slow_server, what_neighbors_change
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings
from langchain_openai import OpenAIEmbeddings
from rich.console import Console
from rich.table import Table

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings

if TYPE_CHECKING:
    from langchain_core.documents import Document

PATIENTS, NOTES = 100, 4
TOGETHER = 256


class EncoderEmbeddings(Encoder, Embeddings):
    """The encoder as LangChain knows it."""


def corpus(patients: int) -> list[Document]:
    """Return the first notes of patients who have that many."""
    notes: dict[Any, list[Document]] = defaultdict(list)
    for note in clinic():
        notes[note.metadata["patient_id"]].append(note)
    own = [found[:NOTES] for found in notes.values() if len(found) >= NOTES]
    return [note for found in own[:patients] for note in found]


class Cases:
    """The calls that are timed, for one embedding."""

    def __init__(self, embedding: Any, documents: list[Document]) -> None:
        self.embedding = embedding
        self.documents = documents
        # One loop for all: a client of OpenAI's keeps connections to the last one.
        self.loop = asyncio.new_event_loop()
        self.client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
        self.terms: dict[str, Any] = {"unit_key": "patient_id", "n_groups": 10}

    def ingest(self, size: int | None) -> None:
        RetrievedGroups.from_documents(
            self.documents, self.embedding, embedding_batch_size=size, **self.terms
        )

    def aingest(self, size: int | None) -> None:
        self.loop.run_until_complete(
            RetrievedGroups.afrom_documents(
                self.documents, self.embedding, embedding_batch_size=size, **self.terms
            )
        )

    def adding(self) -> Callable[[int | None], object]:
        """Return what adds the notes to a new Chroma store of ten other patients."""
        store = Chroma(f"c{uuid.uuid4().hex}", self.embedding, client=self.client)
        first = [note.model_copy(deep=True) for note in self.documents[::NOTES][:10]]
        for number, note in enumerate(first):
            note.id = note.metadata["patient_id"] = f"first {number}"
        store.add_documents(first)
        groups = RetrievedGroups.from_vectorstore(store, **self.terms)
        return lambda size: groups.add_documents(
            self.documents, embedding_batch_size=size
        )


def timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def bench(
    table: Table,
    name: str,
    embedding: Any,
    documents: list[Document],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Add the rows of one embedding: medians of calls that take turns."""
    cases = Cases(embedding, documents)
    units = len(documents) // NOTES
    # What makes the call anew before each turn, and is not timed.
    makers: dict[str, Callable[[], Callable[[int | None], object]]] = {
        f"ingest of {len(documents)} notes of {units} people": lambda: cases.ingest,
        "the same, async": lambda: cases.aingest,
        "the same notes added to Chroma": cases.adding,
    }
    for what, make in makers.items():
        make()(TOGETHER)
        times: dict[int | None, list[float]] = {None: [], TOGETHER: []}
        for _ in range(repeats):
            for size, taken in times.items():
                taken.append(timed(partial(make(), size), clock))
        alone, together = map(statistics.median, times.values())
        shown = f"{alone * 1e3:,.0f} ms", f"{together * 1e3:,.0f} ms"
        table.add_row(name, what, *shown, f"{alone / together:.2f}x")


def effects(documents: list[Document], count: int) -> Table:
    table = Table(title="What the other texts of a call change, vectors of norm 1")
    for column in ("embedding", "vectors changed", "largest difference"):
        table.add_column(column)
    texts = [note.page_content.split(". ")[-1] for note in documents]
    models: dict[str, Any] = {"HashingEmbeddings": HashingEmbeddings()}
    for kind in ("float32", "bfloat16"):
        models[f"encoder, {kind}, padded to the longest"] = Encoder(kind)
        models[f"encoder, {kind}, one shape"] = Encoder(kind, fixed=True)
    for name, model in models.items():
        worst, changed = what_neighbors_change(model, texts, count)
        table.add_row(name, f"{changed:.0%}", f"{worst:.1e}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the people")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    documents = corpus(PATIENTS // 5 if arguments.quick else PATIENTS)
    repeats = 1 if arguments.quick else arguments.repeats
    table = Table(title="Calls of one person's texts, beside calls of 256 texts")
    for column in ("embedding", "what", "one person's a call", "256 a call", "ratio"):
        table.add_column(column)
    bench(table, "HashingEmbeddings", HashingEmbeddings(), documents, repeats)
    bench(table, "encoder here", EncoderEmbeddings(), documents, repeats)
    cases = Cases(Encoder(fixed=True), documents)
    took = timed(lambda: cases.ingest(TOGETHER), time.process_time)
    shown = "", f"{took * 1e3:,.0f} ms", ""
    table.add_row("the same, one shape", "ingest of the same notes", *shown)
    with slow_server() as url:
        server = OpenAIEmbeddings(
            model="slow",
            base_url=url,
            api_key="key",
            check_embedding_ctx_length=False,
        )
        bench(table, "server", server, documents, repeats, time.perf_counter)
    console = Console(width=140)
    console.print(table)
    console.print(effects(documents, 4 if arguments.quick else 12))


if __name__ == "__main__":
    main()
