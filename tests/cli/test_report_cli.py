"""`dpicl report`: printed or saved, in three forms, and its exit status."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
from langchain_dpicl.cli import main
from langchain_dpicl.ledger import Ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/reported.db"
    ledger = Ledger(url)
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=20, ledger=ledger, account="notes"
    )
    with budget.buy(VoteOutputParser(labels=["a", "b"]).charge()) as paid:
        paid.once(lambda: "a")
    ledger.dispose()
    return url


@pytest.mark.parametrize("form", ["html", "json"])
def test_it_is_printed_in_two_forms(
    url: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "notes", "--ledger", url, "--format", form]) == 0
    text = capsys.readouterr().out
    if form == "html":
        assert text.startswith("<!doctype html>")
    else:
        assert json.loads(text)["account"] == "notes"


def test_it_is_saved_with_what_it_is_given(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, facts = tmp_path / "report.html", tmp_path / "facts.yaml"
    facts.write_text("controller: Clinic of Riverside\n")
    command = ["report", "notes", "--ledger", url, "--facts", str(facts)]
    folders = ["--audits", str(tmp_path), "--erasures", str(tmp_path)]
    assert main([*command, *folders, "--out", str(out)]) == 0
    assert "The ledger is whole." in capsys.readouterr().out
    assert "Clinic of Riverside" in out.read_text()
    assert main([*command, "--out", str(out), "--format", "json"]) == 1
    assert "goes with a file .json" in capsys.readouterr().err


def test_a_damaged_ledger_is_an_exit_status(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as edited:
        edited.execute("UPDATE dpicl_entry SET at = 0 WHERE kind = 'charge'")
    out = str(tmp_path / "report.json")
    assert main(["report", "notes", "--ledger", url, "--out", out, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["is_whole"] is False
    assert json.loads(Path(out).read_text())["ledger"]["damage"]


def test_an_unknown_account_is_an_error(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "nobody", "--ledger", url]) == 1
    assert "LedgerError" in capsys.readouterr().err
