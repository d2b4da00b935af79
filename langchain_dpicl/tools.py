"""`create_dp_tool`: a `DPChain` as a tool that a model may call.

The tool's answer is what the chain released; its artifact is the public record. Nothing
else of the chain reaches the agent: not its messages, its state or its checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import Annotated, Any

from langchain_core.callbacks import Callbacks
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs, patch_config
from langchain_core.tools import StructuredTool, ToolException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from typing_extensions import override

from langchain_dpicl.budget import PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain import DPChain
from langchain_dpicl.chain.prompting import RECORDS, takes_records
from langchain_dpicl.common.frozen import FrozenModel
from langchain_dpicl.errors import BudgetExhaustedError, InvalidParameterError

__all__ = ["GUIDANCE", "create_dp_tool"]

GUIDANCE = (
    "Ask one complete question about what many of the people in the records have in "
    "common. It can't look anybody up: a question about one person, or for a list or "
    "an exact number, gets no answer from the records. Each call "
    "spends part of a privacy budget that is not refilled: don't ask the same thing "
    "twice or in other words."
)
"""What every such tool can and can't do, for the model."""

_QUESTION = (
    "One complete question in plain words, about groups of people, not about one person"
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FILLED = frozenset({"question", "context", "keywords", "format_instructions"})
_TAKEN = frozenset({"self", "config", "callbacks", "filter", "run_manager"})


def create_dp_tool(
    chain: Runnable[Any, AIMessage],
    *,
    name: str,
    description: str,
    budget: PrivacyBudgetHandler | None = None,
    variables: Mapping[str, str] | None = None,
    guidance: bool = True,
    return_direct: bool = False,
    handle_tool_error: bool | str | Callable[[ToolException], str] = True,
) -> StructuredTool:
    """Make a tool that answers questions over private records.

    The model gives the `question`, and every further variable of the chain's prompts;
    what it should not choose is fixed with `prompt.partial(...)`. The tool message's
    content is the answer, its artifact the public record. An answer that is not from
    the records says so, and a refusal says why.

    Args:
        chain: A `DPChain`, also one with `.with_config(...)`.
        name: The tool's name, for the model: letters, digits, `_` and `-`.
        description: What the records are about, and when to ask.
        budget: Who pays, unless the run's config or the chain names a handler.
        variables: What each further variable of the prompts means, for the model.
        guidance: Whether `GUIDANCE` is added to the description.
        return_direct: Whether an agent ends with the tool's answer.
        handle_tool_error: What becomes of a `BudgetExhaustedError`. True: the model is
            told why, and not to try again, in a tool message with status `error`. A
            text or a function: what it is told. False: it is raised. All other errors
            are raised whatever this is.

    Returns:
        The tool. Each call is charged; so is a call that a retry, a fork of a thread or
        a resumed run makes again (`DPChain(cache=True)` answers those for nothing).

    Raises:
        InvalidParameterError: If the chain is not a `DPChain`, the name can't be a
            tool's, or a variable of the prompts can't be given by a model.
        NoBudgetError: If `budget` is another account than the chain's own.

    Privacy:
        Adds nothing to the chain's: unit, relation, noise and event are its own. The
        content and the artifact are the chain's released output and public record.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
        >>> from langchain_dpicl import VoteOutputParser
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> notes = [
        ...     Document("Lisinopril gave a dry cough.", metadata={"patient": str(i)})
        ...     for i in range(400)
        ... ]
        >>> tool = create_dp_tool(
        ...     DPChain(
        ...         groups=RetrievedGroups.from_documents(
        ...             notes, HashingEmbeddings(), unit_key="patient", n_groups=60
        ...         ),
        ...         model=OfflineChatModel(),
        ...         parser=VoteOutputParser(labels=["cough", "rash"]),
        ...     ),
        ...     name="ask_notes",
        ...     description="Answers questions about a clinic's notes.",
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=5, ledger=":memory:"
        ...     ),
        ... )
        >>> tool.invoke({"question": "What does lisinopril give?"})
        'cough'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameterError(
            "A tool's name is 1 to 64 letters, digits, '_' or '-': providers refuse "
            f"others, such as {name!r}."
        )
    if not isinstance(description, str) or not description.strip():
        raise InvalidParameterError(
            "description is empty: say what the records are about, so that the model "
            "knows when to ask."
        )
    calls = ToolCalls(
        chain, _unwrapped(chain), explain=name if handle_tool_error is True else None
    )
    if budget is not None:
        calls = calls.paid_by(budget)
    schema = _schema(name, calls.dp_chain, variables or {})
    return DPTool.from_function(
        func=calls.answer,
        coroutine=calls.aanswer,
        name=name,
        description=f"{description.strip()}\n\n{GUIDANCE}" if guidance else description,
        args_schema=schema,
        response_format="content_and_artifact",
        return_direct=return_direct,
        handle_tool_error=handle_tool_error,
    )


class _SpentError(BudgetExhaustedError, ToolException):
    """The same error as a tool's own: it need not end an agent's run."""


class DPTool(FrozenModel, StructuredTool):
    """A tool whose arguments and answers stay those of its chain."""

    @override
    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "name", self.name
        if calls := ToolCalls.of(self):
            yield "chain", calls.dp_chain


@dataclass(frozen=True, repr=False)
class ToolCalls:
    """What a tool does when it is called.

    Attributes:
        chain: The chain as it was given, with its bound config.
        dp_chain: The `DPChain` in it.
        explain: The tool's name, if a model is to be told why it gets no answer.
    """

    chain: Runnable[Any, AIMessage]
    dp_chain: DPChain
    explain: str | None = None

    @classmethod
    def of(cls, tool: Any) -> ToolCalls | None:
        """Return what a tool of `create_dp_tool` does; None for any other tool."""
        found = getattr(getattr(tool, "func", None), "__self__", None)
        return found if isinstance(found, cls) else None

    def answer(
        self,
        question: str,
        config: RunnableConfig,
        callbacks: Callbacks = None,
        **variables: Any,
    ) -> tuple[str, dict[str, Any]]:
        """Ask the chain; return the answer and its public record."""
        child = patch_config(config, callbacks=callbacks)  # type: ignore[arg-type]  # a tool's child manager, or none
        asked = {"question": question, **variables}
        try:
            return _shown(self.chain.invoke(asked, child))
        except BudgetExhaustedError as error:
            raise self._told(error) from None

    async def aanswer(
        self,
        question: str,
        config: RunnableConfig,
        callbacks: Callbacks = None,
        **variables: Any,
    ) -> tuple[str, dict[str, Any]]:
        """Ask the chain; see `answer`."""
        child = patch_config(config, callbacks=callbacks)  # type: ignore[arg-type]  # a tool's child manager, or none
        asked = {"question": question, **variables}
        try:
            return _shown(await self.chain.ainvoke(asked, child))
        except BudgetExhaustedError as error:
            raise self._told(error) from None

    def paid_by(self, budget: PrivacyBudgetHandler) -> ToolCalls:
        """Return the same calls, paid by an account.

        Raises:
            NoBudgetError: If the chain has another one.
        """
        self.budget([budget])
        return replace(self, chain=self.chain.with_config(callbacks=[budget]))

    def budget(self, callbacks: Callbacks) -> PrivacyBudgetHandler:
        """Return who pays for a call in a run with these callbacks.

        Raises:
            NoBudgetError: If nobody does, or more than one account is named.
        """
        configs = [RunnableConfig(callbacks=callbacks)]
        found: Any = self.chain
        while isinstance(found, RunnableBinding):
            configs.append(found.config)
            found = found.bound
        merged = merge_configs(*configs).get("callbacks")
        return find_budget(self.dp_chain.budget, merged)

    def _told(self, error: BudgetExhaustedError) -> _SpentError:
        if self.explain is None:
            return _SpentError(*error.args)
        what = _advice(self.explain, cached=bool(self.dp_chain.cache))
        return _SpentError(
            f"Not answered: the privacy budget can't pay for it. {error} {what}"
        )


def _unwrapped(chain: Any) -> DPChain:
    found = chain
    while isinstance(found, RunnableBinding):
        found = found.bound
    if isinstance(found, DPChain):
        return found
    raise InvalidParameterError(
        f"create_dp_tool takes a DPChain, also one with .with_config(...), not "
        f"{type(found).__name__}. Pass the DPChain itself: what stands around it loses "
        "the public record (| StrOutputParser()), charges again (.with_retry()), or "
        "swallows a refusal and answers without privacy (.with_fallbacks()). Of a "
        "DPRetriever, pass its .chain."
    )


def _shown(answer: AIMessage) -> tuple[str, dict[str, Any]]:
    return str(answer.text), answer.response_metadata["privacy"]


def _advice(name: str, *, cached: bool) -> str:
    """Return what a model should do when a tool can't answer any more."""
    if cached:
        return (
            f"Don't call {name!r} with a new question again: it would be refused too. "
            "Only a question that was answered before can be repeated, word for word. "
            "Go on with what you know, and say that the budget is spent."
        )
    return (
        f"Don't call {name!r} again, with this or any other question: it would be "
        "refused too. Go on with what you know, and say that the budget is spent."
    )


def _schema(name: str, chain: DPChain, described: Mapping[str, str]) -> type[BaseModel]:
    further = _further_variables(chain)
    unknown = sorted(set(described) - set(further))
    if unknown:
        raise InvalidParameterError(
            f"variables describes {', '.join(unknown)}, which no prompt of the chain "
            f"has. It has: {', '.join(further) or 'none besides the question'}."
        )
    fields: dict[str, Any] = {"question": (_text(_QUESTION), ...)}
    for variable in further:
        meaning = described.get(variable, f"The {variable.replace('_', ' ')}")
        fields[variable] = (_text(meaning), ...)
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model(f"{name}_arguments", __config__=config, **fields)


def _text(description: str) -> Any:
    return Annotated[str, Field(description=description), AfterValidator(_not_blank)]


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _further_variables(chain: DPChain) -> list[str]:
    """Return what the prompts need besides what the chain fills in."""
    found: set[str] = set()
    for prompt in (chain.prompt, chain.public_prompt, chain.parser.rewrite_prompt):
        if prompt is None:
            continue
        filled = {*_FILLED, RECORDS} if takes_records(prompt) else _FILLED
        wanted = set(prompt.input_variables) - filled
        messages = sorted(wanted & set(prompt.input_types))
        if messages:
            raise InvalidParameterError(
                f"{', '.join(messages)} of the prompt takes messages, which a model "
                "can't give as text: fill it with prompt.partial(...) first."
            )
        found |= wanted
    for variable in found:
        taken = variable in _TAKEN or hasattr(BaseModel, variable)
        if taken or not _is_argument(variable):
            raise InvalidParameterError(
                f"The prompt's variable {variable!r} can't be an argument of a tool: "
                "give it another name, or fill it with prompt.partial(...)."
            )
    return sorted(found)


def _is_argument(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")
