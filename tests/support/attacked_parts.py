"""Chains that the tests of attacks and of one run ask: private, plain, and leaking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tracers.context import collect_runs

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
)
from langchain_dpicl.audit.probes import words
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

NOTES = clinic(n_patients=160, notes_per_patient=1)
CORPUS, OUTSIDE = NOTES[::2], NOTES[1::2]


def budget_of(epsilon: float = 3, queries: int = 5) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=epsilon, delta=1e-4, queries=queries, ledger=":memory:"
    )


def private_chain(kind: type[DPChain] = DPChain, **given: Any) -> DPChain:
    groups = RetrievedGroups.from_documents(
        CORPUS, HashingEmbeddings(), unit_key="patient_id", n_groups=8
    )
    given.setdefault("budget", budget_of())
    # All refusals are one text, which is nearer to some records than to others.
    given.setdefault("fallback", "model")
    return kind(
        groups=groups, model=OfflineChatModel(), parser=KSAPTROutputParser(), **given
    )


def overlap(question: str) -> str:
    """A plain chain: the record that has most words in common with the question."""
    asked = set(words(question))
    said = [(len(asked & set(words(n.page_content))), n.page_content) for n in CORPUS]
    common, text = max(said)
    return text if common > 9 else "I don't know."


PLAIN: Runnable[str, str] = RunnableLambda(overlap)


class Leaky(DPChain):
    """The twin: it charges, and then gives the plain chain's answer."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> AIMessage:  # noqa: A002 - LangChain's name
        super().invoke(input, config, **kwargs)
        return AIMessage(overlap(input))


@contextmanager
def watched() -> Iterator[list[Any]]:
    """Note what runs and a global cache see in this process."""
    cache, seen = InMemoryCache(), list[Any]()
    set_llm_cache(cache)
    try:
        with collect_runs() as runs:
            yield seen
        seen += [*runs.traced_runs, *cache._cache]
    finally:
        set_llm_cache(None)
