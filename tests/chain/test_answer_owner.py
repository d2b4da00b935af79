"""One charge has one draw, made by the one who paid; all others wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from support.chain_parts import EMBEDDING, QUESTION, record, reply
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    DPError,
    GroupCallError,
    KSAPTROutputParser,
    LedgerError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.chain import answers
from langchain_dpicl.chain.answers import forget
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.ledger import MemoryLedger

GROUPS = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)


def account(ledger: Any = ":memory:", **changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {"epsilon": 30, "delta": 1e-6, "queries": 4}
    return PrivacyBudgetHandler(ledger=ledger, **{**terms, **changes})


def made(budget: Any, parser: Any = None, **changes: Any) -> DPChain:
    parser = parser or VoteOutputParser(labels=["cough", "rash"])
    parts: dict[str, Any] = {"groups": GROUPS, "model": ScriptedModel(reply=reply)}
    return DPChain(parser=parser, budget=budget, cache=True, **{**parts, **changes})


def used(budget: PrivacyBudgetHandler) -> int:
    return len(budget.ledger.charges(budget.account))


def group_calls(model: ScriptedModel) -> int:
    return sum("Lisinopril" in text for text in model.asked)


async def ask(chain: DPChain, *, is_async: bool) -> Any:
    return await chain.ainvoke(QUESTION) if is_async else chain.invoke(QUESTION)


async def many(chain: DPChain, way: str, count: int = 6) -> list[Any]:
    """Ask the same at once, by tasks or by threads."""
    if way == "tasks":
        return await asyncio.gather(*(chain.ainvoke(QUESTION) for _ in range(count)))
    if way == "batch":
        return chain.batch([QUESTION] * count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: chain.invoke(QUESTION), range(count)))


@pytest.mark.parametrize("url", [":memory:", "sqlite:///{}/ledger.db"])
@pytest.mark.parametrize("way", ["threads", "tasks", "batch"])
async def test_of_many_at_once_one_pays_and_draws(
    way: str, url: str, tmp_path: Path
) -> None:
    # The account has one question: nobody is refused what is about to be stored.
    budget = account(url.format(tmp_path), queries=1)
    model = ScriptedModel(reply=lambda text: time.sleep(0.01) or reply(text))
    found = await many(made(budget, model=model), way)
    assert (used(budget), group_calls(model)) == (1, 20)
    assert Counter(record(one)["status"] for one in found) == {
        "released": 1,
        "cached": 5,
    }
    assert {one.content for one in found} == {"cough"}


async def test_a_slower_asking_decides_nothing() -> None:
    """Whose answers take longer must not choose which draw is released."""
    slow, drawn, asked = threading.Event(), list[str](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(text: str) -> str:
        if "Lisinopril" in text and not slow.is_set():
            slow.set()
            loop.call_soon_threadsafe(asked.set)
            time.sleep(0.5)
        return reply(text)

    class Draws(VoteOutputParser):
        def release(self, *slots: Any, **terms: Any) -> Outcome:
            super().release(*slots, **terms)
            drawn.append(f"draw {len(drawn)}")
            return Outcome(Status.RELEASED, drawn[-1])

    budget = account()
    chain = made(budget, Draws(labels=["a", "b"]), model=ScriptedModel(reply=answer))
    first = asyncio.create_task(chain.ainvoke(QUESTION))
    await asked.wait()
    others = await many(chain, "tasks", 3)
    assert {one.content for one in [await first, *others]} == {"draw 0"}
    assert (len(drawn), used(budget)) == (1, 1)


class Stops(BaseCallbackHandler):
    """Raises before the groups are asked."""

    raise_error = True

    def __init__(self, step: str = "groups") -> None:
        self.step = step

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        if data["step"] == self.step:
            raise RuntimeError("a handler's own fault")


@pytest.mark.parametrize("step", ["charged", "groups"])
@pytest.mark.parametrize("terms", [{}, {"accounting": "renyi"}, {"scope": "unit"}])
def test_a_draw_that_its_owner_gave_up_is_charged_anew(
    step: str, terms: dict[str, Any]
) -> None:
    groups = GROUPS
    if terms.get("scope"):
        terms = {**terms, "accounting": "renyi"}
        groups = RetrievedGroups.from_documents(
            notes(300),
            EMBEDDING,
            unit_key="patient",
            n_groups=20,
            score_threshold=0.1,
        )
    budget = account(**terms)
    chain = made(budget, groups=groups)
    with pytest.raises(RuntimeError, match="own fault"):
        chain.invoke(QUESTION, {"callbacks": [Stops(step)]})
    answer = chain.invoke(QUESTION)
    assert (record(answer)["status"], record(answer)["charge"]) == ("released", 2)
    assert record(chain.invoke(QUESTION))["details"]["first"]["charge"] == 2
    assert used(budget) == 2


async def test_a_cancelled_draw_is_charged_anew_and_nobody_waits_for_it() -> None:
    asked, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def answer(text: str) -> str:
        if "Lisinopril" in text and not go_on.is_set():
            loop.call_soon_threadsafe(asked.set)
            go_on.wait(20)
        return reply(text)

    budget = account()
    chain = made(budget, model=ScriptedModel(reply=answer))
    task = asyncio.create_task(chain.ainvoke(QUESTION))
    await asked.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer_of = await asyncio.wait_for(chain.ainvoke(QUESTION), 20)
    assert record(answer_of)["charge"] == 2


ASKS = """
import os, signal, sys, time
sys.path[:0] = {paths!r}
from support.chain_parts import QUESTION, reply
from support.fakes import ScriptedModel
from test_answer_owner import account, made

def answer(text):
    if "Lisinopril" in text:
        sys.stdout.write("asked\\n")
        sys.stdout.flush()
        {does}
    return reply(text)

chain = made(account(sys.argv[1]), model=ScriptedModel(reply=answer))
print(chain.invoke(QUESTION).content, flush=True)
"""


def another_process(url: str, does: str) -> subprocess.Popen[str]:
    """Start a process that asks the same; return when its groups are asked."""
    paths = [str(Path(__file__).parents[number]) for number in (1, 0)]
    code = ASKS.format(paths=paths, does=does)
    process = subprocess.Popen(
        [sys.executable, "-c", code, url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    return process


def test_another_process_waits_for_the_draw(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with another_process(url, "time.sleep(0.1)") as process:
        budget, model = account(url), ScriptedModel(reply=reply)
        answer = made(budget, model=model).invoke(QUESTION)
        process.communicate()
    assert (record(answer)["status"], group_calls(model)) == ("cached", 0)
    assert used(budget) == 1


def test_a_killed_owner_is_not_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with another_process(url, "os.kill(os.getpid(), signal.SIGKILL)") as process:
        budget = account(url)
        started = time.monotonic()
        answer = made(budget).invoke(QUESTION)
        assert time.monotonic() - started < answers.LONGEST_WAIT_S / 10
    assert process.returncode == -signal.SIGKILL
    assert (record(answer)["status"], record(answer)["charge"]) == ("released", 2)


def test_a_wait_has_a_public_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "LONGEST_WAIT_S", 0.2)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with another_process(url, "time.sleep(600)") as process:
        answer = made(account(url)).invoke(QUESTION)
        process.kill()
    assert (record(answer)["status"], record(answer)["charge"]) == ("released", 2)


def test_a_question_without_an_answer_is_paid_once() -> None:
    budget = account()
    model = ScriptedModel(reply=lambda text: "none of these")
    chain = made(budget, model=model)
    found = [record(chain.invoke(QUESTION)) for _ in range(3)]
    assert used(budget) == 1
    assert len({one["status"] for one in found}) == 1
    reasons = {one["details"]["reason"] for one in found}
    assert len(reasons) == 1
    assert [one["charge"] for one in found] == [1, None, None]


def test_failed_calls_are_made_again_for_another_charge() -> None:
    down = True

    def answer(text: str) -> str:
        if down and "Lisinopril" in text:
            raise ValueError("down")
        return reply(text)

    budget = account()
    chain = made(budget, model=ScriptedModel(reply=answer))
    assert record(chain.invoke(QUESTION))["charge"] == 1
    down = False
    answer_of = chain.invoke(QUESTION)
    assert (answer_of.content, record(answer_of)["charge"]) == ("cough", 2)


class Odd(VoteOutputParser):
    """Does as told with its first draw."""

    does: Callable[[int], Any] = lambda _: None
    drawn: list[int] = []  # noqa: RUF012

    def release(self, *slots: Any, **terms: Any) -> Outcome:
        super().release(*slots, **terms)
        self.drawn.append(1)
        found = self.does(len(self.drawn))
        return found or Outcome(Status.RELEASED, f"draw {len(self.drawn)}")


def fails(count: int) -> None:
    if count == 1:
        raise ValueError("private")


def unstorable(count: int) -> Outcome | None:
    details = {"odd": object()}
    return Outcome(Status.RELEASED, "odd", details=details) if count == 1 else None


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("does", [fails, unstorable])
async def test_a_draw_that_fails_by_itself_is_not_drawn_until_it_works(
    does: Any, is_async: bool
) -> None:
    budget, parser = account(), Odd(labels=["a", "b"], drawn=[], does=does)
    chain = made(budget, parser)
    with pytest.raises(GroupCallError):
        await ask(chain, is_async=is_async)
    assert record(await ask(chain, is_async=is_async))["charge"] == 2


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 3_000_000])
async def test_whatever_is_drawn_can_be_stored(
    text: str, is_async: bool, tmp_path: Path
) -> None:
    def odd(_: int) -> Outcome:
        return Outcome(Status.RELEASED, text)

    budget = account(f"sqlite:///{tmp_path / 'ledger.db'}")
    chain = made(budget, Odd(labels=["a", "b"], drawn=[], does=odd))
    found = [(await ask(chain, is_async=is_async)).content for _ in range(2)]
    assert found == [text, text]
    assert used(budget) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_could_not_be_stored_is_shown_nowhere_and_paid_anew(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = account(MemoryLedger())
    chain = made(budget, Odd(labels=["a", "b"], drawn=[]))

    def full(*_: Any) -> str:
        raise LedgerError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryLedger, "store_step", full)
        with pytest.raises(LedgerError, match="full") as caught:
            await ask(chain, is_async=is_async)
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    frames = [line for line in shown.format() if "test_answer_owner" not in line]
    assert "draw 1" not in "".join(frames)
    assert (await ask(chain, is_async=is_async)).content == "draw 2"
    assert used(budget) == 2


def test_a_wording_that_fails_is_worded_again_and_a_whole_one_is_kept() -> None:
    says = iter([ValueError("down"), "They cough.", "Something else."])

    def worded(text: str) -> str:
        if "word suggestions" not in text:
            return reply(text)
        said = next(says)
        if isinstance(said, Exception):
            raise said
        return said

    budget = account()
    chain = made(budget, KSAPTROutputParser(k=1), model=ScriptedModel(reply=worded))
    texts = [str(chain.invoke(QUESTION).content) for _ in range(3)]
    assert texts == ["cough", "They cough.", "They cough."]
    assert used(budget) == 1


def test_what_is_forgotten_is_charged_again() -> None:
    ledger = MemoryLedger()
    budget, other = account(ledger), account(ledger, account="other")
    chain = made(budget, KSAPTROutputParser(k=1))
    for asked in (chain, made(other, KSAPTROutputParser(k=1))):
        asked.invoke(QUESTION)
    assert (forget(ledger, "default"), forget(ledger, "default")) == (1, 0)
    assert record(chain.invoke(QUESTION))["charge"] == 2
    assert record(chain.invoke(QUESTION))["details"]["first"]["charge"] == 2
    assert forget(ledger, "other") == 1
    with pytest.raises(DPError, match="no account"):
        forget(ledger, "unknown")
