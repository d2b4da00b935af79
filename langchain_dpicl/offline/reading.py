"""What a prompt asks for: records, question, exemplars, options, suggestions.

The markers are those of the library's own prompts, and of the prompts that RAG
tutorials use. Instructions are looked for outside the records only, so that a record
cannot turn itself into one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from langchain_dpicl.slots import hidden_repr

_CONTEXT = re.compile(
    r"^[ \t]*(?:records|context|documents|passages|notes)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)
_QUESTION = re.compile(r"^[ \t]*question[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
_ANSWER = re.compile(r"\n[ \t]*(?:helpful )?answer[ \t]*:?[ \t]*\Z", re.IGNORECASE)
_RULE = re.compile(r"\n[ \t]*\n?[ \t]*-{3,}[ \t]*\n")
_BLANK = re.compile(r"\n[ \t]*\n")
_SUGGESTIONS = re.compile(
    r"with the following word suggestions"
    r"(?: ranked by their frequency from high to low)?\s*:[ \t]*([^\n]*)",
    re.IGNORECASE,
)
_CHOICES = re.compile(r"\b(options|labels)[ \t]*:[ \t]*([^\n]+)", re.IGNORECASE)
_BULLETS = re.compile(
    r"\b(options|labels)[ \t]*:[ \t]*((?:\n[ \t]*[-*] .+)+)", re.IGNORECASE
)
_EXEMPLAR = re.compile(
    r"^(?:text|input)[ \t]*:[ \t]*(?P<text>.*?)"
    r"\n[ \t]*(?:label|output)[ \t]*:[ \t]*(?P<label>[^\n]*)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


class Reading(NamedTuple):
    """A prompt, taken apart."""

    question: str
    """The question, or the text to label."""

    records: tuple[str, ...] = ()
    """The records of the context, in the prompt's order."""

    exemplars: tuple[tuple[str, str], ...] = ()
    """Pairs of text and label."""

    labels: tuple[str, ...] = ()
    """Labels to choose from, where the prompt names them or shows exemplars."""

    options: tuple[str, ...] = ()
    """Answers to choose from."""

    suggestions: tuple[str, ...] = ()
    """Words that the answer must be made of, in the prompt's order."""

    labeling: bool = False
    """Whether the prompt ends with a text that waits for its label."""

    def __repr__(self) -> str:
        return hidden_repr(self)


def read(system: str, human: str) -> Reading:
    r"""Take a prompt apart.

    Args:
        system: The text of the system messages.
        human: The text of the other messages, the last one last.

    Returns:
        What the prompt asks for.

    Example:
        >>> read("", "Records:\nA.\n\n---\n\nB.\n\nQuestion: Which?").records
        ('A.', 'B.')
    """
    prompt = f"{system}\n\n{human}".strip() if system else human.strip()
    blocks = list(_EXEMPLAR.finditer(prompt))
    if (
        blocks
        and not blocks[-1]["label"].strip()
        and not _CONTEXT.search(prompt, 0, blocks[0].start())
    ):
        return _read_labeling(prompt, blocks)
    frame, question, records = _split(prompt)
    if not records and system and not _QUESTION.search(prompt):
        # A system message that holds the context without naming it.
        frame, question = system, human.strip()
        records = _records("\n\n".join(_BLANK.split(system)[1:]))
    return Reading(
        question=question,
        records=records,
        labels=_choices(frame, "labels"),
        options=_choices(frame, "options"),
        suggestions=_suggestions(frame),
    )


def _read_labeling(prompt: str, blocks: list[re.Match[str]]) -> Reading:
    frame = prompt[: blocks[0].start()]
    exemplars = tuple(
        (block["text"].strip(), block["label"].strip())
        for block in blocks[:-1]
        if block["label"].strip()
    )
    # Without a list, the labels are those of the exemplars, in order of appearance.
    labels = _choices(frame, "labels") or tuple(dict.fromkeys(y for _, y in exemplars))
    return Reading(
        question=blocks[-1]["text"].strip(),
        exemplars=exemplars,
        labels=labels,
        labeling=True,
    )


def _split(prompt: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the prompt without its records, the question, and the records."""
    body = _ANSWER.sub("", prompt)
    context = _CONTEXT.search(body)
    asked = list(_QUESTION.finditer(body))
    if context is None:
        question = body[asked[-1].end() :] if asked else body
        return body, _first_paragraph(question), ()
    before = [match for match in asked if match.start() < context.start()]
    if before:
        start = before[-1].end()
        question = _first_paragraph(body[start : context.start()])
        return body[: context.start()], question, _records(body[context.end() :])
    if asked:
        question = _first_paragraph(body[asked[-1].end() :])
        frame = f"{body[: context.start()]}\n{body[asked[-1].start() :]}"
        return frame, question, _records(body[context.end() : asked[-1].start()])
    *head, question = _BLANK.split(body[context.end() :].strip())
    frame = f"{body[: context.start()]}\n{question}"
    return frame, question, _records("\n\n".join(head))


def _first_paragraph(text: str) -> str:
    return _BLANK.split(text.strip(), maxsplit=1)[0].strip()


def _records(context: str) -> tuple[str, ...]:
    """Cut a context at its rules, or at its blank lines where it has none."""
    parts = _RULE.split(context)
    if len(parts) == 1:
        parts = _BLANK.split(context)
    return tuple(part.strip() for part in parts if part.strip())


def _choices(frame: str, kind: str) -> tuple[str, ...]:
    for pattern in (_BULLETS, _CHOICES):
        for match in pattern.finditer(frame):
            if match[1].casefold() == kind:
                return _items(match[2])
    return ()


def _items(text: str) -> tuple[str, ...]:
    """Cut a list at bullets, else at semicolons or bars, else at commas."""
    if "\n" in text.strip():
        parts = [line.strip().lstrip("-*") for line in text.splitlines()]
    else:
        mark = next((mark for mark in (";", "|") if mark in text), ",")
        parts = text.split(mark)
    items = (part.strip().rstrip(".").strip("\"' ") for part in parts)
    return tuple(dict.fromkeys(item for item in items if item))


def _suggestions(frame: str) -> tuple[str, ...]:
    match = _SUGGESTIONS.search(frame)
    return _items(match[1]) if match else ()
