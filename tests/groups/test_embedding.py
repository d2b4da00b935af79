"""At ingest no call of the embedding holds texts of two units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.embedding_fakes import (
    INNER,
    NEIGHBORLY,
    PLACES,
    POISON,
    Watching,
    WatchingServer,
)
from support.groups_fakes import QUESTION, Given, WordEmbedding, build, note

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.embedding_calls import CALLS_AT_ONCE
from langchain_dpicl.errors import InvalidParameterError, UnitError


def corpus(units: int = 40, visits: int = 3) -> list[Document]:
    """Return the visits of all units, one visit of each after the other."""
    return [
        note(
            f"unit-{unit}", f"unit-{unit} had a cough {'often ' * unit}, visit {visit}"
        )
        for visit in range(visits)
        for unit in range(units)
    ]


def built(
    documents: Sequence[Document], embedding: Any, **terms: Any
) -> RetrievedGroups:
    terms = {"unit_key": "unit", "n_groups": 4, **terms}
    return RetrievedGroups.from_documents(documents, embedding, **terms)


def vectors_of(groups: RetrievedGroups) -> dict[str, bytes]:
    """Return each text's vector, to the last bit."""
    return {
        document.page_content: row.tobytes()
        for shard in groups._index.shards
        for document, row in zip(shard.documents, shard.vectors, strict=True)
    }


@pytest.mark.parametrize("place", PLACES)
def test_a_call_holds_one_units_texts(place: type[Watching]) -> None:
    embedding = place()
    groups = built(corpus(), embedding)
    assert all(len(units) == 1 for units in embedding.units)
    assert len(embedding.calls) == 40
    texts = Counter(text for call in embedding.calls for text in call)
    assert texts == Counter(document.page_content for document in corpus())
    embedding.calls.clear()
    later = [note(f"unit-{i % 45}", f"unit-{i % 45}, later {i}") for i in range(90)]
    assert groups.add_documents(later) == 90
    assert sorted(map(len, embedding.calls)) == [2] * 45
    assert all(len(units) == 1 for units in embedding.units)


@pytest.mark.parametrize("place", NEIGHBORLY)
@pytest.mark.parametrize("where", [0, 17, 120])
def test_a_person_more_moves_nobodys_vector(place: type[Watching], where: int) -> None:
    long = "unit-new told a long story " * 50
    news = [note("unit-new", f"{long}{i}") for i in range(5)]
    others = corpus()
    without = vectors_of(built(others, place()))
    documents = [*others[:where], *news, *others[where:]]
    found = vectors_of(built(documents, place()))
    assert len(found) == len(without) + 5
    assert {text: found[text] for text in without} == without


def test_twin_batches_move_others_vectors() -> None:
    others = corpus()
    news = [note("unit-new", "unit-new")]
    size = {"embedding_batch_size": 8}
    without = vectors_of(built(others, NEIGHBORLY[0](), **size))
    found = vectors_of(built(news + others, NEIGHBORLY[0](), **size))
    assert sum(found[text] != without[text] for text in without) == len(without)


@pytest.mark.parametrize("place", NEIGHBORLY)
def test_a_text_that_is_refused_adds_nothing_and_changes_nothing(
    place: type[Watching],
) -> None:
    embedding = place()
    groups = built(corpus(), embedding)
    before = vectors_of(groups)
    more = [note(f"unit-{i}", f"unit-{i}, later") for i in range(50)]
    more[20] = note("unit-20", f"unit-20 {POISON}")
    with pytest.raises(RuntimeError, match="too long"):
        groups.add_documents(more)
    assert vectors_of(groups) == before
    del more[20]
    assert groups.add_documents(more) == 49


@pytest.mark.parametrize("size", [None, 1, 7, 120, 1000])
def test_every_vector_lands_at_its_document(size: int | None) -> None:
    embedding = WatchingServer()
    groups = built(corpus(), embedding, embedding_batch_size=size)
    found = vectors_of(groups)
    for document in corpus():
        text = document.page_content
        row = np.asarray(INNER.embed_query(text))
        unit = (row / np.linalg.norm(row)).astype(np.float32)
        assert np.allclose(np.frombuffer(found[text], np.float32), unit, atol=1e-7)
    if size is not None:
        left = [size] * (120 // size) + [120 % size] * (120 % size > 0)
        assert sorted(map(len, embedding.calls)) == sorted(left)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
def test_batch_sizes_that_make_no_sense(size: Any) -> None:
    embedding = Watching()
    with pytest.raises(InvalidParameterError, match="embedding_batch_size"):
        built(corpus(), embedding, embedding_batch_size=size)
    assert embedding.calls == []
    groups = built(corpus(), embedding)
    with pytest.raises(InvalidParameterError, match="embedding_batch_size"):
        groups.add_documents([note(1, "a")], embedding_batch_size=size)


def test_servers_are_asked_at_once_and_models_here_are_not() -> None:
    server, here = WatchingServer(), Watching()
    built(corpus(100, 1), server)
    built(corpus(100, 1), here)
    assert 1 < server.most_at_once <= CALLS_AT_ONCE
    assert here.most_at_once == 1


class Failing(WatchingServer):
    """A server that goes down at its fifth call."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        if len(self.calls) >= 5:
            raise ConnectionError("The server is down.")
        return super().vectors(texts)


def test_a_server_that_goes_down_is_not_asked_on() -> None:
    embedding = Failing()
    with pytest.raises(ConnectionError, match="down"):
        built(corpus(200, 1), embedding)
    assert len(embedding.calls) <= 5 + 2 * CALLS_AT_ONCE


def test_the_bar_ends_at_the_number_of_documents(
    capsys: pytest.CaptureFixture[str],
) -> None:
    built(corpus(), WatchingServer(), progress=True)
    shown = capsys.readouterr()
    assert "Embedding documents" in shown.err
    assert "120/120" in shown.err
    assert not shown.out


def test_a_call_of_several_units_stands_in_the_public_description(
    tmp_path: Path,
) -> None:
    name = "embedding_batch_size"
    groups = built(corpus(), Watching())
    assert name not in groups.description
    groups.add_documents([note(1, "a")], embedding_batch_size=1)
    assert name not in groups.description
    groups.add_documents([note(1, "b"), note(2, "c")], embedding_batch_size=16)
    assert groups.description[name] == 16
    groups.add_documents([note(1, "d")], embedding_batch_size=8)
    groups.delete_unit(1)
    assert groups.description[name] == groups.where(ward=1).description[name] == 16
    assert f"{name}=16" in repr(groups)
    groups.save(tmp_path / "saved")
    loaded = RetrievedGroups.load(tmp_path / "saved", Watching())
    assert loaded.description == groups.description
    assert built(corpus(), Watching(), embedding_batch_size=8).description[name] == 8


def test_vectors_of_any_size_are_scaled() -> None:
    vectors = [[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [5e-324, 0.0]]
    groups = build([note(i, str(i)) for i in range(4)], Given(vectors), n_groups=1)
    found = vectors_of(groups)
    rows = {text: np.frombuffer(found[text], np.float32) for text in found}
    assert all(np.allclose(rows[str(i)], [0.6, 0.8]) for i in range(3))
    assert np.allclose(rows["3"], [1, 0])


def test_a_long_unit_is_embedded_in_several_calls() -> None:
    embedding = Watching()
    built([note("unit-1", f"unit-1 {i}") for i in range(600)], embedding, n_groups=1)
    assert sum(map(len, embedding.calls)) == 600
    assert len(embedding.calls) > 1


def test_a_failed_addition_changes_nothing() -> None:
    embedding = WordEmbedding()
    groups = build(embedding=embedding)
    before = groups.draw(QUESTION)
    for bad, error in (
        ([note(1, "rash"), note(None, "rash")], UnitError),
        ([note(1, "rash"), note(2, "")], InvalidParameterError),
        ([note(1, "rash"), "text"], InvalidParameterError),
    ):
        with pytest.raises(error):
            groups.add_documents(bad)
    embedding.size = 7
    with pytest.raises(InvalidParameterError, match=r"vectors of 7 numbers.* of 6"):
        groups.add_documents([note(1, "rash")])
    with pytest.raises(InvalidParameterError, match="7 numbers for the question"):
        groups.prepare(QUESTION)
    embedding.size = 6
    assert groups.draw(QUESTION) == before
    assert groups.n_units == 12
