"""What a client of the MCP server gets: the answer, its record, and nothing else."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio.to_thread
import jsonschema
import pytest
from langchain_core.runnables import RunnableConfig
from mcp import Client, MCPError
from support.agent_parts import (
    CANARY,
    QUESTION,
    account,
    canaried_chain,
    journal,
    private_chain,
)
from support.fakes import ScriptedModel

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    NoBudgetError,
    RetrievedGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.mcp import create_mcp_server
from langchain_dpicl.operate import verify
from langchain_dpicl.tools import GUIDANCE

SCHEMA = json.loads(
    Path(import_module("langchain_dpicl.release").__file__ or "")
    .with_name("record.schema.json")
    .read_text()
)
MODES: Any = pytest.mark.parametrize("mode", ["legacy", "auto"])


def server(chain: DPChain, **changes: Any) -> Any:
    tool = create_dp_tool(chain, name="ask", description="About notes.")
    return create_mcp_server(tool.model_copy(update=changes))


def text(result: Any) -> str:
    (only,) = result.content
    return str(only.text)


async def ask(client: Client, question: str = QUESTION, **more: Any) -> Any:
    return await client.call_tool("ask", {"question": question}, **more)


@MODES
async def test_a_client_gets_the_answer_and_its_record(
    mode: Any, groups: RetrievedGroups, tmp_path: Path
) -> None:
    budget = account(ledger=f"sqlite:///{tmp_path}/ledger.db")
    async with Client(server(private_chain(groups, budget=budget)), mode=mode) as found:
        (tool,) = (await found.list_tools()).tools
        result = await ask(found)
    assert tool.description == f"About notes.\n\n{GUIDANCE}"
    assert tool.input_schema["required"] == ["question"]
    assert tool.input_schema["additionalProperties"] is False
    assert (text(result), result.is_error) == ("cough", False)
    record = dict(result.structured_content)
    # Also fields that are null have come over the wire.
    jsonschema.validate(record, SCHEMA)
    assert tool.output_schema is not None
    jsonschema.validate(record, tool.output_schema)
    assert record["answer"] == "cough"
    assert (record["status"], record["charge"]) == ("released", 1)
    assert verify(record, budget.ledger).is_confirmed
    assert len(journal(budget)) == 1


async def test_a_spent_budget_is_an_error_of_the_tool(groups: RetrievedGroups) -> None:
    budget = account(queries=1)
    served = server(private_chain(groups, budget=budget))
    async with Client(served, mode="auto") as client:
        await ask(client)
        result = await ask(client, "What else?")
    assert result.is_error
    assert result.structured_content is None
    assert "the privacy budget can't pay for it. Account 'notes'" in text(result)
    assert "Don't call 'ask' with a new question again" in text(result)
    assert len(journal(budget)) == 1


async def test_a_tool_that_raises_refusals_is_no_different(
    groups: RetrievedGroups,
) -> None:
    chain = private_chain(groups, budget=account(queries=1))
    chain.invoke(QUESTION)
    async with Client(server(chain, handle_tool_error=False)) as client:
        result = await ask(client, "What else?")
    assert result.is_error
    assert "Account 'notes'" in text(result)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "question: Field required"),
        ({"question": "  "}, "question: Value error, must not be empty"),
        ({"question": "?" * 20_001}, "question: Value error, must have at most 20000"),
        ({"question": "What?", "config": {}}, "config: Extra inputs"),
        ({"question": ["What?"]}, "question: Input should be a valid string"),
    ],
)
async def test_wrong_arguments_are_named_and_free(
    arguments: Any, why: str, groups: RetrievedGroups
) -> None:
    budget = account()
    async with Client(server(private_chain(groups, budget=budget))) as client:
        result = await client.call_tool("ask", arguments)
        other = await client.call_tool("other", arguments)
    assert result.is_error
    assert why in text(result)
    assert other.is_error
    assert not journal(budget)


async def test_of_other_errors_a_client_sees_the_kind_alone(
    groups: RetrievedGroups, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_text: str) -> str:
        raise RuntimeError(CANARY)

    # Drafts are asked of the public model, which fails before the charge.
    budget = account()
    chain = private_chain(
        groups,
        budget=budget,
        model=ScriptedModel(reply=fail),
        parser=VoteOutputParser(labels="draft"),
    )
    async with Client(server(chain), mode="auto") as client:
        result = await ask(client)
    assert result.is_error
    assert text(result).startswith("Not answered (PublicCallError).")
    assert not journal(budget)
    (logged,) = [one for one in caplog.records if one.name == "langchain_dpicl.mcp"]
    assert logged.getMessage().startswith("PublicCallError: ")
    assert logged.exc_info is None
    assert CANARY not in caplog.text


@pytest.mark.parametrize("breaking", [False, True])
async def test_an_error_that_is_not_ours_says_nothing(
    breaking: bool,
    groups: RetrievedGroups,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The twin lets it pass to the SDK, which sends its text to the client."""
    tool = create_dp_tool(
        private_chain(groups, budget=account()), name="ask", description="Notes."
    )

    async def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(CANARY)

    module = import_module("langchain_dpicl.mcp")
    served = create_mcp_server(tool)
    monkeypatch.setattr(type(tool), "ainvoke", fail)
    if breaking:
        monkeypatch.setattr(module, "_called", fail)
    async with Client(served, mode="legacy") as client:
        try:
            seen = text(await ask(client))
        except MCPError as error:
            seen = str(error)
    assert (CANARY in seen) == breaking
    assert (CANARY in caplog.text) == breaking


async def test_a_canceled_call_is_charged_and_its_answer_kept(
    groups: RetrievedGroups,
) -> None:
    going, release = threading.Event(), threading.Event()

    def slow(text: str) -> str:
        if "Lisinopril" in text:  # The groups' calls, after the charge.
            going.set()
            release.wait(60)
        return "cough"

    budget = account()
    chain = private_chain(groups, budget=budget, model=ScriptedModel(reply=slow))
    async with Client(server(chain), mode="legacy") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client)
            await anyio.to_thread.run_sync(going.wait)
            tasks.cancel_scope.cancel()
        release.set()
        result = await ask(client)
    assert text(result) == "cough"
    assert len(journal(budget)) == 1


def leaking(chain: DPChain) -> Any:
    """The twin's tool: it hands out a record."""
    tool: Any = create_dp_tool(chain, name="ask", description="Notes.")

    class Leaking(type(tool)):  # type: ignore[misc]
        async def _arun(self, *args: Any, config: RunnableConfig, **asked: Any) -> Any:
            answer, record = await super()._arun(*args, config=config, **asked)
            return answer, {**record, "note": CANARY}

    return Leaking(**{name: getattr(tool, name) for name in tool.model_fields_set})


def private(chain: DPChain) -> Any:
    return create_dp_tool(chain, name="ask", description="Notes.")


@MODES
@pytest.mark.parametrize("made", [private, leaking])
async def test_nothing_private_reaches_a_client_or_a_log(
    made: Callable[[DPChain], Any],
    mode: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    seen: list[Any] = []

    async def heard(*what: Any) -> None:
        seen.append(what)

    caplog.set_level(logging.DEBUG)
    served = create_mcp_server(made(canaried_chain(budget=account(queries=2))))
    async with Client(
        served, mode=mode, logging_callback=heard, message_handler=heard
    ) as client:
        seen.extend([await client.list_tools(), repr(served)])
        # The last one is refused.
        asked = (QUESTION, "Which?", "How?")
        seen += [await ask(client, one, progress_callback=heard) for one in asked]
    assert seen[-1].is_error
    assert "cough" in repr(seen)
    assert (CANARY in repr(seen)) == (made is leaking)
    output = capfd.readouterr()
    assert CANARY not in output.out + output.err
    assert CANARY not in caplog.text or made is leaking


def test_what_cannot_be_served_is_refused(
    groups: RetrievedGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (private_chain(groups), None):
        with pytest.raises(InvalidParameterError, match="a tool of create_dp_tool"):
            create_mcp_server(wrong)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(NoBudgetError):
        server(private_chain(groups))
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    with pytest.raises(InvalidParameterError, match=r"pip install"):
        server(private_chain(groups, budget=account()))
