"""Speed of a draw against one plain FAISS search of the same vectors.

    python benchmarks/bench_groups.py [--quick | --vectors N] [--repeats N]

Both searches are exact and run in one process, taking turns. The plain search runs
with FAISS's own number of threads and with one; the faster of the two is the
reference, as FAISS loses time to its own threads on busy machines. The vectors are
made here: 2,000 centers c from N(0, I/d) with Zipf weights, each vector
normalize(c + s g), each question normalize(v + 0.2 g) for a vector v of the same kind.
The full run needs about 5 GB of memory.

The rows "each pays" hand the draw a `charge_units` that says yes to everybody at once,
so that they show what the groups add to a per-unit account, and not the ledger.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import faiss
import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from rich.console import Console
from rich.table import Table

from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.groups import NoisyThreshold, RetrievedGroups, SampledGroups
from langchain_dpicl.groups.drawing import PreparedQuestion
from langchain_dpicl.groups.records import EmbeddedRecords
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.mechanisms import GaussianNoise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIMENSION = 384
CENTERS = 2_000
ZIPF = 1.1
SPREAD = 0.3
QUESTION_NOISE = 0.2
THRESHOLD = 0.9
SHARDS = 100
DOCS_PER_GROUP = 4
CHUNKS_PER_UNIT = 10
BLOCK = 50_000


class NoEmbedding(Embeddings):
    """The vectors are given; nothing is embedded."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


class Corpus:
    """Blocks of unit vectors around Zipf-weighted centers."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.centers = self.normal(CENTERS)
        weights = np.arange(1, CENTERS + 1) ** -ZIPF
        self.weights = weights / weights.sum()

    def normal(self, n: int) -> np.ndarray:
        rows = self.rng.standard_normal((n, DIMENSION), dtype=np.float32)
        return rows / np.float32(np.sqrt(DIMENSION))

    def vectors(self, n: int) -> np.ndarray:
        chosen = self.rng.choice(CENTERS, size=n, p=self.weights)
        rows = self.centers[chosen] + np.float32(SPREAD) * self.normal(n)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def question(self) -> np.ndarray:
        row = self.vectors(1) + np.float32(QUESTION_NOISE) * self.normal(1)
        return row / np.linalg.norm(row)


def everybody_pays(unit_ids: Sequence[str]) -> list[bool]:
    return [True] * len(unit_ids)


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def flat_index(corpus: Corpus, n: int) -> faiss.IndexFlatIP:
    index = faiss.IndexFlatIP(DIMENSION)
    for start in range(0, n, BLOCK):
        index.add(corpus.vectors(min(BLOCK, n - start)))
    return index


def retrieved_groups(flat: faiss.IndexFlatIP) -> tuple[ShardIndex, float]:
    """Build the sharded index over the plain index's own memory."""
    n = flat.ntotal
    view = faiss.rev_swig_ptr(flat.get_xb(), n * DIMENSION).reshape(n, DIMENSION)
    documents = [Document("note", metadata={"unit": i}) for i in range(n)]
    unit_ids = [str(i // CHUNKS_PER_UNIT) for i in range(n)]
    start = time.perf_counter()
    index = ShardIndex.from_vectors(
        view, documents, unit_ids, n_shards=SHARDS, salt=b"benchmark" * 3 + b"12345"
    )
    return index, time.perf_counter() - start


def source(index: ShardIndex, **changes: object) -> RetrievedGroups:
    terms = {
        "unit_key": "unit",
        "n_groups": SHARDS,
        "docs_per_group": DOCS_PER_GROUP,
        "score_threshold": None,
        "grouping": "shard",
        "max_groups": None,
        **changes,
    }
    records = EmbeddedRecords("unit", NoEmbedding(), index)
    return RetrievedGroups(RetrievalTerms(**terms).check(), records)


def check_against_numpy(index: ShardIndex, question: np.ndarray) -> None:
    """A fast wrong answer is no figure: compare a few shards with a plain product."""
    groups = index.top(question, DOCS_PER_GROUP, None)
    for shard, group in list(zip(index.shards, groups, strict=True))[:5]:
        scores = shard.vectors() @ question[0]
        best = np.sort(np.partition(scores, -DOCS_PER_GROUP)[-DOCS_PER_GROUP:])
        place = {id(document): row for row, document in enumerate(shard.documents)}
        found = np.sort([scores[place[id(document)]] for document in group])
        assert np.allclose(best, found, atol=1e-6)


def draws(index: ShardIndex) -> dict[str, tuple[Callable[..., object], str]]:
    """The kinds of draws: a name, what is timed for a question's vector, a target."""
    noisy = NoisyThreshold(units=SHARDS)
    by_unit = {"grouping": "unit", "max_groups": SHARDS}
    plain = source(index)
    passing = source(index, score_threshold=THRESHOLD)
    capped = source(index, score_threshold=THRESHOLD, **by_unit)
    choosing = source(index, score_threshold=noisy, **by_unit)
    paid = PaidCharge(GaussianNoise(10.0), (), "benchmark", 1)
    each = {"charge_units": everybody_pays}

    def drawn(
        groups: RetrievedGroups, threshold: float | None, **terms: object
    ) -> Callable[..., object]:
        return lambda question: groups.draw_prepared(
            PreparedQuestion(question, threshold), **terms
        )

    def refined(question: np.ndarray) -> object:
        asked = PreparedQuestion(question, noisy)
        return choosing.release_threshold(asked, paid=paid, **each)

    shards = f"RetrievedGroups, {SHARDS} shards, {DOCS_PER_GROUP} each"
    passes = f"cosine >= {THRESHOLD}"
    unit = f"RetrievedGroups by unit, {passes}, {SHARDS} kept"
    return {
        shards: (drawn(plain, None), "<= 1.2x"),
        **{
            f"{shards}, one person in {each_in} sampled": (
                drawn(source(index, sampling_rate=1 / each_in), None),
                "<= 1.1x without",
            )
            for each_in in (2, 4, 8)
        },
        f"{shards}, {passes}": (drawn(passing, THRESHOLD), "<= 1.2x"),
        f"{shards}, {passes}, each pays": (drawn(passing, THRESHOLD, **each), ""),
        unit: (drawn(capped, THRESHOLD), ""),
        f"{unit}, each pays": (drawn(capped, THRESHOLD, **each), ""),
        f"choose a threshold for {SHARDS} units, each pays": (refined, ""),
    }


def bench_retrieved(table: Table, n: int, repeats: int) -> None:
    corpus = Corpus()
    flat = flat_index(corpus, n)
    index, building = retrieved_groups(flat)
    questions = [corpus.question() for _ in range(repeats)]
    check_against_numpy(index, questions[0])
    k = SHARDS * DOCS_PER_GROUP
    threads = faiss.omp_get_max_threads()
    kinds = draws(index)
    plain, single = [], []
    ours: dict[str, list[float]] = {name: [] for name in kinds}
    eligible = []
    for question in questions:
        plain.append(timed(lambda q=question: flat.search(q, k)))
        faiss.omp_set_num_threads(1)
        single.append(timed(lambda q=question: flat.search(q, k)))
        faiss.omp_set_num_threads(threads)
        for name, (draw, _) in kinds.items():
            ours[name].append(timed(lambda d=draw, q=question: d(q)))
        eligible.append(len(index.eligible(question, THRESHOLD).scores))
    reference = min(statistics.median(plain), statistics.median(single))
    for count, times in ((threads, plain), (1, single)):
        name = f"plain FAISS flat top-{k}, {n:,} x {DIMENSION}, threads: {count}"
        table.add_row(name, ms(statistics.median(times)), "", "")
    for name, (_, target) in kinds.items():
        median = statistics.median(ours[name])
        table.add_row(name, ms(median), f"{median / reference:.2f}x", target)
    found = f"{statistics.median(eligible):,.0f}"
    table.add_row(f"units with cosine >= {THRESHOLD} (median)", found, "", "")
    unit = str(n // CHUNKS_PER_UNIT // 2)
    deleting = timed(lambda: index.without(unit))
    table.add_row("delete one unit (one shard rewritten)", ms(deleting), "", "")
    table.add_row("build the shards from vectors", ms(building), "", "")


def bench_sampled(table: Table, n: int, repeats: int) -> None:
    documents = [Document("record", metadata={"unit": i}) for i in range(n)]
    rate = SampledGroups.rate_for(n, n_groups=10, records_per_group=4)
    groups = SampledGroups.from_documents(
        documents, unit_key="unit", n_groups=10, sampling_rate=rate
    )
    times = [timed(lambda: groups.draw("")) for _ in range(10 * repeats)]
    name = f"SampledGroups, {n:,} units, 10 groups of 4 on average"
    table.add_row(name, ms(statistics.median(times)), "", "<= 2 ms a token, all in all")


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 vectors")
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    table = Table(title="Groups: medians of one run")
    for column in ("what", "time", "against the faster plain", "target"):
        table.add_column(column)
    n = 100_000 if arguments.quick else arguments.vectors
    bench_retrieved(table, n, arguments.repeats)
    bench_sampled(table, 120_000, arguments.repeats)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
