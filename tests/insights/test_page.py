"""The page: what it says and leaves unsaid, in one file."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from langchain_core.language_models import FakeListChatModel
from support.insurance_chats import documents, names, replaying

from langchain_dpicl.insights import Insights, Topics, insights
from langchain_dpicl.mechanisms.random import SeededRandom, use

TREE = {"Money": names()[:15], "Cover & <service>": names()[15:]}


@cache
def release(seed: int, people: int = 300, **terms: Any) -> Insights:
    """Return a release of the first people's conversations."""
    given: dict[str, Any] = {"topics": Topics.of(TREE, "An insurer's assistant.")}
    given |= {"epsilon": 3.0, "delta": 1e-6, "ledger": ":memory:", **terms}
    with use(SeededRandom(seed)):
        return insights(documents()[:people], replaying(), unit_key="user", **given)


def text_of(page: str) -> str:
    """Return what people read of a page."""
    body = re.sub(r"<(style|pre)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_the_page_tells_what_came_out_with_margins() -> None:
    found = release(1)
    text = text_of(found.html())
    for one in found.topics:
        assert f"{one.name} {one.count} ± {one.error}" in text
    for one in (found.people, found.other, *found.groups):
        name = one.name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert f"{one.count} ± {one.error}" in text, name
    assert f"Too few people to tell {', '.join(found.too_few)}." in text
    assert "Cover &amp; &lt;service&gt;" in text  # Written by people, and escaped.
    assert "An insurer's assistant." in text.replace("&#39;", "'")
    assert "a factor of 20.1 at most" in text  # e^3
    assert "at most 95.26 % sure" in text


def test_the_page_is_one_file_without_a_script() -> None:
    page = release(1).html()
    assert not re.search(
        r"<script|<link|<img|@import|url\(|src=|https?:|\son\w+=", page
    )
    assert page.startswith("<!doctype html>")


def test_a_page_of_main_topics_and_one_of_nobody_say_so() -> None:
    one = text_of(release(2, max_topics=1).html())
    assert "as their main topic" in one
    assert "among their" not in one
    nobody = text_of(release(3, people=2, topics=("a topic", "another")).html())
    assert "Too few people talk about any one topic to tell." in nobody
    assert "Groups of topics" not in nobody


def test_changes_are_told_against_a_release_of_as_many_topics() -> None:
    now, then = release(1), release(4, people=200)
    found = now.changes(then)
    assert found is not None
    both = {one.name for one in now.topics} & {one.name for one in then.topics}
    assert set(found) == both
    counts = {one.name: one.count for one in then.topics}
    for one in now.topics:
        if one.name in found:
            assert found[one.name].count == one.count - counts[one.name]
            # Noise of two releases is larger than that of one.
            assert found[one.name].error > one.error
    page = text_of(now.html(then))
    first = found[now.topics[0].name]
    assert first.count > first.error
    assert f"▲ {first.count} ± {first.error}" in page
    assert "no clear change" in page
    assert now.changes(release(2, max_topics=1)) is None
    assert "changes can't be told" in text_of(now.html(release(2, max_topics=1)))


def missed(margin: int, epsilon: float, m: int) -> float:
    """Return how often the difference of two topics' noises exceeds a margin."""
    k = np.arange(-400, 401)
    law = np.exp(-epsilon / m * abs(k))
    both = np.convolve(law / law.sum(), law / law.sum())
    return float(both[abs(np.arange(-800, 801)) > margin].sum())


def test_the_margins_of_changes_hold_for_all_that_are_told() -> None:
    now, then = release(1), release(4, people=200)
    found = now.changes(then) or {}
    (error,) = {one.error for one in found.values()}
    rate = 0.05 * len(found) / len(names())
    assert missed(error, 3.0, 2) <= rate < missed(error - 1, 3.0, 2)
    # A twin: the margin of one release's topics.
    assert missed(now.topics[0].error, 3.0, 2) > rate


def test_attributes_have_a_table() -> None:
    people = [
        {"user": n, "plan": "basic" if n % 3 else "plus", "text": "My refund!"}
        for n in range(90)
    ]
    with use(SeededRandom(5)):
        found = insights(
            people,
            FakeListChatModel(responses=["refunds"]),
            unit_key="user",
            topics=["refunds", "fees"],
            epsilon=8,
            delta=1e-6,
            ledger=":memory:",
            by={"plan": ["basic", "plus"]},
        )
    text = text_of(found.html())
    assert "By plan topic basic plus other all people" in text
    assert re.search(r"refunds \d+ ± \d+ \d+ ± \d+ too few", text)
