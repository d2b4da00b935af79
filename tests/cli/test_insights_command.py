"""`dpicl insights`: what it saves, prints and charges, and what it never prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from scripted import ScriptedModel
from support.insurance_chats import names, people

from langchain_dpicl.cli import insights as command
from langchain_dpicl.cli import main
from langchain_dpicl.demo import RecordedReader
from langchain_dpicl.insights import Insights, Topics

LEDGER = "sqlite:///insights.db"
NUMBER = "+49 151 5550 8841"
ABOUT = "The assistant of an insurer."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "load_model", lambda _: RecordedReader())
    kept = ("user", "chats")
    lines = [json.dumps({name: one[name] for name in kept}) for one in people()[:80]]
    Path("chats.jsonl").write_text("\n".join(lines))
    return tmp_path


def run(*options: str, file: str = "chats.jsonl") -> int:
    return main(["insights", file, "--unit-key", "user", *options])


def test_it_releases_once_and_saves_a_page_and_the_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Topics.of(names(), ABOUT).save("topics.json")
    saved = ("--out", "page.html", "--out", "found.json", "--epsilon", "8")
    assert run(*saved) == 0
    printed = capsys.readouterr().out
    found = Insights.load("found.json")
    first = found.topics[0]
    assert f"{first.name}" in printed
    assert f"{first.count} ± {first.error}" in printed
    assert "comes out if at least" in printed  # The forecast stands before it.
    assert "Wrote page.html." in printed
    assert Path("page.html").read_text() == found.html()
    assert main(["ledger", "list", "--ledger", LEDGER, "--json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert (account["account"], account["queries_spent"]) == ("insights", 1)

    assert run(*saved) == 1  # The account is for one release,
    assert "BudgetExhaustedError" in capsys.readouterr().err
    assert run(*saved, "--resume", "--json") == 0  # which is given again.
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["topics"]] == [one.name for one in found.topics]
    assert told["too_few"] == list(found.too_few)

    more = ("--account", "next", "--previous", "found.json", "--by", "plan=basic,plus")
    assert run(*more, "--out", "next.html", "--next-topics", "next.json") == 0
    page = Path("next.html").read_text()
    assert "since " in page
    assert "By plan" in page
    assert Topics.load("next.json").names == tuple(names())


def test_without_topics_it_drafts_them_and_a_plan_charges_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = ["# Money\n- refunds\n- late fees", "none", "none", "none"]
    model = FakeListChatModel(responses=drafts)
    monkeypatch.setattr(command, "load_model", lambda _: model)
    assert run("--plan") == 1
    assert "--about" in capsys.readouterr().err
    assert run("--plan", "--about", ABOUT, file="none.jsonl") == 0
    printed = capsys.readouterr().out
    assert "Money\n  refunds\n  late fees" in printed
    assert "Nothing was charged." in printed
    assert Topics.load("topics.json") == Topics.of(
        {"Money": ["refunds", "late fees"]}, ABOUT
    )
    assert run("--plan", "--json", "--people-at-most", "500") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["forecast"]["people"] == 500
    assert not Path("insights.db").exists()


@pytest.mark.parametrize("answer", ["n", "y"])
def test_at_a_terminal_it_asks_before_the_charge(
    answer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Topics.of(names()).save("topics.json")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda text: print(text) or answer == "y")  # noqa: T201
    assert run("--out", "page.html") == 0
    printed = capsys.readouterr().out
    assert "Charge epsilon 3 to account 'insights'" in printed
    assert Path("page.html").exists() == (answer == "y")
    assert ("Nothing was charged" in printed) == (answer == "n")


def test_a_page_that_can_not_be_made_is_refused_before_the_charge(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Topics.of(names()).save("topics.json")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run("--out", "page.html") == 1
    assert "Jinja2" in capsys.readouterr().err
    assert not Path("insights.db").exists()


@pytest.mark.parametrize("option", ["--out", "--next-topics"])
def test_a_place_that_can_not_be_written_is_refused_before_the_charge(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Topics.of(names()).save("topics.json")
    assert run(option, "nowhere/next.json") == 1
    assert "another path" in capsys.readouterr().err
    assert not Path("insights.db").exists()


def failing(prompt: Any) -> str:
    raise ValueError(f"can't read {prompt}")


@pytest.mark.parametrize(
    ("lines", "options", "told"),
    [
        ([f'{{"user": "a", "text": "{NUMBER}'], (), "Line 1 is not a JSON object"),
        ([json.dumps({"text": NUMBER})], (), "UnitError"),
        ([json.dumps({"user": [NUMBER], "text": NUMBER})], (), "UnitError"),
        ([], (), "UnitError"),
        ([json.dumps({"user": NUMBER, "text": NUMBER})], (), "PublicCallError"),
        ([json.dumps({"user": NUMBER, "text": NUMBER})], ("--epsilon", "0"), "epsilon"),
        ([json.dumps({"user": NUMBER, "text": NUMBER})], ("--out", "a.pdf"), ".pdf"),
        (
            [json.dumps({"user": NUMBER, "text": NUMBER})],
            ("--by", "plan"),
            "by must be",
        ),
    ],
)
def test_a_failing_command_never_prints_a_record(
    lines: list[str],
    options: tuple[str, ...],
    told: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Topics.of(names()).save("topics.json")
    Path("odd.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(command, "load_model", lambda _: ScriptedModel(script=failing))
    for more in ((), ("--json",)):
        assert run(*options, *more, file="odd.jsonl") == 1
        printed = "".join(capfd.readouterr())
        assert told in printed
        assert NUMBER not in printed
