"""`python -m benchmarks`: the list, what can be imported, and one that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = (
    *("chain", "ledger", "mechanisms", "search", "tables"),
    *("utility_answers", "utility_tables", "utility_few_shot", "utility_facts"),
    *("insights", "models"),
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_list_names_all_and_each_can_be_imported() -> None:
    listed = run("-m", "benchmarks").stdout
    assert all(f"| {name} " in listed for name in NAMES), listed
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert files == {*NAMES, "common", "__main__"}
    done = run("-c", "".join(f"import benchmarks.{name}\n" for name in NAMES))
    assert not done.returncode, done.stderr[-2000:]


def test_one_runs_and_what_lacks_its_data_says_so() -> None:
    done = run("-m", "benchmarks", "ledger", "--quick")
    assert not done.returncode, done.stderr[-2000:]
    assert "1,000 stored: charge" in done.stdout
    for name in ("utility_tables", "utility_answers", "moon"):
        done = run("-m", "benchmarks", name)
        assert done.returncode == 2
        assert "needs --" in done.stderr or "There is no moon" in done.stderr
