"""What the chain tests share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessageChunk

from langchain_dpicl import (
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    VoteOutputParser,
)
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import DPOutputParser

QUESTION = "What did lisinopril give?"
EMBEDDING = HashingEmbeddings()
PARSERS: dict[str, Callable[[], DPOutputParser]] = {
    "vote": lambda: VoteOutputParser(labels=["cough", "rash"]),
    "esa": lambda: ESAOutputParser(
        embedding=EMBEDDING, candidates=["A dry cough.", "A skin rash."]
    ),
    "ptr": lambda: KSAPTROutputParser(k=1),
    "joint": lambda: KSAJointOutputParser(k=1, domain=["cough", "rash", "nausea"]),
}


def reply(text: str) -> str:
    if "word suggestions" in text:
        return "They coughed: " + text.split(": ")[1].split("\n", maxsplit=1)[0]
    return "cough" if "Lisinopril" in text else "I don't know."


def rich(queries: int = 5) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=30, delta=1e-6, queries=queries, ledger=":memory:"
    )


def record(message: Any) -> dict[str, Any]:
    found = message.response_metadata["privacy"]
    assert isinstance(found, dict)
    return found


async def every_way(chain: Any, budget: PrivacyBudgetHandler) -> list[Any]:
    """Ask once by each of LangChain's six ways; no two questions are the same."""
    config: Any = {"callbacks": [budget]}
    questions = (f"{QUESTION} {'Please! ' * n}" for n in itertools.count(next(_asked)))
    streamed = AIMessageChunk(content="")
    for chunk in chain.stream(next(questions), config):
        streamed += chunk
    astreamed = AIMessageChunk(content="")
    async for chunk in chain.astream(next(questions), config):
        astreamed += chunk
    return [
        chain.invoke(next(questions), config),
        await chain.ainvoke({"question": next(questions)}, config),
        *chain.batch([next(questions)], config),
        *(await chain.abatch([{"question": next(questions)}], config)),
        streamed,
        astreamed,
    ]


_asked = itertools.count(0, 6)
