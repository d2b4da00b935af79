"""Releases in steps, as the crash tests make them, interrupt them and resume them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage

from langchain_dpicl import (
    DPChain,
    KSAJointOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.few_shot import DPFewShotGenerator, NextTokenModel, TokenPrompt
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPTable,
    TableSchema,
)

ACCOUNT = "releases"
SCHEMA = TableSchema(
    label="pet",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse"]),
        CategoricalColumn(name="pet", values=["cat", "dog"]),
    ],
)
ROWS = [{"job": "clerk" if n % 3 else "nurse", "pet": "cat"} for n in range(60)]
RECORDS = [{"text": f"late {n}", "label": "a"} for n in range(400)]


class Words(NextTokenModel):
    """Three tokens, one of which is likely."""

    @property
    def name(self) -> str:
        return "three words"

    @property
    def vocabulary_size(self) -> int | None:
        return 3

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset()

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(f" word{token}" for token in tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Any]:
        return [np.arange(k) for _ in prompts]

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Any]
    ) -> list[Any]:
        return [np.log([0.8, 0.1, 0.1]) for _ in prompts]


def budget(url: str, queries: int = 1) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=queries, ledger=url, account=ACCOUNT
    )


def _table(url: str) -> Any:
    return GDPTable(ROWS, SCHEMA, budget=budget(url)).release(resume=True).record()


def _collection(url: str) -> Any:
    table = LDPTable(ROWS, SCHEMA, budget=budget(url), progress=False)
    return table.release(resume=True).record()


def _generation(url: str) -> Any:
    generator = DPFewShotGenerator(
        Words(),
        "Write words.",
        ["a"],
        n_groups=10,
        records_per_group=2,
        max_tokens=2,
        top_k_public=None,
        budget=budget(url),
    )
    examples = generator.generate(RECORDS, resume=True, progress=False)
    return [list(examples), examples.record]


class Chat(FakeListChatModel):
    """Says every word of a group with notes, and words what was released."""

    responses: list[str] = []  # noqa: RUF012

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        text = str(messages[-1].content)
        if "word suggestions" in text:
            return "It was: " + text.split(": ")[1].split("\n", maxsplit=1)[0]
        # All counts are equal, and "none of the words" is far behind.
        return ", ".join(WORDS) if "It was" in text else "unknown"


WORDS = [f"word{chr(97 + n)}" for n in range(12)]
NOTES = [
    Document(f"It was {word}.", metadata={"patient": word * 2 + str(n)})
    for n in range(2)
    for word in WORDS
]


def _answer(url: str) -> Any:
    # Every word is as likely as the others: a second draw would show.
    chain = DPChain(
        groups=RetrievedGroups.from_documents(
            NOTES, HashingEmbeddings(), unit_key="patient", n_groups=24
        ),
        model=Chat(),
        parser=KSAJointOutputParser(k=2, domain=WORDS),
        budget=budget(url, queries=2),
        cache=True,
    )
    message = chain.invoke("What was it?")
    return [message.content, message.response_metadata["privacy"]["keywords"]]


class Agreed(Chat):
    """Says the same for every group with notes."""

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        return "cough" if "It was" in str(messages[-1].content) else "unknown"


def _staged(url: str) -> Any:
    notes = [Document("It was so.", metadata={"patient": n}) for n in range(200)]
    chain = DPChain(
        groups=RetrievedGroups.from_documents(
            notes, HashingEmbeddings(), unit_key="patient", n_groups=60
        ),
        model=Agreed(),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=budget(url, queries=2),
        cache=True,
        stages=3,
        stop_at=99.0,
    )
    message = chain.invoke("What was it?")
    details = message.response_metadata["privacy"]["details"]
    return [message.content, details["noisy_votes"]]


KINDS: dict[str, Callable[[str], Any]] = {
    "table": _table,
    "collection": _collection,
    "generation": _generation,
}


ANSWERS: dict[str, Callable[[str], Any]] = {"answer": _answer, "staged": _staged}
"""Releases that are not resumed: a draw that was lost is charged anew."""


def release(kind: str, url: str) -> str:
    """Make a release, or resume it; return a digest of what is given out."""
    text = json.dumps({**KINDS, **ANSWERS}[kind](url), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
