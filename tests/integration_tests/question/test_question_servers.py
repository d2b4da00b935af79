"""A real server that drops, mixes or refuses answers because of one person.

Whatever it does to the reply that holds the person: every other slot has the answer to
its own prompt. Half of all calls failing is a typed answer.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from typing import Any

import pytest
from asking_provider import Choices, Provider, client, served
from faces import VoteOutputParser, chain, record
from langchain_core.documents import Document
from langchain_openai import ChatOpenAI, OpenAI
from questions import (
    ASK,
    ASKED,
    account,
    clinic,
    exact_vote,
    moved,
    stored,
    votes,
)
from worlds import without

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

LABELS = ("oak", "elm", "fir", "ash", "yew", "box", "bay", "fig")
GROUPS = 10
PERSON = "<7>"
WAYS = pytest.mark.parametrize("way", ["invoke", "ainvoke"])


def spoken(prompt: str) -> str:
    """Say something that only this prompt, or few others, would get."""
    return LABELS[hashlib.sha256(prompt.encode()).digest()[0] % len(LABELS)]


async def asked(
    documents: list[Document], provider: Provider, kind: Any, way: str, **terms: Any
) -> Counter[str]:
    """Ask once; return what the slots were taken to say."""
    found = terms.pop("groups", {})
    groups = stored(documents, n_groups=GROUPS, docs_per_group=9, **found)
    with served(provider) as url, client(kind, url) as model:
        made = chain(groups, model, exact_vote(LABELS), account(), cache=False, **terms)
        return votes(await ASK[way](made, ASKED))


SOUND: dict[Any, Counter[str]] = {}


async def sound(kind: Any, *, person: bool = True) -> Counter[str]:
    """Return what the slots say where nothing is spoiled; it is asked once."""
    if (kind, person) not in SOUND:
        documents = clinic() if person else without(clinic(), "p7")
        SOUND[kind, person] = await asked(documents, Provider(spoken), kind, "ainvoke")
    return SOUND[kind, person]


def check_matched(found: Counter[str], expected: Counter[str]) -> None:
    """Each slot was taken to say what its own prompt is answered."""
    assert found == expected


def check_alone(provider: Provider) -> None:
    """Each request had one prompt, so that what comes back is that prompt's."""
    assert {len(prompts) for prompts in provider.requests} == {1}


@pytest.mark.promise("answers-matched-to-prompts")
@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI])
@WAYS
async def test_each_group_is_asked_in_a_request_of_its_own(kind: Any, way: str) -> None:
    """No list of prompts, whose answers a server could drop or mix."""
    provider = Provider(spoken)
    found = await asked(clinic(), provider, kind, way)
    check_alone(provider)
    assert len(provider.requests) == GROUPS + 1  # and the public one
    check_matched(found, await sound(kind))


@pytest.mark.promise("answers-matched-to-prompts")
@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI])
@pytest.mark.parametrize("change", ["added", "none"])
async def test_a_reply_of_more_or_no_choices_moves_that_slot_alone(
    kind: Any, change: str
) -> None:
    provider = Provider(spoken)

    def spoil(prompts: list[str], choices: Choices) -> Choices:
        if PERSON not in prompts[0]:
            return choices
        return [*choices, *choices, *choices] if change == "added" else []

    provider.spoil = spoil
    found = await asked(clinic(), provider, kind, "invoke")
    assert max(moved(found, await sound(kind))) <= 1


@pytest.mark.promise("answers-matched-to-prompts", twin=True)
async def test_twin_a_request_of_two_prompts_is_noticed() -> None:
    provider = Provider(spoken)
    with served(provider) as url, client(OpenAI, url) as model:
        model.generate([PERSON, "<8>"])
    with pytest.raises(AssertionError):
        check_alone(provider)


CALLS: dict[str, Any] = {
    "refused": 400,
    "down": 503,
    "busy": 429,
    "closed": None,
    "empty": "",
}


@pytest.mark.promise("failed-slot-abstains", "one-reply-differs")
@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI])
@pytest.mark.parametrize("fault", CALLS)
@WAYS
async def test_a_call_that_one_person_breaks_is_that_slots_alone(
    fault: str, kind: Any, way: str
) -> None:
    """Refused, dropped, or answered with nothing: the others' answers stand."""
    broken = Provider(lambda text: CALLS[fault] if PERSON in text else spoken(text))
    with_fault = await asked(clinic(), broken, kind, way)
    assert moved(with_fault, await sound(kind)) == (1, 1)
    assert max(moved(with_fault, await sound(kind, person=False))) <= 1
    assert with_fault["unreadable" if fault == "empty" else "failed"] == 1


@pytest.mark.promise("failed-slot-abstains")
@WAYS
async def test_a_slow_server_is_waited_for(way: str) -> None:
    """One slow call is no failure, and no other's."""

    def slow(prompt: str) -> str:
        time.sleep(0.5 * (PERSON in prompt))
        return spoken(prompt)

    found = await asked(clinic(), Provider(slow), ChatOpenAI, way)
    check_matched(found, await sound(ChatOpenAI))


@pytest.mark.promise("failures-are-typed", "charge-stays")
@pytest.mark.parametrize("share", [1, 2])
@WAYS
async def test_a_server_that_fails_ends_in_a_typed_answer(share: int, way: str) -> None:
    """All group calls, or every second one: charged, abstained, the reason is true."""
    count = 0

    def down(prompt: str) -> str | int:
        nonlocal count
        count += "<" in prompt
        return 503 if "<" in prompt and count % share == 0 else "oak"

    budget = account(queries=2, epsilon=60)
    groups = stored(clinic(120), n_groups=40, docs_per_group=1)
    parser = VoteOutputParser(labels=["oak", "elm"], min_lead=9.0)
    with served(Provider(down)) as url, client(ChatOpenAI, url) as model:
        answer = await ASK[way](chain(groups, model, parser, budget), ASKED)
    assert record(answer)["status"] == "abstained"
    assert "failed" in record(answer)["details"]["reason"] or share == 2
    assert "503" not in repr(answer)
    assert budget.spent().queries == 1
