"""`dpicl audit snapshot`: a chain of the user's module, audited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from langchain_dpicl.audit import AuditReport
from langchain_dpicl.cli.commands import main

MODULE = """
from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
from support.audit_chains import chain_of, groups_of, people

chain = chain_of(VoteOutputParser(labels=["cough", "rash"]))
bound = chain.model_copy(update={"budget": None}).with_config(
    callbacks=[chain.budget]
)


class Double(VoteOutputParser):
    def counts(self, slots, labels):
        return [2 * count for count in super().counts(slots, labels)]


broken = chain_of(Double(labels=["cough", "rash"]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audited_app.py").write_text(MODULE)
    Path("questions.txt").write_text("What did lisinopril give?\n\nWhich was seen?\n")
    Path("ids.txt").write_text("unit-0\nunit-9\n")
    record = {"text": "Lisinopril gave a rash.", "patient": "new"}
    Path("made-up.jsonl").write_text(json.dumps(record) + "\n")
    return tmp_path


def test_it_prints_and_saves_the_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "snapshot", "audited_app:chain", "--questions", "questions.txt"]
    words += ["--canaries", "ids.txt", "--out", "audit.html", "--out", "audit.json"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("What 2 people lose by 2 questions")
    assert "unit-9" in printed
    saved = AuditReport.load(folder / "audit.json")
    assert {row[0] for row in saved.rows} == {"unit-0", "unit-9"}
    assert "unit-0" in (folder / "audit.html").read_text()


@pytest.mark.parametrize(
    ("words", "people"),
    [(["--canaries", "made-up.jsonl"], 1), (["--units", "3"], 3)],
)
def test_json_for_other_people_and_bound_accounts(
    folder: Path, words: list[str], people: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.exists()
    start = ["audit", "snapshot", "audited_app:bound", "--questions", "questions.txt"]
    assert main([*start, *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind_of_audit"] == "snapshot"
    assert len(found["rows"]) == people


def test_the_status_is_1_where_the_claim_is_exceeded(folder: Path) -> None:
    assert folder.exists()
    words = ["audit", "snapshot", "audited_app:broken", "--questions", "questions.txt"]
    assert main([*words, "--units", "12", "--json"]) == 1


def test_what_is_missing_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.exists()
    words = ["audit", "snapshot", "audited_app:chain", "--questions", "questions.txt"]
    with pytest.raises(SystemExit):
        main(words)
    (folder / "ids.txt").write_text("unit-99\n")
    assert main([*words, "--canaries", "ids.txt", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["error"] == "UnitError"
    assert "unit-99" not in said["message"]
