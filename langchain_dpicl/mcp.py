"""`create_mcp_server`: a private tool for any client of the Model Context Protocol."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError

from langchain_dpicl._version import __version__
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.release.record import json_schema
from langchain_dpicl.tools import DPTool

if TYPE_CHECKING:
    from mcp.server import Server

__all__ = ["create_mcp_server"]

logger = logging.getLogger(__name__)


def create_mcp_server(tool: BaseTool) -> Server[Any]:
    """Make an MCP server whose one tool asks private records.

    The result of a call is the answer as text, and as structured content the public
    record with the answer beside it, under `answer`. A spent budget and wrong arguments
    are errors of the tool, with their reason. Of any other error a client sees the kind
    alone; the operator finds its message in the log `langchain_dpicl.mcp`.

    Args:
        tool: What `create_dp_tool` made. Its chain names who pays: a client can't.

    Returns:
        The server of the SDK, not running. `dpicl mcp` runs one over stdio, and
        `server.streamable_http_app(auth=...)` is an ASGI application.

    Raises:
        InvalidParameterError: If it is another tool, or the SDK is not installed.
        NoBudgetError: If nobody pays.

    Privacy:
        Adds nothing to the chain's: unit, relation, noise and event are its own. All
        clients are one adversary: the account is charged for the questions of each, and
        also for one that its client cancels after the charge.
    """
    if not isinstance(tool, DPTool):
        raise InvalidParameterError(
            f"create_mcp_server takes a tool of create_dp_tool, not "
            f"{type(tool).__name__}."
        )
    tool.budget()  # A server that can answer nothing should not start.
    try:
        lowlevel: Any = import_module("mcp.server.lowlevel")
        types: Any = import_module("mcp_types")
    except ImportError:
        raise InvalidParameterError(
            "The MCP server needs the SDK, version 2: pip install 'mcp>=2,<3'."
        ) from None
    arguments: Any = tool.get_input_schema()
    record = json_schema()
    record["properties"]["answer"] = {"type": "string", "description": "The answer."}
    record["required"].append("answer")
    # A call changes the account, which can't be undone; that is no damage.
    hints = ("read_only", "destructive", "idempotent", "open_world")
    listed = types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=arguments.model_json_schema(),
        output_schema=record,
        annotations=types.ToolAnnotations(**{f"{one}_hint": False for one in hints}),
    )

    async def on_list_tools(_: Any, __: Any) -> Any:
        return types.ListToolsResult(tools=[listed])

    async def on_call_tool(_: Any, params: Any) -> Any:
        text, released = f"There is no tool {params.name!r}.", None
        if params.name == tool.name:
            text, released = await _called(tool, params.arguments or {})
        # Many clients show a model the structured content alone.
        structured = None if released is None else {"answer": text, **released}
        return types.CallToolResult(
            content=[types.TextContent(text=text)],
            structured_content=structured,
            is_error=released is None,
        )

    handlers = {"on_list_tools": on_list_tools, "on_call_tool": on_call_tool}
    server: Server[Any] = lowlevel.Server(tool.name, version=__version__, **handlers)
    return server


async def _called(
    tool: BaseTool, arguments: dict[str, Any]
) -> tuple[str, dict[str, Any] | None]:
    """Return what the tool says, and its record; None: it is an error's text.

    No error may pass: the SDK sends the text of any exception to the client.
    """
    schema: Any = tool.get_input_schema()
    try:
        schema.model_validate(arguments)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()
        )
        return f"Wrong arguments, nothing was charged: {wrong}.", None
    call = {"name": tool.name, "args": arguments, "id": "mcp", "type": "tool_call"}
    try:
        message = await tool.ainvoke(call)
    except ToolException as error:
        return str(error), None
    except Exception as error:  # noqa: BLE001 - see above
        kind = type(error).__name__
        # Messages of ours hold no private text; others are not ours to pass on.
        logger.error("%s: %s", kind, error if isinstance(error, DPError) else "?")  # noqa: TRY400 - a traceback shows more
        return f"Not answered ({kind}). The operator's log says why.", None
    return str(message.content), message.artifact
