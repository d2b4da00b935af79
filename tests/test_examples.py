"""Every example runs and shows what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

SHOWN = {
    "lasting_service.py": ["11 refused", "unit    second time:", "cached"],
    "private_rag.py": ["555-", "after:  I don't know.", "refused:"],
    "private_exemplars.py": ["delivery", "billing", "of 3"],
}


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    shown = capsys.readouterr().out
    for expected in SHOWN[name]:
        assert expected in shown
