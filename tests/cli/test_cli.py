"""The commands, as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel

from langchain_dpicl.cli import main
from langchain_dpicl.cli.loading import load_embedding, load_model
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.sealed import SealedModel

SMALL = ["demo", "--patients", "400", "--groups", "60", "--docs-per-group", "8"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def write(path: Path, records: list[Any]) -> str:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return str(path)


def test_the_demo_continues_its_account_and_stops_when_it_is_spent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*SMALL, "--epsilon", "20", "--queries", "6", "--first", "4"]
    status, first = run(arguments, capsys)
    assert status == 0
    assert len(first["answers"]) == 4
    assert first["stopped"] is None
    assert first["account"]["queries_spent"] == 4
    # What was paid for is given again for nothing.
    arguments[-1] = "8"
    status, second = run(arguments, capsys)
    assert status == 0
    assert [a["status"] for a in second["answers"][:4]] == ["cached"] * 4
    assert "Account 'clinic-400'" in second["stopped"]
    status, third = run(arguments, capsys)
    assert status == 0
    assert third["answers"] == []
    assert "spent all its 6 queries" in third["stopped"]
    assert third["account"]["epsilon_spent"] <= 20


def test_the_ordinary_chain_leaks_and_the_private_one_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, report = run([*SMALL, "--epsilon", "20"], capsys)
    assert status == 0
    assert len(report["answers"]) == 20
    people = [a for a in report["answers"] if a["kind"] == "person"]
    assert len(people) == 4
    assert all(a["ordinary_leaks"] for a in people)
    assert not any(a["private_leaks"] for a in report["answers"])
    assert all(a["status"] == "abstained" for a in people)
    population = [a for a in report["answers"] if a["kind"] == "population"]
    assert sum(a["private_verdict"] == "right" for a in population) >= 12
    assert all("none of these" in a["noisy_votes"] for a in population)
    assert not any(a["noisy_votes"] or a["is_charged"] for a in people)


def test_the_demo_reads_well_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*SMALL, "--epsilon", "20", "--queries", "2", "--first", "3"]) == 0
    shown = capsys.readouterr().out
    for expected in ("Promise", "ordinary", "private", "epsilon so far", "(noisy)"):
        assert expected in shown
    # The draft is the one public call; the lead covers the least one of drafted labels.
    assert "61 model calls a question" in shown
    assert "Stopped." in shown
    assert main(["ledger", "list"]) == 0
    assert "clinic-400" in capsys.readouterr().out


def test_the_demo_ends_with_facts_that_are_paid_for_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*SMALL, "--epsilon", "20", "--first", "1"]
    _, report = run(arguments, capsys)
    facts = report["facts"]
    assert facts["account"]["queries_spent"] == 1
    texts = [answer["answer"] for answer in facts["answers"]]
    assert any("salty food" in text for text in texts)
    # The second time the same facts are given, at no charge.
    _, again = run(arguments, capsys)
    assert again["facts"] == facts
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "Facts: paid for once, asked for nothing" in shown
    assert "Nothing was charged for the questions" in shown


def test_not_to_know_is_no_wrong_answer_and_no_leak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknowing = FakeListChatModel(responses=["I do not know that, I'm afraid."])
    monkeypatch.setattr("langchain_dpicl.cli.demo.load_model", lambda _: unknowing)
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*SMALL, "--epsilon", "20", "--first", "5"]) == 0
    shown = capsys.readouterr().out
    counted = [re.findall(r"\d+ of \d", line) for line in shown.splitlines()]
    assert [each for each in counted if len(each) == 2][:4] == [
        ["0 of 4", "0 of 4"],  # right
        ["0 of 4", "0 of 4"],  # wrong
        ["4 of 4", "4 of 4"],  # no answer
        ["0 of 1", "0 of 1"],  # secrets
    ]


def test_possible_answers_of_your_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"text": f"Customer {i} complains about a damaged parcel.", "who": i}
        for i in range(300)
    ]
    corpus = write(tmp_path / "mine.jsonl", records)
    arguments = ["demo", "--corpus", corpus, "--unit-key", "who", "--groups", "40"]
    arguments += ["--question", "What do they complain about?"]
    status, report = run([*arguments, "--labels", "late, damaged parcel"], capsys)
    assert status == 0
    (answer,) = report["answers"]
    assert (answer["status"], answer["private"]) == ("released", "damaged parcel")
    assert report["account"]["name"] == "mine"
    assert set(answer["noisy_votes"]) == {"late", "damaged parcel", "none of these"}


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([], "no record"),
        ([{"text": "canary-7f3a"}], "--unit-key"),
        ([{"person": 1, "body": "canary-7f3a"}], "field 'text'"),
        ([["canary-7f3a"]], "Line 1"),
        ([{"text": "canary-7f3a", "person": None}], "person"),
        ([{"text": "canary-7f3a", "person": 1}], "groups"),
    ],
)
def test_bad_records_are_named_and_not_shown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    records: list[Any],
    named: str,
) -> None:
    corpus = write(tmp_path / "mine.jsonl", records)
    arguments = ["demo", "--corpus", corpus, "--unit-key", "person"]
    status, report = run([*arguments, "--question", "What?"], capsys)
    assert status == 1
    assert named in report["message"]
    assert "canary" not in report["message"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--corpus", "missing.jsonl", "--unit-key", "a"], "--question"),
        (["demo", "--question", "What?"], "--corpus"),
        (["demo", "--epsilon", "0"], "epsilon"),
        (["demo", "--delta", "1"], "delta"),
        (["demo", "--queries", "0"], "queries"),
        (["demo", "--ledger", "nothing"], "ledger"),
        (["demo", "--patients", "400", "--groups", "1000"], "groups"),
        (["demo", "--patients", "400", "--model", "nobody:none"], "nobody:none"),
        (["demo", "--patients", "400", "--embedding", "nobody:none"], "nobody"),
        (["plan", "--epsilon", "-1"], "epsilon"),
        (["plan", "--groups", "0"], "group"),
        (["ledger", "show", "other", "--ledger", "sqlite:///l.db"], "no ledger"),
        (["demo", "--patients", "400", "--delta", "0.1"], "people_at_most=400"),
        (["demo", "--patients", "400", "--groups", "20"], "unanimous"),
    ],
)
def test_wrong_arguments_say_what_to_do(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = run(arguments, capsys)
    assert status == 1
    assert named in report["message"]


def test_what_is_refused_opens_no_account(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for wrong in (["--delta", "0.1"], ["--groups", "20"], ["--model", "nobody:none"]):
        status, _ = run([*SMALL, *wrong], capsys)
        assert status == 1
    assert not Path(".demo").exists()
    status, _ = run([*SMALL, "--epsilon", "20", "--first", "1"], capsys)
    assert status == 0


def test_accounts_must_be_named_and_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run([*SMALL, "--epsilon", "20", "--first", "1"], capsys)
    status, report = run(["ledger", "show"], capsys)
    assert (status, "Name an account" in report["message"]) == (1, True)
    status, report = run(["ledger", "show", "[other]"], capsys)
    assert (status, "[other]" in report["message"]) == (1, True)
    assert main(["ledger", "show", "[other]"]) == 1
    assert "[other]" in capsys.readouterr().err


def test_a_missing_corpus_is_an_error_with_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["demo", "--corpus", "missing.jsonl", "--unit-key", "a"]
    assert main([*arguments, "--question", "What?"]) == 1
    assert "missing.jsonl: No such file" in capsys.readouterr().err


def test_plan_states_noise_lead_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(["plan"], capsys)
    assert status == 0
    ptr = report["KSA-PTR, one k"]
    assert ptr["mechanism"] == "ksa/ptr"
    assert ptr["required_lead"] == 45
    assert ptr["calls_per_query"] == 101
    vote, drafted = (report[f"voting, {n}"] for n in ("ESA by vote", "drafted labels"))
    assert (vote["calls_per_query"], drafted["calls_per_query"]) == (100, 101)
    assert vote["required_lead"] < drafted["required_lead"] < ptr["required_lead"]
    assert "how much the groups agree" in vote["unseen"]
    assert "cost" not in vote
    one, two = (report[f"KSA-threshold, {n}"] for n in ("1 word", "2 words"))
    assert one["required_lead"] < two["required_lead"] <= ptr["required_lead"]
    assert one["calls_per_query"] == 101
    assert "A word must be in the answers of 31 of 100 groups" in one["advice"]
    status, tight = run(["plan", "--epsilon", "0.5"], capsys)
    assert "Not even a unanimous answer" in tight["KSA-PTR, one k"]["advice"]
    assert main(["plan", "--sampling-rate", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert "single" in shown
    assert "sampled at 0.1" in shown
    assert "KSA-threshold" in shown


def test_plan_states_tokens_and_prices(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["plan", "--records-per-group", "8", "--tokens-per-record", "50"]
    prices = ["--price-in", "2", "--price-out", "10"]
    status, report = run([*sizes, *prices], capsys)
    assert status == 0
    cost = report["voting, drafted labels"]["cost"]
    assert cost["input_tokens"] == 100 * 8 * 50 + 101 * 200
    assert cost["output_tokens"] == 101 * 50
    assert cost["price"] == pytest.approx((60200 * 2 + 5050 * 10) / 1e6)
    assert run(sizes, capsys)[1]["KSA-joint"]["cost"]["price"] is None
    assert main([*sizes, *prices]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for expected in ("1,204,000", "101,000", "3.42", "No plan can see"):
        assert expected in shown


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--records-per-group", "8"], "--tokens-per-record"),
        (["--tokens-per-record", "8"], "--records-per-group"),
        (["--price-in", "8", "--price-out", "8"], "--records-per-group"),
        (
            ["--records-per-group=8", "--tokens-per-record=8", "--price-in=2"],
            "--price-out",
        ),
        (["--records-per-group=0", "--tokens-per-record=8"], "records_per_group"),
    ],
)
def test_costs_need_sizes_and_both_prices(
    more: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = run(["plan", *more], capsys)
    assert (status, named in report["message"]) == (1, True)


def test_the_ledger_is_exported_and_closed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run([*SMALL, "--epsilon", "20", "--first", "2"], capsys)
    assert main(["ledger", "export", "clinic-400"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["charges"] == 2
    charges = [line for line in lines[1:] if line["kind"] == "charge"]
    assert [line["charge"] for line in charges] == [1, 2]
    assert charges[0]["body"]["events"][0]["kind"] == "gaussian"
    status, summary = run(["ledger", "close", "clinic-400"], capsys)
    assert (status, summary["closed"]) == (0, True)
    status, shown = run(["ledger", "show", "clinic-400"], capsys)
    assert len(shown["charges"]) == 2
    status, report = run([*SMALL, "--epsilon", "20"], capsys)
    assert report["answers"] == []


def test_a_real_model_is_named_by_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    model = load_model("openai:gpt-4o-mini")
    assert (type(model).__name__, model.model_name) == ("ChatOpenAI", "gpt-4o-mini")
    assert repr(SealedModel(model)) == "SealedModel(ChatOpenAI)"
    embedding = load_embedding("openai:text-embedding-3-small")
    assert type(embedding).__name__ == "OpenAIEmbeddings"
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(InvalidParameterError, match="key"):
        load_model("openai:gpt-4o-mini")


def test_interrupting_says_what_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("langchain_dpicl.cli.plan.run", stop)
    assert main(["plan"]) == 130
    assert "stays charged" in capsys.readouterr().err


def test_usage_errors_end_with_status_two() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--first", "many"])
    assert ended.value.code == 2
