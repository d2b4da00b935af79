"""`create_dp_tool`: a `DPChain` as a tool that a model may call.

The tool's answer is what the chain released; its artifact is the public record. Nothing
else of the chain reaches the agent: not its messages, its state or its checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from keyword import iskeyword
from typing import Annotated, Any

from langchain_core.callbacks import Callbacks
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs, patch_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from typing_extensions import override

from langchain_dpicl.budget import PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain import DPChain
from langchain_dpicl.errors import BudgetExhaustedError, InvalidParameterError
from langchain_dpicl.prompting import LONGEST
from langchain_dpicl.public import FrozenModel

__all__ = ["GUIDANCE", "create_dp_tool"]

GUIDANCE = (
    "Ask one complete question about what many of the people in the records have in "
    "common. It can't look anybody up: a question about one person, or for a list or "
    "an exact number, gets no answer from the records. Each call "
    "spends part of a privacy budget that is not refilled: don't ask the same thing "
    "twice or in other words."
)
"""What every such tool can and can't do, for the model: it ends the description."""

_QUESTION = (
    "One complete question in plain words, about groups of people, not about one person"
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FILLED = frozenset({"question", "context", "keywords", "format_instructions"})
_TAKEN = frozenset({"self", "config", "callbacks", "filter", "run_manager"})


class _SpentError(BudgetExhaustedError, ToolException):
    """The same error as a tool's own: it need not end an agent's run."""


class DPTool(FrozenModel, StructuredTool):
    """A chain as a tool; see `create_dp_tool`."""

    chain: Runnable[Any, AIMessage] = Field(exclude=True)
    """A `DPChain`, also one with `.with_config(...)`."""

    def budget(self) -> PrivacyBudgetHandler:
        """Return who pays for a call whose run names nobody.

        Raises:
            NoBudgetError: If nobody does, or more than one account is named.
        """
        configs: list[RunnableConfig] = []
        found: Any = self.chain
        while isinstance(found, RunnableBinding):
            configs.append(found.config)
            found = found.bound
        callbacks = merge_configs(*configs).get("callbacks")
        return find_budget(found.budget, callbacks)

    @override
    async def ainvoke(
        self,
        input: str | dict[str, Any] | ToolCall,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask the chain, and hold no thread of the event loop's few meanwhile."""
        return await BaseTool.ainvoke(self, input, config, **kwargs)

    @override
    def _run(
        self,
        *args: Any,
        config: RunnableConfig,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> tuple[str, dict[str, Any]]:
        """Ask the chain; return the answer and its public record."""
        try:
            asked = _asked(args, kwargs)
            return _shown(self.chain.invoke(asked, _child(config, run_manager)))
        except BudgetExhaustedError as error:
            raise self._spent(error) from None

    @override
    async def _arun(
        self,
        *args: Any,
        config: RunnableConfig,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> tuple[str, dict[str, Any]]:
        """Ask the chain; see `_run`."""
        try:
            asked, child = _asked(args, kwargs), _child(config, run_manager)
            return _shown(await self.chain.ainvoke(asked, child))
        except BudgetExhaustedError as error:
            raise self._spent(error) from None

    def _spent(self, error: BudgetExhaustedError) -> _SpentError:
        return _SpentError(
            f"Not answered: the privacy budget can't pay for it. {error} Don't call "
            f"{self.name!r} with a new question again: it would be refused too. Go on "
            "with what you know, and say that the budget is spent."
        )

    @override
    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "name", self.name
        yield "chain", _unwrapped(self.chain)


def create_dp_tool(
    chain: Runnable[Any, AIMessage], *, name: str, description: str
) -> StructuredTool:
    """Make a tool that answers questions over private records.

    The model gives the `question`, and every further variable of the chain's prompts;
    what it should not choose is fixed with `prompt.partial(...)`. The tool message's
    content is the answer, its artifact the public record. An answer that is not from
    the records says so, and a refusal says why. Where the budget is spent the model is
    told so, and not to try again, in a tool message with status `error`; all other
    errors are raised.

    Args:
        chain: A `DPChain`, also one with `.with_config(...)`. It or the run's config
            names who pays.
        name: The tool's name, for the model: letters, digits, `_` and `-`.
        description: What the records are about, and when to ask.

    Returns:
        The tool. What a retry, a fork of a thread or a resumed run asks again is
        answered at no charge, unless the chain has `cache=False`. A copy has other
        options: `tool.model_copy(update={"return_direct": True})`.

    Raises:
        InvalidParameterError: If the chain is not a `DPChain`, the name can't be a
            tool's, or a variable of the prompts can't be given by a model.

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
        ...         budget=PrivacyBudgetHandler(
        ...             epsilon=8, delta=1e-6, queries=5, ledger=":memory:"
        ...         ),
        ...     ),
        ...     name="ask_notes",
        ...     description="Answers questions about a clinic's notes.",
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
    return DPTool(
        chain=chain,
        name=name,
        description=f"{description.strip()}\n\n{GUIDANCE}",
        args_schema=_schema(name, _unwrapped(chain)),
        response_format="content_and_artifact",
        handle_tool_error=True,
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
        "the public record (| StrOutputParser()), or swallows a refusal and answers "
        "without privacy (.with_fallbacks()). Of a DPRetriever, pass its .chain."
    )


def _asked(args: tuple[Any, ...], variables: dict[str, Any]) -> dict[str, Any]:
    """Return the chain's input: LangChain passes a lone text by its place."""
    return {**dict(zip(("question",), args, strict=False)), **variables}


def _child(config: RunnableConfig, run_manager: Any) -> RunnableConfig:
    callbacks: Callbacks = run_manager.get_child() if run_manager else None
    return patch_config(config, callbacks=callbacks)  # type: ignore[arg-type]  # a tool's child manager, or none


def _shown(answer: AIMessage) -> tuple[str, dict[str, Any]]:
    return str(answer.text), answer.response_metadata["privacy"]


def _schema(name: str, chain: DPChain) -> type[BaseModel]:
    """Return the tool's arguments: the question, and what else the prompts need."""
    fields: dict[str, Any] = {"question": (_text(_QUESTION), ...)}
    for prompt in (chain.prompt, chain.parser.rewrite_prompt):
        for variable in sorted(set(prompt.input_variables) - _FILLED if prompt else ()):
            if prompt is not None and variable in prompt.input_types:
                raise InvalidParameterError(
                    f"{variable} of the prompt takes messages, which a model can't "
                    "give as text: fill it with prompt.partial(...) first."
                )
            taken = variable in _TAKEN or hasattr(BaseModel, variable)
            is_name = variable.isidentifier() and not iskeyword(variable)
            if taken or not is_name or variable.startswith("_"):
                raise InvalidParameterError(
                    f"The prompt's variable {variable!r} can't be an argument of a "
                    "tool: give it another name, or fill it with prompt.partial(...)."
                )
            fields[variable] = (_text(f"The {variable.replace('_', ' ')}"), ...)
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model(f"{name}_arguments", __config__=config, **fields)


def _text(description: str) -> Any:
    return Annotated[str, Field(description=description), AfterValidator(_usable)]


def _usable(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    if len(value) > LONGEST:
        raise ValueError(f"must have at most {LONGEST} characters")
    return value
