from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.offline import HashingEmbeddings

EMBEDDING = HashingEmbeddings()
PINNED = [
    -0.3766,
    0.3407,
    0.1076,
    0.0179,
    -0.0179,
    0.0,
    -0.1435,
    0.3586,
    0.0,
    0.0,
    0.4842,
    0.0,
    -0.3586,
    0.0,
    0.4662,
    -0.0179,
]


def cosine(a: str, b: str, embedding: HashingEmbeddings = EMBEDDING) -> float:
    x, y = embedding.embed_documents([a, b])
    return float(np.dot(x, y))


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=80), dimensions=st.integers(1, 600))
def test_every_text_has_a_finite_unit_vector(text: str, dimensions: int) -> None:
    vector = HashingEmbeddings(dimensions).embed_query(text)
    assert len(vector) == dimensions
    assert all(isinstance(x, float) and math.isfinite(x) for x in vector)
    assert math.isclose(math.fsum(x * x for x in vector), 1.0, rel_tol=1e-9)


def test_vectors_are_those_of_every_other_process() -> None:
    # Pinned: a stored index must stay usable. PYTHONHASHSEED has no part in it.
    vector = HashingEmbeddings(16).embed_query("A dry cough since May")
    assert [round(x, 4) for x in vector] == PINNED


def test_texts_without_words_share_one_vector_of_their_own() -> None:
    empty = EMBEDDING.embed_query("")
    assert EMBEDDING.embed_query(" ?! \n") == empty
    assert abs(np.dot(empty, EMBEDDING.embed_query("cough"))) < 0.5


def test_inflected_words_meet_and_stop_words_weigh_little() -> None:
    assert cosine("report", "Reported") == pytest.approx(1.0)
    assert cosine("the side effects of it", "side effect") > 0.9
    assert cosine("she is on the ward", "she is on the boat") < 0.3


def test_the_subject_decides_the_ranking() -> None:
    question = "Which side effect do patients on lisinopril report most?"
    about = "Since lisinopril was started she has had a cough, her spouse noticed."
    other = "The patient takes metformin with breakfast, and most days goes for walks."
    assert cosine(question, about) > cosine(question, other) + 0.1


def test_word_order_shows_a_little() -> None:
    assert 0.7 < cosine("dog bites man", "man bites dog") < 0.999


def test_no_two_words_cancel() -> None:
    # With one coordinate per word, some pairs of words would vanish from a query.
    names = [f"drug{i}" for i in range(300)]
    query = [cosine(f"effect {name}", name) for name in names]
    assert min(query) > 0.35


def test_scripts_without_spaces_are_cut_into_characters() -> None:
    assert cosine("頭痛があります", "頭痛") > 0.5


async def test_async_gives_the_same_vectors() -> None:
    texts = ["a cough", "", "ein Ausschlag"]
    vectors = EMBEDDING.embed_documents(texts)
    assert await EMBEDDING.aembed_documents(texts) == vectors
    assert [await EMBEDDING.aembed_query(text) for text in texts] == vectors


@pytest.mark.parametrize("dimensions", [0, -3, 2.5, True, None])
def test_bad_dimensions_are_refused(dimensions: object) -> None:
    with pytest.raises(InvalidParameterError, match="dimensions"):
        HashingEmbeddings(dimensions)  # type: ignore[arg-type]


def test_lone_surrogates_are_hashed_too() -> None:
    assert len(EMBEDDING.embed_query("\ud800x cough")) == 384
