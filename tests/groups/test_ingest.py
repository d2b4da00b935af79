"""Records are read one by one: their units, their texts, their vectors; or refused."""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from langchain_core.documents import Document
from scipy import stats
from support.embedding_fakes import (
    INNER,
    NEIGHBORLY,
    PLACES,
    POISON,
    Watching,
    WatchingServer,
)
from support.frames import locals_of, private_locals
from support.groups_fakes import (
    NOTES,
    QUESTION,
    SALT,
    Given,
    Returns,
    WordEmbedding,
    bits,
    build,
    note,
    retrieved,
    units,
)
from unit_tests.wall.marks import mark, marks_in

import langchain_dpicl
from langchain_dpicl import DPError, InvalidParameterError, SampledGroups, UnitError
from langchain_dpicl.embedding_calls import CALLS_AT_ONCE
from langchain_dpicl.groups import RetrievedGroups, shard_of
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.offline import HashingEmbeddings

CANARY = "canary-7f3a"


# ---- units and shards ----------------------------------------------------------------


class Ward(str, enum.Enum):
    NORTH = "north"


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (7, "7"),
        (np.int64(-7), " -7\n"),
        (" p1\n", "p1"),
        ("e\u0301", "\u00e9"),
        (Ward.NORTH, "north"),
        ("\ud800", "\ud800"),
    ],
)
def test_spellings_of_one_unit(value: Any, same: str) -> None:
    groups = build([note(value, "rash"), note(same, "cough")], n_groups=1)
    assert groups.n_units == 1
    assert build([note("P1", "a"), note("p1", "b")], n_groups=2).n_units == 2
    assert groups.delete_unit(same) == 2


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, np.True_, 1.0, "", " \t\u00a0", ["p1"], {"id": "p1"}, b"p1"),
        *(1 << 5000, object()),
    ],
)
def test_what_is_no_unit_id_is_refused(value: Any) -> None:
    with pytest.raises(UnitError, match=r"'unit' of document 1 "):
        build([note(1, "rash"), note(value, "text")], n_groups=1)
    with pytest.raises(UnitError, match="no unit id"):
        shard_of(value, SALT, 4)


def test_a_hash_of_the_saved_indexes() -> None:
    # Written down once: another hash would move everybody of a saved index.
    found = [shard_of(unit, SALT, 100) for unit in range(8)]
    assert found == [77, 75, 37, 2, 16, 61, 0, 96]
    for n in (0, -1, 2**63):
        with pytest.raises(InvalidParameterError, match="n must be"):
            shard_of("p-1", SALT, n)
    for salt in (b"short", "x" * 32, None):
        with pytest.raises(InvalidParameterError, match="32 secret bytes"):
            shard_of(1, salt, 4)  # type: ignore[arg-type]  # what is tested


def uniformity(slot_of: Callable[[str], int]) -> float:
    """Return the p-value of the chi-square test of uniform shards."""
    counts = Counter(slot_of(f"patient-{i:05d}") for i in range(40_000))
    return float(stats.chisquare([counts[slot] for slot in range(100)]).pvalue)


def test_units_spread_evenly_over_shards() -> None:
    assert uniformity(lambda unit: shard_of(unit, SALT, 100)) > 1e-6
    assert uniformity(lambda unit: shard_of(unit, SALT, 256) % 100) < 1e-6
    assert uniformity(lambda unit: min(shard_of(unit, SALT, 101), 99)) < 1e-6


# ---- calls of the embedding ----------------------------------------------------------


def corpus(people: int = 40, visits: int = 3) -> list[Document]:
    """Return the visits of all units, one visit of each after the other."""
    return [
        note(
            f"unit-{unit}", f"unit-{unit} had a cough {'often ' * unit}, visit {visit}"
        )
        for visit in range(visits)
        for unit in range(people)
    ]


def vectors_of(groups: RetrievedGroups) -> dict[str, bytes]:
    """Return each text's vector, to the last bit."""
    return {text: vector for _, text, vector in bits(groups)}


@pytest.mark.parametrize("place", PLACES)
def test_a_call_holds_one_units_texts(place: type[Watching]) -> None:
    embedding = place()
    groups = build(corpus(), embedding)
    assert all(len(people) == 1 for people in embedding.units)
    assert len(embedding.calls) == 40
    texts = Counter(text for call in embedding.calls for text in call)
    assert texts == Counter(document.page_content for document in corpus())
    embedding.calls.clear()
    later = [note(f"unit-{i % 45}", f"unit-{i % 45}, later {i}") for i in range(90)]
    assert groups.add_documents(later) == 90
    assert sorted(map(len, embedding.calls)) == [2] * 45
    assert all(len(people) == 1 for people in embedding.units)


@pytest.mark.parametrize("place", NEIGHBORLY)
def test_a_person_more_moves_nobodys_vector(place: type[Watching]) -> None:
    long = "unit-new told a long story " * 50
    news, others = [note("unit-new", f"{long}{i}") for i in range(5)], corpus()
    without = vectors_of(build(others, place()))
    for where in (0, 17, 120):
        found = vectors_of(build([*others[:where], *news, *others[where:]], place()))
        assert len(found) == len(without) + 5
        assert {text: found[text] for text in without} == without
    # The twin: texts of several units share a call.
    twin = vectors_of(build(others, place(), embedding_batch_size=8))
    found = vectors_of(build(news[:1] + others, place(), embedding_batch_size=8))
    assert sum(found[text] != twin[text] for text in twin) == len(twin)


@pytest.mark.parametrize("place", NEIGHBORLY)
def test_what_is_refused_adds_nothing(place: type[Watching]) -> None:
    embedding = place()
    groups = build(corpus(), embedding)
    before = vectors_of(groups)
    more = [note(f"unit-{i}", f"unit-{i}, later") for i in range(50)]
    for bad, error in (
        (note("unit-20", f"unit-20 {POISON}"), RuntimeError),
        (note(None, "unit-20"), UnitError),
        ("text", InvalidParameterError),
    ):
        with pytest.raises(error):
            groups.add_documents([*more, bad])
        assert vectors_of(groups) == before
    assert groups.add_documents(more) == 50


@pytest.mark.parametrize("size", [None, 1, 7, 120, 1000])
def test_every_vector_lands_at_its_document(size: int | None) -> None:
    embedding = WatchingServer()
    found = vectors_of(build(corpus(), embedding, embedding_batch_size=size))
    for document in corpus():
        row = np.asarray(INNER.embed_query(document.page_content))
        vector = np.frombuffer(found[document.page_content], np.float32)
        assert np.allclose(vector, row / np.linalg.norm(row), atol=1e-7)
    if size is not None:
        left = [size] * (120 // size) + [120 % size] * (120 % size > 0)
        assert sorted(map(len, embedding.calls)) == sorted(left)


class Failing(WatchingServer):
    """A server that goes down at its fifth call."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        if len(self.calls) >= 5:
            raise ConnectionError("The server is down.")
        return super().vectors(texts)


def test_servers_are_asked_at_once_until_one_call_fails() -> None:
    server, here, down = WatchingServer(), Watching(), Failing()
    build(corpus(100, 1), server)
    build(corpus(100, 1), here)
    assert 1 < server.most_at_once <= CALLS_AT_ONCE
    assert here.most_at_once == 1
    with pytest.raises(ConnectionError, match="down"):
        build(corpus(200, 1), down)
    assert len(down.calls) <= 5 + 2 * CALLS_AT_ONCE


def test_a_call_of_several_units_stands_in_the_public_description(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "embedding_batch_size"
    groups = build(corpus(), Watching(), progress=True)
    assert "120/120" in capsys.readouterr().err
    groups.add_documents([note(1, "a")], embedding_batch_size=1)
    assert name not in groups.description
    groups.add_documents([note(1, "b"), note(2, "c")], embedding_batch_size=16)
    groups.add_documents([note(1, "d")], embedding_batch_size=8)
    groups.delete_unit(1)
    assert groups.description[name] == groups.where(ward=1).description[name] == 16
    assert f"{name}=16" in repr(groups)
    groups.save(tmp_path / "saved")
    loaded = RetrievedGroups.load(tmp_path / "saved", Watching())
    assert loaded.description == groups.description
    for size in (0, -1, 1.5, True, "2"):
        with pytest.raises(InvalidParameterError, match=name):
            groups.add_documents([note(1, "a")], embedding_batch_size=size)


# ---- columns -------------------------------------------------------------------------


def documents(n: int = 60) -> list[Document]:
    rng = np.random.default_rng(1)
    return [
        Document(
            " ".join(rng.choice(("rash", "cough", "nausea", "fever"), 3)),
            metadata={"unit": f"p-{i % 17}", "visit": i, "ward": "north"},
            id=f"note-{i}",
        )
        for i in range(n)
    ]


def arrays(records: list[Document]) -> dict[str, Any]:
    vectors = WordEmbedding().embed_documents([one.page_content for one in records])
    columns = {
        name: [one.metadata[name] for one in records]
        for name in ("unit", "visit", "ward")
    }
    texts = [one.page_content for one in records]
    ids = [one.id for one in records]
    return {"text": texts, "embedding": np.float32(vectors), "key": ids, **columns}


def opened(source: Any, **terms: Any) -> RetrievedGroups:
    given = {"unit_key": "unit", "n_groups": 4, "docs_per_group": 2, "salt": SALT}
    given |= {"id_column": "key", **terms}
    return RetrievedGroups.from_embeddings(source, WordEmbedding(), **given)


@pytest.mark.parametrize("terms", [{}, {"score_threshold": 0.5}])
def test_columns_are_the_documents(tmp_path: Path, terms: Any) -> None:
    columns, own = arrays(documents()), retrieved(documents(), **terms)
    np.save(tmp_path / "vectors.npy", columns["embedding"])
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    for vectors in (columns["embedding"], columns["embedding"].tolist(), mapped):
        groups = opened({**columns, "embedding": vectors}, **terms)
        assert bits(groups) == bits(own)
        assert groups.draw(QUESTION) == own.draw(QUESTION)
        assert groups.description == own.description
    for one in (groups, own):
        assert one.delete_unit("p-3") == 4
        with pytest.raises(InvalidParameterError, match="taken"):
            one.add_documents([Document("x", metadata={"unit": 1}, id="note-1")])
        one.add_documents([Document("fever", metadata={"unit": "p-3"}, id="note-3")])
    assert bits(groups) == bits(own)
    plain = opened(columns, id_column=None, metadata_columns=["visit"])
    found = [one for slot in plain.draw(QUESTION) for one in slot]
    assert {(one.id, *sorted(one.metadata)) for one in found} == {
        (None, "unit", "visit")
    }


def first_row(*rows: Any, order: str = "C") -> bytes:
    """Return the first record's vector, bit for bit, among others."""
    found = np.asfortranarray(rows) if order == "F" else list(rows)
    count = len(rows)
    source = {"unit": range(count), "key": [None] * count, "embedding": found}
    source["text"] = [str(row) for row in range(count)]
    return vectors_of(opened(source, n_groups=1))["0"]


def test_other_rows_change_no_bit_of_a_row() -> None:
    """NumPy adds up columns side by side in another order where there is one row."""
    row, other = np.random.default_rng(16).normal(size=(4048, 384))[[4047, 4046]]
    assert first_row(row, order="F") == first_row(row, other, order="F")
    row, other = np.float32([0.1, 0.7, 0.3]), ["0.1", "0.2", "0.3"]
    assert first_row(row) == first_row(row, row) == first_row(row, other)
    # The twin: vectors are centered first.
    centered = np.float32([row, 2 * row]) - np.float32([row, 2 * row]).mean(axis=0)
    assert first_row(*centered) != first_row(row)


def test_metadata_is_kept_as_it_is_or_as_its_text() -> None:
    odd = {"day": date(2026, 4, 5), "n": np.int64(3), "deep": {"a": [1, None]}}
    for groups in (
        build([note(1, "rash", **odd)], n_groups=1),
        opened(
            {**arrays(documents(1)), **{k: [v] for k, v in odd.items()}}, n_groups=1
        ),
    ):
        [[found]] = groups.draw("rash")
        assert found.metadata["day"] == "2026-04-05"
        assert str(found.metadata["n"]) == "3"
        assert found.metadata["deep"] == {"a": [1, None]}
        assert units(groups.where(day="2026-04-05", n=3).draw("rash"))


# ---- what is refused -----------------------------------------------------------------


def spoiled(**cells: Any) -> dict[str, Any]:
    """Return columns with a cell of row 5 in its place."""
    own = {name: list(column) for name, column in arrays(documents()).items()}
    for name, cell in cells.items():
        own[name][5] = cell
    return own


COLUMNS: dict[str, tuple[Any, type[DPError], str]] = {
    "a unit": (spoiled(unit=1.5), UnitError, "document 5"),
    "zero": (spoiled(embedding=[0.0] * 6), InvalidParameterError, "document 5"),
    "short": (spoiled(embedding=[1.0] * 5), InvalidParameterError, "one vector"),
    "words": (spoiled(embedding=[CANARY] * 6), InvalidParameterError, "one vector"),
    "no text": (spoiled(text=None), InvalidParameterError, "'text' holds no string"),
    "a number as id": (spoiled(key=5), InvalidParameterError, "'key' holds no"),
    "an id twice": (spoiled(key="note-4"), InvalidParameterError, "document 5"),
    "lengths": ({**spoiled(), "text": [CANARY]}, InvalidParameterError, "numbers of"),
    "no units": ({"text": [], "embedding": []}, InvalidParameterError, "'unit'"),
    "a string": ({**spoiled(), "text": CANARY}, InvalidParameterError, "a str"),
    "nothing": ({name: [] for name in spoiled()}, UnitError, "no documents"),
    "few units": (arrays(documents(3)), UnitError, "n_groups=4"),
    "circle": (spoiled(ward={(1, 2): 3}), InvalidParameterError, "cannot be kept"),
    "a frame": (pd.DataFrame({"unit": [1]}), InvalidParameterError, "DataFrame"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_are_refused(name: str) -> None:
    source, error, message = COLUMNS[name]
    with pytest.raises(error, match=message) as caught:
        opened(source)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling_rate": 1e-9}, "sampling_rate"),
        ({"docs_per_groups": 3}, "'docs_per_groups'"),
        ({"random": np.random.default_rng(0)}, "SecureRandom"),
        ({"embedding": object()}, "Embeddings, not object"),
        ({"documents": 5}, "list of Documents, not int"),
        ({"documents": [note(1, "a"), None]}, r"documents\[1\] is a NoneType"),
        (
            {"documents": [Document.model_construct(page_content=[CANARY])]},
            r"documents\[0\] has no text",
        ),
    ],
)
def test_arguments_that_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        build(**changes)
    assert caught.value.__context__ is None
    assert CANARY not in str(caught.value)


def test_too_few_units() -> None:
    with pytest.raises(UnitError, match="no documents"):
        build([])
    with pytest.raises(UnitError, match="fewer units than n_groups=13") as caught:
        build(n_groups=13)
    # How many there are is private.
    assert "12" not in str(caught.value)
    with pytest.raises(InvalidParameterError, match="unit_key"):
        RetrievedGroups.from_documents(NOTES, WordEmbedding(), n_groups=4)  # type: ignore[call-arg]  # what is tested


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1, 0], [NAN, 1], [1, 1]], "document 1 .* not finite"),
        ([[1, 0], [1, 1], [-INF, 0]], "document 2 .* not finite"),
        ([[0, 0], [1, 1], [1, 0]], "document 0 .* zero"),
        ([[1, 0], [1, 1]], "one vector of numbers for each of the 3"),
        ([[1, 0]] * 4, "one vector of numbers for each of the 3"),
        ([[1, 0], [1], [1, 1]], "of one dimension"),
        *(
            ([[], [], []], "one vector"),
            (None, "one vector"),
            ([1.0] * 3, "one vector"),
        ),
        *(([["a", "b"]] * 3, "one vector"), ([[[1.0]]] * 3, "one vector")),
        ([[10**400, 1]] * 3, "one vector"),
    ],
)
def test_vectors_that_are_refused(vectors: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        build([note(1, str(i)) for i in range(3)], Returns(vectors), n_groups=1)


def test_a_bad_vector_is_named_by_its_place_in_the_list() -> None:
    vectors = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [NAN, 1.0], [1.0, 1.0]]
    notes = [note(i % 2, str(i)) for i in range(5)]
    with pytest.raises(InvalidParameterError, match="embedding of document 3 "):
        build(notes, Given(vectors), n_groups=1)
    vectors = [[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [5e-324, 0.0], [1]]
    found = vectors_of(build(notes[:4], Given(vectors), n_groups=1))
    rows = [np.frombuffer(found[str(i)], np.float32) for i in range(4)]
    assert np.allclose(rows, [[0.6, 0.8]] * 3 + [[1, 0]])
    with pytest.raises(InvalidParameterError, match="different dimensions: 1, 2"):
        build([note(i, str(i)) for i in range(5)], Given(vectors), n_groups=1)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0], "1 numbers for the question"),
        ([NAN, 1.0], "zero or not finite"),
        ([0.0, 0.0], "zero or not finite"),
        (None, "for the question"),
        ([[1.0, 2.0]], "no vector for the question"),
    ],
)
def test_questions_that_are_refused(vector: Any, message: str) -> None:
    notes, vectors = [note(i, str(i)) for i in range(3)], [[1.0, 0.0]] * 3
    groups = build(notes, Given(vectors, vector), n_groups=1)
    with pytest.raises(InvalidParameterError, match=message):
        groups.prepare("question")
    for question in ("", "  \n", None, 7, b"rash"):
        with pytest.raises(InvalidParameterError, match="non-empty string"):
            groups.draw(question)


def test_only_what_was_prepared_is_drawn() -> None:
    groups, other = build(), build(NOTES, HashingEmbeddings(5))
    for prepared in (None, [1.0], np.ones((1, 6)), other.prepare("rash")):
        with pytest.raises(InvalidParameterError, match="result of prepare"):
            groups.draw_prepared(prepared)
    asked, only = groups.prepare("rash"), groups.where(ward=1)
    assert only.draw_prepared(asked) == [[]] * 4
    assert groups.draw_prepared(only.prepare("rash")) == groups.draw("rash")
    with pytest.raises(InvalidParameterError, match="Pass the store"):
        groups.refresh()


def test_description_is_public_json() -> None:
    groups = build(score_threshold=0.25, sampling_rate=0.5)
    assert json.loads(json.dumps(groups.description)) == {
        "source": "RetrievedGroups",
        "retrieval": "threshold",
        "unit_key": "unit",
        "n_groups": 4,
        "docs_per_group": 8,
        "score_threshold": 0.25,
        "sampling_rate": 0.5,
        "relation": "replace",
        "random": "operating system",
    }
    assert build().description["retrieval"] == "shard"
    assert "NOT SECURE" in repr(build(random=SeededRandom(1)))


# ---- frames --------------------------------------------------------------------------

SECRET = mark("record", "text")
EMBEDDING = HashingEmbeddings()
PACKAGE = str(Path(langchain_dpicl.__file__).parent)
GOOD = [
    Document(mark("record", n), metadata={"unit": mark("unit", n)}) for n in range(60)
]


class Quoting(HashingEmbeddings):
    """Works for some documents; then it fails, and quotes what it was asked."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError(texts[0])
        found: list[list[float]] = super().embed_documents(texts)
        return found


class QuotingServer(Quoting):
    """Fails too; several calls of it run at once."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)


def stopped() -> Iterator[Document]:
    yield from GOOD
    raise OSError("The disk is gone.")


# The documents, the embedding, and the error.
CORPORA: dict[str, tuple[Callable[[], Any], Any, type[Exception]]] = {
    "no unit": (lambda: [*GOOD, Document(SECRET)], EMBEDDING, UnitError),
    "no document": (lambda: [*GOOD, SECRET], EMBEDDING, InvalidParameterError),
    "a text": (lambda: SECRET, EMBEDDING, InvalidParameterError),
    "a reader that fails": (stopped, EMBEDDING, OSError),
    "an embedding that fails": (lambda: GOOD, Quoting(20), RuntimeError),
    "a server that fails": (lambda: GOOD, QuotingServer(20), RuntimeError),
}


def sampled(records: Any) -> SampledGroups:
    return SampledGroups.from_documents(
        documents=records, unit_key="unit", n_groups=4, sampling_rate=0.5
    )


def made(records: Any, embedding: Any) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        records, embedding, unit_key="unit", n_groups=4
    )


MAKE: dict[str, Callable[[Any, Any], Any]] = {
    "from_documents": made,
    "add_documents": lambda records, embedding: made(
        GOOD[:20], embedding
    ).add_documents(records),
    "sampled": lambda records, _: sampled(records),
    "sampled add": lambda records, _: sampled(GOOD[:20]).add_documents(records),
}


@pytest.mark.parametrize("way", MAKE)
@pytest.mark.parametrize("name", CORPORA)
def test_no_frame_of_a_refused_corpus_holds_a_record(name: str, way: str) -> None:
    records, embedding, kind = CORPORA[name]
    if embedding is not EMBEDDING:
        if "sampled" in way:
            return
        embedding = type(embedding)(20)
    with pytest.raises(kind) as caught:
        MAKE[way](records(), embedding)
    assert any("given=<hidden>" in each for each in locals_of(caught.value, __name__))
    private = private_locals(caught.value, __name__)
    if embedding is not EMBEDDING:
        # The frames of the embedding's client are its own, and what it quotes.
        private = [each for each in private if each.startswith(PACKAGE)]
    assert private == []
    if isinstance(caught.value, DPError):
        assert marks_in(str(caught.value)) == []
        assert caught.value.__context__ is None


def test_no_frame_of_an_unknown_unit_holds_its_id() -> None:
    for groups in (build(GOOD, EMBEDDING), sampled(GOOD)):
        with pytest.raises(UnitError) as caught:
            groups.delete_unit(mark("unit", "nobody"))
        assert private_locals(caught.value, __name__) == []
