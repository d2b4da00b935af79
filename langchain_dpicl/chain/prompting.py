"""From a chain's input to its prompts: the public ones, and one per group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import cycle
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import (
    BaseChatPromptTemplate,
    BasePromptTemplate,
    PromptTemplate,
    format_document,
)

from langchain_dpicl.common.prompts import GROUP_PROMPT, PUBLIC_PROMPT
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.filtering import UnitFilter
from langchain_dpicl.parsers.words import tokenize
from langchain_dpicl.sealed import attempt

FILTER = "filter"
"""Where a chain's input says who takes part."""

RECORDS = "records"
"""Where a group prompt takes a group's records as messages."""


class UnseenLabelsWarning(UserWarning):
    """A group prompt tells no group which labels there are.

    Whatever the groups say is read for a label, but few replies will have one, and none
    will be "none of these". Put `{format_instructions}` into the prompt.
    """


@dataclass(frozen=True)
class Question:
    """A chain's input: the question, and what else the prompt needs. Public."""

    text: str
    variables: dict[str, Any] = field(default_factory=dict)
    instructions: str = ""
    """How the parser wants to be answered."""


def with_question(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return an input with its question under `question`.

    LangChain's agents and retrieval chains call it `input`. Beside a `question` that is
    another variable of the prompt.
    """
    named = {str(key): item for key, item in given.items()}
    if "question" not in named and "input" in named:
        named["question"] = named.pop("input")
    return named


def filter_of(value: Any) -> UnitFilter | None:
    """Return the filter of a chain's input: who takes part; None: everybody.

    Raises:
        InvalidParameterError: If it is no filter.

    Example:
        >>> filter_of({"question": "Why?", "filter": {"ward": 3}})
        UnitFilter(allowed=(('ward', ('3',)),))
    """
    given = value.get(FILTER) if isinstance(value, Mapping) else None
    return None if given is None or given == {} else UnitFilter.of(given)


def read_question(value: Any, longest: int | None = None) -> Question:
    """Read a chain's input.

    Args:
        value: A string, or a mapping with `question`, or else `input`. Its `filter` is
            no variable of the prompt; see `filter_of`.
        longest: Most characters of the question, its filter and its variables together;
            None: any number.

    Raises:
        InvalidParameterError: If there is no question in it, or it is longer.

    Example:
        >>> read_question({"question": "Why?", "language": "French"}).variables
        {'language': 'French'}
    """
    variables: dict[str, Any] = {}
    text = value
    if isinstance(value, Mapping):
        variables = with_question(value)
        if "question" not in variables:
            raise InvalidParameterError(
                "The input has no 'question'. Pass a string, or a mapping with the "
                "question under 'question' or 'input'."
            )
        text = variables.pop("question")
    only = variables.pop(FILTER, ())
    if not isinstance(text, str) or not text.strip():
        raise InvalidParameterError(
            "The question is empty."
            if isinstance(text, str)
            else "The chain takes a question: a string, or a mapping with one under "
            f"'question', not {type(text).__name__}. Of messages, pass the last one's "
            "text."
        )
    if longest is not None and (length := _length([text, only, variables])) > longest:
        raise InvalidParameterError(
            f"The question, with its filter and variables, has {length} characters and "
            f"may have {longest}: a model that can't read it would fail in every "
            "group, and the budget be spent. Shorten it, or raise max_question_chars=."
        )
    taken = {"context", "keywords"} & set(variables)
    if taken:
        raise InvalidParameterError(
            f"{sorted(taken)} can't be given in the input: the chain fills 'context' "
            "with each group's records and 'keywords' with the released words."
        )
    return Question(text, variables)


def _length(value: Any) -> int:
    """Return how many characters an input's value has, with all that it holds."""
    if isinstance(value, Mapping):
        return sum(_length(key) + _length(own) for key, own in value.items())
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
            `MessagesPlaceholder("records")`; None is the default.
        public_prompt: The zero-shot prompt; None is the default one, or the group
            prompt with an empty context where that is the user's own.
        document_prompt: How one record is written: as a text, or as messages.
        document_separator: What stands between records.
    """

    prompt: BasePromptTemplate[Any] | None
    public_prompt: BasePromptTemplate[Any] | None
    document_prompt: BasePromptTemplate[Any]
    document_separator: str

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

    def check(
        self,
        metadata_keys: frozenset[str] | None = None,
        *,
        drafts: bool = False,
        labels: Sequence[str] = (),
    ) -> None:
        """Refuse prompts that could not be filled for any group.

        Args:
            metadata_keys: The keys that records have; None if they are not known.
            drafts: Whether the model drafts what the groups choose from.
            labels: What the groups choose from, where that is given. A prompt that
                can't name all of it is warned of; see `UnseenLabelsWarning`.

        Raises:
            InvalidParameterError: If the group prompt has no place for the records as
                they are written, the question, or drafted options, or the document
                prompt wants what no record has.
        """
        self._check_place()
        unknown = set(self.document_prompt.input_variables) - {"page_content"}
        if metadata_keys is not None and not unknown <= metadata_keys:
            raise InvalidParameterError(
                "The document prompt names metadata that no record has: "
                f"{', '.join(sorted(unknown - metadata_keys))}. Every group would "
                "fail, and it would look as if they did not agree."
            )
        if self.prompt is None:
            return
        if FILTER in self.prompt.input_variables:
            raise InvalidParameterError(
                "The prompt has a variable filter, which in an input says who takes "
                "part: give it another name."
            )
        needed = {"question"} if self.turns else {"context", "question"}
        if missing := needed.difference(self.prompt.input_variables):
            raise InvalidParameterError(
                f"The prompt has no variable {' or '.join(sorted(missing))}: "
                "{context} takes a group's records, {question} the question."
            )
        if drafts and _INSTRUCTIONS not in self.prompt.input_variables:
            raise InvalidParameterError(
                "The prompt has no variable format_instructions: no group would see "
                "the drafted options. Put {format_instructions} into it."
            )
        others = {*self.prompt.input_variables, *self.prompt.optional_variables}
        others -= {"context", "question"}
        if labels and not others and _is_text_alone(self.document_prompt):
            said = _words(self.fixed_text(Question("")))
            unseen = [label for label in labels if _words(label) not in said]
            if unseen:
                warnings.warn(
                    f"The prompt does not name the label {unseen[0]!r}, so that groups "
                    "may not know what to choose from. Put {format_instructions} into "
                    'it: it lists the labels, and "none of these".',
                    UnseenLabelsWarning,
                    stacklevel=4,
                )

    def _check_place(self) -> None:
        """Refuse messages without a `MessagesPlaceholder`, and one without messages."""
        has_place = takes_records(self.prompt)
        if self.turns and not has_place:
            raise InvalidParameterError(
                "document_prompt= writes each record as messages, and the group prompt "
                "has no place for them. Pass prompt=ChatPromptTemplate.from_messages("
                "[..., MessagesPlaceholder('records'), ('human', '{question}')])."
            )
        if has_place and not self.turns:
            raise InvalidParameterError(
                "The prompt takes the records as messages, and document_prompt= writes "
                "each as a text. Pass a ChatPromptTemplate as document_prompt=, or put "
                "{context} in place of MessagesPlaceholder('records')."
            )
        if self.prompt and self.turns and "context" in self.prompt.input_variables:
            raise InvalidParameterError(
                "The prompt takes the records as messages: leave {context} out of it."
            )

    def texts(self, documents: Sequence[Document]) -> list[str]:
        """Return records as they are written into a prompt.

        A record that is written as messages makes a text for each of them.
        """
        if self.turns:
            return [text for document in documents for text in self._said(document)]
        # Hundreds of records a query: a template costs more than all else of a prompt.
        if _is_text_alone(self.document_prompt):
            return [document.page_content for document in documents]
        return [
            format_document(document, self.document_prompt) for document in documents
        ]

    def group(self, question: Question, texts: Sequence[str]) -> PromptValue:
        """Return the prompt for one group's written records; see `texts`."""
        return _filled(self.prompt or GROUP_PROMPT, question, **self._records(texts))

    def _said(self, document: Document) -> list[str]:
        """Return the texts of a record's messages."""
        known = {"page_content": document.page_content, **document.metadata}
        names = self.document_prompt.input_variables
        written = self.document_prompt.format_prompt(**{n: known[n] for n in names})
        messages = written.to_messages()
        return [str(m.content) for m, _ in zip(messages, self.turns, strict=True)]

    def _records(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return what a prompt is filled with for written records."""
        if not self.turns:
            return {"context": self.document_separator.join(texts)}
        spoken = zip(cycle(self.turns), texts, strict=False)
        copies = [turn.model_copy(update={"content": text}) for turn, text in spoken]
        return {RECORDS: copies}

    def public(self, question: Question) -> PromptValue:
        """Return the zero-shot prompt.

        Raises:
            InvalidParameterError: If the input lacks a variable of the prompt.
        """
        template = self.public_prompt
        if template is None:
            template = PUBLIC_PROMPT if self.prompt is None else self.prompt
        # How groups answer is no matter of the public answer: it has no records that
        # could support "none of these".
        asked = replace(question, instructions="")
        return _filled(template, asked, **self._records(()))

    def draft(
        self, template: BasePromptTemplate[Any] | None, question: Question
    ) -> PromptValue | None:
        """Return the prompt that asks for the possible answers, if any.

        Raises:
            InvalidParameterError: If the input lacks a variable of the prompt.
        """
        return None if template is None else _filled(template, question)

    def rewrite(
        self, template: BasePromptTemplate[Any] | None, question: Question, words: str
    ) -> PromptValue | None:
        """Return the prompt that puts released words into a sentence, if any.

        Raises:
            InvalidParameterError: If the input lacks a variable of the prompt. The
                chain finds out before the charge, with no words at all.
        """
        if template is None:
            return None
        return _filled(template, question, keywords=words)

    def templates(self, question: Question) -> list[str]:
        """Return what tells these prompts from others: all are public."""
        document = Document(page_content="{page_content}")
        written = attempt(partial(format_document, document, self.document_prompt))
        marks = ["{page_content}"] * max(len(self.turns), 1)
        return [
            self.group(question, marks).to_string(),
            self.public(question).to_string(),
            written or repr(self.document_prompt),
            self.document_separator,
        ]

    def rewrite_text(
        self, template: BasePromptTemplate[Any] | None, question: Question
    ) -> str:
        """Return the rewriting prompt without words, or nothing if there is none."""
        prompt = self.rewrite(template, question, "")
        return "" if prompt is None else prompt.to_string()

    def fixed_text(self, question: Question) -> str:
        """Return all words that the model sees in every group: they are public."""
        return self.group(question, ()).to_string()


def takes_records(prompt: BasePromptTemplate[Any] | None) -> bool:
    """Return whether a prompt has a `MessagesPlaceholder("records")`."""
    return prompt is not None and RECORDS in prompt.input_types


def _filled(
    template: BasePromptTemplate[Any], question: Question, **values: Any
) -> PromptValue:
    """Fill a public template; it ignores what it does not use."""
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


_INSTRUCTIONS = "format_instructions"


def _words(text: str) -> str:
    return f" {' '.join(tokenize(text))} "


def _is_text_alone(template: BasePromptTemplate[str]) -> bool:
    """Return whether a template writes a record's text and nothing else."""
    return (
        type(template) is PromptTemplate
        and template.template == "{page_content}"
        and template.template_format == "f-string"
    )
