"""One unit more or less changes one slot of a draw inside PostgreSQL, to the bit."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.known_corpus import known_corpus
from support.pgvector_parts import (
    ASKED,
    EMBEDDING,
    VectorServer,
    best,
    ids,
    person,
    quoted,
    statements,
)

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.groups.filtering import RecordFilter
from langchain_dpicl.groups.postgres import PostgresGroups
from langchain_dpicl.mechanisms.random import SecureRandom

Slots = list[list[str | None]]
Draw = Callable[[list[Document]], Slots]
CORPUS = known_corpus()
NONCE = bytes(range(16))
TEXTS = ("No complaints.", "A cough.", "A rash.", "It hurts.")
WARDS = ("3", " 3", "4", None)


class OneNonce(SecureRandom):
    """Tosses the same coins in every draw."""

    is_seeded = True

    def randbytes(self, n: int) -> bytes:
        assert n == len(NONCE)
        return NONCE


def tossed(unit: str, rate: float = 0.5) -> bool:
    digest = hashlib.sha256(NONCE + unit.encode()).digest()
    return int.from_bytes(digest[:8], "big") < rate * 2**64


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Document], str]:
    """Return a corpus with ties, and somebody in it; ids are each record's own."""
    row = st.tuples(st.integers(0, 7), st.sampled_from(TEXTS), st.sampled_from(WARDS))
    rows = draw(st.lists(row, min_size=2, max_size=24))
    seen: Counter[Any] = Counter()
    documents = []
    for unit, text, ward in [*rows, (99, TEXTS[0], "4")]:
        seen[unit, text, ward] += 1
        own = f"{unit} {text} {ward} {seen[unit, text, ward]}"
        documents.append(
            Document(
                text,
                metadata={"unit": f"p-{unit}", "ward": ward},
                id=str(uuid.uuid5(uuid.NAMESPACE_OID, own)),
            )
        )
    return documents, f"p-{rows[0][0]}"


class Drawer:
    """Fills one table, and draws from it."""

    def __init__(self, server: VectorServer, **terms: Any) -> None:
        self.server = server
        self.name = server.table([Document("-", metadata={"unit": n}) for n in "abc"])
        given = {"n_groups": 3, "docs_per_group": 2, "random": OneNonce(), **terms}
        self.groups = server.groups(self.name, **given)

    def fill(self, documents: Iterable[Document]) -> None:
        self.server.run("DELETE FROM {}", self.name)
        self.server.fill(self.name, list(documents))

    def __call__(self, documents: list[Document]) -> Slots:
        self.fill(documents)
        return ids(self.groups.draw(ASKED))


class Paying(Drawer):
    """Draws where units p-0, p-3 and p-6 can't pay."""

    def __call__(self, documents: list[Document]) -> Slots:
        self.fill(documents)
        asked = self.groups.prepare(ASKED)
        return ids(self.groups.draw_prepared(asked, collect=rich))


def rich(unit_ids: Iterable[str]) -> set[str]:
    return {unit for unit in unit_ids if unit not in ("p-0", "p-3", "p-6")}


class Filtered(Drawer):
    """Draws for one ward."""

    def __init__(self, server: VectorServer, **terms: Any) -> None:
        super().__init__(server, **terms)
        self.groups = self.groups.where({"ward": "3"})


DRAWERS: dict[str, Callable[[VectorServer], Drawer]] = {
    "shard": Drawer,
    "threshold": lambda server: Drawer(server, score_threshold=0.0),
    "paying": lambda server: Paying(server, score_threshold=0.0),
    "filtered": Filtered,
    "sampled": lambda server: Drawer(server, sampling_rate=0.5),
    "all": lambda server: Paying(server, score_threshold=0.0, sampling_rate=0.5),
}


def run(check: Callable[[Any], None], *, examples: int = 15) -> None:
    given(worlds())(
        settings(
            deadline=None,
            max_examples=examples,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(check)
    )()


def neighbors(draw: Draw) -> Callable[[Any], None]:
    """Check also that no slot follows the order in which the table holds rows."""

    def check(world: Any) -> None:
        documents, gone = world
        rest = [one for one in documents if one.metadata["unit"] != gone]
        shuffled = random.Random(1).sample(documents, len(documents))
        found = draw(documents)
        assert draw(shuffled) == found
        assert sum(a != b for a, b in zip(found, draw(rest), strict=True)) <= 1

    return check


@pytest.mark.parametrize("drawer", DRAWERS)
def test_one_unit_changes_one_slot(server: VectorServer, drawer: str) -> None:
    run(neighbors(DRAWERS[drawer](server)))


def numbered(statement: str) -> str:
    """Break ties by the place in the table."""
    statement = statement.replace("score DESC, digest, id", "score DESC")
    return statement.replace("rank() OVER", "row_number() OVER")


def test_twin_ties_in_the_order_of_the_table(server: VectorServer) -> None:
    with statements(numbered), pytest.raises(AssertionError):
        run(neighbors(Drawer(server)), examples=200)


def test_records_that_share_an_id_are_told_apart(server: VectorServer) -> None:
    """Where nothing keeps ids unique, a tie is broken by text and metadata."""
    drawer = Drawer(server, docs_per_group=1, n_groups=1)
    server.run("ALTER TABLE {} DROP COLUMN langchain_id", drawer.name)
    server.run("ALTER TABLE {} ADD COLUMN langchain_id uuid", drawer.name)
    same = [
        Document("A.", metadata={"unit": "p", "visit": visit}, id=str(uuid.UUID(int=1)))
        for visit in (1, 2, 3)
    ]
    found = []
    for documents in (same, same[::-1]):
        drawer.fill(documents)
        found.append(drawer.groups.draw(ASKED))
    assert found[0] == found[1]


@pytest.mark.parametrize("threshold", [None, 0.0])
def test_who_is_not_sampled_leaves_no_trace(
    server: VectorServer, threshold: float | None
) -> None:
    drawer = Drawer(server, score_threshold=threshold, sampling_rate=0.5)
    whole = Drawer(server, score_threshold=threshold)

    def check(world: Any) -> None:
        documents, _ = world
        inside = [one for one in documents if tossed(person(one))]
        assert drawer(documents) == whole(inside)

    run(check)
    assert drawer(CORPUS) == best(
        CORPUS,
        n_groups=3,
        docs_per_group=2,
        score_threshold=threshold,
        takes_part=lambda one: tossed(person(one)),
    )


def test_who_does_not_pay_or_match_leaves_no_trace(server: VectorServer) -> None:
    paying, whole = (
        Paying(server, score_threshold=0.0),
        Drawer(server, score_threshold=0.0),
    )
    filtered = Filtered(server, score_threshold=0.0)

    def check(world: Any) -> None:
        documents, _ = world
        payers = [one for one in documents if rich([one.metadata["unit"]])]
        assert paying(documents) == whole(payers)
        wards = [str(one.metadata["ward"]).strip() for one in documents]
        inside = [d for d, ward in zip(documents, wards, strict=True) if ward == "3"]
        assert filtered(documents) == whole(inside)

    run(check)


def search_first(takes_part: Callable[[Document], bool]) -> Draw:
    """The twin: the best of all are found, and then some are left out."""

    def draw(documents: list[Document]) -> Slots:
        found = best(documents, n_groups=3, docs_per_group=2)
        kept = {one.id for one in documents if takes_part(one)}
        return [[own for own in slot if own in kept] for slot in found]

    return draw


@pytest.mark.parametrize(
    "takes_part",
    [
        lambda one: tossed(person(one)),
        lambda one: bool(rich([person(one)])),
        lambda one: str(one.metadata["ward"]).strip() == "3",
    ],
    ids=["sample", "payers", "filter"],
)
def test_twin_search_first(takes_part: Any) -> None:
    twin = search_first(takes_part)

    def check(world: Any) -> None:
        documents, _ = world
        inside = [one for one in documents if takes_part(one)]
        assert twin(documents) == best(inside, n_groups=3, docs_per_group=2)

    with pytest.raises(AssertionError):
        run(check, examples=200)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_all_who_are_eligible_are_asked_to_pay_once(
    server: VectorServer, rate: float
) -> None:
    groups = server.drawn(
        CORPUS, n_groups=3, docs_per_group=1, score_threshold=0.3, sampling_rate=rate
    )
    asked: list[list[str]] = []

    def collect(unit_ids: Iterable[str]) -> set[str]:
        asked.append(list(unit_ids))
        return set()

    for question, eligible in (
        (groups, None),
        (groups.where({"visit": [0, 1]}), {"0", "1"}),
        (groups.where({"visit": "none"}), set()),
    ):
        slots = question.draw_prepared(question.prepare(ASKED), collect=collect)
        assert slots == [[], [], []]
        passing = {
            own
            for slot in best(
                CORPUS,
                docs_per_group=1000,
                score_threshold=0.3,
                takes_part=lambda one, eligible=eligible: (
                    eligible is None or str(one.metadata["visit"]) in eligible
                ),
            )
            for own in slot
        }
        people = {person(one) for one in CORPUS if one.id in passing}
        assert asked.pop() == sorted(people)
        assert not asked


def test_who_cannot_charge_says_so(server: VectorServer) -> None:
    groups = server.drawn(CORPUS)
    with pytest.raises(InvalidParameterError, match="cannot charge"):
        groups.draw_prepared(groups.prepare(ASKED), collect=rich)


def test_nobody_joins_after_the_payment(server: VectorServer) -> None:
    name = server.table(CORPUS)
    groups = server.groups(name, docs_per_group=999, score_threshold=-1)

    def collect(unit_ids: Iterable[str]) -> set[str]:
        server.fill(name, [Document("Late.", metadata={"unit": "late"})])
        server.run("DELETE FROM {} WHERE unit = 'p-many'", name)
        return {*unit_ids}

    (slot,) = groups.draw_prepared(groups.prepare(ASKED), collect=collect)
    assert {"late", "p-many"}.isdisjoint(person(one) for one in slot)


def test_a_sample_is_of_persons_at_the_rate_and_fresh(server: VectorServer) -> None:
    spelled = [
        Document("A.", metadata={"unit": f"{space}p-{number}"}, id=None)
        for number in range(300)
        for space in ("", " ", "\u2003")
    ]
    groups = server.drawn(spelled, docs_per_group=999, sampling_rate=0.25)
    sizes = []
    for _ in range(8):
        held = Counter(person(one) for slot in groups.draw(ASKED) for one in slot)
        # All of a person's records, however spelled, or none.
        assert set(held.values()) == {3}
        sizes.append(len(held))
    assert abs(np.mean(sizes) - 75) < 20
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("dimension", [13, 384])
def test_a_score_does_not_depend_on_where_a_row_lies(
    server: VectorServer, dimension: int
) -> None:
    """The same bits at every place in a page, where others' rows have pushed it."""
    name, numbers = server.table(), np.random.default_rng(dimension)
    server.run(f"ALTER TABLE {{}} ALTER embedding TYPE vector({dimension})", name)
    for _ in range(5):
        vector, asked = (
            numbers.normal(size=dimension).astype(np.float32).tolist() for _ in "ab"
        )
        server.run("DELETE FROM {}", name)
        server.run(
            "INSERT INTO {} (langchain_id, content, embedding) SELECT "
            f"gen_random_uuid(), repeat('x', n), '{vector}' FROM generate_series(1, 70)"
            " AS n",
            name,
        )
        bits = f"SELECT count(DISTINCT embedding <=> '{asked}') FROM {{}}"
        assert server.run(bits, name) == [(1,)]


INDEXES = {
    "hnsw": "USING hnsw (embedding vector_cosine_ops)",
    "ivfflat": "USING ivfflat (embedding vector_cosine_ops) WITH (lists = 4)",
    "expression": "USING hnsw ((embedding::vector(8)) vector_cosine_ops)",
}


@pytest.mark.parametrize("index", INDEXES)
def test_no_plan_reads_an_approximate_index(server: VectorServer, index: str) -> None:
    name = server.table(CORPUS)
    groups = server.groups(name)
    expected = ids(groups.draw(ASKED))
    server.run(f'CREATE INDEX "its index" ON {{}} {INDEXES[index]}', name)
    forced = f"{server.url}%20-cenable_seqscan%3Doff"
    assert ids(server.groups(name, url=forced).draw(ASKED)) == expected
    assert "its index" not in plan(server, server.groups(name, url=forced))
    # The twin: an ordinary search does read it.
    question = str(EMBEDDING.embed_query(ASKED))
    with server.connect() as connection:
        connection.execute("SET enable_seqscan = off")
        ordinary = connection.execute(
            f"EXPLAIN SELECT content FROM {quoted(name)} ORDER BY "
            f"embedding <=> '{question}' LIMIT 3"
        )
        assert index == "expression" or "its index" in str(ordinary.fetchall())
    server.run('DROP INDEX "its index"')


def plan(server: VectorServer, groups: PostgresGroups) -> str:
    """Return the plan of a draw, with the settings that the draw begins with."""
    with statements() as seen:
        groups.draw(ASKED)
    (begin, _), (statement, given) = seen
    with server.connect() as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute(begin)
        found = connection.execute(f"EXPLAIN VERBOSE {statement}", given)
        return str(found.fetchall())


def test_spaces_are_those_of_python(server: VectorServer) -> None:
    every = [c for c in map(chr, range(0x110000)) if c.isspace()]
    notes = [Document("A.", metadata={"unit": f"{c}p{c}"}) for c in every]
    assert server.drawn([*notes, Document("B.", metadata={"unit": "q"})]).n_units == 2


def test_filters_are_those_of_memory(server: VectorServer) -> None:
    wards = ["3", " 3\t", "\u00e9", "e\u0301", "4", "", None, "o'hara\"%s", "\u2003"]
    notes = [
        Document("A.", metadata={"unit": f"p-{n}", "ward": ward, "visit": n % 3})
        for n, ward in enumerate(wards)
    ]
    groups = server.drawn(notes, docs_per_group=99)
    for only in (
        {"ward": "3"},
        {"ward": [3, "\u00e9"]},
        {"ward": "o'hara\"%s"},
        {"ward": ["x\0y", "4", "\ud800"]},
        {"ward": ["x\0y"]},
        {"visit": [0, "1"]},
        {"visit": 1, "ward": ["4", "3"]},
    ):
        allowed = RecordFilter.of(only)
        expected = {d.metadata["unit"] for d in notes if allowed.matches(d.metadata)}
        (slot,) = groups.where(only).draw(ASKED)
        assert {d.metadata["unit"] for d in slot} == expected
    for key in ("tags", "langchain_metadata", "content", "shard"):
        with pytest.raises(InvalidParameterError, match="no column of metadata"):
            groups.where({key: "3"})
