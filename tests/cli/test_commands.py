"""The commands beside `dpicl ledger`, and how errors end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from support.ledgers import PLANNED, spend
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
from langchain_dpicl.cli import main
from langchain_dpicl.cli.loading import load_embedding, load_model, read_corpus
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.operate.audit import AuditReport
from langchain_dpicl.sealed import SealedModel

ROOT = Path(__file__).parents[2]
SMALL = ["demo", "--patients=400", "--groups=60", "--docs-per-group=8", "--epsilon=20"]
DPICL = "import sys; from langchain_dpicl.cli import main; sys.exit(main())"
CANARY = "canary-7f3a"
# A client's environment may be one of a developer.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    "LANGCHAIN_VERBOSE": "true",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPICL_LEDGER", raising=False)
    for name in ("audited_app", "app_to_serve", "own_module", "failing_app"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def strict(text: str) -> Any:
    """Read JSON as every program does: without NaN and Infinity."""

    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refused)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    status = main([*arguments, "--json"])
    told = capsys.readouterr()
    return status, strict(told.out) if status < 2 else told.err


# -- how a command ends ----------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["ledger list", "ledger verify", "ledger close a", "report a"]
)
def test_an_operator_names_the_ledger(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".demo").mkdir()
    spend(Ledger("sqlite:///.demo/ledger.db"), PLANNED)
    assert main(command.split()) == 2
    said = capsys.readouterr()
    assert "--ledger" in said.err
    assert "DPICL_LEDGER" in said.err
    assert not said.out


FAILING = f"""
def chain():
    record = "{CANARY}"
    raise KeyError(record)
"""


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_failing_command_shows_no_record(
    more: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("failing_app.py").write_text(FAILING)
    Path("q.txt").write_text("What?")
    command = ["audit", "failing_app:chain", "--questions=q.txt", "--units=1", *more]
    assert main(command) == 1
    said = capsys.readouterr()
    assert "KeyError" in said.out + said.err

    def fail(*_: Any, **__: Any) -> Any:
        record = f"{CANARY} gave a rash"
        raise RuntimeError(record)

    # A fault of ours, or of a library, after the records were read.
    monkeypatch.setattr("langchain_dpicl.cli.plan.forecast", fail)
    assert main(["plan", *more]) == 1
    found = capsys.readouterr()
    assert "RuntimeError" in found.out + found.err
    assert "langchain_dpicl/cli/plan.py, line" in found.out + found.err
    for text in (said.out, said.err, found.out, found.err):
        assert CANARY not in text
        assert "Traceback" not in text


def test_interrupting_says_what_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(**_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("langchain_dpicl.cli.plan.plan", stop)
    assert main(["plan"]) == 130
    assert "stays charged" in capsys.readouterr().err


def test_a_reader_that_goes_away_hears_nothing_more() -> None:
    ledger = Ledger("sqlite:///long.db")
    for _ in range(150):  # More than a pipe holds.
        spend(ledger, PLANNED.model_copy(update={"queries": 500}))
    ledger.dispose()
    arguments = ["ledger", "export", "notes", "--ledger=sqlite:///long.db"]
    process = subprocess.Popen(
        [sys.executable, "-c", DPICL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert told == b""


# -- plan ------------------------------------------------------------------------------


def test_plan_states_noise_lead_calls_and_prices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = ["plan", "--records-per-group=8", "--tokens-per-record=50"]
    status, report = run([*sizes, "--price-in=2", "--price-out=10"], capsys)
    assert status == 0
    one, two = (report[f"KSA-threshold, {n}"] for n in ("1 word", "2 words"))
    ptr, vote = report["KSA-PTR, one k"], report["voting, drafted labels"]
    assert one["required_lead"] < two["required_lead"] <= ptr["required_lead"]
    assert vote["required_lead"] < ptr["required_lead"]
    assert (ptr["calls_per_query"], vote["calls_per_query"]) == (101, 101)
    cost = vote["cost"]
    assert cost["input_tokens"] == 100 * 8 * 50 + 101 * 200
    assert cost["output_tokens"] == 101 * 50
    assert cost["price"] == pytest.approx((60200 * 2 + 5050 * 10) / 1e6)
    assert run(sizes, capsys)[1]["KSA-joint"]["cost"]["price"] is None
    assert "cost" not in run(["plan"], capsys)[1]["KSA-joint"]
    assert main(["plan", "--epsilon=0.5", "--sampling-rate=0.9"]) == 0
    shown = capsys.readouterr().out
    for expected in ("sampled at 0.9", "Not even a unanimous answer", "No plan can"):
        assert expected in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--records-per-group=8"], "--tokens-per-record"),
        (["--price-in=8", "--price-out=8"], "--records-per-group"),
        (["--records-per-group=8", "--tokens-per-record=8", "--price-in=2"], "both"),
        (["--records-per-group=0", "--tokens-per-record=8"], "records_per_group"),
        (["--epsilon=-1"], "epsilon"),
        (["--groups=0"], "group"),
    ],
)
def test_numbers_that_cannot_be_are_named(
    more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = run(["plan", *more], capsys)
    assert (status, message in report["message"]) == (1, True)


@pytest.mark.parametrize(
    "option", ["epsilon", "delta", "queries", "groups", "sampling-rate", "choices"]
)
def test_numbers_out_of_range_end_in_one_sentence(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("-1", "nan", "x", "", "1" + "0" * 30, "1e-320", "1e400"):
        status, _ = run(["plan", f"--{option}={value}"], capsys)
        assert status != 0 or value[0] == "1"


# -- demo ------------------------------------------------------------------------------


def write(records: list[Any], question: str = "What?") -> list[str]:
    text = "\n".join(json.dumps(record) for record in records)
    Path("mine.jsonl").write_text(text)
    command = ["demo", "--corpus=mine.jsonl", "--unit-key=who"]
    return [*command, f"--question={question}"]


def test_the_demo_continues_its_account_and_stops_when_it_is_spent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Whatever is refused opens no account.
    for wrong in ("--delta=0.1", "--groups=20", "--model=nobody:none"):
        assert run([*SMALL[:-1], wrong], capsys)[0] == 1
    assert not Path(".demo").exists()
    arguments = [*SMALL, "--queries=3"]
    status, first = run([*arguments, "--first=2"], capsys)
    assert (status, len(first["answers"]), first["stopped"]) == (0, 2, None)
    assert first["facts"]["account"]["queries_spent"] == 1
    # What was paid for is given again for nothing, facts included.
    status, second = run([*arguments, "--first=8"], capsys)
    assert [a["status"] for a in second["answers"][:2]] == ["cached"] * 2
    assert second["facts"] == first["facts"]
    assert "Account 'clinic-400'" in second["stopped"]
    _, third = run(arguments, capsys)
    assert third["answers"] == []
    assert third["account"]["epsilon_spent"] <= 20


def test_possible_answers_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Customer {} complains about a damaged parcel."
    records = [{"text": text.format(i), "who": i} for i in range(300)]
    command = write(records, "What do they complain about?")
    command += ["--groups=40", "--labels=late, damaged parcel"]
    status, report = run(command, capsys)
    assert status == 0
    (answer,) = report["answers"]
    assert (answer["status"], answer["private"]) == ("released", "damaged parcel")
    assert report["account"]["name"] == "mine"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no record"),
        (b'{"text": "canary-7f3a"}', "--unit-key"),
        (b'{"who": 1, "body": "canary-7f3a"}', "field 'text'"),
        (b'["canary-7f3a"]', "Line 1"),
        (b'{"text": "canary-7f3a", "who": null}', "who"),
        (b'{"text": "canary-7f3a", "who": 1}', "groups"),
        (b'{"text": "A", "who": 1}\n{"text": "caf\xe9 canary-7f3a"}', "Line 2"),
        (b'{"text": "canary-7f3a", "who": ' + b"[" * 200_000, "Line 1"),
        (b'{"text": "canary-7f3a \\ud800", "who": 1}', "Line 1"),
        (bytes(range(256)) * 40 + b"canary-7f3a", "Line 1"),
    ],
)
def test_bad_records_are_named_and_not_shown(
    data: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = write([])
    Path("mine.jsonl").write_bytes(data)
    status, report = run(command, capsys)
    assert (status, message in report["message"]) == (1, True)
    assert CANARY not in report["message"]


def test_a_byte_order_mark_before_a_record_is_no_text() -> None:
    Path("mine.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "A cough.", "who": 1}\n' * 2)
    records = read_corpus("mine.jsonl", unit_key="who")
    assert [one.page_content for one in records] == ["A cough."] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--corpus=missing.jsonl", "--unit-key=a"], "--question"),
        (["demo", "--question=What?"], "--corpus"),
        (["demo", "--epsilon=0"], "epsilon"),
        (["demo", "--ledger=nothing"], "ledger"),
        ([*SMALL, "--embedding=nobody:none"], "nobody"),
        (["demo", "--patients=400", "--delta=0.1"], "people_at_most=400"),
        (["demo", "--patients=400", "--groups=20"], "unanimous"),
    ],
)
def test_wrong_arguments_of_the_demo_say_what_to_do(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = run(arguments, capsys)
    assert (status, message in report["message"]) == (1, True)


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


def embeds_texts(exchange: Exchange) -> Answer:
    """Answer as servers do that know no token numbers of OpenAI's models."""
    texts = exchange.body["input"]
    if not all(isinstance(text, str) for text in texts):
        return Answer.of({"error": {"message": "input must be text"}}, 400)
    rows = HashingEmbeddings().embed_documents(texts)
    data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
    return Answer.of({"data": data, "model": "mini", "usage": {}})


def fails(_exchange: Exchange) -> Answer:
    return Answer.of({"error": {"message": CANARY}}, 400)


@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.parametrize("reply", [embeds_texts, fails])
def test_a_server_of_ones_own_embeds_texts(
    reply: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def download(*_: Any) -> Any:
        raise AssertionError("tiktoken is asked for a vocabulary.")

    monkeypatch.setattr("tiktoken.encoding_for_model", download)
    monkeypatch.setattr("tiktoken.get_encoding", download)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    text = "Side effect of lisinopril: cough."
    records = [{"who": f"p{i}", "text": text} for i in range(200)]
    command = write(records, "Which side effect of lisinopril?")
    command += ["--groups=20", "--labels=cough,rash", "--queries=1"]
    with RecordingProxy(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        status, found = run([*command, "--embedding=openai:mini"], capsys)
    if reply is fails:
        assert (status, "BadRequestError" in found["message"]) == (1, True)
        assert CANARY not in found["message"]
    else:
        assert [one["private"] for one in found["answers"]] == ["cough"]


# -- audit, report ---------------------------------------------------------------------

AUDITED = """
from langchain_dpicl import VoteOutputParser
from support.audit_chains import chain_of

chain = chain_of(VoteOutputParser(labels=["cough", "rash"]))
bound = chain.model_copy(update={"budget": None}).with_config(callbacks=[chain.budget])


class Double(VoteOutputParser):
    def counts(self, slots, labels):
        return [2 * count for count in super().counts(slots, labels)]


broken = chain_of(Double(labels=["cough", "rash"]))
"""


@pytest.fixture
def audited() -> None:
    Path("audited_app.py").write_text(AUDITED)
    Path("questions.txt").write_text("What did lisinopril give?\n\nWhich was seen?\n")
    Path("ids.txt").write_text("unit-0\nunit-9\n")
    record = {"text": "Lisinopril gave a rash.", "patient": "new"}
    Path("made-up.jsonl").write_text(json.dumps(record) + "\n")


def audit(name: str, *more: str) -> list[str]:
    return ["audit", f"audited_app:{name}", "--questions=questions.txt", *more]


@pytest.mark.usefixtures("audited")
def test_an_audit_is_printed_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    saved = ["--out=audit.html", "--out=audit.json"]
    assert main(audit("chain", "--canaries=ids.txt", *saved)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("What 2 people lose by 2 questions")
    assert "unit-9" in printed
    people = AuditReport.load("audit.json").people
    assert {one.person for one in people} == {"unit-0", "unit-9"}
    assert "unit-0" in Path("audit.html").read_text()
    # An account that is bound in config, and people who are made up.
    status, found = run(audit("bound", "--canaries=made-up.jsonl"), capsys)
    assert (status, len(found["people"])) == (0, 1)


@pytest.mark.usefixtures("audited")
def test_an_audit_ends_with_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(audit("broken", "--units=12"), capsys)[0] == 1
    status, found = run(audit("chain"), capsys)
    assert (status, "--canaries" in found["message"]) == (1, True)
    Path("ids.txt").write_text("unit-99\n")
    status, found = run(audit("chain", "--canaries=ids.txt"), capsys)
    assert (status, found["error"]) == (1, "UnitError")
    assert "unit-99" not in found["message"]


def test_a_report_is_printed_or_saved(capsys: pytest.CaptureFixture[str]) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=20, ledger="sqlite:///l.db", account="notes"
    )
    with budget.buy(VoteOutputParser(labels=["a", "b"]).charge()) as paid:
        paid.once(lambda: "a")
    budget.ledger.dispose()
    command = ["report", "notes", "--ledger=sqlite:///l.db"]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    Path("facts.json").write_text('{"controller": "Clinic of Riverside"}')
    given = ["--facts=facts.json", "--audits=.", "--erasures=.", "--out=report.html"]
    assert main([*command, *given]) == 0
    assert "The ledger is whole." in capsys.readouterr().out
    assert "Clinic of Riverside" in Path("report.html").read_text()
    assert run(["report", "nobody", *command[2:]], capsys)[0] == 1


# -- erase, mcp ------------------------------------------------------------------------


def test_a_person_is_erased_and_a_certificate_checked(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from support.erasure_workers import PERSON, saved

    saved(tmp_path / "index")
    on = ["--index=index", "--certificate=c.json"]
    status, made = run(["erase", PERSON, *on], capsys)
    assert (status, made["index"]["documents_erased"]) == (0, 2)
    assert made["stores"][0]["state"] == "erased"
    assert main(["erase", PERSON, *on, "--check"]) == 0
    assert main(["erase", "p-1", *on, "--check"]) == 1
    assert main(["erase", PERSON, on[0], "--check"]) == 1
    assert main(["erase", "p-nobody", on[0]]) == 1
    said = capsys.readouterr()
    assert "nothing was deleted" in said.err
    assert "p-nobody" not in said.err + said.out
    Path("unit.txt").write_text("p-2\n")
    with Path("unit.txt").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["erase", "-", on[0]]) == 0


SERVED = """
from support.agent_parts import account, canaried_chain

from langchain_dpicl import create_dp_tool

print("printed while it is imported")
budget = account(queries=2, ledger="sqlite:///ledger.db")
chain = canaried_chain().with_config(callbacks=[budget])
unpaid = canaried_chain()


def tool():
    return create_dp_tool(chain, name="ask_us", description="Of a function.")
"""


@pytest.fixture
def served() -> None:
    Path("app_to_serve.py").write_text(SERVED)


def errors_file() -> TextIO:
    return Path("errors.txt").open("w")


def serve(name: str, *more: str) -> list[str]:
    return ["-c", DPICL, "mcp", f"app_to_serve:{name}", *more]


@pytest.mark.usefixtures("served")
async def test_a_client_asks_over_stdio(tmp_path: Path) -> None:
    started = StdioServerParameters(
        command=sys.executable,
        args=serve("chain", "--name=ask_notes", "--description=The notes."),
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    with errors_file() as errors:
        async with Client(stdio_client(started, errlog=errors)) as client:
            (tool,) = (await client.list_tools()).tools
            answers = [
                await client.call_tool("ask_notes", {"question": f"What of {drug}?"})
                for drug in ("lisinopril", "lisinopril today", "lisinopril alone")
            ]
    assert str(tool.description).startswith("The notes.")
    assert [one.is_error for one in answers] == [False, False, True]
    assert answers[0].structured_content["answer"] == "cough"
    assert Ledger("sqlite:///ledger.db").state("notes").used == 2
    said = await anyio.Path("errors.txt").read_text()
    assert "printed while it is imported" in said
    assert "canary" not in repr([tool, answers]) + said


@pytest.mark.whole
@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.usefixtures("served")
async def test_a_client_asks_over_http(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with errors_file() as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [sys.executable, *serve("tool", f"--port={port}")],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stderr=errors,
        )
    try:
        _wait_for(port, process)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            answer = await client.call_tool("ask_us", {"question": "What?"})
    finally:
        process.terminate()
        process.wait(60)
    assert answer.structured_content is not None
    assert answer.structured_content["charge"] == 1


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["app_to_serve:unpaid", "--description=Notes."], "NoBudgetError"),
        (["app_to_serve:chain"], "say what the records are about"),
        (["app_to_serve:budget", "--description=Notes."], "takes a DPChain"),
        (["app_to_serve:nothing"], "nothing"),
    ],
)
def test_what_cannot_be_served_ends_before_a_client_connects(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *arguments]) == 1
    printed = capsys.readouterr()
    assert not printed.out
    assert why in printed.err
