"""A real server that drops, mixes or refuses answers because of one person.

Whatever it does to the reply that holds the person: every other slot has the answer to
its own prompt. Half of all calls failing is a typed answer.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
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
    note,
    stored,
    votes,
)
from worlds import UNIT, without

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


Misdeed = Callable[[Choices, int], Choices]


def numbered(choices: Choices) -> Choices:
    return [{**one, "index": number} for number, one in enumerate(choices)]


LISTS: dict[str, Misdeed] = {
    "dropped": lambda choices, place: choices[:place] + choices[place + 1 :],
    "dropped, renumbered": lambda choices, place: numbered(
        choices[:place] + choices[place + 1 :]
    ),
    "reordered": lambda choices, place: choices[::-1],
    "repeated": lambda choices, place: [*choices[:-1], choices[place]],
    "added": lambda choices, place: [choices[place], *choices],
    "added, renumbered": lambda choices, place: numbered([choices[-1], *choices]),
    "unnumbered": lambda choices, place: [
        {key: value for key, value in one.items() if key != "index"}
        for one in choices[::-1]
    ],
    "numbered in words": lambda choices, place: [
        {**one, "index": str(one["index"])} for one in choices[::-1]
    ],
    "none": lambda choices, place: [],
}


def spoiling(misdeed: Misdeed) -> Provider:
    """Return a provider that spoils the list in which the person is."""
    provider = Provider(spoken)

    def spoil(prompts: list[str], choices: Choices) -> Choices:
        place = next((n for n, text in enumerate(prompts) if PERSON in text), None)
        return choices if place is None or len(prompts) < 2 else misdeed(choices, place)

    provider.spoil = spoil
    return provider


def check_matched(found: Counter[str], expected: Counter[str]) -> None:
    """Each slot was taken to say what its own prompt is answered."""
    assert found == expected


@pytest.mark.promise("answers-matched-to-prompts")
@pytest.mark.parametrize("misdeed", LISTS.values(), ids=LISTS.keys())
@WAYS
async def test_a_list_that_is_answered_wrongly_moves_no_answer(
    misdeed: Misdeed, way: str
) -> None:
    """Numbers count where they are exactly those of the prompts; else one by one."""
    lists = spoiling(misdeed)
    found = await asked(clinic(), lists, OpenAI, way, prompts_per_call=GROUPS)
    assert max(map(len, lists.requests)) == GROUPS
    check_matched(found, await sound(OpenAI))


@pytest.mark.promise("answers-matched-to-prompts")
async def test_the_answer_of_a_slot_without_records_is_no_vote() -> None:
    """Some slots are empty: their calls are made, and a mixed reply moves no vote."""
    few = [one for one in clinic() if one.metadata[UNIT] in ("p7", "p8", "p9")]
    others = [note(f"far {n}", "fever", ward="3") for n in range(GROUPS)]
    people, terms = [*few, *others], {"score_threshold": 0.5}
    plain = await asked(people, Provider(spoken), OpenAI, "invoke", groups=terms)
    assert 0 < plain.total() < GROUPS
    mixed = spoiling(LISTS["reordered"])
    lists = {"groups": terms, "prompts_per_call": GROUPS}
    check_matched(await asked(people, mixed, OpenAI, "invoke", **lists), plain)


@pytest.mark.promise("answers-matched-to-prompts", twin=True)
@pytest.mark.parametrize("name", ["dropped", "added", "unnumbered"])
def test_choices_by_their_place_are_caught(name: str) -> None:
    """The twin: the first prompts are the person's and others of answers not alike."""
    prompts = [f"{PERSON}", *(f"<{n}>" for n in range(10, 19))]
    choices = [{"index": n, "text": spoken(text)} for n, text in enumerate(prompts)]
    by_place = [one["text"] for one in LISTS[name](choices, 0)][:GROUPS]
    good = [spoken(prompt) for prompt in prompts]
    places = [n for n, text in enumerate(by_place) if n and text != good[n]]
    with pytest.raises(AssertionError):
        assert not places


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


@pytest.mark.promise("answers-matched-to-prompts")
@WAYS
async def test_a_refused_list_silences_only_the_prompt_that_is_to_blame(
    way: str,
) -> None:
    """A server refuses a whole list because of one prompt in it."""
    broken = Provider(lambda text: 400 if PERSON in text else spoken(text))
    in_lists = await asked(clinic(), broken, OpenAI, way, prompts_per_call=GROUPS)
    one_by_one = await asked(clinic(), broken, OpenAI, way)
    check_matched(in_lists, one_by_one)
    assert in_lists["failed"] == 1


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
