"""Calls of an embedding with private texts: which texts share one, how many at once.

A text's vector may depend on the other texts of its call. A model pads them to one
length, its kernels add in an order that follows the batch's shape, and one text that
is refused fails the call of all. So by default no call holds texts of two units.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.release.fan_out import fan_out
from langchain_dpicl.release.flow import Do
from langchain_dpicl.sealed.model_loop import model_loop, on_model_loop

# Most calls in flight at once of an embedding that waits for a server.
CALLS_AT_ONCE = 16
LARGEST_CALL = 256  # Most texts of one unit in one call.


def calls_of(
    units: Sequence[Hashable], batch_size: int | None, *, most: int = LARGEST_CALL
) -> list[list[int]]:
    """Return which texts share a call, as lists of their places, at `most` a call.

    A `batch_size` puts so many texts into a call, in their order, whatever their units;
    None puts those of one unit.

    Example:
        >>> calls_of(["ada", "bob", "ada"], None), calls_of(["ada", "bob", "ada"], 2)
        ([[0, 2], [1]], [[0, 1], [2]])
    """
    places: dict[Hashable, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit, []).append(place)
    together = list(places.values())
    if batch_size is not None:
        most = parameters.count(batch_size, "embedding_batch_size")
        together = [list(range(len(units)))]
    return [
        own[start : start + most]
        for own in together
        for start in range(0, len(own), most)
    ]


def calls_at_once(embedding: Any) -> int:
    """Return how many calls of an embedding may run at once.

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


def embed_call(embedding: Any, texts: Sequence[str], take: Callable[[Any], Any]) -> Do:
    """Return one call of an embedding.

    `take` makes something of the vectors as soon as they are there: a client may fill
    the same array again at its next call.
    """
    # An error of the embedding keeps the frames of these two.
    given = Hidden(texts)

    async def awaiting() -> Any:
        return take(await aembed(embedding, "aembed_documents", list(given.value)))

    return Do(lambda: take(embedding.embed_documents(list(given.value))), awaiting)


async def aembed(embedding: Any, method: str, given: Any) -> Any:
    """Return what an embedding's asynchronous method returns, whatever loop asks.

    A client of the OpenAI SDK is asked on the models' loop. Others run where the caller
    is: what they wait for may be the caller's.
    """
    own = model_loop().connected(embedding)
    call = partial(getattr(own, method), given)
    return await (call() if own is embedding else on_model_loop(call))


def embed_calls(calls: Sequence[Do], embedding: Any) -> Do:
    """Return the calls of an embedding as one, which returns a list; see `fan_out`."""
    return fan_out(calls, calls_at_once(embedding), name="dpicl-embedding")
