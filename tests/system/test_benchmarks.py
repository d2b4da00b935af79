"""`python -m benchmarks`: it knows every script, runs some, and keeps their tables."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_list_names_every_script_that_the_pages_name() -> None:
    listed = command().stdout
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"benchmarks/((?:bench|utility|audit)_\w+)\.py", pages))
    assert len(named) > 10
    for name in named:
        script = (ROOT / "benchmarks" / f"{name}.py").read_text()
        # One that others import prints nothing by itself.
        assert (name in listed) == ("def main(" in script), name


def test_a_run_keeps_its_tables_with_the_versions(tmp_path: Path) -> None:
    done = command("run", "bench_import", "--quick", "--json", str(tmp_path))
    assert not done.returncode, done.stderr[-2000:]
    found = json.loads((tmp_path / "bench_import.json").read_text())
    assert found["versions"]["python"] == sys.version.split()[0]
    assert found["tables"]
    for table in found["tables"]:
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        # What was kept is what was printed.
        assert table["rows"][0][0].split()[0] in done.stdout


def test_the_speed_table_reads_figures_with_their_units_and_verdicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    speed = importlib.import_module("speed")
    for row in speed.targets():
        assert (ROOT / "benchmarks" / f"{row.script}.py").exists(), row
        re.compile(row.line)
    row = next(r for r in speed.targets() if r.what.startswith("charge, SQLite"))
    table = {
        "columns": ["figure", "ours", "compared with", "theirs", "ratio", "target"],
        "rows": [
            ["charge, durable in SQLite, 2 processes", "1,234/s", "bare", "9/s", "", ""]
        ],
    }
    [met] = speed.found(row, [table])
    assert (met.figure, met.met, met.reference) == (1234, True, "bare 9/s")
    table["rows"][0][1] = "12.5 ms"
    [missed] = speed.found(row, [table])
    assert (missed.figure, missed.met) == (0.0125, False)
    # A line that is not there is a miss, and not silence.
    [absent] = speed.found(row, [])
    assert (absent.figure, absent.met) == (None, False)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "utility_tables"), 0, "Skipped: it needs --data"),
        (("run", "utility_moon"), 2, "There is no utility_moon"),
        (("run",), 2, "Name benchmarks"),
    ],
)
def test_what_cannot_run_says_why(
    words: tuple[str, ...], status: int, said: str
) -> None:
    done = command(*words)
    assert done.returncode == status
    assert said in done.stdout + done.stderr


def test_every_benchmark_can_be_imported() -> None:
    folder = ROOT / "benchmarks"
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
