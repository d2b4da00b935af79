"""A scripted agent model, and chains that it asks through the tool."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.budget import Stored, charges
from langchain_dpicl.offline import HashingEmbeddings
from support.fakes import ScriptedModel, notes

QUESTION = "What did lisinopril give?"
CANARY = "canary-7f3a"
WAYS = ["invoke", "ainvoke"]

_ids = itertools.count(1)


def calling(*questions: str, tool: str = "ask", **arguments: Any) -> AIMessage:
    """An agent's turn that calls a tool once for each question, at once."""
    calls = [
        {
            "name": tool,
            "args": {"question": question, **arguments},
            "id": f"call-{next(_ids)}",
            "type": "tool_call",
        }
        for question in questions
    ]
    return AIMessage(content="", tool_calls=calls)


class AgentModel(BaseChatModel):
    """Says its `turns` one after another, and remembers what it was asked."""

    turns: list[Any]

    _asked: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _offered: list[list[str]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted-agent"

    @property
    def asked(self) -> list[list[BaseMessage]]:
        return self._asked

    @property
    def offered(self) -> list[list[str]]:
        return self._offered

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(offered=[tool.name for tool in tools])

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        turn = len(self._asked)
        self._asked.append(list(messages))
        self._offered.append(kwargs.get("offered", []))
        assert turn < len(self.turns), "the agent's model was asked once too often"
        said = self.turns[turn]
        message = AIMessage(said) if isinstance(said, str) else said.model_copy()
        return ChatResult(generations=[ChatGeneration(message=message)])


def reply(text: str) -> str:
    return "cough" if "Lisinopril" in text else "I don't know."


def private_chain(groups: RetrievedGroups, **changes: Any) -> DPChain:
    parts: dict[str, Any] = {
        "model": ScriptedModel(reply=reply),
        "parser": VoteOutputParser(labels=["cough", "rash"]),
    }
    return DPChain(groups=groups, **{**parts, **changes})


def canaried_chain(**changes: Any) -> DPChain:
    """A chain whose records and group answers all hold the canary."""
    documents = notes(300, f"Lisinopril gave a dry cough. {CANARY}")
    groups = RetrievedGroups.from_documents(
        documents, HashingEmbeddings(), unit_key="patient", n_groups=60
    )
    model = ScriptedModel(
        reply=lambda text: f"cough {CANARY}" if CANARY in text else "I don't know."
    )
    return private_chain(groups, model=model, **changes)


def account(queries: int = 5, **changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {
        "epsilon": 30,
        "delta": 1e-6,
        "queries": queries,
        "ledger": ":memory:",
        "account": "notes",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


def journal(budget: PrivacyBudgetHandler) -> list[Stored]:
    """The charges as the ledger has them."""
    return charges(budget.ledger, budget.account)


async def run(
    way: str, runnable: Any, value: Any, *budgets: PrivacyBudgetHandler, **config: Any
) -> Any:
    """Call a runnable synchronously or not, with budgets in the config."""
    settings = {**config, "callbacks": list(budgets)}
    if way == "invoke":
        return runnable.invoke(value, settings)
    return await runnable.ainvoke(value, settings)


def asking(text: str = "Which side effects are there?") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def tool_messages(state: Any) -> list[ToolMessage]:
    return [m for m in state["messages"] if isinstance(m, ToolMessage)]
