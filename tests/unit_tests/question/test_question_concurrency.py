"""Many questions at once: nothing hangs, no call too many, each answer its own.

A limit of group calls holds over all questions of a chain. A chain inside another
chain's way, and a batch inside a batch, end too. All within a time limit of the test's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from faces import chain, record
from langchain_core.runnables import RunnableLambda, RunnableParallel
from questions import ASKED, account, clinic, exact_vote, group_prompts, stored
from scripted import AsyncScriptedModel, ScriptedModel

LIMIT = 4
MANY = {("tasks", ScriptedModel): 200, ("threads", AsyncScriptedModel): 200}
SOME = 40
SECONDS = 60
LABELS = ["oak", "elm"]
GROUPS = stored(clinic(24), n_groups=4)
KINDS = pytest.mark.parametrize("kind", [ScriptedModel, AsyncScriptedModel])


def answers(prompt: str) -> str:
    """Say oak to questions of an even number, and elm to the others."""
    number = prompt.partition("number ")[2].partition(".")[0]
    return LABELS[int(number or 0) % 2]


def numbered(count: int) -> list[str]:
    return [f"{ASKED} number {n}." for n in range(count)]


def made(kind: Any, seconds: float = 0.001, **terms: Any) -> tuple[Any, Any, Any]:
    """Return a chain over a pool of four calls, its model and its account."""
    model, budget = kind(script=answers, seconds=seconds), account()
    parser = exact_vote(LABELS)
    asked = chain(GROUPS, model, parser, budget, max_concurrency=LIMIT, **terms)
    return asked, model, budget


async def within(call: Callable[[], Any]) -> Any:
    """Run a blocking call on a thread that nothing waits for; end it by failing."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        finally:
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, daemon=True).start()
    await asyncio.wait_for(done.wait(), SECONDS)
    return found[0]


def on_threads(asked: Any, questions: list[str]) -> list[Any]:
    with ThreadPoolExecutor(40) as pool:
        return list(pool.map(asked.invoke, questions))


WAYS: dict[str, Callable[[Any, list[str]], Any]] = {
    "tasks": lambda asked, questions: asyncio.wait_for(
        asyncio.gather(*map(asked.ainvoke, questions)), SECONDS
    ),
    "threads": lambda asked, questions: within(lambda: on_threads(asked, questions)),
    "batch": lambda asked, questions: within(lambda: asked.batch(questions)),
    "abatch": lambda asked, questions: asyncio.wait_for(
        asked.abatch(questions, config={"max_concurrency": 50}), SECONDS
    ),
    "batch in batch": lambda asked, questions: within(
        lambda: [
            one
            for each in RunnableLambda(asked.batch).batch(
                [questions[n : n + 20] for n in range(0, len(questions), 20)]
            )
            for one in each
        ]
    ),
}


@pytest.mark.promise("no-hang-at-once", "calls-at-once-limited")
@pytest.mark.parametrize("way", WAYS)
@KINDS
async def test_two_hundred_questions_at_once_end(way: str, kind: Any) -> None:
    """Each has its own answer, one charge, and its own calls; four calls at a time."""
    asked, model, budget = made(kind)
    many = MANY.get((way, kind), SOME)
    asked.invoke(ASKED)  # The first one asks the model whether it is there.
    found = await WAYS[way](asked, numbered(many))
    check_own([one.content for one in found])
    assert {record(one)["status"] for one in found} == {"released"}
    assert budget.spent().queries == many + 1
    assert len(group_prompts(model)) == 4 * (many + 1)
    check_limit(model.most_at_once)


def check_own(contents: list[str]) -> None:
    """Each question has the answer to that question."""
    assert contents == [LABELS[n % 2] for n in range(len(contents))]


def check_limit(most: int) -> None:
    """No more calls at once than the limit."""
    assert most <= LIMIT


@pytest.mark.promise("calls-at-once-limited", twin=True)
async def test_a_pool_for_each_question_is_caught() -> None:
    """The twin: chains of a limit each, as a limit a question would be."""
    model = AsyncScriptedModel(script=answers, seconds=0.05)
    many = [
        chain(GROUPS, model, exact_vote(LABELS), account(), max_concurrency=LIMIT)
        for _ in range(6)
    ]
    await asyncio.gather(*(one.ainvoke(ASKED) for one in many))
    with pytest.raises(AssertionError):
        check_limit(model.most_at_once)
    with pytest.raises(AssertionError):
        check_own(["oak", "oak"])


@pytest.mark.promise("no-hang-at-once")
@pytest.mark.parametrize("is_async", [False, True])
@KINDS
async def test_a_chain_inside_another_chains_model_ends(
    kind: Any, is_async: bool
) -> None:
    """The outer group calls wait for whole questions: more of them than the limit."""
    inner, _, paid = made(kind, cache=False)

    def ask_inside(prompt: str) -> Any:
        if "<" not in prompt:
            return "oak"
        return inner.invoke(f"{ASKED} number 1.").content

    model, budget = kind(script=ask_inside), account()
    outer = chain(
        GROUPS, model, exact_vote(LABELS), budget, max_concurrency=LIMIT, cache=False
    )
    if is_async and kind is ScriptedModel:
        tasks = [outer.ainvoke(text) for text in numbered(6)]
        found = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
    else:
        found = await within(lambda: on_threads(outer, numbered(6)))
    assert [one.content for one in found] == ["elm"] * 6
    assert budget.spent().queries == 6
    assert paid.spent().queries == 6 * 4


@pytest.mark.promise("no-hang-at-once")
@KINDS
async def test_chains_side_by_side_and_one_after_the_other_end(kind: Any) -> None:
    """A chain as one branch of a parallel step, and as a step before another chain."""
    (first, _, _), (second, _, paid) = made(kind), made(kind)
    after = RunnableLambda(lambda message: f"{ASKED} {message.content} number 1.")
    both = RunnableParallel(a=first, b=first | after | second)
    tasks = [both.ainvoke(text) for text in numbered(12)]
    found = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
    found += await within(lambda: on_threads(both, numbered(12)))
    check_own([one["a"].content for one in found[:12]])
    assert {one["b"].content for one in found} == {"elm"}
    # Two inner questions, repeated: each was paid once.
    assert paid.spent().queries == 2
