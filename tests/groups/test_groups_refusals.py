"""What `RetrievedGroups` refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.groups_fakes import Given, Returns, WordEmbedding, build, note

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.drawing import PreparedQuestion


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
    with pytest.raises(UnitError, match="n_groups is 13 and there are 12 units"):
        build(n_groups=13)
    with pytest.raises(UnitError, match="n_groups is 13 and there are 12 units"):
        build(n_groups=13, score_threshold=0.1)
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


@pytest.mark.parametrize(
    "prepared",
    [
        None,
        [1.0],
        np.ones((1, 6)),
        PreparedQuestion(None, None),
        PreparedQuestion([[1.0] * 6], None),
        PreparedQuestion(np.ones(6), None),
        PreparedQuestion(np.ones((1, 5)), None),
        PreparedQuestion(np.ones((2, 6)), None),
        PreparedQuestion(np.ones((1, 6)), 0.5),
    ],
)
def test_only_what_was_prepared_is_drawn(prepared: Any) -> None:
    with pytest.raises(InvalidParameterError, match="result of prepare"):
        build().draw_prepared(prepared)
