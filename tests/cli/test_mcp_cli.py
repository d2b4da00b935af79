"""`dpicl mcp`, as a client starts it: a process of its own, over stdin and stdout."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from langchain_dpicl.cli import main
from langchain_dpicl.ledger import Ledger

ROOT = Path(__file__).parents[2]
APP = """
from support.agent_parts import account, canaried_chain

from langchain_dpicl import create_dp_tool

print("printed while it is imported")
budget = account(queries=2, ledger="sqlite:///ledger.db")
chain = canaried_chain().with_config(callbacks=[budget])
unpaid = canaried_chain()


def tool():
    return create_dp_tool(chain, name="ask_us", description="Of a function.")
"""
DPICL = "import sys; from langchain_dpicl.cli import main; sys.exit(main())"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    # A client's environment may be one of a developer.
    "LANGCHAIN_VERBOSE": "true",
}


@pytest.fixture(autouse=True)
def _app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app_to_serve.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "app_to_serve", raising=False)


def command(name: str, *more: str) -> list[str]:
    return ["-c", DPICL, "mcp", f"app_to_serve:{name}", *more]


async def test_a_client_asks_over_stdio(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def heard(*what: Any) -> None:
        seen.append(what)

    started = StdioServerParameters(
        command=sys.executable,
        args=command("chain", "--name", "ask_notes", "--description", "The notes."),
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    with (tmp_path / "errors.txt").open("w") as errors:
        async with Client(
            stdio_client(started, errlog=errors), message_handler=heard
        ) as client:
            (tool,) = (await client.list_tools()).tools
            answers = [
                await client.call_tool(
                    "ask_notes",
                    {"question": f"What did {drug} give?"},
                    progress_callback=heard,
                )
                for drug in ("lisinopril", "lisinopril today", "lisinopril alone")
            ]
    assert tool.description is not None
    assert tool.description.startswith("The notes.")
    assert [one.is_error for one in answers] == [False, False, True]
    assert answers[0].structured_content["answer"] == "cough"
    assert "the privacy budget can't pay" in answers[2].content[0].text
    assert Ledger("sqlite:///ledger.db").state("notes").used == 2
    said = (tmp_path / "errors.txt").read_text()
    assert "printed while it is imported" in said
    assert "canary" not in repr([seen, tool, answers]) + said


@pytest.mark.allow_hosts(["127.0.0.1"])
async def test_a_client_asks_over_http(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "errors.txt").open("w") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [sys.executable, *command("tool", "--port", str(port))],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stderr=errors,
        )
    try:
        _wait_for(port, process)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            (tool,) = (await client.list_tools()).tools
            answer = await client.call_tool("ask_us", {"question": "What?"})
    finally:
        process.terminate()
        process.wait(60)
    assert tool.description is not None
    assert tool.description.startswith("Of a function.")
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


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["app_to_serve:unpaid", "--description", "Notes."], "NoBudgetError"),
        (["app_to_serve:chain"], "say what the records are about"),
        (["app_to_serve:budget", "--description", "Notes."], "takes a DPChain"),
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
