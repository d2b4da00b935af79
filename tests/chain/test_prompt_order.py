"""Public text comes first in each group's prompt, and no record orders the requests.

A server keeps the computed beginning of a prompt (a prefix cache). So the more of what
is public comes before the records, the less it computes for each of the groups.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel

from langchain_dpicl import DPChain, RetrievedGroups

UNITS = 40
SALT = bytes(range(32))


def groups_of(texts: list[str]) -> RetrievedGroups:
    """Return groups of one corpus; who is in which follows from the ids alone."""
    documents = [
        Document(f"{text} [unit {place}]", metadata={"patient": f"unit {place}"})
        for place, text in enumerate(texts)
    ]
    store = InMemoryVectorStore.from_documents(documents, EMBEDDING)
    return RetrievedGroups.from_vectorstore(
        store, unit_key="patient", n_groups=8, docs_per_group=UNITS, salt=SALT
    )


TEXTS = [
    f"Lisinopril gave a {'dry ' * (i % 7)}cough after {i} days." for i in range(UNITS)
]


async def asked(
    texts: list[str], parser: str = "vote", *, is_async: bool = False, **more: Any
) -> list[str]:
    """Return the group prompts of one question, in the order of the requests."""
    model = (AsyncScriptedModel if is_async else ScriptedModel)(reply=reply)
    chain = DPChain(
        groups=groups_of(texts),
        model=model,
        parser=PARSERS[parser](),
        max_concurrency=1,
        **more,
    )
    config: Any = {"callbacks": [rich()]}
    if is_async:
        await chain.ainvoke(QUESTION, config)
    else:
        chain.invoke(QUESTION, config)
    return [text for text in model.asked if "[unit " in text]


def units(prompts: list[str]) -> list[frozenset[str]]:
    """Return whose records each request holds."""
    return [frozenset(re.findall(r"\[unit \d+\]", text)) for text in prompts]


def beginning(texts: list[str]) -> str:
    """Return what all texts begin with."""
    return os.path.commonprefix(texts)  # noqa: RUF071 - characters are what is meant


@pytest.mark.parametrize("parser", sorted(PARSERS))
async def test_all_prompts_of_a_question_begin_with_what_is_public(parser: str) -> None:
    prompts = await asked(TEXTS, parser)
    instructions = PARSERS[parser]().get_format_instructions()
    assert instructions
    shared = beginning(prompts)
    assert QUESTION in shared
    assert instructions in shared
    # After the records comes no more than the cue.
    ends = beginning([text[::-1] for text in prompts])[::-1]
    assert ends.endswith("]\n\nAnswer:")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_what_records_say_does_not_order_the_requests(is_async: bool) -> None:
    one = await asked(TEXTS, is_async=is_async)
    other = await asked([text[::-1] for text in reversed(TEXTS)], is_async=is_async)
    assert sorted(map(len, one)) != sorted(map(len, other))
    assert units(one) == units(other)
    assert all(units(one))
