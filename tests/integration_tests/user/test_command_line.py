"""The command line serves an account from its first question to its report.

Its exit status says whether all is well, `--json` is JSON, a mistake is told in one
sentence, and no command that fails shows a record, an id or a question.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from math import exp
from pathlib import Path
from typing import Any

import pytest
from faces import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    main,
    record,
)
from scipy.stats import norm
from scripted import ScriptedEmbeddings, ScriptedModel
from worlds import QUESTION, UNIT, notes

ROOT = Path(__file__).parents[3]
WORD = "zanzibar"
LEDGER = "--ledger=sqlite:///ledger.db"

Done = subprocess.CompletedProcess[str]


def process(folder: Path, *arguments: str) -> Done:
    """Run a command as a user does, in a folder."""
    return subprocess.run(
        [Path(sys.executable).with_name("dpicl"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def dpicl(folder: Path, *arguments: str) -> Done:
    """Run a command in this process, which has imported everything, in a folder."""
    out, error, before = StringIO(), StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(error):
            status = main(list(arguments))
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        os.chdir(before)
    return Done(arguments, status, out.getvalue(), error.getvalue())


def read(done: Done) -> Any:
    """Return what a command that ended well printed as JSON."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_told(done: Done, status: int) -> None:
    """A mistake: its exit status, and one sentence at the end of stderr."""
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    *usage, sentence = done.stderr.strip().splitlines()
    assert len(sentence.split()) > 3
    assert not [
        line for line in usage if not line.startswith(("usage:", " ", "Ledger:"))
    ]


def check_fails_silently(done: Done) -> None:
    """A failure that says so, and shows nothing that is private."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stdout + done.stderr) > 20
    assert WORD not in (done.stdout + done.stderr).lower()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved index, and a ledger with one answer; all texts hold the secret."""
    folder = tmp_path_factory.mktemp("user")
    documents = notes(text=f"Lisinopril gave a cough. {WORD}")
    for document in documents:
        document.metadata[UNIT] += f"-{WORD}"
    groups = RetrievedGroups.from_documents(
        documents, ScriptedEmbeddings(), unit_key=UNIT, n_groups=60
    )
    groups.save(folder / "index")
    budget = PrivacyBudgetHandler(
        epsilon=30,
        delta=1e-6,
        queries=5,
        ledger=f"sqlite:///{folder / 'ledger.db'}",
        account="notes",
    )
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(script=lambda _prompt: "cough"),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=budget,
        cache=True,
    )
    answer = chain.invoke(f"{QUESTION} {WORD}?")
    assert record(answer)["status"] == "released"
    (folder / "answer.json").write_text(json.dumps(record(answer)))
    budget.ledger.dispose()
    return folder


@pytest.fixture(scope="module")
def damaged(folder: Path) -> Path:
    """A copy of the ledger, whose charge somebody has moved to another day."""
    path = folder / "damaged.db"
    with (
        closing(sqlite3.connect(folder / "ledger.db")) as source,
        closing(sqlite3.connect(path, isolation_level=None)) as target,
    ):
        source.backup(target)
        target.execute("UPDATE dpicl_entry SET at = 0 WHERE kind = 'charge'")
    return path


def test_the_version_is_told(tmp_path: Path) -> None:
    done = process(tmp_path, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()[0].isdigit()


@pytest.mark.promise("demo-shows-both")
def test_the_demo_answers_privately_what_the_ordinary_chain_gives_away(
    tmp_path: Path,
) -> None:
    size = ["--patients=400", "--groups=60", "--docs-per-group=8"]
    shown = read(
        process(tmp_path, "demo", *size, "--epsilon=20", "--first=5", "--json")
    )
    people = [one for one in shown["answers"] if one["kind"] == "person"]
    assert people
    assert all(one["ordinary_leaks"] for one in people)
    assert not any(one["private_leaks"] for one in shown["answers"])
    rest = [one for one in shown["answers"] if one["kind"] == "population"]
    assert 2 * sum(one["private_verdict"] == "right" for one in rest) > len(rest)
    account = shown["account"]
    assert account["queries_spent"] == sum(
        one["is_charged"] for one in shown["answers"]
    )
    assert 0 < account["epsilon_spent"] <= account["epsilon"] == 20


@pytest.mark.promise("command-line-serves")
def test_a_budget_is_planned_with_the_noise_that_it_needs(tmp_path: Path) -> None:
    """By Balle and Wang's formula for the Gaussian mechanism."""
    plan = read(dpicl(tmp_path, "plan", "--json", "--epsilon=8", "--delta=1e-6"))
    votes = [one for one in plan.values() if one["mechanism"] == "vote/gaussian"]
    assert votes
    for vote in votes:
        mu = vote["queries"] ** 0.5 / vote["noise_multiplier"]
        first, second = norm.cdf([mu / 2 - 8 / mu, -mu / 2 - 8 / mu])
        assert first - exp(8) * second == pytest.approx(1e-6, rel=0.01)
        assert vote["noise"] < vote["required_lead"] < vote["groups"] == 100


@pytest.mark.promise("command-line-serves")
def test_an_account_is_listed_shown_checked_copied_and_reported(folder: Path) -> None:
    (listed,) = read(dpicl(folder, "ledger", "list", LEDGER, "--json"))
    shown = read(dpicl(folder, "ledger", "show", "notes", LEDGER, "--json"))
    assert (listed["account"], listed["queries_spent"]) == ("notes", 1)
    (charge,) = shown["charges"]
    assert [event["kind"] for event in charge["events"]] == ["gaussian"]
    copied = dpicl(folder, "ledger", "backup", "copy.db", LEDGER, "--json")
    assert read(copied)["backup"] == "copy.db"
    # The copy is a ledger with the same journal.
    again = dpicl(folder, "ledger", "verify", "--ledger=sqlite:///copy.db", "--json")
    assert [(one["charges"], one["damage"]) for one in read(again)] == [(1, None)]
    report = read(dpicl(folder, "report", "notes", LEDGER, "--format=json"))
    assert report["promise"]["epsilon"] == listed["epsilon"] == 30
    entries = dpicl(folder, "ledger", "export", "notes", LEDGER).stdout.splitlines()
    assert json.loads(entries[-1])["digest"] in json.dumps(report)
    assert WORD not in json.dumps([listed, shown, report]).lower()


@pytest.mark.promise("command-line-serves")
def test_a_saved_answer_is_confirmed_unless_it_was_changed(folder: Path) -> None:
    assert dpicl(folder, "verify", "answer.json", LEDGER).returncode == 0
    changed = json.loads((folder / "answer.json").read_text())
    changed["events"][0]["noise_multiplier"] *= 2
    (folder / "changed.json").write_text(json.dumps(changed))
    check_fails_silently(dpicl(folder, "verify", "changed.json", LEDGER))


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("", 2),
        ("nothing", 2),
        ("plan --epsilon=much", 2),
        ("ledger rewrite notes", 2),
        ("report", 2),
        ("demo --question=What?", 1),
        ("ledger show nobody --ledger=sqlite:///no.db", 1),
    ],
)
@pytest.mark.promise("command-line-serves")
def test_a_mistake_is_told_in_one_sentence(
    tmp_path: Path, arguments: str, status: int
) -> None:
    check_told(dpicl(tmp_path, *arguments.split()), status)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("no-record-in-cli")
@pytest.mark.parametrize(
    ("line", "run"),
    [(f'{{"text": "{WORD}", "person": null}}', process), (f'{{"text": "{WORD}', dpicl)],
)
def test_records_that_cannot_be_read_are_not_shown(
    tmp_path: Path, line: str, run: Callable[..., Done]
) -> None:
    whole = json.dumps({"text": f"A cough. {WORD}", "person": WORD})
    (tmp_path / "records.jsonl").write_text(f"{whole}\n{line}")
    command = ["demo", "--corpus=records.jsonl", "--unit-key=person"]
    command += ["--question=What?"]
    check_fails_silently(dpicl(tmp_path, *command, "--json"))
    check_fails_silently(run(tmp_path, *command))


@pytest.mark.promise("no-record-in-cli")
def test_an_index_that_was_changed_is_not_shown(folder: Path) -> None:
    (path,) = (folder / "index").glob("*.jsonl")
    whole = path.read_text()
    assert WORD in whole
    path.write_text(whole[: len(whole) // 2])
    try:
        done = dpicl(
            folder, "erase", "unit-5", "--index=index", LEDGER, "--account=notes"
        )
        check_fails_silently(done)
    finally:
        path.write_text(whole)


@pytest.mark.promise("no-record-in-cli")
def test_a_question_of_a_damaged_ledger_is_not_shown(
    folder: Path, damaged: Path
) -> None:
    ledger = f"--ledger=sqlite:///{damaged}"
    check_fails_silently(dpicl(folder, "ledger", "verify", ledger))


@pytest.mark.promise("no-record-in-cli", twin=True)
@pytest.mark.parametrize("shown", [f"unit-5-{WORD.upper()}", "Traceback (most recent"])
def test_twin_a_failure_that_shows_a_record_or_its_frames_is_noticed(
    shown: str,
) -> None:
    check_fails_silently(Done([], 1, "", "LedgerError: the charge was changed"))
    with pytest.raises(AssertionError):
        check_fails_silently(Done([], 1, "", f"LedgerError: {shown} was changed"))
