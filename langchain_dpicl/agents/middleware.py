"""`PrivacyBudgetMiddleware`: an agent that knows when its privacy budget is spent.

The middleware enforces nothing: every call of the tool charges the account itself, or
is refused. It looks at the account before the model is called, so that neither the
model nor whoever waits for the agent runs into refusals one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import Annotated, Any, Literal

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from typing_extensions import NotRequired, TypedDict

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tools import ToolCalls, advice, create_dp_tool

__all__ = ["PrivacyBudgetMiddleware", "PrivacyBudgetState"]

NAME = "ask_records"
DESCRIPTION = "Answers questions about a collection of private records."

MOST_REFUSED_TURNS = 3
"""After so many refused turns in a row a model is no longer asked: it does not listen,
and an agent has no other end."""

_NO_CONFIG = RunnableConfig()


class PrivacyBudgetState(TypedDict):
    """What the middleware keeps in the state, beside LangChain's `AgentState`."""

    spent_privacy_tools: NotRequired[Annotated[list[str], PrivateStateAttr]]
    """The tools whose account could not pay when it was looked at last."""


class PrivacyBudgetMiddleware(Frozen, AgentMiddleware):  # type: ignore[misc]  # langchain is optional, so Any
    """Give an agent a private tool, and tell it when the budget is spent.

    The account is the run's (`config={"callbacks": [budget]}`), the chain's own, or
    `budget=`. It is looked at before each call of the agent's model, without a charge.

    Args:
        chain_or_tools: A `DPChain`, or one or several tools of `create_dp_tool`.
        budget: Who pays, unless the run's config or the chain names a handler.
        on_exhausted: What happens when no tool can be paid any more. `inform`: the
            model is told so in its system message, and goes on without. `end`: the run
            ends with a message that says so, as soon as the model has put the last paid
            answer into words. Either way a model is told of each spent tool, and ends
            the run by calling one in three turns in a row.
        name: The tool's name, for a chain.
        description: The tool's description, for a chain.

    Raises:
        InvalidParameterError: If an argument is out of its range.
        NoBudgetError: If `budget` is another account than the chain's own; in a run,
            before the model is called, if there is no account at all or several.
        LedgerError: In a run, if the ledger can't be read.

    Privacy:
        It reads the public state of a whole-corpus account. In a per-unit account what
        is left is private, and the account never ends: the agent is told nothing. What
        goes into the agent's state is the names of the spent tools, and messages with
        the account's terms.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langchain_dpicl import DPChain, RetrievedGroups, VoteOutputParser
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> notes = [
        ...     Document("Lisinopril gave a dry cough.", metadata={"patient": str(i)})
        ...     for i in range(400)
        ... ]
        >>> chain = DPChain(
        ...     groups=RetrievedGroups.from_documents(
        ...         notes, HashingEmbeddings(), unit_key="patient", n_groups=60
        ...     ),
        ...     model=OfflineChatModel(),
        ...     parser=VoteOutputParser(labels=["cough", "rash"]),
        ... )
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=1, ledger=":memory:", account="notes"
        ... )
        >>> chain.invoke("What does lisinopril give?", {"callbacks": [budget]}).content
        'cough'
        >>> agent = create_agent(
        ...     FakeListChatModel(responses=["Let me look."]),
        ...     middleware=[PrivacyBudgetMiddleware(chain, on_exhausted="end")],
        ... )
        >>> ended = agent.invoke(
        ...     {"messages": "And amlodipine?"}, {"callbacks": [budget]}
        ... )
        >>> print(ended["messages"][-1].content[:59])
        The privacy budget of account 'notes' can't pay for another
    """

    state_schema = PrivacyBudgetState

    def __init__(
        self,
        chain_or_tools: Runnable[Any, AIMessage] | BaseTool | Sequence[BaseTool],
        *,
        budget: PrivacyBudgetHandler | None = None,
        on_exhausted: Literal["inform", "end"] = "inform",
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__()
        if on_exhausted not in {"inform", "end"}:
            raise InvalidParameterError(
                f"on_exhausted must be 'inform' or 'end', not {on_exhausted!r}."
            )
        self._on_exhausted = on_exhausted
        self._tools = tuple(_tools(chain_or_tools, budget, name, description))
        self._calls = _calls_by_name(self._tools)

    def __repr__(self) -> str:
        tools = ", ".join(map(repr, self._tools))
        return f"{type(self).__name__}([{tools}], on_exhausted={self._on_exhausted!r})"

    @property
    def on_exhausted(self) -> Literal["inform", "end"]:
        """What happens when no tool can be paid any more."""
        return self._on_exhausted

    @property
    def tools(self) -> tuple[BaseTool, ...]:
        """The private tools, which the agent gets."""
        return self._tools

    @property
    def name(self) -> str:
        """The middleware's name, one for each set of tools."""
        return f"{type(self).__name__}[{', '.join(self._calls)}]"

    @hook_config(can_jump_to=["end"])  # type: ignore[untyped-decorator]  # langchain's
    def before_model(
        self,
        state: Any,
        runtime: Any,  # noqa: ARG002 - langchain's signature
        config: RunnableConfig = _NO_CONFIG,
    ) -> dict[str, Any] | None:
        """Look at the account; end the run, or note which tools can't be paid."""
        callbacks = config.get("callbacks")
        spent = [
            name for name, calls in self._calls.items() if not calls.can_pay(callbacks)
        ]
        if spent and self._is_over(state["messages"], spent):
            accounts = dict.fromkeys(
                _public_account(self._calls[name].budget(callbacks)) for name in spent
            )
            said = AIMessage(content=" ".join(accounts))
            return {"jump_to": "end", "messages": [said]}
        known = state.get("spent_privacy_tools", [])
        others = [name for name in known if name not in self._calls]
        now = [*others, *spent]
        return None if now == known else {"spent_privacy_tools": now}

    @hook_config(can_jump_to=["end"])  # type: ignore[untyped-decorator]  # langchain's
    async def abefore_model(
        self,
        state: Any,
        runtime: Any,
        config: RunnableConfig = _NO_CONFIG,
    ) -> dict[str, Any] | None:
        """Look at the account without blocking the event loop; see `before_model`."""
        return await asyncio.to_thread(self.before_model, state, runtime, config)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Tell the model which of its tools can't be paid."""
        return handler(self._told(request))

    async def awrap_model_call(
        self, request: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Tell the model which of its tools can't be paid."""
        return await handler(self._told(request))

    def _told(self, request: Any) -> Any:
        known = request.state.get("spent_privacy_tools", [])
        spent = [name for name in known if name in self._calls]
        if not spent:
            return request
        # The tools stay in the request: some providers refuse a conversation with
        # calls of a tool that they are not told about.
        cached = any(self._calls[name].dp_chain.cache for name in spent)
        note = f"The privacy budget is spent. {advice(cached, *spent)}"
        return request.override(system_message=_with(request.system_message, note))

    def _is_over(self, messages: Sequence[AnyMessage], spent: Sequence[str]) -> bool:
        """Return whether a run whose budget is spent ends before the next model call.

        An answer that was just paid for must not be lost: the model still words it.
        """
        if _refused_turns(messages, spent) >= MOST_REFUSED_TURNS:
            return True
        if self.on_exhausted == "inform" or len(spent) < len(self._calls):
            return False
        return not any(
            isinstance(message, ToolMessage)
            and message.name in self._calls
            and message.status != "error"
            for message in takewhile(_is_no_turn, reversed(messages))
        )


def _is_no_turn(message: AnyMessage) -> bool:
    return not isinstance(message, AIMessage)


def _refused_turns(messages: Sequence[AnyMessage], spent: Sequence[str]) -> int:
    """Return in how many of the model's last turns a spent tool has refused."""
    turns, refused = 0, False
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and message.name in spent:
            refused = refused or message.status == "error"
        elif isinstance(message, AIMessage):
            if not refused:
                break
            turns, refused = turns + 1, False
        elif isinstance(message, HumanMessage):
            break
    return turns


def _tools(
    given: Any,
    budget: PrivacyBudgetHandler | None,
    name: str | None,
    description: str | None,
) -> list[BaseTool]:
    if isinstance(given, Runnable) and not isinstance(given, BaseTool):
        return [
            create_dp_tool(
                given,
                name=NAME if name is None else name,
                description=DESCRIPTION if description is None else description,
                budget=budget,
            )
        ]
    if name is not None or description is not None:
        raise InvalidParameterError(
            "name and description are for a chain; a tool has its own."
        )
    tools = [given] if isinstance(given, BaseTool) else given
    if not isinstance(tools, Iterable) or isinstance(tools, str | bytes):
        raise InvalidParameterError(
            "PrivacyBudgetMiddleware takes a DPChain or tools of create_dp_tool, not "
            f"{type(given).__name__}."
        )
    return [_paid(tool, budget) for tool in tools]


def _paid(tool: Any, budget: PrivacyBudgetHandler | None) -> BaseTool:
    calls = ToolCalls.of(tool)
    if calls is None:
        raise InvalidParameterError(
            f"{getattr(tool, 'name', type(tool).__name__)!r} is not a tool of "
            "create_dp_tool: give other tools to create_agent itself."
        )
    if budget is not None:
        calls = calls.paid_by(budget)
    update = {"func": calls.answer, "coroutine": calls.aanswer}
    paid: BaseTool = tool.model_copy(update=update)
    return paid


def _calls_by_name(tools: Sequence[BaseTool]) -> dict[str, ToolCalls]:
    found = {tool.name: calls for tool in tools if (calls := ToolCalls.of(tool))}
    if not found or len(found) < len(tools):
        raise InvalidParameterError(
            "PrivacyBudgetMiddleware needs a tool, and no two of one name."
        )
    return found


def _with(system: SystemMessage | None, note: str) -> SystemMessage:
    if system is None:
        return SystemMessage(content=note)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{note}"})
    blocks = [*system.content, {"type": "text", "text": note}]
    return system.model_copy(update={"content": blocks})


def _public_account(budget: PrivacyBudgetHandler) -> str:
    public = budget.public_state()
    return (
        f"The privacy budget of account {public['name']!r} can't pay for another "
        f"question: epsilon {public['epsilon_spent']:.3g} of {public['epsilon']:g} is "
        f"spent, at delta {public['delta']:g}. Answers given so far stay usable."
    )
