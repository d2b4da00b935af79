"""Calls of an embedding with private texts: which texts share one, how many at once.

A text's vector may depend on the other texts of its call. A model pads them to one
length, its kernels add in an order that follows the batch's shape, and one text that
is refused fails the call of all. So by default no call holds texts of two units.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.sealed import attempt
from langchain_dpicl.threads import Pool

T = TypeVar("T")

CALLS_AT_ONCE = 16
"""Most calls in flight at once of an embedding that waits for a server."""

LARGEST_CALL = 256
"""Most texts of one unit in one call."""

_pools: dict[int, Pool] = {}


def calls_of(units: Sequence[Hashable], batch_size: int | None) -> list[list[int]]:
    """Return which texts share a call, as lists of their places.

    A `batch_size` puts so many texts into a call, in their order, whatever their units;
    None puts those of one unit, `LARGEST_CALL` at most.

    Example:
        >>> calls_of(["ada", "bob", "ada"], None), calls_of(["ada", "bob", "ada"], 2)
        ([[0, 2], [1]], [[0, 1], [2]])
    """
    places: dict[Hashable, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit, []).append(place)
    together, most = list(places.values()), LARGEST_CALL
    if batch_size is not None:
        most = parameters.count(batch_size, "embedding_batch_size")
        together = [list(range(len(units)))]
    return [
        own[start : start + most]
        for own in together
        for start in range(0, len(own), most)
    ]


def calls_at_once(embedding: Any) -> int:
    """Return how many calls of an embedding may run at once, over all questions.

    One, unless its class has an `aembed_documents` of its own, as clients of servers
    have. Others compute in this process and need not bear several threads: the fast
    tokenizers of `transformers` raise an error then, and which text meets it depends
    on the others.

    Example:
        >>> from langchain_dpicl.offline import HashingEmbeddings
        >>> calls_at_once(HashingEmbeddings())
        1
    """
    # A cache has a method of its own, which calls that of what it keeps.
    called = getattr(embedding, "underlying_embeddings", embedding)
    own = getattr(type(called), "aembed_documents", Embeddings.aembed_documents)
    return 1 if own is Embeddings.aembed_documents else CALLS_AT_ONCE


def each_call(
    embedding: Any,
    calls: Sequence[Sequence[str]],
    take: Callable[[Any, int], T],
    *,
    alone: bool = False,
) -> list[Any]:
    """Make calls of an embedding; return what `take` makes of each one's vectors.

    `take` gets the vectors and the call's place as soon as they are there: a client may
    fill the same array again at its next call. With `alone` a call that fails gives
    None and touches no other. Else its error ends all: no further call begins.

    Example:
        >>> from langchain_dpicl.offline import HashingEmbeddings
        >>> texts = [["ada"], ["bob", "cy"]]
        >>> each_call(HashingEmbeddings(), texts, lambda vectors, _: len(vectors))
        [1, 2]
    """

    def one(place: int, texts: Hidden[Sequence[str]]) -> T:
        return take(embedding.embed_documents(list(texts.value)), place)

    # An error of the embedding keeps the frames of these.
    made = [partial(one, i, Hidden(texts)) for i, texts in enumerate(calls)]
    if alone:
        return _pool(embedding).map([partial(attempt, call) for call in made])
    return _pool(embedding).map(made)


def embed_question(embedding: Any, question: str) -> Any:
    """Return the vector of a public question, on the same threads as private texts.

    Beside them, it could fail the call of a private text where one may run at a time.
    """
    return _pool(embedding).map([partial(embedding.embed_query, question)])[0]


def _pool(embedding: Any) -> Pool:
    """Return the threads of an embedding, which are there as long as it is."""
    key = id(embedding)
    if key not in _pools:
        weakref.finalize(embedding, _pools.pop, key, None).atexit = False
        _pools.setdefault(key, Pool("dpicl-embedding", calls_at_once(embedding)))
    return _pools[key]
