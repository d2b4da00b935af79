"""From a chain's input to its prompts: the public ones, and one for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import (
    BaseChatPromptTemplate,
    BasePromptTemplate,
    format_document,
)

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

RECORDS = "records"
"""Where a group prompt takes a group's records as messages."""

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
    """Read a chain's input.

    Args:
        value: A string, or a mapping with `question`, or else `input`, as LangChain's
            agents and retrieval chains call it. Its `filter` says who takes part.

    Raises:
        InvalidParameterError: If there is no question in it, or it is too long.

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
    if (length := _length(given)) > LONGEST:
        raise InvalidParameterError(
            f"The question, with its filter and variables, has {length} characters and "
            f"may have {LONGEST}: a model that can't read it would fail in every "
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
        prompt: The group prompt, with `question`, and with `context` or a
            `MessagesPlaceholder("records")`; None is the library's.
        document_prompt: How one record is written: as a text, or as messages.
    """

    prompt: BasePromptTemplate[Any] | None
    document_prompt: BasePromptTemplate[Any]

    @cached_property
    def turns(self) -> tuple[BaseMessage, ...]:
        """The messages of a record without its text; none where it is a text.

        Raises:
            InvalidParameterError: If the document prompt makes anything but messages
                of one text each, always the same number of them.
        """
        if not isinstance(self.document_prompt, BaseChatPromptTemplate):
            return ()
        blank = dict.fromkeys(self.document_prompt.input_variables, "")
        try:
            turns = tuple(self.document_prompt.format_messages(**blank))
        except Exception:  # noqa: BLE001 - replaced by an error of ours
            turns = ()
        if turns and all(isinstance(turn.content, str) for turn in turns):
            return turns
        raise InvalidParameterError(
            "document_prompt= must write each record as messages of one text each, "
            "without a MessagesPlaceholder, such as ChatPromptTemplate.from_messages("
            "[('human', '{page_content}'), ('ai', '{label}')])."
        )

    def check(self, metadata_keys: frozenset[str] | None, *, drafts: bool) -> None:
        """Refuse prompts that could not be filled for any group.

        Args:
            metadata_keys: The keys that records have; None if they are not known.
            drafts: Whether the model drafts what the groups choose from.

        Raises:
            InvalidParameterError: If the group prompt has no place for the records as
                they are written, the question, or drafted options, or the document
                prompt wants what no record has.
        """
        wanted = set(self.prompt.input_variables) if self.prompt else set()
        if self.turns and not takes_records(self.prompt):
            raise InvalidParameterError(
                "document_prompt= writes each record as messages, and the group prompt "
                "has no place for them. Pass prompt=ChatPromptTemplate.from_messages("
                "[..., MessagesPlaceholder('records'), ('human', '{question}')])."
            )
        if takes_records(self.prompt) and not self.turns:
            raise InvalidParameterError(
                "The prompt takes the records as messages, and document_prompt= writes "
                "each as a text. Pass a ChatPromptTemplate as document_prompt=, or put "
                "{context} in place of MessagesPlaceholder('records')."
            )
        unknown = set(self.document_prompt.input_variables) - {"page_content"}
        if metadata_keys is not None and not unknown <= metadata_keys:
            raise InvalidParameterError(
                "The document prompt names metadata that no record has: "
                f"{', '.join(sorted(unknown - metadata_keys))}. Every group would "
                "fail, and it would look as if they did not agree."
            )
        if self.turns and "context" in wanted:
            raise InvalidParameterError(
                "The prompt takes the records as messages: leave {context} out of it."
            )
        if self.prompt is None:
            return
        if "filter" in wanted:
            raise InvalidParameterError(
                "The prompt has a variable filter, which in an input says who takes "
                "part: give it another name."
            )
        needed = {"question"} if self.turns else {"context", "question"}
        if missing := needed - wanted:
            raise InvalidParameterError(
                f"The prompt has no variable {' or '.join(sorted(missing))}: "
                "{context} takes a group's records, {question} the question."
            )
        if drafts and _INSTRUCTIONS not in wanted:
            raise InvalidParameterError(
                "The prompt has no variable format_instructions: no group would see "
                "the drafted options. Put {format_instructions} into it."
            )

    def group(self, question: Question, documents: Sequence[Document]) -> PromptValue:
        """Return the prompt for one group's records."""
        return filled(self.prompt or GROUP_PROMPT, question, **self._written(documents))

    def public(self, question: Question) -> PromptValue:
        """Return the question alone: your own group prompt has an empty context there.

        How groups answer is no matter of it: it has no records that could support
        "none of these".

        Raises:
            InvalidParameterError: If the input lacks a variable of the prompt.
        """
        asked = replace(question, instructions="")
        return filled(self.prompt or PUBLIC_PROMPT, asked, **self._written(()))

    def texts(self, question: Question) -> list[str]:
        """Return what tells these prompts from others: all are public.

        Raises:
            InvalidParameterError: If the input lacks a variable of the prompt.
        """
        return [
            self.group(question, ()).to_string(),
            self.public(question).to_string(),
            repr(self.document_prompt),
        ]

    def _written(self, documents: Sequence[Document]) -> dict[str, Any]:
        """Return what a prompt is filled with for records."""
        if self.turns:
            return {
                RECORDS: [m for document in documents for m in self._said(document)]
            }
        # A document prompt of one's own shows by itself where a record begins.
        is_ours = self.document_prompt is DOCUMENT_PROMPT
        separator = DOCUMENT_SEPARATOR if is_ours else "\n\n"
        return {"context": separator.join(map(self._text, documents))}

    def _text(self, document: Document) -> str:
        # Hundreds of records a question: a template costs more than all else.
        if self.document_prompt is DOCUMENT_PROMPT:
            return document.page_content
        return format_document(document, self.document_prompt)

    def _said(self, document: Document) -> list[BaseMessage]:
        known = {"page_content": document.page_content, **document.metadata}
        names = self.document_prompt.input_variables
        written = self.document_prompt.format_prompt(**{n: known[n] for n in names})
        return written.to_messages()


def takes_records(prompt: BasePromptTemplate[Any] | None) -> bool:
    """Return whether a prompt has a `MessagesPlaceholder("records")`."""
    return prompt is not None and RECORDS in prompt.input_types


def filled(
    template: BasePromptTemplate[Any], question: Question, **values: Any
) -> PromptValue:
    """Fill a public template; it ignores what it does not use.

    Raises:
        InvalidParameterError: If the input lacks a variable of the prompt.
    """
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
