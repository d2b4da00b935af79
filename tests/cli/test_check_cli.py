"""`dpicl check module:chain`, as a user runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl.cli import main

APP = """
from langchain_core.documents import Document
from support.fakes import ScriptedModel

from langchain_dpicl import (
    DPChain, PrivacyBudgetHandler, RetrievedGroups, VoteOutputParser
)
from langchain_dpicl.offline import HashingEmbeddings

groups = RetrievedGroups.from_documents(
    [Document(f"canary-{i}", metadata={"person": i}) for i in range(90)],
    HashingEmbeddings(), unit_key="person", n_groups=30,
)


def made(**more):
    model = ScriptedModel(reply=lambda _text: more.get("says", "beans"))
    parser = VoteOutputParser(labels=["beans", "peas"])
    return DPChain(groups=groups, model=model, parser=parser)


def make():
    return made()


class space:
    chain = made(says="what?").with_config(callbacks=[
        PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=5, ledger=":memory:")
    ])


chain = made().with_config(callbacks=[
    PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=5, ledger=":memory:", account="mine"
    )
])
number = 3


def fails():
    raise ValueError("canary-in-an-error")
"""


@pytest.fixture(autouse=True)
def _app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app_to_check.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "app_to_check", raising=False)


def run(name: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    status = main(["check", name, *more, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_chain_is_checked_with_the_account_that_is_bound_to_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, report = run("app_to_check:chain", capsys, "--question", "What?")
    assert (status, report["ok"], report["findings"]) == (0, True, {})
    assert (report["question"], report["reply"]) == ("What?", "beans")
    assert "canary" not in json.dumps(report)
    said = ["--record", "Otters swim."]
    status, report = run("app_to_check:space.chain", capsys, *said)
    assert (status, report["ok"], [*report["findings"]]) == (1, False, ["format"])


def test_a_function_may_make_the_chain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "app_to_check:make"]) == 0
    assert "Ready" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("app_to_check", "MODULE:NAME"),
        ("app_to_check:nothing", "nothing"),
        ("no_such_module:chain", "no_such_module"),
        ("app_to_check:number", "int"),
        ("app_to_check:fails", "ValueError"),
    ],
)
def test_what_is_no_chain_is_named(
    name: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = list(sys.path)
    status, report = run(name, capsys)
    assert status == 1
    assert why in report["message"]
    assert "canary" not in report["message"]
    assert sys.path == path
