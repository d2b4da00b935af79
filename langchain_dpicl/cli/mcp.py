"""`dpicl mcp`: a chain of yours as the tool of an MCP server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import redirect_stdout
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from langchain_dpicl.cli.loading import load_object
from langchain_dpicl.mcp import create_mcp_server
from langchain_dpicl.tools import create_dp_tool


def run(options: argparse.Namespace) -> int:
    """Serve until the client hangs up, or Ctrl-C."""
    # Over stdio, what the module prints would be read as a message.
    with redirect_stdout(sys.stderr):
        tool = load_object(options.chain, Runnable, "app:chain")
        if not isinstance(tool, BaseTool):
            tool = create_dp_tool(
                tool, name=options.name, description=options.description
            )
        server = create_mcp_server(tool)
    if options.port is None:
        asyncio.run(_serve(server))
    else:
        import uvicorn

        # This machine alone: a service with callers needs its own authorization.
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=options.port)
    return 0


async def _serve(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())
