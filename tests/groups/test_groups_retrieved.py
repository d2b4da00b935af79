"""What a draw returns, and what is refused before there is one."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.groups_fakes import (
    NOTES,
    QUESTION,
    SALT,
    Given,
    WordEmbedding,
    build,
    contents,
    eligible_ids,
    note,
    retrieved,
    units_in,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import GroupSource, RetrievedGroups, shards
from langchain_dpicl.groups.units import keyed_slot
from langchain_dpicl.mechanisms.random import SeededRandom


class Gaussian(WordEmbedding):
    """Spreads texts over the sphere, so that no two scores are equal."""

    def embed_query(self, text: str) -> list[float]:
        seed = keyed_slot(SALT, text, 1 << 32)
        return np.random.default_rng(seed).standard_normal(self.size).tolist()


def cosine(embedding: WordEmbedding, text: str) -> float:
    one, other = np.array(embedding.embed_query(text)), embedding.embed_query(QUESTION)
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def expected_top(documents: list[Document], n: int, threshold: float) -> list[str]:
    scored = [(cosine(Gaussian(), doc.page_content), doc) for doc in documents]
    best = sorted(
        (pair for pair in scored if pair[0] >= threshold), key=lambda p: -p[0]
    )
    return [doc.page_content for _, doc in best[:n]]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(1, 5),
    st.sampled_from([-1.0, -0.25, 0.0, 0.3]),
)
def test_draws_match_a_search_by_hand(units: Any, n: Any, threshold: Any) -> None:
    documents = [note(unit, f"text {i}") for i, unit in enumerate(units)]
    common = {"docs_per_group": n, "score_threshold": threshold, "n_groups": 3}
    slots = retrieved(documents, embedding=Gaussian(), **common).draw(QUESTION)
    for number, slot in enumerate(slots):
        own = [
            doc
            for doc in documents
            if keyed_slot(SALT, str(doc.metadata["unit"]), 3) == number
        ]
        assert [doc.page_content for doc in slot] == expected_top(own, n, threshold)


def test_shards_give_every_slot_even_an_empty_one() -> None:
    slots = build(NOTES[:4], n_groups=4).draw(QUESTION)
    assert len(slots) == 4
    assert sum(map(len, slots)) == 4
    nothing = build(score_threshold=1.0).draw("sleep")
    assert nothing == [[], [], [], []]


def test_nobody_passes() -> None:
    assert build(score_threshold=1.0).draw("sleep") == [[]] * 4


def test_the_threshold_itself_passes() -> None:
    embedding = Given([[0.6, 0.8], [0.6, -0.8], [0.5, 0.9]])
    documents = [note(i, str(i)) for i in range(3)]
    score = float(np.float32(0.6))
    for threshold, n in ((score, 2), (np.nextafter(score, 1), 0), (-1, 3), (-0.0, 3)):
        groups = build(
            documents,
            embedding,
            n_groups=1,
            score_threshold=threshold,
        )
        assert sum(map(len, groups.draw("q"))) == n


def test_opposite_vectors_pass_minus_one() -> None:
    # Rounding takes some of these cosines just below -1.
    documents = [note(i, str(i)) for i in range(30)]
    vectors = np.random.default_rng(0).standard_normal((30, 7))
    below = 0
    for vector in vectors:
        groups = build(
            documents,
            Given([vector] * 30, -vector),
            n_groups=1,
            score_threshold=-1,
            docs_per_group=30,
        )
        prepared = groups.prepare("q")
        below += groups._index.shards[0].index.search(prepared.vector, 1)[0][0, 0] < -1
        assert sum(map(len, groups.draw_prepared(prepared))) == 30
    assert below > 0


def test_equal_scores_do_not_follow_insertion() -> None:
    # Many equal texts, more than a slot holds: FAISS alone keeps the first ones.
    documents = [note(f"p{i}", "rash", visit=i) for i in range(60)]
    for order in (documents, documents[::-1], documents[30:] + documents[:30]):
        slots = contents(retrieved(order, n_groups=2, docs_per_group=3).draw("rash"))
        assert slots == contents(
            retrieved(documents, n_groups=2, docs_per_group=3).draw("rash")
        )
    firsts = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
    assert not {unit for slot in slots for unit in units_in(slot)} <= firsts


def test_ties_depend_on_the_salt() -> None:
    documents = [note(f"p{i}", "rash") for i in range(60)]
    one = retrieved(documents, n_groups=1).draw("rash")
    other = retrieved(documents, n_groups=1, salt=bytes(32)).draw("rash")
    assert contents(one) != contents(other)


def test_threads_find_the_same(monkeypatch: Any) -> None:
    groups = retrieved(NOTES, n_groups=7, embedding=Gaussian())
    units = retrieved(
        NOTES,
        n_groups=7,
        embedding=Gaussian(),
        score_threshold=0.0,
        random=SeededRandom(1),
    )
    sequential = groups.draw(QUESTION)
    prepared = units.prepare(QUESTION)
    eligible = eligible_ids(units, prepared)
    monkeypatch.setattr(shards, "_PARALLEL_FROM", 0)
    monkeypatch.setattr(shards, "_cores", lambda: 3)
    assert groups.draw(QUESTION) == sequential
    assert eligible_ids(units, prepared) == eligible


def test_the_callers_own_searches_keep_their_threads() -> None:
    before = shards.faiss.omp_get_max_threads()
    try:
        shards.faiss.omp_set_num_threads(3)
        inside: list[int] = shards._search_shards(
            lambda _shard, _rows: shards.faiss.omp_get_max_threads(),
            [(None, None)] * 2,  # type: ignore[list-item] # what is searched is no matter
        )
        assert inside == [1, 1]
        assert shards.faiss.omp_get_max_threads() == 3
    finally:
        shards.faiss.omp_set_num_threads(before)


def test_documents_come_back_as_given_and_as_copies() -> None:
    given_note = Document("rash", metadata={"unit": 1, "tags": ["a"]}, id="n1")
    original = given_note.model_copy(deep=True)
    groups = build([given_note], n_groups=1)
    given_note.metadata["tags"].append("changed by the caller")
    [[drawn]] = groups.draw("rash")
    assert drawn == original
    drawn.metadata["unit"] = 2
    assert groups.draw("rash") == [[original]]


async def test_async_twins() -> None:
    groups = RetrievedGroups.from_documents(
        NOTES, WordEmbedding(), unit_key="unit", n_groups=4, progress=True
    )
    assert await groups.adraw(QUESTION) == groups.draw(QUESTION)
    assert await groups.aadd_documents([note("new", "rash")]) == 1
    assert await groups.aadd_documents([]) == 0
    assert groups.n_units == 13
    prepared = await groups.aprepare(QUESTION)
    again = groups.prepare(QUESTION)
    assert np.array_equal(prepared.vector, again.vector)
    assert prepared.threshold == again.threshold
    with pytest.raises(InvalidParameterError, match="non-empty string"):
        await groups.aprepare("")


def test_progress_goes_to_standard_error(capsys: Any) -> None:
    build(progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Embedding documents" in captured.err
    build(progress=False)
    assert capsys.readouterr().err == ""


def test_a_long_unit_is_embedded_in_several_calls() -> None:
    sizes = []

    class Counting(WordEmbedding):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            sizes.append(len(texts))
            return super().embed_documents(texts)

    build([note("one", f"rash {i}") for i in range(600)], Counting(), n_groups=1)
    assert sum(sizes) == 600
    assert len(sizes) > 1


def test_vectors_of_any_size_are_scaled() -> None:
    vectors = [[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [5e-324, 0.0]]
    documents = [note(i, str(i)) for i in range(4)]
    groups = build(documents, Given(vectors), n_groups=1)
    rows = groups._index.shards[0].vectors()
    assert np.allclose(rows[:3], [0.6, 0.8])
    assert np.allclose(rows[3], [1, 0])


def test_a_failing_embedding_fails_before_the_draw() -> None:
    class Down(WordEmbedding):
        def embed_query(self, text: str) -> list[float]:
            raise ConnectionError

    groups = build()
    groups._records._embedding = Down()
    with pytest.raises(ConnectionError):
        groups.prepare(QUESTION)


def test_description_is_public_json() -> None:
    groups = build(score_threshold=0.25)
    assert json.loads(json.dumps(groups.description)) == {
        "source": "RetrievedGroups",
        "retrieval": "threshold",
        "unit_key": "unit",
        "n_groups": 4,
        "docs_per_group": 4,
        "score_threshold": 0.25,
        "relation": "replace",
        "random": "operating system",
    }
    assert build().description["retrieval"] == "shard"
    smaller = build(NOTES[:30], score_threshold=0.25)
    assert repr(smaller) == repr(groups)
    insecure = build(random=SeededRandom(1))
    assert "NOT SECURE" in repr(insecure)
    assert "NOT SECURE" in insecure.description["random"]


def test_groups_are_no_runnable_and_do_not_travel() -> None:
    groups = build()
    assert isinstance(groups, GroupSource)
    assert not hasattr(groups, "invoke")
    assert copy.copy(groups) is groups
    assert copy.deepcopy({"groups": groups})["groups"] is groups
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="save\\(path\\)"):
            pickle.dumps(groups, protocol)
