"""What insights tell of 300 people's conversations, beside other ways; 10,000 people.

The conversations were written by a language model, and another reading of them is
replayed; both are in the package (`langchain_dpicl.demo`). Beside the release stand the
same without noise, words of the reader's own by a private threshold, and a private
k-means of the same epsilon (Lloyd's steps with noisy counts and sums, over the reader's
own words), whose clusters would still have to be named without looking at anybody.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from benchmarks.common import Options, Scripted, account, peak_mib, seconds, table
from langchain_dpicl.accounting import Pure, noise_multiplier
from langchain_dpicl.insights import Insights, forecast, insights
from langchain_dpicl.insights.reading import Reading
from langchain_dpicl.insights.table import Layout
from langchain_dpicl.mechanisms.slots import noisy_slots
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers.reading import phrase_of
from langchain_dpicl.parsers.words import STOP_WORDS
from langchain_dpicl.tabular import discover

DELTA, EPSILONS = 1e-6, (1.0, 3.0, 8.0)
CLUSTERS, STEPS = 30, 5
PEOPLE = 10_000


@cache
def people() -> list[dict[str, Any]]:
    text = resources.files("langchain_dpicl.demo").joinpath("chats.jsonl")
    return [json.loads(line) for line in text.read_text("utf-8").splitlines()]


def names() -> list[str]:
    return sorted({topic for person in people() for topic in person["topics"]})


def text_of(person: dict[str, Any]) -> str:
    turns = (turn["text"] for chat in person["chats"] for turn in chat)
    return "\n".join(turns)


def released(epsilon: float, runs: int, m: int, *, unused: int = 0) -> list[Insights]:
    """Return releases of the 300 people; so many topics of the list nobody has."""
    layout = Layout.of([*names(), *(f"unused {n}" for n in range(unused))], m)
    rows, paid = filled(layout), [Pure(epsilon=epsilon)]
    record = insights(
        [{"user": 1, "text": "Hello"}],
        Scripted(said=lambda _prompt: "none"),
        unit_key="user",
        topics=layout.topics,
        budget=account(epsilon, DELTA),
        max_topics=m,
    ).record
    nobody: tuple[Any, Any] = [0] * len(rows), [None] * len(rows)
    shape, other = layout.shape, layout.other
    return [
        Insights(record, *noisy_slots(rows, *nobody, paid, shape=shape, other=other))
        for _ in range(runs)
    ]


def filled(layout: Layout) -> list[list[int]]:
    listed = names()
    read = [Reading(tuple(map(listed.index, one["yes"]))) for one in people()]
    return [layout.filled(reading) for reading in read]


def figures(epsilon: float, runs: int, m: int = 2) -> dict[str, str]:
    """Return what releases tell, and how often their margins hold."""
    rows, listed = filled(Layout.of(names(), m)), names()
    true = Counter(place for row in rows for place in row)
    found = released(epsilon, runs, m)
    places = [{listed.index(topic.name) for topic in one.topics} for one in found]
    reached = [np.mean([bool(out.intersection(row)) for row in rows]) for out in places]
    holds = [
        abs(topic.count - true[listed.index(topic.name)]) <= topic.error
        for one in found
        for topic in one.topics
    ]
    false = [
        any(topic.name.startswith("unused") for topic in one.topics)
        for one in released(epsilon, runs, m, unused=30)
    ]
    return {
        "topics": f"{np.mean([len(out) for out in places]):.1f}",
        "people with one of them": f"{100 * np.mean(reached):.0f} %",
        "margins hold": f"{100 * np.mean(holds):.1f} %",
        "some of 30 unused ones": f"{100 * np.mean(false):.1f} %",
    }


def own_words(epsilon: float, runs: int, most: int, *, single: bool) -> str:
    """Return how many phrases, or single lemmas, of the reader's own come out."""
    rows = []
    for person in people():
        phrases = dict.fromkeys(filter(None, map(phrase_of, person["keywords"])))
        words = dict.fromkeys(word for phrase in phrases for word in phrase.split())
        kept = [w for w in words if w not in STOP_WORDS] if single else list(phrases)
        rows += [{"who": person["user"], "said": one} for one in kept]
    found = [
        len(
            discover(
                rows,
                "said",
                budget=account(epsilon, DELTA),
                unit_key="who",
                max_values=most,
            ).counts
        )
        for _ in range(runs)
    ]
    return f"{np.mean(found):.1f}"


def covered(assigned: Sequence[int], kept: Sequence[int]) -> float:
    """Return the share of topics that half of the people of some kept cluster have."""
    found: set[str] = set()
    for cluster in kept:
        own = [one for one, at in zip(people(), assigned, strict=True) if at == cluster]
        most = Counter(topic for one in own for topic in one["topics"]).most_common(1)
        found.update(topic for topic, count in most if count >= len(own) / 2)
    return len(found) / len(names())


@cache
def vectors(dimensions: int) -> Any:
    """Return the reader's own words as vectors; what makes them short is for free."""
    embedding = HashingEmbeddings(4_096)
    wide = np.array(
        embedding.embed_documents([", ".join(one["keywords"]) for one in people()])
    )
    found = wide @ np.linalg.svd(wide, full_matrices=False)[2][:dimensions].T
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


def k_means(epsilon: float | None, dimensions: int, runs: int) -> str:
    """Return the topics that clusters cover, if they are clearly not empty."""
    points = vectors(dimensions)
    # A person adds a vector of norm 1, and 1 to a count: sqrt(2) in all.
    sigma = 0.0
    if epsilon is not None:
        sigma = 2**0.5 * noise_multiplier(epsilon, DELTA, uses=STEPS)
    found = []
    for run in range(runs):
        rng = np.random.default_rng(run)
        centers = rng.normal(size=(CLUSTERS, dimensions))
        if epsilon is None:
            centers = points[rng.choice(len(points), CLUSTERS, replace=False)]
        for _ in range(STEPS):
            nearest = (points @ centers.T).argmax(axis=1)
            sums = np.zeros((CLUSTERS, dimensions + 1))
            np.add.at(sums, nearest, np.c_[points, np.ones(len(points))])
            sums += sigma * rng.normal(size=sums.shape)
            lengths = np.linalg.norm(sums[:, :-1], axis=1, keepdims=True)
            centers = sums[:, :-1] / np.maximum(lengths, 1e-12)
        # As for topics: a cluster of nobody is kept in 1 % of releases.
        kept = np.flatnonzero(sums[:, -1] >= max(1.0, 3.4 * sigma)).tolist()
        found.append(covered((points @ centers.T).argmax(axis=1).tolist(), kept))
    return f"{np.mean(found):.2f}"


def whole_path(count: int) -> tuple[str, str, str]:
    """Return time and memory of so many generated people, of a model that is quick."""
    rng = random.Random(1)
    listed = names()
    replies = [" \n".join(person["yes"]) for person in people()]
    texts = [text_of(person) for person in people()]
    chosen = [rng.randrange(len(texts)) for _ in range(count)]
    talk = [
        {"user": n, "text": f"{texts[place]}\n[{place}]"}
        for n, place in enumerate(chosen)
    ]

    def reply(prompt: str) -> str:
        end = prompt.rpartition("]")[0].rpartition("[")[2]
        return replies[int(end)] if end.isdigit() else "none"

    model = Scripted(said=reply)
    before = peak_mib()
    taken = seconds(
        lambda: insights(
            talk,
            model,
            unit_key="user",
            topics=listed,
            budget=account(3.0, DELTA),
            people_at_most=count,
            progress=False,
        )
    )
    return (
        f"{count:,} people, {len(model.heard):,} calls",
        f"{taken:.1f} s",
        f"{peak_mib() - before:.0f} MiB more",
    )


def run(options: Options) -> None:
    """Run and print the benchmark."""
    # First, as memory is the largest that there was.
    size = PEOPLE // 10 if options.quick else PEOPLE
    table("The whole path", ("", "time", "memory"), [whole_path(size)])
    runs = 20 if options.quick else 200
    head = ("", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS))
    releases = [figures(epsilon, runs) for epsilon in EPSILONS]
    expected = [forecast(names(), epsilon=e, delta=DELTA) for e in EPSILONS]
    rows: list[Sequence[str]] = [
        ("people for 95 %", *(str(one.least) for one in expected)),
        *((name, *(one[name] for one in releases)) for name in releases[0]),
        ("topics, m = 1", *(figures(e, runs, 1)["topics"] for e in EPSILONS)),
        ("topics, m = 3", *(figures(e, runs, 3)["topics"] for e in EPSILONS)),
    ]
    for most, single in ((3, False), (3, True), (1, True)):
        kind = f"own {'lemmas' if single else 'phrases'}, {most} a person"
        few = max(1, runs // 20)
        rows.append((kind, *(own_words(e, few, most, single=single) for e in EPSILONS)))
    for dimensions in (64, 16):
        free = k_means(None, dimensions, runs // 10)
        kind = f"k-means, {dimensions} dimensions (without noise {free})"
        rows.append((kind, *(k_means(e, dimensions, runs // 10) for e in EPSILONS)))
    table("300 people, 30 topics of which all come out without noise", head, rows)
