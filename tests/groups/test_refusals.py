"""What `RetrievedGroups` refuses, and how it says so."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from support.groups_fakes import NOTES, Given, Returns, WordEmbedding, build, note

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.groups.index import PreparedQuestion
from langchain_dpicl.mechanisms.random import SeededRandom


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_groups": 0}, "n_groups"),
        ({"n_groups": -1}, "n_groups"),
        ({"n_groups": 2.5}, "n_groups"),
        ({"n_groups": True}, "n_groups"),
        ({"n_groups": None}, "n_groups"),
        ({"docs_per_group": 0}, "docs_per_group"),
        ({"docs_per_group": "4"}, "docs_per_group"),
        ({"score_threshold": 1.01}, "cosine"),
        ({"score_threshold": -1.01}, "cosine"),
        ({"score_threshold": float("nan")}, "score_threshold"),
        ({"score_threshold": "high"}, "score_threshold"),
        ({"unit_key": ""}, "unit_key"),
        ({"unit_key": 7}, "unit_key"),
        ({"random": np.random.default_rng(0)}, "SecureRandom"),
        ({"embedding": object()}, "Embeddings, not object"),
        ({"documents": 5}, "list of Documents, not int"),
        ({"documents": ["text"]}, r"documents\[0\] is a str"),
        ({"documents": [note(1, "a"), None]}, r"documents\[1\] is a NoneType"),
    ],
)
def test_bad_parameters(changes: Any, message: Any) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        build(**changes)
    assert isinstance(caught.value, ValueError)
    assert caught.value.__context__ is None


def test_too_few_units() -> None:
    with pytest.raises(UnitError, match="no documents"):
        build([])
    with pytest.raises(UnitError, match="fewer units than n_groups=13") as caught:
        build(n_groups=13)
    # How many there are is private.
    assert "12" not in str(caught.value)
    assert build(n_groups=12).n_groups == 12


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
        ([[], [], []], "one vector"),
        ([], "one vector"),
        (None, "one vector"),
        ([1.0, 2.0, 3.0], "one vector"),
        ([["a", "b"]] * 3, "one vector"),
        ([[[1.0]]] * 3, "one vector"),
        ([[None, 1]] * 3, "not finite"),
        ([[10**400, 1]] * 3, "one vector"),
    ],
)
def test_bad_document_vectors(vectors: Any, message: Any) -> None:
    documents = [note(1, str(i)) for i in range(3)]
    with pytest.raises(InvalidParameterError, match=message):
        build(documents, Returns(vectors), n_groups=1)


def test_a_bad_vector_is_named_by_its_place_in_the_list() -> None:
    vectors = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [NAN, 1.0], [1.0, 1.0]]
    documents = [note(i % 2, str(i)) for i in range(5)]
    with pytest.raises(InvalidParameterError, match="embedding of document 3 "):
        build(documents, Given(vectors), n_groups=1)


def test_batches_of_different_dimensions() -> None:
    class Growing(WordEmbedding):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.size += 1
            return super().embed_documents(texts)

    with pytest.raises(InvalidParameterError, match="different dimensions: 7, 8"):
        build([note(i, "rash") for i in range(300)], Growing())


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0], "1 numbers for the question"),
        ([1.0, 2.0, 3.0], "3 numbers for the question"),
        ([NAN, 1.0], "zero or not finite"),
        ([INF, 1.0], "zero or not finite"),
        ([0.0, 0.0], "zero or not finite"),
        (None, "for the question"),
        ("ab", "for the question"),
        ([[1.0, 2.0]], "no vector for the question"),
    ],
)
def test_bad_question_vectors(vector: Any, message: Any) -> None:
    documents = [note(i, str(i)) for i in range(3)]
    vectors = [[1.0, 0.0]] * 3
    groups = build(documents, Given(vectors, vector), n_groups=1)
    with pytest.raises(InvalidParameterError, match=message):
        groups.prepare("question")


@pytest.mark.parametrize("question", ["", "  \n", None, 7, b"rash", ["rash"]])
def test_bad_questions(question: Any) -> None:
    with pytest.raises(InvalidParameterError, match="non-empty string"):
        build().draw(question)


def test_only_what_was_prepared_is_drawn() -> None:
    groups = build()
    asked, terms = groups.prepare("rash"), groups._terms
    other = build(score_threshold=0.5).prepare("rash")
    only = groups.where(ward=1)
    for prepared in (
        None,
        [1.0],
        np.ones((1, 6)),
        PreparedQuestion(np.ones(6, np.float32), terms),
        PreparedQuestion(np.ones((1, 5), np.float32), terms),
        PreparedQuestion(np.ones((2, 6), np.float32), terms),
        other,
    ):
        with pytest.raises(InvalidParameterError, match="result of prepare"):
            groups.draw_prepared(prepared)
    assert only.draw_prepared(asked) == [[]] * 4
    assert groups.draw_prepared(only.prepare("rash")) == groups.draw("rash")


def test_a_failing_embedding_fails_before_the_draw() -> None:
    class Down(WordEmbedding):
        def embed_query(self, text: str) -> list[float]:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        build(embedding=Down()).prepare("rash")


# ---- what is public of groups --------------------------------------------------------


def test_description_is_public_json() -> None:
    groups = build(score_threshold=0.25)
    assert json.loads(json.dumps(groups.description)) == {
        "source": "RetrievedGroups",
        "retrieval": "threshold",
        "unit_key": "unit",
        "n_groups": 4,
        "docs_per_group": 8,
        "score_threshold": 0.25,
        "sampling_rate": 1.0,
        "relation": "replace",
        "random": "operating system",
    }
    assert build().description["retrieval"] == "shard"
    smaller = build(NOTES[:30], score_threshold=0.25)
    assert repr(smaller) == repr(groups)
    insecure = build(random=SeededRandom(1))
    assert "NOT SECURE" in repr(insecure)
    assert "NOT SECURE" in insecure.description["random"]


def test_objects_that_hold_records_show_none_and_do_not_travel() -> None:
    groups = build()
    sampled = SampledGroups.from_documents(
        NOTES, unit_key="unit", n_groups=4, sampling_rate=0.5
    )
    assert not hasattr(groups, "invoke")
    index = groups._index
    held = [groups, sampled, sampled._corpus, groups._records, index, index.shards[0]]
    for one in held:
        assert "rash" not in repr(one)
        assert copy.copy(one) is one
        assert copy.deepcopy({"held": one})["held"] is one
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="save\\(path\\)"):
                pickle.dumps(one, protocol)


def test_refresh_needs_something_to_read() -> None:
    with pytest.raises(InvalidParameterError, match="Pass the store"):
        build().refresh()
