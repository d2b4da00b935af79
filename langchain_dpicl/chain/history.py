"""Several turns: a follow-up question, made to stand alone before the private part.

A group sees one question and its own records, nothing of the conversation. So "And on
metformin?" has to become a whole question first, by a public call of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_dpicl.chain.prompting import with_question
from langchain_dpicl.chain.public_model import PublicModel, Use
from langchain_dpicl.common import parameters
from langchain_dpicl.common.prompts import CONDENSE_PROMPT
from langchain_dpicl.errors import InvalidParameterError


def create_question_condenser(
    model: Any,
    *,
    prompt: BasePromptTemplate[Any] = CONDENSE_PROMPT,
    history_key: str = "chat_history",
    max_messages: int = 20,
) -> Runnable[Any, dict[str, Any]]:
    """Return a runnable that makes a follow-up question stand alone.

    It goes before a `DPChain`: `create_question_condenser(model) | chain`. A question
    without a history passes as it is, and no model is asked.

    Args:
        model: A chat or completion model; it sees the conversation, no records.
        prompt: What it is asked, with `chat_history` (messages) and `question`.
        history_key: Where the input holds the messages so far. An input without it is a
            question without a history.
        max_messages: How many of the last messages the model sees.

    Returns:
        A runnable whose input is a mapping with `question` and the history, or a list
        of messages whose last one is the question, and whose output is the mapping
        without the history, with a question that stands alone.

    Raises:
        InvalidParameterError: If an argument can't be used; when asked, if the input
            holds no question, or a history that is no list of messages.
        UnsealableModelError: If the model is none that a `DPChain` takes.
        PublicCallError: When asked, if the model fails. Nothing was charged.

    Privacy:
        An ordinary call in sight of every observer. The history has to be public: what
        the user typed, and answers that were released. Records, and the answers of a
        chain that is not private, must never be in it.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> model = FakeListChatModel(responses=["Does metformin give nausea?"])
        >>> condenser = create_question_condenser(model)
        >>> condenser.invoke(
        ...     {
        ...         "question": "And metformin?",
        ...         "chat_history": [("human", "Does lisinopril give nausea?")],
        ...     }
        ... )
        {'question': 'Does metformin give nausea?'}
    """
    most = parameters.count(max_messages, "max_messages")
    missing = {"chat_history", "question"}.difference(prompt.input_variables)
    if missing:
        raise InvalidParameterError(
            f"The prompt has no variable {' or '.join(sorted(missing))}."
        )
    public = PublicModel(model)

    def prompted(value: Any) -> tuple[dict[str, Any], Any]:
        given, history = _read(value, history_key)
        if not history:
            return given, None
        last = history[-most:]
        filled = prompt.invoke({"chat_history": last, "question": given["question"]})
        return given, filled

    def condense(value: Any, config: RunnableConfig) -> dict[str, Any]:
        given, filled = prompted(value)
        return (
            given
            if filled is None
            else _with(given, public.answers(filled, 1, config, Use()))
        )

    async def acondense(value: Any, config: RunnableConfig) -> dict[str, Any]:
        given, filled = prompted(value)
        return (
            given
            if filled is None
            else _with(given, await public.aanswers(filled, 1, config, Use()))
        )

    return RunnableLambda(condense, acondense, name="condense_question")


def _read(value: Any, history_key: str) -> tuple[dict[str, Any], list[BaseMessage]]:
    if isinstance(value, str):
        return {"question": value}, []
    if isinstance(value, Mapping):
        given = with_question(value)
        given.pop(history_key, None)
        history = _messages(value.get(history_key) or [], history_key)
    else:
        messages = _messages(value, "the input")
        if not messages or not isinstance(messages[-1], HumanMessage):
            raise InvalidParameterError(
                "The last message must be the user's question (a HumanMessage)."
            )
        given, history = {"question": str(messages[-1].text)}, messages[:-1]
    question = given.get("question")
    if not isinstance(question, str) or not question.strip():
        raise InvalidParameterError(
            "The input has no 'question': pass a mapping with one, or messages."
        )
    return given, history


def _messages(value: Any, name: str) -> list[BaseMessage]:
    try:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return convert_to_messages(value)
    except (ValueError, TypeError, NotImplementedError, KeyError):
        # Its message holds what was passed.
        pass
    raise InvalidParameterError(
        f"{name} must be a list of messages, or what can be made into messages."
    )


def _with(given: dict[str, Any], answers: tuple[str, ...]) -> dict[str, Any]:
    """Put the condensed question in place; a model that says nothing changes none."""
    condensed = answers[0].strip()
    return {**given, "question": condensed} if condensed else given
