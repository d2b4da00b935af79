"""A million embedded records from Parquet to a draw, beside one plain FAISS search.

    python benchmarks/bench_ingest.py [--quick | --vectors N] [--repeats N]

Vectors as in `bench_groups`, ten for each person, with texts of about 300 characters,
in one Parquet file. Each step runs in a process of its own and is timed, with the most
memory that the process had for itself and in mapped files (which the system takes back
when it is needed). "in memory" keeps everything in memory, "on the disk" in files.
Draws and the plain search take turns; the plain one runs with FAISS's own number of
threads and with one, and the faster is the reference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_groups import (
    BLOCK,
    CHUNKS_PER_UNIT,
    DIMENSION,
    DOCS_PER_GROUP,
    SHARDS,
    Corpus,
    NoEmbedding,
    timed,
)
from rich.console import Console
from rich.table import Table

from langchain_dpicl.groups import RetrievedGroups, shards_of
from langchain_dpicl.groups.drawing import PreparedQuestion

SALT = b"benchmark" * 3 + b"12345"
WORDS = ("patient", "reports", "a", "dry", "cough", "since", "the", "new", "tablets")
EVERY = 0.01


class Memory:
    """The most memory of this process since it was last asked, in MiB."""

    def __init__(self) -> None:
        self.most = [0.0, 0.0]
        self.ended = threading.Event()

    def taken(self) -> list[float]:
        found, self.most = self.most, self.now()
        return found

    def now(self) -> list[float]:
        lines = Path("/proc/self/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return [int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")]

    def run(self) -> None:
        while not self.ended.wait(EVERY):
            self.most = [max(pair) for pair in zip(self.most, self.now(), strict=True)]


@contextmanager
def watched() -> Iterator[Memory]:
    memory = Memory()
    thread = threading.Thread(target=memory.run, daemon=True)
    thread.start()
    yield memory
    memory.ended.set()
    thread.join()


def write_parquet(path: Path, corpus: Corpus, n: int) -> None:
    kind = pa.list_(pa.float32(), DIMENSION)
    schema = pa.schema(
        [("patient", pa.string()), ("text", pa.string()), ("embedding", kind)]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, BLOCK):
            rows = corpus.vectors(min(BLOCK, n - start)).reshape(-1)
            numbers = range(start, min(start + BLOCK, n))
            words = corpus.rng.choice(WORDS, (len(numbers), 50)).tolist()
            columns = [
                pa.array([f"p-{number // CHUNKS_PER_UNIT}" for number in numbers]),
                pa.array([" ".join(own) for own in words]),
                pa.FixedSizeListArray.from_arrays(pa.array(rows), DIMENSION),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def embedded(path: Path, **options: Any) -> RetrievedGroups:
    return RetrievedGroups.from_embeddings(
        path,
        NoEmbedding(),
        unit_key="patient",
        n_groups=SHARDS,
        docs_per_group=DOCS_PER_GROUP,
        salt=SALT,
        **options,
    )


def flat_index(path: Path) -> faiss.IndexFlatIP:
    flat = faiss.IndexFlatIP(DIMENSION)
    for batch in pq.ParquetFile(path).iter_batches(BLOCK, columns=["embedding"]):
        flat.add(batch.column(0).flatten().to_numpy().reshape(-1, DIMENSION))
    return flat


def draw(groups: RetrievedGroups, question: np.ndarray) -> list[list[str]]:
    slots = groups.draw_prepared(PreparedQuestion(question, None))
    return [[document.page_content for document in slot] for slot in slots]


def of_one_process(folder: Path, name: str) -> Iterator[list[str]]:
    """Run one of `STEPS`, and give its rows: time, own and mapped memory."""
    parquet, saved = folder / "notes.parquet", folder / "index"
    with watched() as memory:

        def step(title: str, call: Callable[[], Any]) -> tuple[list[str], Any]:
            memory.taken()
            start = time.perf_counter()
            made = call()
            seconds = time.perf_counter() - start
            own, files = memory.taken()
            return [
                title,
                f"{seconds:,.1f} s",
                f"{own:,.0f}",
                f"{files:,.0f}",
                "",
            ], made

        if name == "shards":
            n = pq.ParquetFile(parquet).metadata.num_rows
            units = [f"p-{number}" for number in range(n)]
            title = f"shards_of() {n:,} units"
            yield step(title, lambda: shards_of(units, SALT, SHARDS))[0]
        if name == "memory":
            yield step("embedded: in memory", lambda: embedded(parquet))[0]
        if name == "disk":
            row, groups = step(
                "embedded: on the disk", lambda: embedded(parquet, directory=folder)
            )
            yield row
            yield step("save", partial(groups.save, saved))[0]
        if name == "mapped":
            question = Corpus().question()
            row, groups = step(
                "load(memory_map=True)", partial(load, saved, memory_map=True)
            )
            yield row
            yield step("first draw, mapped", partial(draw, groups, question))[0]
        if name == "load":
            yield step("load", partial(load, saved))[0]


STEPS = ("shards", "memory", "disk", "mapped", "load")


def load(saved: Path, **options: Any) -> RetrievedGroups:
    return RetrievedGroups.load(saved, NoEmbedding(), **options)


def measure(table: Table, folder: Path, n: int, repeats: int) -> None:
    corpus = Corpus()
    parquet, saved = folder / "notes.parquet", folder / "index"
    write_parquet(parquet, corpus, n)
    for name in STEPS:
        # A process of its own: what one step leaves in memory is not another's.
        command = [sys.executable, __file__, "--folder", str(folder), "--step", name]
        done = subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        for row in json.loads(done.stdout):
            table.add_row(*row)
    mapped, loaded, flat = (
        load(saved, memory_map=True),
        load(saved),
        flat_index(parquet),
    )
    question = corpus.question()
    assert draw(mapped, question) == draw(loaded, question)
    k = SHARDS * DOCS_PER_GROUP
    threads = faiss.omp_get_max_threads()
    plain, single, on_disk, in_memory = [], [], [], []
    for _ in range(repeats):
        asked = corpus.question()
        plain.append(timed(lambda q=asked: flat.search(q, k)))
        faiss.omp_set_num_threads(1)
        single.append(timed(lambda q=asked: flat.search(q, k)))
        faiss.omp_set_num_threads(threads)
        on_disk.append(timed(lambda q=asked: draw(mapped, q)))
        in_memory.append(timed(lambda q=asked: draw(loaded, q)))
    reference = min(statistics.median(plain), statistics.median(single))
    for name, times in (
        (f"plain FAISS flat top-{k}, threads: {threads}", plain),
        (f"plain FAISS flat top-{k}, threads: 1", single),
        (f"draw {SHARDS} x {DOCS_PER_GROUP}, mapped (target 1.2x)", on_disk),
        (f"draw {SHARDS} x {DOCS_PER_GROUP}, in memory (target 1.2x)", in_memory),
    ):
        median = statistics.median(times)
        ratio = f"{median / reference:.2f}x"
        table.add_row(name, f"{median * 1e3:,.1f} ms", "", "", ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50,000 vectors")
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(list(of_one_process(arguments.folder, arguments.step))))
        return
    n = 50_000 if arguments.quick else arguments.vectors
    table = Table(title=f"{n:,} x {DIMENSION} from Parquet, medians of one run")
    for column in ("what", "time", "own MiB", "mapped MiB", "against the faster plain"):
        table.add_column(column)
    with tempfile.TemporaryDirectory(prefix="dpicl-") as folder:
        measure(table, Path(folder), n, arguments.repeats)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
