"""A server that answers lists wrongly because of one person, and what that moves.

`MISDEEDS` change the choices of a reply to a request that holds the person's record,
and of no other. `slots_of` asks a chain and returns what its parser was given, so that
the slots with and without that person can be compared, group by group:

    PYTHONPATH=.:tests python tests/support/servers/scripted_lists.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAI

from langchain_dpicl import DPChain, RetrievedGroups, VoteOutputParser
from langchain_dpicl.common.slots import Slot
from support.chain_parts import EMBEDDING, rich
from support.servers.provider_clients import client_of
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy
from support.servers.scripted_provider import completion

PERSON = "Zebra-7431"
QUESTION = f"What did lisinopril give, and what did {PERSON} say?"
GROUPS, UNITS, RELEVANT = 60, 90, 41
SALT = b"a salt that fills half the slots"

Choices = list[dict[str, Any]]
Misdeed = Callable[[Choices, int, int], Choices]


def _without(key: str, choices: Choices) -> Choices:
    return [{k: v for k, v in one.items() if k != key} for one in choices]


def _renumbered(choices: Choices) -> Choices:
    return [{**one, "index": index} for index, one in enumerate(choices)]


def _dropped(choices: Choices, place: int, n: int) -> Choices:
    return choices[:place] + choices[place + n :]


def _repeated(choices: Choices, place: int, n: int) -> Choices:
    end = place + n
    return choices[:end] + choices[place:end] + choices[end + n :]


MISDEEDS: dict[str, Misdeed] = {
    "none": lambda choices, _place, _n: choices,
    "dropped": _dropped,
    "dropped, renumbered": lambda *given: _renumbered(_dropped(*given)),
    "reordered": lambda choices, _place, _n: choices[::-1],
    "reordered, unnumbered": lambda choices, _p, _n: _without("index", choices[::-1]),
    "repeated": _repeated,
    "added": lambda choices, _place, _n: [choices[-1], *choices],
    "added, renumbered": lambda choices, _place, _n: _renumbered(
        [choices[-1], *choices]
    ),
    "unnumbered": lambda choices, _place, _n: _without("index", choices),
    "numbered in words": lambda choices, _place, _n: [
        {**one, "index": str(one["index"])} for one in choices
    ],
    "numbered by truth": lambda choices, _place, _n: [
        {**one, "index": bool(one["index"])} for one in choices
    ],
    "null": lambda choices, _place, _n: [{**one, "index": None} for one in choices],
}
"""By name, from choices, the place of the person's first one, and how many a prompt
has, to the choices that are sent."""


def misbehaving(
    server: Callable[[Exchange], Answer], misdeed: Misdeed
) -> Callable[[Exchange], Answer]:
    """Return the server, whose replies to lists with the person are spoiled."""

    def answer(exchange: Exchange) -> Answer:
        good = server(exchange)
        prompts = exchange.prompts
        places = [i for i, prompt in enumerate(prompts) if PERSON in _text(prompt)]
        if not places or not exchange.path.endswith("completions"):
            return good
        body = json.loads(b"".join(good.pieces))
        n = len(body["choices"]) // len(prompts)
        ordered = sorted(body["choices"], key=lambda one: one["index"])
        body["choices"] = misdeed(ordered, n * places[0], n)
        return Answer.of(body)

    return answer


def _text(prompt: Any) -> str:
    """Return a prompt's text, also of letters that are tokens."""
    return prompt if isinstance(prompt, str) else "".join(map(chr, prompt))


def truthful(exchange: Exchange) -> Answer:
    """Say whether a prompt has records, and a number that only this prompt has."""
    texts = []
    for prompt in exchange.prompts:
        said = "cough" if "Lisinopril" in prompt else "nothing"
        for candidate in range(exchange.body.get("n") or 1):
            own = zlib.crc32(prompt.encode())
            texts.append(f"{said} {own}" + f" {candidate}" * (candidate > 0))
    return Answer.of(completion(texts, is_chat="messages" in exchange.body))


def groups_of(*, person: bool) -> RetrievedGroups:
    """60 groups, about half of them without a record that answers the question."""
    texts = [
        f"Lisinopril gave a dry cough. Note {i}."
        if i < RELEVANT
        else f"The weather was fine in town {i}."
        for i in range(UNITS)
    ]
    documents = [
        Document(text, metadata={"patient": f"unit-{i}"})
        for i, text in enumerate(texts)
    ]
    if person:
        text = f"Lisinopril gave {PERSON} a dry cough."
        documents.append(Document(text, metadata={"patient": "person-4"}))
    store = InMemoryVectorStore.from_documents(documents, EMBEDDING)
    return RetrievedGroups.from_vectorstore(
        store,
        unit_key="patient",
        n_groups=GROUPS,
        docs_per_group=8,
        score_threshold=0.2,
        salt=SALT,
    )


async def slots_of(
    groups: RetrievedGroups, model: Any, *, asynchronous: bool, **changes: Any
) -> list[str | None]:
    """Return what the groups with records were taken to say, in the groups' order."""
    seen: list[str | None] = []

    class Watching(VoteOutputParser):
        def release(self, slots: Sequence[Slot], **terms: Any) -> Any:
            seen[:] = [slot.text for slot in slots]
            return super().release(slots, **terms)

    parser = Watching(labels=["cough", "nothing"])
    chain = DPChain(
        groups=groups, model=model, parser=parser, budget=rich(1), **changes
    )
    if asynchronous:
        await chain.ainvoke(QUESTION.replace(PERSON, "a person"))
    else:
        await asyncio.to_thread(chain.invoke, QUESTION.replace(PERSON, "a person"))
    return seen


def moved(without: Sequence[str | None], present: Sequence[str | None]) -> list[int]:
    """Return the places of the slots that the person has changed."""
    pairs = zip(without, present, strict=True)
    return [place for place, (one, other) in enumerate(pairs) if one != other]


async def _table() -> None:
    corpora = [groups_of(person=False), groups_of(person=True)]
    ways = [(OpenAI, {"batch_size": GROUPS}, {}), (ChatOpenAI, {}, {})]
    if "prompts_per_call" in DPChain.model_fields:
        ways.insert(1, (OpenAI, {}, {"prompts_per_call": GROUPS}))
    for (name, misdeed), (kind, arguments, changes) in product(MISDEEDS.items(), ways):
        async with contextlib.AsyncExitStack() as stack:
            proxy = stack.enter_context(RecordingProxy(misbehaving(truthful, misdeed)))
            model = client_of(stack, kind, proxy.url, {"n": 2, **arguments})
            for asynchronous in (False, True):
                found = [
                    await slots_of(groups, model, asynchronous=asynchronous, **changes)
                    for groups in corpora
                ]
                votes = [sum("cough" in (text or "") for text in one) for one in found]
                print(  # noqa: T201 - a program
                    f"{name:22} {kind.__name__:10} {changes or 'default'!s:24} "
                    f"{'async' if asynchronous else 'sync':5} slots changed: "
                    f"{len(moved(*found)):2}, votes {votes[0]} -> {votes[1]}"
                )


if __name__ == "__main__":
    asyncio.run(_table())
