"""One owner draws for a charge; others wait; a dead one is replaced and stores nothing.

Processes share a ledger in a file. The twin lets the quicker of two draws win.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from suite import WHOLE

from langchain_dpicl import LedgerError, PrivacyBudgetHandler
from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.budget import charges, owners

VOTE = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def opened(ledger: Any = ":memory:", **terms: Any) -> PrivacyBudgetHandler:
    terms = {"epsilon": 8, "delta": 1e-6, "queries": 500, **terms}
    return PrivacyBudgetHandler(ledger=ledger, **terms)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def start(url: str, work: str) -> subprocess.Popen[str]:
    """Start a process that has opened the account as `budget`."""
    begin = (
        "import os, sys, time, random\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        f"from test_owners import VOTE, opened\nbudget = opened({url!r})\n"
    )
    command = [sys.executable, "-c", begin + work]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


ASK = """
def draw():
    print("drawn", flush=True)
    time.sleep(0.3)
    return random.getrandbits(60)

with budget.buy(VOTE, key="q") as paid:
    print(paid.once(draw), flush=True)
"""


def test_of_several_processes_one_pays_and_draws(url: str) -> None:
    budget = opened(url)
    workers = [start(url, ASK) for _ in range(3)]
    lines = [line for one in workers for line in one.communicate()[0].split()]
    assert lines.count("drawn") == budget.spent().queries == 1
    assert len({line for line in lines if line != "drawn"}) == 1


HANG = 'paid = budget.buy(VOTE, key="q", steps=STEPS, resumable=STEPS > 1)\n'
HANG += 'paid.once(lambda: "first") if STEPS > 1 else None\n'
HANG += 'print("bought", flush=True)\ntime.sleep(600)\n'


@pytest.mark.parametrize("steps", [1, 2])
def test_a_killed_owner_is_replaced(url: str, steps: int) -> None:
    budget = opened(url)
    worker = start(url, HANG.replace("STEPS", str(steps)))
    assert worker.stdout is not None
    worker.stdout.readline()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(
            budget.buy, VOTE, key="q", steps=steps, resumable=steps > 1
        )
        time.sleep(0.3)
        assert not waiter.done()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        paid = waiter.result(10)
    worker.stdout.close()
    # A single draw is charged anew; of several the stored ones stay.
    assert (paid.charge, paid.steps) == ((2, ()) if steps == 1 else (1, ("first",)))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_replaced_owner_shows_and_stores_nothing(steps: int) -> None:
    budget, others = opened(), set(owners._at_work)
    first = budget.buy(VOTE, key="q", steps=steps, resumable=steps > 1)
    (token,) = owners._at_work - others
    owners.end(token)
    second = budget.buy(VOTE, key="q", steps=steps, resumable=steps > 1)
    owners._at_work.add(token)
    with pytest.raises(LedgerError, match="Another owner draws"):
        first.once(lambda: "late")
    assert second.once(lambda: "new") == "new"
    with pytest.raises(LedgerError):
        first.once(lambda: "later")
    stored = charges(budget.ledger, "default")
    assert [c.values for c in stored] == [()] * (2 - steps) + [("new",)]
    budget.ledger.verify()


def test_an_owner_on_another_machine_has_a_public_time() -> None:
    elsewhere = "another:1:1:token"
    assert owners.is_alive(elsewhere, owners.SILENCE - 1)
    assert not owners.is_alive(elsewhere, owners.SILENCE)
    here = owners.public_name(owners.begin())
    assert owners.is_alive(here, 1e9)
    owners.end(here.rpartition(":")[2])
    assert not owners.is_alive(here, 0)
    assert not owners.is_alive("", 0)


def test_waiting_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = opened()
    monkeypatch.setattr(owners, "SILENCE", 0.2)
    with budget.buy(VOTE, key="q") as paid:
        with pytest.raises(LedgerError, match=r"charge 1 .* nothing for 0\.2 sec"):
            budget.buy(VOTE, key="q")
        assert paid.once(lambda: "slow") == "slow"
    assert budget.spent().queries == 1


def test_a_fork_does_not_draw_what_its_parent_has_bought(url: str) -> None:
    budget = opened(url)
    paid = budget.buy(VOTE, key="q")
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        signal.alarm(10)
        try:
            paid.once(lambda: "child's")
        except LedgerError:
            paid.leave()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert paid.once(lambda: "parent's") == "parent's"


# The twin of the toy in which one person's slot decides which draw is quicker: each
# draw has its own speed, and the slow one comes first.
def two_draws(budget: PrivacyBudgetHandler, *, quicker_wins: bool) -> list[Any]:
    shown: list[Any] = []

    def ask(turn: int) -> None:
        time.sleep(0.05 * turn)

        def draw() -> str:
            time.sleep(0 if turn else 0.4)
            return f"draw {turn}"

        if quicker_wins:
            shown.append(draw())
        else:
            with budget.buy(VOTE, key="q") as paid:
                shown.append(paid.once(draw))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ask, range(2)))
    return shown


def test_the_slow_draw_that_was_paid_first_counts() -> None:
    assert two_draws(opened(), quicker_wins=False) == ["draw 0", "draw 0"]


def test_twin_the_quicker_draw_wins() -> None:
    assert two_draws(opened(), quicker_wins=True)[0] == "draw 1"


# -- killed at each statement ----------------------------------------------------------


def killed_after(url: str, last: int) -> list[str]:
    """Return what a process shows that dies after so many statements and commits."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child:
        os.close(sender)
        with os.fdopen(receiver) as lines:
            shown = lines.read().split()
        os.waitpid(child, 0)
        return shown
    # A lock that another thread held at the fork is never let go: then it dies here.
    signal.alarm(10)
    try:  # pragma: no cover - in the child
        statements = itertools.count(1)

        def count(*_: Any) -> None:
            if next(statements) == last:
                os._exit(9)

        event.listen(Engine, "after_cursor_execute", count)
        event.listen(Engine, "commit", count)
        budget = opened(url)
        with budget.buy(VOTE, key="text", steps=2, resumable=True) as paid:
            for word in ("a", "b"):
                os.write(sender, f"{paid.once(lambda w=word: w)}\n".encode())
        with budget.buy(VOTE, key="answer") as paid:
            os.write(sender, f"{paid.once(lambda: 'c')}\n".encode())
            os.write(sender, f"{paid.keep_note('d')}\n".encode())
    finally:
        os._exit(0)


def test_a_crash_after_any_statement_loses_nothing_that_was_shown() -> None:
    ends: set[int] = set()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for last in (*range(1, 100, 1 if WHOLE else 3), 10**6):
            url = f"sqlite:///{folder}/{last}.db"
            opened(url).ledger.dispose()
            shown = killed_after(url, last)
            budget = opened(url)
            before = budget.spent().queries or 0
            budget.ledger.verify()
            text = budget.buy(VOTE, key="text", steps=2, resumable=True)
            words = [text.once(lambda: "x") for _ in range(2)]
            answer = budget.buy(VOTE, key="answer")
            words += [answer.once(lambda: "x"), answer.note or "x"]
            assert words[: len(shown)] == shown
            # A lost single draw is charged anew, lost steps are not.
            assert 2 <= (budget.spent().queries or 0) <= before + 2
            assert text.charge == 1
            budget.ledger.verify()
            budget.ledger.dispose()
            ends.add(len(shown))
    assert ends == {0, 1, 2, 3, 4}
