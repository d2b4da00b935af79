"""Processes that are stopped while they ask: what was acknowledged is stored.

No charge is lost, and no answer that somebody has seen is drawn a second time: the
model answers at random, so a second draw would say something else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from asking_child import chain_of, question
from faces import record
from scripted import AsyncScriptedModel, ScriptedModel

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
Acknowledged = list[tuple[int, dict[str, float], str]]


def started(way: str, file: Path) -> subprocess.Popen[str]:
    """Start a process that asks."""
    places = [
        str(HERE),
        str(TESTS),
        str(TESTS.parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    return subprocess.Popen(
        [sys.executable, str(HERE / "asking_child.py"), way, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
    )


def told(lines: str) -> Acknowledged:
    return [tuple(json.loads(line)) for line in lines.splitlines()]


def check_stored(
    file: Path, acknowledged: Acknowledged, in_flight: int, kind: Any = ScriptedModel
) -> None:
    """Each acknowledged answer was charged, and is given again, as it was."""
    made = chain_of(str(file), kind)
    charged = made.budget.spent().queries
    assert len(acknowledged) <= charged <= len(acknowledged) + in_flight
    for number, votes, _ in acknowledged:
        again = record(made.invoke(question(number)))
        assert again["details"]["noisy_votes"] == votes
        assert again["charge"] is None
    assert made.budget.spent().queries == charged
    assert not made.model.prompts


STOPPED = [
    pytest.param(number, way, marks=marks, id=f"{number.name}-{way}")
    for number, way, marks in (
        (signal.SIGTERM, "async", ()),
        (signal.SIGINT, "sync", ()),
        (signal.SIGKILL, "async", ()),
        (signal.SIGTERM, "sync", pytest.mark.whole),
        (signal.SIGINT, "async", pytest.mark.whole),
        (signal.SIGKILL, "sync", pytest.mark.whole),
    )
]


@pytest.mark.promise("acknowledged-is-stored", "one-draw-a-charge")
@pytest.mark.parametrize(("number", "way"), STOPPED)
def test_what_a_stopped_process_said_is_stored(
    number: signal.Signals, way: str, tmp_path: Path
) -> None:
    """SIGTERM, Ctrl-C and a kill, in the middle of questions."""
    file = tmp_path / "ledger.db"
    process = started(way, file)
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(6)]
    time.sleep(0.013)
    process.send_signal(number)
    began = time.monotonic()
    rest, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    assert process.returncode not in (0, None)
    assert "of person" not in errors
    acknowledged = told("".join(first) + rest)
    if way == "sync":
        check_stored(file, acknowledged, in_flight=1)
    else:
        check_stored(file, acknowledged, in_flight=5, kind=AsyncScriptedModel)
    with pytest.raises(AssertionError):  # The twin: another ledger is in its place.
        check_stored(tmp_path / "other.db", acknowledged, in_flight=5)


@pytest.mark.promise("acknowledged-is-stored", "one-draw-a-charge")
@pytest.mark.parametrize("kind", [ScriptedModel, AsyncScriptedModel])
async def test_questions_that_time_out_lose_nothing(kind: Any, tmp_path: Path) -> None:
    """`asyncio.wait_for` ends some in the middle; the others' answers are stored."""
    file, acknowledged = tmp_path / "ledger.db", list[Any]()
    made = chain_of(str(file), kind, seconds=0.1)
    await made.ainvoke(question(99))
    for number in range(8):
        limit = 0.05 if number % 2 else 30
        try:
            answer = await asyncio.wait_for(made.ainvoke(question(number)), limit)
        except asyncio.TimeoutError:
            continue
        acknowledged.append((number, record(answer)["details"]["noisy_votes"], ""))
    assert len(acknowledged) == 4
    await asyncio.to_thread(check_stored, file, acknowledged, 5, kind)


@pytest.mark.promise("acknowledged-is-stored", "one-draw-a-charge", "fork-safe")
def test_a_fork_in_a_running_server_loses_no_charge(tmp_path: Path) -> None:
    """Parent and children go on asking, each with connections and locks of its own."""
    file = tmp_path / "ledger.db"
    process = started("fork", file)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    acknowledged = told(out)
    askers: dict[str, Any] = {}
    for number, _, who in acknowledged:
        askers.setdefault(who, []).append(number)
    assert {who: len(numbers) for who, numbers in askers.items()} == {
        **{f"thread {n}": 6 for n in (1, 2)},
        **{f"fork {n}": 6 for n in (3, 4)},
    }
    check_stored(file, acknowledged, in_flight=0)
