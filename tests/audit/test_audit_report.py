"""An audit's report: its verdict, its text, its files and its page."""

from __future__ import annotations

import math
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from langchain_dpicl.audit import AuditReport
from langchain_dpicl.errors import InvalidParameterError

REPORT = AuditReport(
    kind="snapshot",
    title="Two questions",
    summary="p-17 <script> loses more than is claimed.",
    is_sound=False,
    claimed={"epsilon": 1.0, "delta": 1e-6},
    measured={"epsilon": math.inf},
    columns=("person", "epsilon", "differs"),
    rows=(("p-17", math.inf, True), ("p-18", 0.25, None)),
    notes=("A note.",),
    parameters={"repeats": 1},
)


def test_its_repr_is_the_verdict_alone() -> None:
    assert repr(REPORT) == "AuditReport(kind='snapshot', is_sound=False)"


def test_its_text_holds_what_was_measured() -> None:
    text = str(REPORT)
    assert "claimed delta: 1.00e-06" in text
    assert "p-17    inf      yes" in text
    assert "p-18    0.250" in text
    assert "* A note." in text


@pytest.mark.parametrize("name", ["audit.json", "deeper/audit.json"])
def test_it_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    REPORT.save(path)
    assert AuditReport.load(path) == REPORT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replace(REPORT, is_sound=True).save(path)
    assert AuditReport.load(path).is_sound


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    REPORT.save(path)
    path.write_text(path.read_text().replace('"is_sound": false', '"is_sound": true'))
    with pytest.raises(InvalidParameterError, match="changed after it was saved"):
        AuditReport.load(path)


def test_its_page_is_whole_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    REPORT.save(path)
    page = path.read_text()
    assert "Exceeds the claim." in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_other_endings_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"not as '\.txt'"):
        REPORT.save(tmp_path / "audit.txt")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidParameterError, match="can't be written"):
        REPORT.save(tmp_path / "file" / "audit.json")
