"""How many calls of an embedding may run at once, and in which context."""

from __future__ import annotations

import contextvars
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from support.embedding_fakes import Watching, WatchingServer

from langchain_dpicl.embedding_calls import (
    CALLS_AT_ONCE,
    LARGEST_CALL,
    calls_at_once,
    calls_of,
    each_call,
    embed_question,
)

seen = contextvars.ContextVar("seen", default="nothing")


class Cache(WatchingServer):
    """Has a call of its own, and computes where what it keeps does."""

    def __init__(self, underlying_embeddings: Embeddings) -> None:
        super().__init__()
        self.underlying_embeddings = underlying_embeddings


class Bare:
    """No subclass of `Embeddings`, but it has its two methods."""

    embed_documents = embed_query = None


@pytest.mark.parametrize(
    ("embedding", "at_once"),
    [
        (Watching(), 1),
        (WatchingServer(), CALLS_AT_ONCE),
        (Cache(Watching()), 1),
        (Cache(WatchingServer()), CALLS_AT_ONCE),
        (Bare(), 1),
    ],
)
def test_only_clients_of_servers_are_called_at_once(
    embedding: Any, at_once: int
) -> None:
    assert calls_at_once(embedding) == at_once


@pytest.mark.parametrize("embedding", [Watching(), WatchingServer()])
def test_what_a_call_leaves_in_the_context_no_other_sees(embedding: Any) -> None:
    seen.set("the caller's")

    def take(vectors: Any, place: int) -> str:
        found = seen.get()
        seen.set(f"that of call {place} with {len(vectors)}")
        return found

    found = each_call(embedding, [["one"]] * 50, take)
    assert found == ["the caller's"] * 50
    assert seen.get() == "the caller's"


class Local(Watching):
    """Computes here, and fails for one text; knows how many calls ran at once."""

    def __init__(self) -> None:
        super().__init__()
        self.running, self.most, self.calls = 0, 0, 0

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        time.sleep(0.002)
        self.running -= 1
        if "bad" in texts:
            raise RuntimeError(texts)
        return [[1.0]] * len(texts)


def test_one_call_at_a_time_of_what_computes_here_over_all_questions() -> None:
    embedding = Local()
    with ThreadPoolExecutor(4) as questions:
        for _ in range(2):
            questions.submit(each_call, embedding, [["one"]] * 9, lambda *_: None)
            questions.submit(embed_question, embedding, "what?")
    assert (embedding.most, embedding.calls) == (1, 20)


def test_a_call_that_fails_ends_all_or_stands_alone() -> None:
    embedding = Local()
    texts = [["one"], ["bad"], *[["two"]] * 20]
    with pytest.raises(RuntimeError, match="bad"):
        each_call(embedding, texts, lambda *_: 7)
    assert embedding.calls == 2
    found = each_call(embedding, texts, lambda *_: 7, alone=True)
    assert found == [7, None, *[7] * 20]


def test_a_call_holds_texts_of_one_unit_up_to_a_size() -> None:
    units = ["ada", "bob", "ada", 3, "ada"]
    assert calls_of(units, None) == [[0, 2, 4], [1], [3]]
    assert calls_of([], None) == calls_of([], 4) == []
    many = calls_of(["ada"] * 600, None)
    assert [len(call) for call in many] == [256, 256, 88]
    assert [place for call in many for place in call] == list(range(600))
    assert (LARGEST_CALL, CALLS_AT_ONCE) == (256, 16)
