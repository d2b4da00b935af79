"""Options that nobody means, files that are no corpus, readers that go away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.extremes import soon
from support.ledgers import PLANNED, UNIT_PLANNED, opened, spend

from langchain_dpicl.cli import main
from langchain_dpicl.cli.loading import read_corpus
from langchain_dpicl.ledger import Ledger

DEMO = ["demo", "--patients=300", "--groups=50", "--epsilon=20", "--first=1"]
VALUES = ["0", "-1", "2.5", "1" + "0" * 30, "9223372036854775808", "1e-320", "1e400"]
VALUES += ["nan", "inf", "-inf", "x", "", "1-", "3-1", "1-" + "9" * 12, "9" * 5000]

RUN = "import sys; from langchain_dpicl.cli import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def strict(text: str) -> Any:
    """Read JSON as every program does: without NaN and Infinity."""

    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refused)


def ended(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command; return its status, with its output checked for being JSON."""
    with soon(arguments):
        try:
            status = main([*arguments, "--json"])
        except SystemExit as usage:
            return int(str(usage.code))
    told = capsys.readouterr()
    report = strict(told.out)
    assert status in (0, 1)
    assert (status == 1) == ("error" in report)
    if status == 1:
        assert report["message"].strip()
        assert report["error"] != "OSError"
    return status


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "option", ["epsilon", "delta", "queries", "groups", "sampling-rate", "choices"]
)
def test_numbers_of_a_plan(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = ended(["plan", f"--{option}={value}"], capsys)
    if value in ("0", "-1", "x", "", "nan", "-inf"):
        assert status != 0


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "option", ["records-per-group", "tokens-per-record", "price-in", "price-out"]
)
def test_sizes_and_prices_of_a_plan(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ["--records-per-group=8", "--tokens-per-record=50"]
    good += ["--price-in=2", "--price-out=2"]
    status = ended(["plan", *good, f"--{option}={value}"], capsys)
    if value in ("-1", "x", "", "nan", "-inf", "inf", "1e400"):
        assert status != 0


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "option",
    [
        "patients",
        "groups",
        "docs-per-group",
        "first",
        "epsilon",
        "delta",
        "queries",
    ],
)
def test_numbers_of_the_demo(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = ended([*DEMO, f"--{option}={value}"], capsys)
    if value in ("0", "-1", "x", "", "nan", "-inf"):
        assert status != 0


def test_very_many_choices_have_a_lead(capsys: pytest.CaptureFixture[str]) -> None:
    for choices in (2, 10**9, 10**17, 2**63 - 1):
        assert ended(["plan", f"--choices={choices}"], capsys) == 0


RECORD = b'{"text": "A dry cough.", "who": %d}\n'
CORPORA = {
    "latin-1": (RECORD % 1 + b'{"text": "caf\xe9 canary", "who": 2}', "Line 2"),
    "binary": (bytes(range(256)) * 40 + b"canary", "Line 1"),
    "utf-16": ('{"text": "canary", "who": 1}'.encode("utf-16"), "Line 1"),
    "deep": (b'{"text": "canary", "who": ' + b"[" * 200_000, "Line 1"),
    "deep and whole": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "Line 1"),
    "half a character": (b'{"text": "canary \\ud800", "who": 1}', "Line 1"),
    "digits": (b'{"text": "canary", "who": ' + b"9" * 9000 + b"}", "Line 1"),
    "nested unit": (b'{"text": "canary", "who": [[1]]}', "who"),
    "number": (b"7", "Line 1"),
    "null": (b"null", "Line 1"),
    "text is a number": (b'{"text": 7, "who": 1}', "Line 1"),
    "zeros": (b"\0" * 100, "Line 1"),
    "empty": (b"\n \n", "no record"),
    "unit with half a character": (b'{"text": "A", "who": "\\udfff"}', "units"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_files_that_are_no_corpus(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, named = CORPORA[name]
    path = tmp_path / "mine.jsonl"
    path.write_bytes(data)
    arguments = ["demo", f"--corpus={path}", "--unit-key=who", "--question=What?"]
    with soon(name):
        assert main([*arguments, "--json"]) == 1
    report = strict(capsys.readouterr().out)
    assert named in report["message"]
    assert "canary" not in report["message"]


def test_a_byte_order_mark_before_a_record_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes((b"\xef\xbb\xbf" + RECORD % 1) * 2)
    records = read_corpus(str(path), unit_key="who")
    assert [one.page_content for one in records] == ["A dry cough."] * 2


def test_a_question_that_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"".join(RECORD % n for n in range(60)))
    # What a shell passes on for the byte FF.
    wrong = os.fsdecode(b"--question=\xff")
    arguments = ["demo", f"--corpus={path}", "--unit-key=who", wrong]
    arguments += ["--groups=40", "--epsilon=40", "--queries=1"]
    assert ended(arguments, capsys) == 1
    assert not Path(".demo").exists()
    folder = ["demo", f"--corpus={tmp_path}", "--unit-key=who", "--question=What?"]
    assert main(folder) == 1


def test_a_file_of_ids_that_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(Ledger(f"sqlite:///{tmp_path / 'l.db'}"), UNIT_PLANNED).dispose()
    ids = tmp_path / "ids.txt"
    ids.write_bytes(b"ann\nb\xffb\n")
    arguments = ["ledger", "export", "notes", "--units", f"--id-file={ids}"]
    assert ended([*arguments, "--ledger=sqlite:///l.db"], capsys) == 1


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('long') / 'ledger.db'}"
    ledger = Ledger(url)
    for _ in range(150):  # More than a pipe holds.
        spend(ledger, PLANNED.model_copy(update={"queries": 500}))
    ledger.dispose()
    return url


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("plan --json", 0),
        # What is short may be written before the reader goes: it goes at once.
        ("plan", 0),
        ("ledger list", 0),
        ("ledger export notes", 0),
        ("ledger export notes", 1),
        ("ledger show notes", 0),
    ],
)
def test_a_reader_that_goes_away_hears_nothing_more(
    command: str, lines: int, long_ledger: str
) -> None:
    arguments = command.split()
    if arguments[0] == "ledger":
        arguments += ["--ledger", long_ledger]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    # 1 is rich's, which ends the program by itself.
    assert process.wait(60) in (1, 141)
    assert told == b""
