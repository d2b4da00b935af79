"""From a chain's input to its prompts: the public ones, and one for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, format_document

from langchain_dpicl.common.prompts import (
    DOCUMENT_PROMPT,
    DOCUMENT_SEPARATOR,
    GROUP_PROMPT,
    PUBLIC_PROMPT,
)
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.filtering import RecordFilter

LONGEST = 20_000
"""Most characters of a question, its filter and its variables together."""

_INSTRUCTIONS = "format_instructions"
_FILLED = frozenset({"context", "keywords"})


@dataclass(frozen=True)
class Question:
    """A chain's input: the question, who takes part, and the prompt's variables.

    Attributes:
        text: The question.
        variables: What else the prompt needs.
        only: Who takes part; None: everybody.
        instructions: How the parser wants to be answered.
    """

    text: str
    variables: dict[str, Any] = field(default_factory=dict)
    only: RecordFilter | None = None
    instructions: str = ""


def read_question(value: Any) -> Question:
    """Read a chain's input: a string, or a mapping with `question`.

    It may be called `input`, as in LangChain's agents and retrieval chains. Its
    `filter` says who takes part.

    Example:
        >>> read_question({"question": "Why?", "language": "French"}).variables
        {'language': 'French'}
    """
    given: dict[str, Any] = {"question": value}
    if isinstance(value, Mapping):
        given = {str(key): item for key, item in value.items()}
        if "question" not in given and "input" in given:
            given["question"] = given.pop("input")
        if "question" not in given:
            raise InvalidParameterError(
                "The input has no 'question'. Pass a string, or a mapping with the "
                "question under 'question' or 'input'."
            )
    length = LONGEST + 1
    with suppress(ValueError, RecursionError):  # Endless numbers, and lists in lists.
        length = _length(given)
    if length > LONGEST:
        raise InvalidParameterError(
            f"The question, with its filter and variables, may have {LONGEST} "
            "characters and has more: a model that can't read it would fail in every "
            "group, and the budget be spent."
        )
    text, only = given.pop("question"), given.pop("filter", None)
    if not isinstance(text, str):
        raise InvalidParameterError(
            "The chain takes a question: a string, or a mapping with one under "
            f"'question', not {type(text).__name__}. Of messages, pass the last one's "
            "text."
        )
    if not text.strip():
        raise InvalidParameterError("The question is empty.")
    if taken := sorted(_FILLED & set(given)):
        raise InvalidParameterError(
            f"{taken} can't be given in the input: the chain fills 'context' "
            "with each group's records and 'keywords' with the released words."
        )
    everybody = only is None or only == {}
    return Question(text, given, None if everybody else RecordFilter.of(only))


def _length(value: Any) -> int:
    """Return how many characters an input's value has, with all that it holds."""
    if isinstance(value, Mapping):
        return sum(_length(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(_length, value))
    if isinstance(value, BaseMessage):
        return _length(value.content)
    return len(value if isinstance(value, str | bytes) else str(value))


@dataclass(frozen=True)
class Prompting:
    """The templates of a chain.

    Attributes:
        prompt: The group prompt, with `question` and `context`; None is the library's.
        document_prompt: How one record is written.
    """

    prompt: BasePromptTemplate[Any] | None
    document_prompt: BasePromptTemplate[Any]

    def check(self, metadata_keys: frozenset[str] | None, *, drafts: bool) -> None:
        """Refuse prompts that could not be filled for any group.

        `metadata_keys` are those that records have, if they are known; `drafts` says
        whether the model drafts what the groups choose from.
        """
        unknown = set(self.document_prompt.input_variables) - {"page_content"}
        if metadata_keys is not None and not unknown <= metadata_keys:
            raise InvalidParameterError(
                "The document prompt names metadata that no record has: "
                f"{', '.join(sorted(unknown - metadata_keys))}. Every group would "
                "fail, and it would look as if they did not agree."
            )
        if self.prompt is None:
            return
        wanted = set(self.prompt.input_variables)
        if "filter" in wanted:
            raise InvalidParameterError(
                "The prompt has a variable filter, which in an input says who takes "
                "part: give it another name."
            )
        needed = ["context", "question", *[_INSTRUCTIONS] * drafts]
        if missing := [name for name in needed if name not in wanted]:
            raise InvalidParameterError(
                f"The prompt has no variable {' or '.join(missing)}: {{context}} takes "
                "a group's records, {question} the question, and {format_instructions} "
                "the options that the model drafts."
            )

    def group(self, question: Question, documents: Sequence[Document]) -> PromptValue:
        """Return the prompt for one group's records."""
        return filled(
            self.prompt or GROUP_PROMPT, question, context=self._context(documents)
        )

    def public(self, question: Question) -> PromptValue:
        """Return the question alone: your own group prompt has an empty context there.

        How groups answer is no matter of it: it has no records that could support
        "none of these".
        """
        asked = replace(question, instructions="")
        return filled(self.prompt or PUBLIC_PROMPT, asked, context="")

    def texts(self, question: Question) -> list[str]:
        """Return what tells these prompts from others: all are public."""
        return [
            self.group(question, ()).to_string(),
            self.public(question).to_string(),
            repr(self.document_prompt),
        ]

    @cached_property
    def _is_plain(self) -> bool:
        """Whether a record is its text alone; pydantic copies a field's default."""
        return self.document_prompt == DOCUMENT_PROMPT

    def _context(self, documents: Sequence[Document]) -> str:
        if self._is_plain:
            # Hundreds of records a question: a template costs more than all else.
            return DOCUMENT_SEPARATOR.join(one.page_content for one in documents)
        # A document prompt of one's own shows by itself where a record begins.
        written = (format_document(one, self.document_prompt) for one in documents)
        return "\n\n".join(written)


def filled(
    template: BasePromptTemplate[Any], question: Question, **values: Any
) -> PromptValue:
    """Fill a public template, which ignores what it does not use; or refuse it."""
    given = {_INSTRUCTIONS: question.instructions}
    if _INSTRUCTIONS in template.partial_variables:
        given = {}  # Somebody's own, as with LangChain's parsers.
    try:
        return template.format_prompt(
            **{"question": question.text, **given, **question.variables, **values}
        )
    except KeyError as error:
        missing = str(error.args[0]).split("\n", maxsplit=1)[0]
    raise InvalidParameterError(
        f"The prompt can't be filled: {missing} Pass a mapping with 'question' and "
        "every other variable of the prompt."
    )


def rewritten(
    template: BasePromptTemplate[Any] | None, question: Question, words: str
) -> PromptValue | None:
    """Return the prompt that puts released words into a sentence, if there is one."""
    return None if template is None else filled(template, question, keywords=words)
