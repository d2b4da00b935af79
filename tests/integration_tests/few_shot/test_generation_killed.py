"""A generation whose process was killed has lost nothing that was drawn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from unit_tests.few_shot.test_generation import (
    WORDS,
    Words,
    likes,
    planned,
    shown,
    write,
)

KILLED = """
import json, os, signal, sys
from unit_tests.few_shot.test_generation import is_private, likes, planned, write

def killed(text, tokens):
    if is_private(text) and len(tokens) == int(sys.argv[2]):
        print(json.dumps(tokens), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return likes(text, tokens)

write(killed, budget=planned(8.0, ledger=sys.argv[1]))
"""


@pytest.mark.promise("generation-resume", "generation-drawn-once")
@pytest.mark.parametrize("at", [pytest.param(0, marks=pytest.mark.whole), 2])
def test_killed_it_goes_on_with_what_was_drawn(at: int, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, url, str(at)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    budget, model = planned(8.0, ledger=url), Words(WORDS, likes)
    assert budget.spent().queries == 1
    write(model, budget=budget, resume=True)
    assert budget.spent().queries == 1
    drawn = tuple(json.loads(ended.stdout))
    assert any(tokens[:at] == drawn for tokens in shown(model).values())
    budget.ledger.verify("default")
