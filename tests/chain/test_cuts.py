"""A query that is cut leaves the same charges and answers however it was asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import RunnableLambda
from pydantic import PrivateAttr
from support.chain_parts import EMBEDDING, QUESTION, reply, rich
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    PublicCallError,
    RetrievedGroups,
)
from langchain_dpicl.budget import charges

GROUPS = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)


class CutError(Exception):
    """An ordinary error of what listens or answers."""


class Stopped(BaseException):  # stands for an interrupt
    """An interrupt: no `except Exception` may hold it."""


CUTS: dict[str, Callable[[], BaseException]] = {
    "error": CutError,
    "interrupt": Stopped,
    "cancellation": asyncio.CancelledError,
}
# What each cut leaves: charges, how many steps of their releases are stored, and the
# text that the next caller gets for nothing.
PLACES = {
    "public call": (0, [], None),
    "public": (0, [], None),
    # The charge is given up, and nobody draws for it again.
    "charged": (1, [0], None),
    "groups": (1, [0], None),
    "merged": (1, [1], "cough"),
    "wording": (1, [1], "cough"),
}


class Cutter:
    """Raises at one place: in a step's event, or in a model call."""

    def __init__(self, place: str, cut: Callable[[], BaseException]) -> None:
        self.place, self.cut, self.done = place, cut, False

    def at(self, place: str) -> None:
        if place == self.place and not self.done:
            self.done = True
            raise self.cut()

    def reply(self, text: str) -> str:
        if "word suggestions" in text:
            self.at("wording")
        elif "Lisinopril" not in text:
            self.at("public call")
        return reply(text)


class Events(BaseCallbackHandler):
    raise_error = True

    def __init__(self, cutter: Cutter) -> None:
        self.cutter = cutter

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.cutter.at(data["step"])


class AsyncEvents(AsyncCallbackHandler):
    raise_error = True

    def __init__(self, cutter: Cutter) -> None:
        self.cutter = cutter

    async def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.cutter.at(data["step"])


def chain_of(cutter: Cutter, budget: PrivacyBudgetHandler) -> DPChain:
    return DPChain(
        groups=GROUPS,
        model=AsyncScriptedModel(reply=cutter.reply),
        parser=KSAPTROutputParser(k=1),
        budget=budget,
        cache=True,
    )


async def invoke(chain: DPChain, cutter: Cutter) -> None:
    chain.invoke(QUESTION, {"callbacks": [Events(cutter)]})


async def ainvoke(chain: DPChain, cutter: Cutter) -> None:
    await chain.ainvoke(QUESTION, {"callbacks": [AsyncEvents(cutter)]})


async def stream(chain: DPChain, cutter: Cutter) -> None:
    for _ in chain.stream(QUESTION, {"callbacks": [Events(cutter)]}):
        pass


async def astream(chain: DPChain, cutter: Cutter) -> None:
    async for _ in chain.astream(QUESTION, {"callbacks": [AsyncEvents(cutter)]}):
        pass


async def batch(chain: DPChain, cutter: Cutter) -> None:
    chain.batch([QUESTION], {"callbacks": [Events(cutter)]})


async def abatch(chain: DPChain, cutter: Cutter) -> None:
    await chain.abatch([QUESTION], {"callbacks": [AsyncEvents(cutter)]})


async def inside_another(chain: DPChain, cutter: Cutter) -> None:
    await (chain | RunnableLambda(str)).ainvoke(
        QUESTION, {"callbacks": [AsyncEvents(cutter)]}
    )


WAYS = [invoke, ainvoke, stream, astream, batch, abatch, inside_another]


def left_by(
    chain: DPChain, budget: PrivacyBudgetHandler
) -> tuple[int, list[int], str | None]:
    """Return the charges, the steps, and what the next caller gets for nothing."""
    before = charges(budget.ledger, "default")
    again = str(chain.invoke(QUESTION).content)
    after = charges(budget.ledger, "default")
    assert after[-1].note == "They coughed: cough"
    free = again if len(after) == len(before) else None
    return len(before), [len(charge.values) for charge in before], free


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cut", sorted(CUTS))
@pytest.mark.parametrize("place", sorted(PLACES))
async def test_a_cut_leaves_the_same_in_every_way_of_asking(
    place: str, cut: str, way: Any
) -> None:
    budget, cutter = rich(), Cutter(place, CUTS[cut])
    chain = chain_of(cutter, budget)
    try:
        await way(chain, cutter)
    except (CutError, Stopped, asyncio.CancelledError):
        pass
    except PublicCallError:
        # What a model raises is replaced; LangChain replaces interrupts of some calls.
        assert place == "public call"
    assert cutter.done
    *left, text = left_by(chain, budget)
    *expected, word = PLACES[place]
    assert left == expected
    assert text is None if word is None else word in str(text)


@pytest.mark.parametrize("pieces", range(1, 6))
async def test_a_closed_stream_leaves_the_same_sync_and_async(pieces: int) -> None:
    left = []
    for is_async in (False, True):
        budget = rich()
        chain = chain_of(Cutter("nowhere", CutError), budget)
        if is_async:
            asked: Any = chain.astream(QUESTION)
            for _ in range(pieces):
                await asked.__anext__()
            await asked.aclose()
        else:
            streamed: Any = chain.stream(QUESTION)
            for _ in range(pieces):
                next(streamed)
            streamed.close()
        left.append(left_by(chain, budget))
    assert left[0] == left[1]


class WaitingModel(AsyncScriptedModel):
    """Never ends the wording by itself; says when it has begun."""

    _waits: bool = PrivateAttr(default=True)
    _begun: threading.Event = PrivateAttr(default_factory=threading.Event)

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        if "word suggestions" in str(messages[-1].content) and self._waits:
            self._waits = False
            self._begun.set()
            await asyncio.sleep(3600)
        return self._generate(messages)


@pytest.mark.parametrize("way", [ainvoke, astream, abatch, inside_another])
async def test_an_answer_whose_wording_is_cancelled_is_kept(way: Any) -> None:
    budget, model = rich(), WaitingModel(reply=reply)
    chain = DPChain(
        groups=GROUPS,
        model=model,
        parser=KSAPTROutputParser(k=1),
        budget=budget,
        cache=True,
    )
    query = asyncio.ensure_future(way(chain, Cutter("nowhere", CutError)))
    # The model's call is on a loop of its own.
    await asyncio.to_thread(model._begun.wait)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    assert left_by(chain, budget) == (1, [1], "They coughed: cough")
