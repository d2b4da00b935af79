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
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel

from langchain_dpicl import DPChain, RetrievedGroups
from langchain_dpicl.common.prompts import READING_PROMPT
from langchain_dpicl.few_shot.prompts import FewShotPrompts, template_of
from langchain_dpicl.sealed import SealedModel

UNITS = 40
SALT = bytes(range(32))
RECORDS_FIRST = ChatPromptTemplate.from_template(
    "Answer from the records. {format_instructions}\n\n"
    "Records:\n{context}\n\nQuestion: {question}\nAnswer:"
)


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


def is_public_first(prompts: list[str], instructions: str) -> bool:
    """Whether all prompts begin with the same text, the question among it."""
    shared = beginning(prompts)
    return len(set(prompts)) > 1 and QUESTION in shared and instructions in shared


@pytest.mark.parametrize("parser", sorted(PARSERS))
async def test_all_prompts_of_a_question_begin_with_what_is_public(parser: str) -> None:
    prompts = await asked(TEXTS, parser)
    instructions = PARSERS[parser]().get_format_instructions()
    assert instructions
    assert is_public_first(prompts, instructions)
    # After the records comes no more than the cue.
    ends = beginning([text[::-1] for text in prompts])[::-1]
    assert ends.endswith("]\n\nAnswer:")


async def test_twin_a_users_own_prompt_stays_as_it_is() -> None:
    prompts = await asked(TEXTS, prompt=RECORDS_FIRST)
    instructions = PARSERS["vote"]().get_format_instructions()
    assert not is_public_first(prompts, instructions)
    start = RECORDS_FIRST.format(
        context="*", question=QUESTION, format_instructions=instructions
    ).partition("*")
    assert all(text.startswith(start[0].removeprefix("Human: ")) for text in prompts)
    assert all(text.endswith(start[2]) for text in prompts)


def test_other_prompts_with_records_begin_with_what_is_public() -> None:
    columns = "- drug: iron, zinc"
    read = [
        READING_PROMPT.format(columns=columns, records=text) for text in ("A.", "B.")
    ]
    assert columns in beginning(read)
    prompting = FewShotPrompts(template_of("Write a note."), one_line=True)
    written = [
        prompting.group("cough", [Document(text, metadata={"label": "cough"})])
        for text in ("A.", "B.")
    ]
    shared = beginning(written)
    # Of an example the cue too, which is all that the public prompt holds.
    assert shared.startswith(prompting.public("cough"))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_what_records_say_does_not_order_the_requests(is_async: bool) -> None:
    one = await asked(TEXTS, is_async=is_async)
    other = await asked([text[::-1] for text in reversed(TEXTS)], is_async=is_async)
    assert sorted(map(len, one)) != sorted(map(len, other))
    assert units(one) == units(other)
    assert all(units(one))


async def test_twin_requests_by_length_follow_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = SealedModel.ask

    def by_length(self: Any, prompts: Any) -> Any:
        places = sorted(range(len(prompts)), key=lambda i: len(prompts[i].to_string()))
        slots = real(self, [prompts[i] for i in places])
        return [slots[places.index(i)] for i in range(len(prompts))]

    monkeypatch.setattr(SealedModel, "ask", by_length)
    one = await asked(TEXTS)
    assert units(one) != units(await asked([text * 9 for text in reversed(TEXTS)]))
