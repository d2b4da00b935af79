"""Every example runs and shows what it says."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# What noise can't change.
SHOWN = {
    "agent_tool.py": ["calls ask_notes", "can't ask the notes any more", "of 4"],
    "fastapi_service.py": ["event: record", "402 refused", "queries_spent 8"],
    "few_shot_generation.py": [
        "Written at epsilon 4.00",
        "examples of the instruction alone",
        "private examples",
        "Spent: epsilon 4.00",
    ],
    "lasting_service.py": ["11 refused", "unit    second time:", "cached"],
    "mcp_server.py": [
        "has the tool ask_notes",
        "epsilon 4.00)",
        "refused: Not answered",
    ],
    "private_tables.py": [
        "Every column is known to",
        "The age is 5",
        "-> comes back",
        "6000 report(s) at epsilon 6",
        "Spent: epsilon 1.00 by the hospital, epsilon 6.00 by each patient",
    ],
    "released_facts.py": [
        "240 notes, 241 calls",
        "Most frequent side effect of patients on lisinopril",
        "Facts answered 3 questions; the account of questions was charged for 0",
        "Spent: epsilon 3.00",
    ],
    "rag_before_after.py": ["Private phone number of Theo Ivanova: 555-", "refused:"],
    "tour.py": [
        "5 charges",
        "patients took part in 1 answer of",
        "notes removed: 4",
        "salbutamol",
    ],
    "ticket_classification.py": ["no examples", "1020 model calls", "349 more"],
}


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [name])
    # Whatever an example writes into the environment is taken back.
    monkeypatch.setattr("os.environ", os.environ.copy())
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    shown = capsys.readouterr().out
    for expected in SHOWN[name]:
        assert expected in shown
    # Phone numbers are in the one chain that is not private, and in the note shown.
    leaks = name in {"rag_before_after.py", "tour.py"}
    assert shown.count("555-") == leaks


def test_every_benchmark_can_be_imported() -> None:
    folder = EXAMPLES.parent / "benchmarks"
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__main__")
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]
