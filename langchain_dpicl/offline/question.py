"""What a question asks for, and about whom: a shallow reading by word order."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from langchain_dpicl.offline.words import (
    GENERIC_STEMS,
    STOP_STEMS,
    stem,
    word_set,
    words,
)

_AUXILIARIES = word_set(
    """
    am are can could did do does had has have is may might must shall should was were
    will would
    """
)
_BE = frozenset({"am", "are", "is", "was", "were"})
_DO = frozenset({"did", "do", "does"})
_REQUESTS = frozenset({"find", "give", "list", "name", "show", "state", "tell"})
_PREPOSITIONS = word_set(
    """
    about among amongst at between by during for from having in of on suffering taking
    that to using when where who whose with within without
    """
)
NEGATORS = word_set(
    """
    cannot deny denied denies denying neither never no non nor not without
    """
)
"""Words that turn what follows within a few words into its opposite."""

_MARKED = re.compile(r"[^\W_]*\d[^\W_]*|[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


class Question(NamedTuple):
    """A question as the extractive model understands it; all words are stems."""

    asked: frozenset[str]
    """What is asked for: "side effect", "phone number"."""

    subject: frozenset[str]
    """What it is asked about, without generic words: "lisinopril"."""

    excluded: frozenset[str]
    """What the subject must not have: "without exercise angina"."""

    names: frozenset[str]
    """Names and numbered ids, each of which a record must hold."""

    generic: frozenset[str]
    """The question's other words, which decide between equals."""

    every: frozenset[str]
    """All words of the question: they are no answer."""


@lru_cache(maxsize=1024)
def understand(question: str) -> Question:
    """Read a question.

    The asked-for phrase stands between "which" or "what" and the auxiliary ("which
    drug do ..."), or between "what is" and the next preposition ("what is the phone
    number of ..."). Everything else is about the subject.

    Example:
        >>> q = understand("Which side effect do patients on lisinopril report most?")
        >>> sorted(q.asked), sorted(q.subject), sorted(q.generic)
        (['effect', 'sid'], ['lisinopril'], ['patient', 'report'])
    """
    tokens = words(question)
    every = frozenset(map(stem, tokens))
    names = _names(question)
    start, end = _asked_span(tokens)
    asked = _content(tokens[start:end]) - names
    asked = asked - GENERIC_STEMS or asked
    rest = tokens[:start] + tokens[end:]
    excluded = _excluded(rest) - names
    about = _content(rest) - asked - names - excluded
    subject = about - GENERIC_STEMS - _final_verb(tokens)
    return Question(asked, subject, excluded, names, about - subject, every)


def _content(tokens: list[str]) -> frozenset[str]:
    return frozenset(
        stem(token)
        for token in tokens
        if token not in STOP_STEMS
        and stem(token) not in STOP_STEMS
        and token not in NEGATORS
    )


def _asked_span(tokens: list[str]) -> tuple[int, int]:
    """Return where the asked-for phrase starts and ends; the same place if nowhere."""
    wh = _next(tokens, 0, frozenset({"what", "which"}))
    if wh == len(tokens):
        if tokens and tokens[0] in _BE | _REQUESTS:
            return 1, _next(tokens, 1, _PREPOSITIONS)
        return 0, 0
    start = wh + 1
    auxiliary = _next(tokens, start, _AUXILIARIES)
    if _content(tokens[start:auxiliary]):
        # "Which drug helps ..." has no auxiliary: the phrase is the first noun.
        return start, auxiliary if auxiliary < len(tokens) else start + 1
    if auxiliary < len(tokens) and tokens[auxiliary] in _BE:
        start = auxiliary + 1  # "What is the phone number of ..."
    else:
        start = _next(tokens, start, frozenset({"as"})) + 1  # "... name as trigger?"
    return start, _next(tokens, start, _PREPOSITIONS)


def _final_verb(tokens: list[str]) -> frozenset[str]:
    """Return the verb of "which ... do patients on ... *report* most (often)"."""
    for at in range(len(tokens) - 1, max(len(tokens) - 3, 1), -1):
        if tokens[at] in {"most", "mostly"} and _DO.intersection(tokens[: at - 2]):
            return frozenset({stem(tokens[at - 1])})
    return frozenset()


def _next(tokens: list[str], start: int, kind: frozenset[str]) -> int:
    """Return the place of the next token of a kind, or the end."""
    for at in range(start, len(tokens)):
        if tokens[at] in kind:
            return at
    return len(tokens)


def _excluded(tokens: list[str]) -> frozenset[str]:
    """Return the content words between a negator and the next preposition or verb."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token in NEGATORS:
            end = _next(tokens, at + 1, _PREPOSITIONS | _AUXILIARIES)
            found |= _content(tokens[at + 1 : end]) - GENERIC_STEMS
    return frozenset(found)


def _names(question: str) -> frozenset[str]:
    """Return stems of capitalized words after the first, and of numbered ids."""
    tokens = _MARKED.findall(question)
    marked = [
        token
        for at, token in enumerate(tokens)
        if any(sign.isdigit() for sign in token)
        or (at > 0 and token[0].isupper() and not token.isupper())
    ]
    if len(marked) * 2 > len(tokens):  # A Question in Title Case names nobody.
        return frozenset()
    return frozenset(
        stem(word)
        for token in marked
        for word in words(token)
        if word not in STOP_STEMS
    )
