"""What is a LangChain class passes LangChain's own standard suites.

The suites skip by themselves what a class does not offer. Of the long suite of chat
models, what needs tools or images is left out.
"""

from __future__ import annotations

from inspect import isawaitable
from itertools import count
from typing import Any

import pytest
from faces import (
    DPChain,
    DPRetriever,
    ESAOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    create_dp_tool,
    offline,
)
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import (
    ChatModelIntegrationTests,
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    ToolsIntegrationTests,
)
from langchain_tests.unit_tests import (
    ChatModelUnitTests,
    EmbeddingsUnitTests,
    ToolsUnitTests,
)
from scripted import ScriptedEmbeddings, ScriptedModel
from worlds import QUESTION, UNIT, notes


def parts(queries: int = 20) -> dict[str, Any]:
    """Return what a chain is made of, with an account of its own."""
    return {
        "groups": RetrievedGroups.from_documents(
            notes(), ScriptedEmbeddings(), unit_key=UNIT, n_groups=60
        ),
        "model": ScriptedModel(script=lambda _prompt: "cough"),
        # The suites ask for up to three documents: candidates, best first.
        "parser": ESAOutputParser(
            embedding=ScriptedEmbeddings(),
            candidates=["cough", "rash", "fever", "headache", "nausea"],
        ),
        "budget": PrivacyBudgetHandler(
            epsilon=200, delta=1e-6, queries=queries, ledger=":memory:"
        ),
    }


@pytest.mark.promise("standard-suites")
class TestRetriever(RetrieversIntegrationTests):
    """A retriever of released answers."""

    retriever_constructor = DPRetriever
    retriever_query_example = QUESTION

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"chain": DPChain(**parts())}


class OurTool:
    """A new tool, with an account of its own, for each test."""

    tool_invoke_params_example = {"question": QUESTION}  # noqa: RUF012 - the suite's way

    @pytest.fixture(autouse=True)
    def _made(self) -> None:
        self._tool = create_dp_tool(
            DPChain(**parts()), name="ask", description="Answers about the notes."
        )

    @property
    def tool_constructor(self) -> BaseTool:
        return self._tool


@pytest.mark.promise("standard-suites")
class TestToolUnit(OurTool, ToolsUnitTests):
    """Names, schemas and arguments."""


@pytest.mark.promise("standard-suites")
class TestToolIntegration(OurTool, ToolsIntegrationTests):
    """Calls, sync and async."""


class OurModel:
    """The model of the demo, which calls no tools and counts no tokens."""

    chat_model_class = offline.OfflineChatModel
    chat_model_params: dict[str, Any] = {}  # noqa: RUF012 - the suite's way
    has_tool_calling = False
    has_structured_output = False
    returns_usage_metadata = False


@pytest.mark.promise("standard-suites")
class TestModelUnit(OurModel, ChatModelUnitTests):
    """Its parameters."""


class ModelIntegration(OurModel, ChatModelIntegrationTests):
    """Calls, streams and batches."""


@pytest.mark.promise("standard-suites")
@pytest.mark.parametrize(
    "name",
    [
        *("invoke", "ainvoke", "stream", "astream", "batch", "abatch"),
        *("stream_events_v3", "astream_events_v3", "conversation"),
        *("double_messages_conversation", "stop_sequence", "message_with_name"),
    ],
)
async def test_the_demos_model_passes_what_needs_no_tools(name: str) -> None:
    done = getattr(ModelIntegration(), f"test_{name}")(offline.OfflineChatModel())
    if isawaitable(done):
        await done


class OurEmbeddings:
    """The embeddings of the demo."""

    embeddings_class = offline.HashingEmbeddings
    embedding_model_params: dict[str, Any] = {}  # noqa: RUF012 - the suite's way


@pytest.mark.promise("standard-suites")
class TestEmbeddingsUnit(OurEmbeddings, EmbeddingsUnitTests):
    """Their parameters."""


@pytest.mark.promise("standard-suites")
class TestEmbeddingsIntegration(OurEmbeddings, EmbeddingsIntegrationTests):
    """Texts and queries, sync and async."""


@pytest.mark.promise("standard-suites", twin=True)
def test_twin_embeddings_of_different_lengths_fail_the_suite() -> None:
    suite = EmbeddingsIntegrationTests()
    suite.test_embed_documents(offline.HashingEmbeddings())
    lengths = count(1)
    uneven = ScriptedEmbeddings(vector=lambda _text: [0.0] * next(lengths))
    with pytest.raises(AssertionError):
        suite.test_embed_documents(uneven)
