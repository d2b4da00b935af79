"""LangChain's standard tests of a tool."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from support.agent_parts import account, private_chain

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.tools import create_dp_tool


class OurTool:
    """A new tool, with an account of its own, for each test."""

    @pytest.fixture(autouse=True)
    def _made(self, groups: RetrievedGroups) -> None:
        self._tool = create_dp_tool(
            private_chain(groups, budget=account()),
            name="ask",
            description="Answers about the notes.",
        )

    @property
    def tool_constructor(self) -> BaseTool:
        return self._tool

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"question": "What did lisinopril give?"}


class TestDPToolUnit(OurTool, ToolsUnitTests):
    """Names, schemas and arguments."""


class TestDPToolIntegration(OurTool, ToolsIntegrationTests):
    """Calls, sync and async."""
