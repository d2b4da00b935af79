"""`python -m benchmarks`: the list, what can be imported, and one that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = (
    *("chain", "ledger", "mechanisms", "search", "tables"),
    *("utility_answers", "utility_tables", "utility_few_shot", "utility_facts"),
    *("insights", "models"),
)


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def run(*words: str) -> int:
    from benchmarks.__main__ import main

    return main(words)


def test_the_list_names_all_and_each_can_be_imported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 0
    listed = capsys.readouterr().out
    assert all(f"| {name} " in listed for name in NAMES), listed
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert files == {*NAMES, "common", "__main__"}
    program = "".join(f"import benchmarks.{name}\n" for name in NAMES)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_one_runs_and_what_lacks_its_data_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("ledger", "--quick") == 0
    assert "100 stored: charge" in capsys.readouterr().out
    for name in ("utility_tables", "utility_answers", "moon"):
        with pytest.raises(SystemExit) as ended:
            run(name)
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert "needs --" in said or "There is no moon" in said
