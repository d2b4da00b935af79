"""`create_mcp_server`: a private tool for any client of the Model Context Protocol.

A client gets what an agent gets: the released answer and its public record.
"""

from __future__ import annotations

import itertools
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError
from typing_extensions import override

from langchain_dpicl._version import __version__
from langchain_dpicl.chain.query import STEP_EVENT
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.release.record import json_schema
from langchain_dpicl.tools import ToolCalls

if TYPE_CHECKING:
    from mcp.server import Server

__all__ = ["create_mcp_server"]

logger = logging.getLogger(__name__)


def create_mcp_server(tool: BaseTool) -> Server[Any]:
    """Make an MCP server whose one tool asks private records.

    The result of a call is the answer as text, and as structured content the public
    record with the answer beside it, under `answer`. A spent budget and wrong arguments
    are errors of the tool, with their reason. Of any other error a client sees the kind
    alone; the operator finds its message in the log `langchain_dpicl.mcp`. A client
    that asks for progress gets the names of the steps, as a stream has them.

    Args:
        tool: What `create_dp_tool` made. Its chain or the tool names who pays: a client
            can't.

    Returns:
        The server of the SDK, not running. `dpicl mcp` runs one over stdio, and
        `server.streamable_http_app(auth=...)` is an ASGI application.

    Raises:
        InvalidParameterError: If it is another tool, or the SDK is not installed.
        NoBudgetError: If nobody pays.

    Privacy:
        Adds nothing to the chain's: unit, relation, noise and event are its own. All
        clients are one adversary: the account is charged for each call of each client,
        and also for one that its client cancels after the charge.

    Example:
        >>> from langchain_dpicl import DPChain, PrivacyBudgetHandler, RetrievedGroups
        >>> from langchain_dpicl import VoteOutputParser, create_dp_tool
        >>> from langchain_dpicl.demo import clinic
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> chain = DPChain(
        ...     groups=RetrievedGroups.from_documents(
        ...         clinic(400), HashingEmbeddings(), unit_key="patient_id", n_groups=40
        ...     ),
        ...     model=OfflineChatModel(),
        ...     parser=VoteOutputParser(labels=["cough", "nausea"]),
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=5, ledger=":memory:"
        ...     ),
        ... )
        >>> create_mcp_server(
        ...     create_dp_tool(chain, name="ask_notes", description="Asks the notes.")
        ... ).name
        'ask_notes'
    """
    if not isinstance(tool, BaseTool) or not (calls := ToolCalls.of(tool)):
        raise InvalidParameterError(
            f"create_mcp_server takes a tool of create_dp_tool, not "
            f"{type(tool).__name__}."
        )
    calls.budget(None)  # A server that can answer nothing should not start.
    try:
        lowlevel: Any = import_module("mcp.server.lowlevel")
        types: Any = import_module("mcp_types")
    except ImportError:
        raise InvalidParameterError(
            "The MCP server needs the SDK, version 2: pip install 'mcp>=2,<3'."
        ) from None
    schema: Any = tool.get_input_schema()
    listed = types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema.model_json_schema(),
        output_schema=_output_schema(),
        annotations=types.ToolAnnotations(
            # A call changes the account, which can't be undone.
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
            open_world_hint=False,
        ),
    )

    async def on_list_tools(_: Any, __: Any) -> Any:
        return types.ListToolsResult(tools=[listed])

    async def on_call_tool(context: Any, params: Any) -> Any:
        if params.name != tool.name:
            return _result(types, f"There is no tool {params.name!r}.")
        return _result(types, *await _called(tool, params.arguments or {}, context))

    server: Server[Any] = lowlevel.Server(
        tool.name,
        version=__version__,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )
    return server


async def _called(
    tool: BaseTool, arguments: dict[str, Any], context: Any
) -> tuple[str, dict[str, Any] | None]:
    """Return what the tool says, and its record; None: it is an error's text.

    No error may pass: the SDK sends the text of any exception to the client.
    """
    call = {"name": tool.name, "args": arguments, "id": "mcp", "type": "tool_call"}
    try:
        schema: Any = tool.get_input_schema()
        schema.model_validate(arguments)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()
        )
        return f"Wrong arguments, nothing was charged: {wrong}.", None
    try:
        message = await tool.ainvoke(call, {"callbacks": [_Progress(context)]})
    except ToolException as error:
        return str(error), None
    except Exception as error:  # noqa: BLE001 - see above
        kind = type(error).__name__
        # Messages of ours hold no private text; others are not ours to pass on.
        logger.error("%s: %s", kind, error if isinstance(error, DPError) else "?")  # noqa: TRY400 - a traceback shows more
        return f"Not answered ({kind}). The operator's log says why.", None
    return str(message.content), message.artifact


def _result(types: Any, text: str, record: dict[str, Any] | None = None) -> Any:
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        # Many clients show a model the structured content alone.
        structured_content=None if record is None else {"answer": text, **record},
        is_error=record is None,
    )


def _output_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record with the answer beside it."""
    schema = json_schema()
    answer = {"type": "string", "description": "The released answer."}
    schema["properties"] = {"answer": answer, **schema["properties"]}
    schema["required"] = ["answer", *schema["required"]]
    return schema


class _Progress(AsyncCallbackHandler):
    """Reports the names of a query's steps; they are public."""

    run_inline = True  # In their order.

    def __init__(self, context: Any) -> None:
        self._context, self._count = context, itertools.count(1)

    @override
    async def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
        if name == STEP_EVENT:
            await self._context.session.report_progress(
                next(self._count), message=data["step"]
            )
