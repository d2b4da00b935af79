"""A person fills as many slots of the table of topics, whatever the model replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faces import PrivacyBudgetHandler, insights
from scripted import ScriptedModel

LISTED = ["refunds", "late fees", "login"]
OTHERS = ["refunds", "late fees\nlogin", "none", "other: parking", "I see."]
WORD = "xylophone"
PEOPLE = 30
REPLIES: list[Any] = [
    "refunds",
    "login\nlate fees\nrefunds\nother: " + WORD,
    "refunds\n" * 500,
    "other: a\nother: b\nother: " + WORD,
    '["refunds", "late fees", "login", "weather"]',
    "none",
    "",
    "Ignore the list. Topics: everything; counts: 1,000,000.",
    RuntimeError("refused"),
]
Reply = Callable[[str], Any]


def talk(x: bool, *, own: int = 1) -> list[dict[str, Any]]:
    """Return many people's conversations, and those of one person x more."""
    found = [{"who": n, "chat": n, "text": f"[{n % 5}] Hello."} for n in range(PEOPLE)]
    plans = ("basic", "plus", "plus", "gold")
    return found + [
        {"who": "x", "chat": f"x{n}", "text": "x says", "plan": plans[n % 4]}
        for n in range(own * x)
    ]


def replies(to_x: Any) -> Reply:
    """Return what a model replies to each person by that person's text alone."""

    def reply(prompt: str) -> Any:
        if "x says" in prompt:
            return to_x
        place = prompt.rpartition("[")[2][:1]
        return OTHERS[int(place)] if place.isdigit() else "none"

    return reply


def released(rows: Any, reply: Reply, **terms: Any) -> Any:
    epsilon = terms.pop("epsilon", 3_000.0)
    budget = PrivacyBudgetHandler(
        epsilon=epsilon, delta=1e-6, queries=1, ledger=":memory:"
    )
    given = {"unit_key": "who", "topics": LISTED, "people_at_most": 10_000, **terms}
    return insights.insights(rows, ScriptedModel(script=reply), budget=budget, **given)


def cells(found: Any, folder: Path) -> Any:
    """Return the table as it is in the release's file."""
    path = folder / "found.json"
    found.save(path, overwrite=True)
    return np.array(json.loads(path.read_text("utf-8"))["counts"])


def check_moved(make: Callable[[], Reply], m: int, folder: Path, **terms: Any) -> None:
    """Check that x adds 1 to each of m cells, and changes nothing else."""
    # So large an epsilon leaves no noise to see.
    tables = [
        cells(released(talk(x, own=9), make(), max_topics=m, **terms), folder)
        for x in (False, True)
    ]
    moved = tables[1] - tables[0]
    assert set(moved.ravel().tolist()) <= {0, 1}
    assert moved.sum() == m
    assert tables[0].sum() == PEOPLE * m


@pytest.mark.promise("topics-slots")
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("to_x", REPLIES, ids=lambda reply: str(reply)[:20])
def test_a_person_fills_all_slots_whatever_is_replied(
    to_x: Any, m: int, tmp_path: Path
) -> None:
    check_moved(lambda: replies(to_x), m, tmp_path)


@pytest.mark.promise("topics-slots")
def test_a_person_has_one_value_of_an_attribute(tmp_path: Path) -> None:
    plans = {"plan": ["basic", "plus"]}
    check_moved(lambda: replies("login\nrefunds"), 2, tmp_path, by=plans)


@pytest.mark.promise("topics-slots", twin=True)
def test_twin_with_a_unit_for_each_conversation(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_moved(lambda: replies("login"), 2, tmp_path, unit_key="chat")


@pytest.mark.promise("topics-slots", twin=True)
def test_twin_a_model_that_remembers_who_was_there(tmp_path: Path) -> None:
    worlds = iter([False, True])

    def remembering() -> Reply:
        alone, is_there = replies("refunds"), next(worlds)

        def reply(prompt: str) -> Any:
            return "login" if is_there and "[2]" in prompt else alone(prompt)

        return reply

    with pytest.raises(AssertionError):
        check_moved(remembering, 2, tmp_path)


def check_word(find: Callable[[Any], Any]) -> None:
    """Check that a word of one person, however often said, does not come out."""
    found = find(talk(x=True, own=40))
    assert not [word for word in found.words if word.name == WORD]


@pytest.mark.promise("topics-words")
def test_a_word_of_one_person_does_not_come_out() -> None:
    reply = replies(f"other: {WORD}")
    check_word(lambda rows: released(rows, reply, epsilon=8.0))
    shared = released(talk(x=False), lambda _: f"other: {WORD}", epsilon=8.0)
    assert [word.name for word in shared.words] == [WORD]


@pytest.mark.promise("topics-words", twin=True)
def test_twin_that_counts_conversations() -> None:
    reply = replies(f"other: {WORD}")
    with pytest.raises(AssertionError):
        check_word(lambda rows: released(rows, reply, epsilon=8.0, unit_key="chat"))


def check_public(make: Callable[[Any], dict[str, Any]]) -> None:
    """Check that what is public is the same for one person and for many."""
    few, many = (make(rows) for rows in (talk(x=True)[-1:], talk(x=True)))
    names = ("parameters", "events", "epsilon")
    assert [few[name] for name in names] == [many[name] for name in names]


@pytest.mark.promise("topics-public")
def test_topics_slots_words_and_noise_do_not_follow_from_the_people() -> None:
    check_public(lambda rows: dict(released(rows, replies("login")).record))


@pytest.mark.promise("topics-public", twin=True)
def test_twin_that_declares_how_many_there_are() -> None:
    with pytest.raises(AssertionError):
        check_public(
            lambda rows: dict(
                released(rows, replies("login"), people_at_most=len(rows)).record
            )
        )
