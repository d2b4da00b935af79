"""Selecting among released examples."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import BaseExampleSelector
from support.released_parts import QUESTIONS, record, released

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.released import ReleasedExamples, ReleasedExampleSelector

HASHING = HashingEmbeddings()


class Counted(HashingEmbeddings):
    """Embeddings that count the texts they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.documents = 0
        self.started = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += len(texts)
        return super().embed_documents(texts)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        self.started += 1
        await asyncio.sleep(0.01)
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)


class Fixed(Embeddings):
    """Embeddings that return what they were given."""

    def __init__(self, documents: Any, query: Any) -> None:
        self.documents, self.query = documents, query

    def embed_documents(self, texts: list[str]) -> Any:
        return self.documents

    def embed_query(self, text: str) -> Any:
        return self.query


def texts(examples: list[dict[str, Any]]) -> list[str]:
    return [example["text"] for example in examples]


def test_all_examples_are_selected_in_the_order_of_the_release() -> None:
    selector = released().selector()
    assert isinstance(selector, BaseExampleSelector)
    assert selector.select_examples({"text": "Who?"}) == QUESTIONS
    assert selector.select_examples({}) == QUESTIONS
    assert selector.record == record()
    assert selector.examples == QUESTIONS


@pytest.mark.parametrize(
    ("k", "places"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1, 5]),
        (4, [0, 1, 2, 5]),
        (5, [0, 1, 2, 4, 5]),
        (6, [0, 1, 2, 3, 4, 5]),
        (100, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_k_examples_are_the_same_ones_balanced_over_labels(
    k: int, places: list[int]
) -> None:
    selector = released().selector(k)
    for _ in range(2):
        found = selector.select_examples({"text": "Where?"})
        assert found == [QUESTIONS[place] for place in places]


def test_without_labels_k_examples_are_the_first_ones() -> None:
    plain = [{"note": str(n)} for n in range(5)]
    assert released(plain).selector(3).select_examples({}) == plain[:3]


def test_other_keys_are_named() -> None:
    reviews = [{"review": e["text"], "stars": e["label"]} for e in QUESTIONS]
    selector = ReleasedExampleSelector(
        released(reviews), k=3, label_key="stars", text_key="review"
    )
    assert selector.label_key == "stars"
    assert selector.text_key == "review"
    assert selector.select_examples({}) == [reviews[0], reviews[1], reviews[5]]
    keys = {"text_key": "review", "label_key": "stars"}
    named = released(reviews, parameters=keys).selector()
    assert (named.text_key, named.label_key) == ("review", "stars")
    odd = released(reviews, parameters={"text_key": ["review"], "label_key": "sex"})
    assert (odd.selector().text_key, odd.selector().label_key) == (None, None)
    for name in ("label_key", "text_key"):
        with pytest.raises(InvalidParameterError, match=f"{name}='sex'.*'review'"):
            released(reviews).selector(**{name: "sex"})


async def test_the_nearest_come_first_whatever_their_labels() -> None:
    selector = released().selector(3, embedding=HASHING)
    asked = {"text": "Who painted the Mona Lisa?"}
    found = selector.select_examples(asked)
    assert texts(found)[0] == "Who painted Guernica?"
    assert len(found) == 3
    assert await selector.aselect_examples(asked) == found
    far = selector.select_examples({"text": "Where do lions live?"})
    assert texts(far)[0] == "Where do penguins live?"


def test_equally_near_examples_keep_their_order() -> None:
    same = [{"text": "who", "label": str(n)} for n in range(20)]
    selector = released(same).selector(5, embedding=HASHING)
    assert selector.select_examples({"text": "who"}) == same[:5]


def test_vectors_of_any_length_are_compared_by_their_angle() -> None:
    selector = released(QUESTIONS[:4]).selector(
        4, embedding=Fixed([[1e200, 0], [0, 0], [1e-200, 1e-200], [-3, 0]], [0.5, 0])
    )
    assert texts(selector.select_examples({"text": ""})) == texts(
        [QUESTIONS[place] for place in (0, 2, 1, 3)]
    )


def test_examples_are_embedded_once_and_not_before_they_are_needed() -> None:
    embedding = Counted()
    selector = released().selector(2, embedding=embedding)
    assert embedding.documents == 0
    threads = [
        threading.Thread(target=selector.select_examples, args=({"text": str(n)},))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert embedding.documents == len(QUESTIONS)


def test_concurrent_tasks_embed_once_in_any_number_of_loops() -> None:
    embedding = Counted()
    selector = released().selector(2, embedding=embedding)

    async def many() -> list[Any]:
        asked = [selector.aselect_examples({"text": str(n)}) for n in range(8)]
        return await asyncio.gather(*asked)

    first = asyncio.run(many())
    assert asyncio.run(many()) == first
    assert embedding.documents == len(QUESTIONS)
    assert embedding.started == 1


async def test_a_task_that_is_canceled_leaves_the_others_working() -> None:
    selector = released().selector(1, embedding=Counted())
    first = asyncio.create_task(selector.aselect_examples({"text": "Who?"}))
    second = asyncio.create_task(selector.aselect_examples({"text": "Who?"}))
    await asyncio.sleep(0)
    first.cancel()
    assert len(await second) == 1
    # And a synchronous caller in the same loop never waits for a task of it.
    waiting = released().selector(1, embedding=Counted())
    task = asyncio.create_task(waiting.aselect_examples({"text": "Who?"}))
    await asyncio.sleep(0)
    assert len(waiting.select_examples({"text": "Who?"})) == 1
    await task


def test_an_embedding_that_fails_is_asked_again() -> None:
    class Flaky(HashingEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if not failed:
                failed.append(True)
                raise ConnectionError
            return super().embed_documents(texts)

    failed: list[bool] = []
    selector = released().selector(1, embedding=Flaky())
    with pytest.raises(ConnectionError):
        selector.select_examples({"text": "Who?"})
    assert len(selector.select_examples({"text": "Who?"})) == 1


@pytest.mark.parametrize(
    ("documents", "query"),
    [
        ([[1.0]] * 5, [1.0]),
        ([[1.0]] * 7, [1.0]),
        ([[1.0]] * 5 + [[1.0, 2.0]], [1.0]),
        ([[float("nan")]] * 6, [1.0]),
        ([[float("inf")]] * 6, [1.0]),
        ([1.0] * 6, [1.0]),
        ([["x"]] * 6, [1.0]),
        (None, [1.0]),
        ([[1.0]] * 6, [1.0, 2.0]),
        ([[1.0]] * 6, [float("nan")]),
        ([[1.0]] * 6, 1.0),
        ([[1.0]] * 6, None),
        ([[1.0]] * 6, ["x"]),
    ],
)
async def test_what_is_no_vector_is_refused(documents: Any, query: Any) -> None:
    selector = released().selector(2, embedding=Fixed(documents, query))
    with pytest.raises(InvalidParameterError, match="embedding="):
        selector.select_examples({"text": "Who?"})
    with pytest.raises(InvalidParameterError, match="embedding="):
        await selector.aselect_examples({"text": "Who?"})


@pytest.mark.parametrize(
    ("variables", "input_key"),
    [
        ({"text": "Where do lions live?", "tone": "kind"}, None),
        ({"question": "Where do lions live?"}, None),
        ({"text": "Who?", "question": "Where do lions live?"}, "question"),
    ],
)
def test_the_input_is_found_among_the_variables(
    variables: dict[str, str], input_key: str | None
) -> None:
    selector = released().selector(1, embedding=HASHING, input_key=input_key)
    assert texts(selector.select_examples(variables)) == ["Where do penguins live?"]


@pytest.mark.parametrize(
    "variables", [{}, {"a": "secret", "b": "secret"}, {"text": None}, {"text": ["x"]}]
)
def test_an_input_that_is_not_there_is_refused(variables: Any) -> None:
    selector = released().selector(1, embedding=HASHING)
    with pytest.raises(InvalidParameterError, match="input_key=") as error:
        selector.select_examples(variables)
    assert "secret" not in str(error.value)


async def test_adding_is_refused_and_says_why() -> None:
    selector = released().selector()
    for add in (selector.add_example, selector.aadd_example):
        with pytest.raises(
            InvalidParameterError, match=r"guarantee.*list\(selector.examples\)"
        ):
            found = add({"text": "What Ann told me", "label": "person"})
            await found
    assert selector.select_examples({}) == QUESTIONS


def test_what_is_selected_is_the_callers_to_change() -> None:
    selector = released().selector()
    found = selector.select_examples({})
    found[0]["text"] = "mine"
    found.clear()
    assert selector.select_examples({}) == QUESTIONS
    # Nor does a change around the class of the examples reach into a selector.
    list.clear(selector.examples)
    assert selector.select_examples({}) == QUESTIONS
    with pytest.raises(InvalidParameterError):
        _ = selector.record


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"k": -1}, "k must be at least 1"),
        ({"k": 1.5}, "k must be an integer"),
        ({"k": True}, "k must be an integer"),
        ({"k": 2, "embedding": "hashing"}, "embedding must be"),
        ({"embedding": HASHING}, "embedding= needs k="),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        released().selector(**arguments)


def test_only_a_release_is_selected_from() -> None:
    for other in (QUESTIONS, released()[:], None):
        with pytest.raises(InvalidParameterError, match="only a release has a record"):
            ReleasedExampleSelector(other)  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(InvalidParameterError, match="no example"):
        ReleasedExampleSelector(released([]))
    with pytest.raises(InvalidParameterError, match="text_key="):
        released([{"note": "a"}]).selector(1, embedding=HASHING)
    with pytest.raises(InvalidParameterError, match="missing"):
        ReleasedExampleSelector("missing.json")


def test_braces_need_a_word_on_what_reads_them() -> None:
    braces = released([{"text": 'Is {"a": 1} JSON?', "label": "y{}"}])
    with pytest.raises(InvalidParameterError, match="escape_braces=True") as error:
        braces.selector()
    assert "JSON?" not in str(error.value)
    assert braces.selector(escape_braces=False).select_examples({}) == braces
    assert braces.selector(escape_braces=True).select_examples({}) == [
        {"text": 'Is {{"a": 1}} JSON?', "label": "y{{}}"}
    ]
    assert released().selector(escape_braces=True).select_examples({}) == QUESTIONS


def test_selectors_travel_and_show_no_text() -> None:
    selector = released().selector(2, embedding=HASHING)
    for again in (copy.deepcopy(selector), pickle.loads(pickle.dumps(selector))):
        assert again.record == selector.record
        asked = {"text": "Where?"}
        assert again.select_examples(asked) == selector.select_examples(asked)
    shown = repr(selector)
    assert "k=2, nearest by HashingEmbeddings" in shown
    assert "Hamlet" not in shown
    assert "all)" in repr(ReleasedExamples.of(QUESTIONS, record()).selector())
    assert len(selector.replace(k=4).select_examples({"text": "Who?"})) == 4
