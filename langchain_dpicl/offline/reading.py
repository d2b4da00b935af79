"""What a prompt asks for: records, question, exemplars, options, suggestions.

The markers are those of the library's own prompts, and of the prompts that RAG
tutorials use. Instructions are looked for outside the records only, so that a record
cannot turn itself into one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from langchain_dpicl.common.hidden import hidden_repr

_FLAGS = re.IGNORECASE | re.MULTILINE
_CONTEXT = re.compile(
    r"^[ \t]*(?:records|context|documents|passages|notes|facts)[ \t]*:", _FLAGS
)
_QUESTION = re.compile(r"^[ \t]*question[ \t]*:[ \t]*", _FLAGS)
_ANSWER = re.compile(
    r"\n[ \t]*(?:helpful |possible )?answers?[ \t]*:?[ \t]*\Z", re.IGNORECASE
)
_DRAFTING = re.compile(
    r"\blist the possible answers\b[^.\n]*?\bat most\s+(\d+)", re.IGNORECASE
)
_RULE = re.compile(r"\n[ \t]*\n?[ \t]*-{3,}[ \t]*\n")
_BLANK = re.compile(r"\n[ \t]*\n")
_SUGGESTIONS = re.compile(
    r"with the following word suggestions(?: ranked [^:\n]*)?\s*:[ \t]*([^\n]*)",
    re.IGNORECASE,
)
_CHOICES = re.compile(
    r"\b(?:options|labels)[ \t]*:[ \t]*((?:\n[ \t]*[-*] .+)+|[^\n]+)", re.IGNORECASE
)
_EXEMPLAR = re.compile(
    r"^(?:text|input)[ \t]*:[ \t]*(?P<text>.*?)"
    r"\n[ \t]*(?:label|output)[ \t]*:[ \t]*(?P<label>[^\n]*)",
    _FLAGS | re.DOTALL,
)
_REFERENCE = re.compile(
    r"\b(on|of|for|with|in|to|from|by|about|after|take|takes)\s+(\w[\w-]*)",
    re.IGNORECASE,
)

CONDENSING = "as one standalone question"
"""What a system message says that asks for a question to be rewritten."""


class Reading(NamedTuple):
    """A prompt, taken apart."""

    question: str  # The question, or the text to label.
    records: tuple[str, ...] = ()  # The records of the context, in the prompt's order.
    exemplars: tuple[tuple[str, str], ...] = ()  # Pairs of text and label.
    # Options or labels to choose from: those listed, else those of the exemplars.
    choices: tuple[str, ...] = ()
    # Words that the answer must be made of, in the prompt's order.
    suggestions: tuple[str, ...] = ()
    # How many possible answers are to be listed at most, where that is asked for.
    drafts: int = 0
    # Whether the prompt ends with a text that waits for its label.
    labeling: bool = False

    def __repr__(self) -> str:
        return hidden_repr(self)


def read(system: str, human: str) -> Reading:
    r"""Take a prompt apart: the system messages' text, and that of the others in order.

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
    frame, question, context = _split(_ANSWER.sub("", prompt))
    # Records stand between rules, or between blank lines where there is no rule.
    records = _RULE.split(context) if _RULE.search(context) else _BLANK.split(context)
    suggestions = _SUGGESTIONS.search(frame)
    drafting = _DRAFTING.search(frame)
    return Reading(
        question=_BLANK.split(question.strip(), maxsplit=1)[0].strip(),
        records=tuple(record.strip() for record in records if record.strip()),
        choices=_choices(frame),
        suggestions=_items(suggestions[1]) if suggestions else (),
        drafts=int(drafting[1]) if drafting else 0,
    )


def standalone(questions: Sequence[str]) -> str:
    """Return the last of a user's questions, made to stand alone.

    "And on metformin?" puts its words into the places that they have in the question
    before. Where there is no such place the question stays as it is.

    Example:
        >>> standalone(["What do patients on lisinopril report?", "And on metformin?"])
        'What do patients on metformin report?'
    """
    *before, last = questions
    whole = before[-1] if before else last
    replaced = 0
    for word, thing in _REFERENCE.findall(last):
        place = re.compile(rf"\b({re.escape(word)})\s+\w[\w-]*", re.IGNORECASE)
        whole, count = place.subn(rf"\1 {thing}", whole, count=1)
        replaced += count
    return whole if replaced else last


def _read_labeling(prompt: str, blocks: list[re.Match[str]]) -> Reading:
    exemplars = tuple(
        (block["text"].strip(), block["label"].strip())
        for block in blocks[:-1]
        if block["label"].strip()
    )
    listed = _choices(prompt[: blocks[0].start()])
    return Reading(
        question=blocks[-1]["text"].strip(),
        exemplars=exemplars,
        choices=listed or tuple(dict.fromkeys(label for _, label in exemplars)),
        labeling=True,
    )


def _split(prompt: str) -> tuple[str, str, str]:
    """Return the prompt without its records, the question, and the records."""
    context = _CONTEXT.search(prompt)
    asked = list(_QUESTION.finditer(prompt))
    if context is None:
        return prompt, prompt[asked[-1].end() :] if asked else prompt, ""
    frame, records = prompt[: context.start()], prompt[context.end() :]
    before = [match for match in asked if match.start() < context.start()]
    if before:  # Whatever the records say after that is no question.
        return frame, frame[before[-1].end() :], records
    if asked:
        question = prompt[asked[-1].end() :]
        records = prompt[context.end() : asked[-1].start()]
    else:
        *head, question = _BLANK.split(records.strip())
        records = "\n\n".join(head)
    return f"{frame}\n{question}", question, records


def _choices(frame: str) -> tuple[str, ...]:
    listed = _CHOICES.search(frame)
    return _items(listed[1]) if listed else ()


def _items(text: str) -> tuple[str, ...]:
    """Cut a list at bullets, else at semicolons or bars, else at commas."""
    if text.startswith("\n"):
        parts = [line.strip().lstrip("-*") for line in text.splitlines()]
    else:
        mark = next((mark for mark in (";", "|") if mark in text), ",")
        parts = text.split(mark)
    items = (part.strip().rstrip(".").strip("\"' ") for part in parts)
    return tuple(dict.fromkeys(item for item in items if item))
