"""What the processes of these tests do: each function runs in a process of its own.

A worker tells what its ledger has acknowledged, one line each, as it happens.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

from faces import BudgetExhaustedError, Charge, CorpusTerms, LedgerError, open_account
from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool
from worlds import UNIT

PEOPLE = [f"someone-{number}" for number in range(5)]
UNITS = {"queries": 3, "scope": "unit"}
QUERIES, PROCESSES, TURNS = 40, 6, 10
CAP = CorpusTerms("clinic", UNIT, epsilon=24.0, delta=3e-6)

Say = Callable[..., None]
CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["psycopg", "integration_tests.ledger.warm"])


def _run(function: Any, log: Path, arguments: Any) -> None:
    def say(**what: Any) -> None:
        line = json.dumps({**what, "process": os.getpid()}) + "\n"
        os.write(file, line.encode())

    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    function(say, *arguments)


def run(function: Any, log: Path, *arguments: Any, processes: int = 1) -> list[Any]:
    """Run a worker in so many processes; return what was told, and how they ended."""
    # The server that forks them takes the path from its environment alone.
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()
    log.unlink(missing_ok=True)
    log.touch()
    workers = [
        CONTEXT.Process(target=_run, args=(function, log, arguments))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode in (0, -signal.SIGKILL), "a worker hangs, or has failed"
    return [json.loads(line) for line in log.read_text().splitlines()]


def ask_once(say: Say, url: str, point: int, is_early: bool) -> None:
    """Open, charge, collect and draw; be killed at a point, counted from the start.

    The points lie before each statement and each commit, and after each commit.
    """
    reached = 0

    def reach(*_: Any) -> None:
        nonlocal reached
        reached += 1
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for target, name in (
        (Engine, "before_cursor_execute"),
        (Engine, "commit"),
        (Pool, "checkin"),
    ):
        event.listen(target, name, reach)
    account = open_account(url, **UNITS)
    say(opened=reached)
    if is_early:
        say(charged=1)
    charge = Charge(account, key="a question")
    say(charged=charge.number)
    say(paid=sorted(charge.collect(PEOPLE)))
    say(drawn=charge.once(lambda: secrets.token_hex(4)))
    say(points=reached)


def charge_all(say: Say, url: str, start: Any) -> None:
    """Charge as often as there is something left, and a little more."""
    account = open_account(url, queries=QUERIES)
    start.wait()
    for _ in range(TURNS):
        try:
            charge = Charge(account)
            say(charged=charge.number, drawn=charge.once(lambda: secrets.token_hex(4)))
        except BudgetExhaustedError:
            say(refused=True)


def charge_without_lock(say: Say, url: str, start: Any) -> None:
    """A twin of `charge_all`: count in a file that nobody locks."""
    counter = Path(url.removeprefix("sqlite:///"))
    start.wait()
    for _ in range(TURNS):
        number = 1 + int(counter.read_text() if counter.exists() else 0)
        time.sleep(0.001)
        counter.write_text(f"{number}")
        say(charged=number, drawn=secrets.token_hex(4))


def collect_all(say: Say, url: str, start: Any) -> None:
    """Collect from everybody, as often as there is something left."""
    account = open_account(url, **UNITS)
    start.wait()
    for _ in range(TURNS):
        say(paid=sorted(Charge(account).collect(PEOPLE)))


def ask_the_same(say: Say, url: str, start: Any) -> None:
    """Ask the same few questions as all others do, with slow draws."""
    account = open_account(url, queries=QUERIES)
    start.wait()
    for turn in range(4):
        charge = Charge(account, key=f"question {turn}")

        def draw() -> str:
            time.sleep(secrets.randbelow(50) / 1000)
            drawn = secrets.token_hex(4)
            say(drew=drawn)
            return drawn

        drawn = charge.once(draw)
        say(charged=charge.number, question=turn, drawn=drawn)


def open_first(say: Say, url: str, start: Any) -> None:
    """Open an account under a cap that has room for three, and charge it."""
    start.wait()
    try:
        account = open_account(url, f"{os.getpid()}", queries=2, corpus=CAP)
        Charge(account).give_up()
        say(charged=1)
    except BudgetExhaustedError:
        say(refused=True)


def fill_disk(say: Say, url: str) -> None:
    """Charge until the system refuses to write more, in vain, and then with room."""
    account = open_account(url, queries=500)
    Charge(account).give_up()
    size = Path(url.removeprefix("sqlite:///")).stat().st_size
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for limit in (size + 3000, hard):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        for _ in range(15):
            try:
                charge = Charge(account)
                say(charged=charge.number)
                say(drawn=charge.once(lambda: "long " * 100), number=charge.number)
            except LedgerError:
                say(refused=limit == hard)
