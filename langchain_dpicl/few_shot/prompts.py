"""A generator's prompts: the instruction alone, and with one group's records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from string import Formatter
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate

from langchain_dpicl.common.prompts import FEW_SHOT_CUE
from langchain_dpicl.errors import InvalidParameterError

LONGEST_TEXT = 2000
"""Most characters of a record that a prompt shows."""

EXAMPLES, LABEL = "examples", "label"


class FewShotPrompts:
    """From a label, and from a group's records, to the text of a prompt.

    The template is public. Where its `{examples}` stand, a prompt shows the group's
    records, each as what follows `{examples}` goes on: with its label, a space and its
    text. The model goes on where the prompt ends.

    Args:
        template: It has `{examples}` once, and `{label}`.
        one_line: Whether white space in a record's text becomes single spaces: a text
            that ends at the first line break is learned from texts without any.

    Example:
        >>> prompts = FewShotPrompts(template_of("Write a text."), one_line=True)
        >>> old = Document("my  parcel", metadata={"label": "shipping"})
        >>> print(prompts.group("billing", [old]))
        Write a text.
        <BLANKLINE>
        Label: shipping
        Text: my parcel
        <BLANKLINE>
        Label: billing
        Text:
    """

    def __init__(self, template: str, *, one_line: bool) -> None:
        self._template, self._one_line = template, one_line

    def public(self, label: str) -> str:
        """Return the instruction alone: no record takes part."""
        return self.group(label, [])

    def group(self, label: str, records: Sequence[Document]) -> str:
        """Return the prompt of one group; the instruction alone for an empty one."""
        before, cue = self._parts
        shown = "".join(
            f"{_filled(cue, record.metadata[LABEL])} {self._text(record)}\n\n"
            for record in records
        )
        return f"{_filled(before, label)}{shown}{_filled(cue, label)}"

    @cached_property
    def _parts(self) -> tuple[list[str], list[str]]:
        """What stands before and after the records, split where a label goes."""
        parts: tuple[list[str], list[str]] = ([""], [""])
        here = parts[0]
        for text, name, _, _ in Formatter().parse(self._template):
            here[-1] += text
            if name == EXAMPLES:
                here = parts[1]
            elif name == LABEL:
                here.append("")
        return parts

    def _text(self, record: Document) -> str:
        # A function of this record alone. Cut first: a text of megabytes is not split.
        text = record.page_content[: 2 * LONGEST_TEXT]
        return (" ".join(text.split()) if self._one_line else text)[:LONGEST_TEXT]


def template_of(prompt: Any) -> str:
    """Return a user's prompt as a template of `{examples}` and `{label}`.

    Args:
        prompt: Such a template; one of `{label}` alone, before which records are put;
            or an instruction. It is text, or a LangChain prompt template in f-string
            form without bound values.

    Raises:
        InvalidParameterError: If it is something else.

    Example:
        >>> template_of("Topic: {label}. News:")
        '{examples}Topic: {label}. News:'
    """
    if (
        isinstance(prompt, PromptTemplate)
        and prompt.template_format == "f-string"
        and not prompt.partial_variables
    ):
        prompt = prompt.template
    if not isinstance(prompt, str):
        raise InvalidParameterError(
            "prompt must be text, or a PromptTemplate in f-string form without bound "
            "values: the next token of a text is asked for, so that a chat prompt has "
            "no end to go on from."
        )
    if not prompt.strip():
        raise InvalidParameterError("The prompt is empty.")
    names = _names(prompt)
    if names == []:
        return f"{prompt.strip()}\n\n{{{EXAMPLES}}}{FEW_SHOT_CUE}"
    if names is not None and set(names) == {LABEL}:
        return f"{{{EXAMPLES}}}{prompt}"
    if names and set(names) == {EXAMPLES, LABEL} and names.count(EXAMPLES) == 1:
        return prompt
    raise InvalidParameterError(
        "prompt must be an instruction, or a template with the variables {examples} "
        "(once: where a group's records go) and {label}. A brace that is meant as one "
        "is written twice."
    )


def _names(text: str) -> list[str] | None:
    """Return the variables of a template; None where it is none that can be filled."""
    try:
        fields = list(Formatter().parse(text))
    except ValueError:
        return None
    if any(form or conversion for _, _, form, conversion in fields):
        return None
    return [name for _, name, _, _ in fields if name is not None]


def _filled(pieces: Sequence[str], label: str) -> str:
    return label[:LONGEST_TEXT].join(pieces)
