"""The page on renewing runs: its Python, then its commands, on one ledger."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.check_types import ROOT, blocks

PAGE = ROOT / "docs" / "operate" / "renew.md"


def test_a_spent_account_is_renewed_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(PAGE):
        exec(compile(block, str(PAGE), "exec"), namespace)  # noqa: S102 - our own docs
    printed = capsys.readouterr().out.splitlines()
    month, after = str(namespace["month"]), str(namespace["next_budget"].account)  # type: ignore[attr-defined]
    assert printed[0] == f"Renew clinic/{month}"
    assert "has spent all 2 queries" in printed[1]
    assert all(f"# {line}" in PAGE.read_text() for line in printed[2:])

    commands = PAGE.read_text().partition("```sh\n")[2].partition("```")[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", commands],  # noqa: S607 - the page's shell
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    assert '"queries_spent": 2' in done.stdout
    assert f"There is already account '{after}'" in done.stdout
    assert "epsilon 20, delta 5e-06 within any 90 days" in done.stdout
    assert "epsilon 4, delta 1e-06" in done.stdout
    assert done.stdout.count("whole") == 2
