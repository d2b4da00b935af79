"""A process that asks one question after the other, and says what was answered.

    python asking_child.py WAY SQLITE_FILE

Each line is an acknowledged answer: its number, its noisy votes, and who asked. The
model answers at random, so that two draws for one question are not alike.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from typing import Any

from faces import chain, record
from questions import ASKED, account, clinic, exact_vote, stored
from scripted import AsyncScriptedModel, ScriptedModel

LABELS = ("oak", "elm", "fir", "ash", "yew", "box", "bay", "fig")
GROUPS = 8


def question(number: int) -> str:
    return f"{ASKED} number {number}."


def guess(prompt: str) -> str:
    """Answer at random."""
    return random.choice(LABELS)


def chain_of(
    file: str, kind: Any = ScriptedModel, seconds: float = 0.01, script: Any = guess
) -> Any:
    """Return a chain over the ledger in a file."""
    model = kind(script=script, seconds=seconds)
    budget = account(ledger=f"sqlite:///{file}")
    return chain(stored(clinic(), n_groups=GROUPS), model, exact_vote(LABELS), budget)


def say(number: int, answer: Any, who: str = "") -> None:
    """Acknowledge an answer, in one write."""
    line = json.dumps([number, record(answer)["details"]["noisy_votes"], who])
    os.write(1, f"{line}\n".encode())


def ask(made: Any, first: int, count: int, who: str = "") -> None:
    for number in range(first, first + count):
        say(number, made.invoke(question(number)), who)


async def ask_at_once(made: Any) -> None:
    async def one(number: int) -> None:
        say(number, await made.ainvoke(question(number)))

    for first in range(0, 400, 5):
        await asyncio.gather(*map(one, range(first, first + 5)))


def ask_and_fork(file: str) -> None:
    """Fork while two questions wait for their groups; all processes go on asking."""
    state = {"inside": 0, "open": False}

    def script(prompt: str) -> str:
        if "Records:" in prompt and not state["open"]:
            state["inside"] += 1
            while not state["open"]:
                time.sleep(0.005)
        return random.choice(LABELS)

    made = chain_of(file, script=script)
    threads = [
        threading.Thread(target=ask, args=(made, 1_000 * n, 6, f"thread {n}"))
        for n in (1, 2)
    ]
    for thread in threads:
        thread.start()
    while state["inside"] < 2 * GROUPS:  # Both have paid: no statement is under way.
        time.sleep(0.005)
    children = []
    for n in (3, 4):
        if not (child := os.fork()):
            code = 1
            try:
                state["open"] = True
                ask(made, 1_000 * n, 6, f"fork {n}")
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    state["open"] = True
    for thread in threads:
        thread.join()
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(codes))


def main(way: str, file: str) -> None:
    """Ask in one way."""
    if way == "async":
        asyncio.run(ask_at_once(chain_of(file, AsyncScriptedModel)))
    elif way == "fork":
        ask_and_fork(file)
    else:
        ask(chain_of(file), 0, 400)


if __name__ == "__main__":
    main(*sys.argv[1:])
