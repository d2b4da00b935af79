"""How many calls of an embedding may run at once, and in which context."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from support.embedding_fakes import Watching, WatchingServer

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.sealed.embedding_calls import (
    CALLS_AT_ONCE,
    LARGEST_CALL,
    calls_at_once,
    calls_of,
    embed_call,
    embed_calls,
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
async def test_what_a_call_leaves_in_the_context_no_other_sees(embedding: Any) -> None:
    seen.set("the caller's")

    def take(vectors: Any) -> str:
        found = seen.get()
        seen.set(f"that of {len(vectors)}")
        return found

    calls = [embed_call(embedding, ["one"], take) for _ in range(50)]
    assert embed_calls(calls, embedding).blocking() == ["the caller's"] * 50
    assert await embed_calls(calls, embedding).awaiting() == ["the caller's"] * 50
    assert seen.get() == "the caller's"


@pytest.mark.parametrize("embedding", [Watching(), WatchingServer()])
async def test_results_come_in_the_order_of_the_calls(embedding: Any) -> None:
    texts = [[f"unit-{place} coughs"] * (1 + place % 3) for place in range(50)]
    wanted = [embedding.vectors(each) for each in texts]
    calls = [embed_call(embedding, each, list) for each in texts]
    assert embed_calls(calls, embedding).blocking() == wanted
    assert await embed_calls(calls, embedding).awaiting() == wanted
    assert embed_calls([], embedding).blocking() == []
    assert await embed_calls([], embedding).awaiting() == []


def test_a_call_holds_texts_of_one_unit_up_to_a_size() -> None:
    units = ["ada", "bob", "ada", 3, "ada"]
    assert calls_of(units, None) == [[0, 2, 4], [1], [3]]
    assert calls_of(units, None, most=2) == [[0, 2], [4], [1], [3]]
    assert calls_of(units, None, most=3) == [[0, 2, 4], [1], [3]]
    assert calls_of(units, None, most=1) == [[0], [2], [4], [1], [3]]
    assert calls_of([], None) == calls_of([], 4) == []
    many = calls_of(["ada"] * 600, None)
    assert [len(call) for call in many] == [256, 256, 88]
    assert [place for call in many for place in call] == list(range(600))
    assert (LARGEST_CALL, CALLS_AT_ONCE) == (256, 16)


@pytest.mark.parametrize(("size", "lengths"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5])])
def test_a_batch_takes_so_many_texts_whatever_their_units(
    size: int, lengths: list[int]
) -> None:
    calls = calls_of(["ada", "bob", "ada", "eve", "ada"], size, most=3)
    assert [len(call) for call in calls] == lengths
    assert [place for call in calls for place in call] == list(range(5))


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_batch_has_a_size(size: Any) -> None:
    with pytest.raises(InvalidParameterError, match="embedding_batch_size"):
        calls_of(["ada"], size)
