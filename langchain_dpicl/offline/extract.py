"""The extractive reader: the sentence whose content most of the records share."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from langchain_dpicl.offline.question import NEGATORS, Question
from langchain_dpicl.offline.words import (
    GENERIC_STEMS,
    STOP_STEMS,
    sentences,
    stem,
    words,
)
from langchain_dpicl.slots import hidden_repr

_ENOUGH = 0.7
"""Share of the subject's words that a record on the subject holds."""

_ENOUGH_UNPARSED = 0.34
"""The same for a question whose asked-for phrase was not found."""

_NEAR = 0.25
"""Relevance within which two sentences of one record are both candidates."""

_REACH = 3
"""Number of words that a negator reaches."""

_SHORT = 4
"""Number of words up to which a value is taken as it stands, stop words included."""

_GENERIC_SHARE = 0.3
_NEGATIVE = frozenset({"absent", "denied", "false", "never", "negative", "no", "none"})
_AFFIRMATIVE = frozenset({"positive", "present", "true", "yes"})
_KEY_VALUE = re.compile(r"([^:.!?]{1,60}):\s+(.+)", re.DOTALL)


class Candidate(NamedTuple):
    """A sentence that may be the answer."""

    text: str
    score: float
    """Support by the records, 0 to about 2."""

    def __repr__(self) -> str:
        return hidden_repr(self)


class _Sentence(NamedTuple):
    text: str
    stems: frozenset[str]
    denied: frozenset[str]
    key: frozenset[str]
    value: frozenset[str]

    def __repr__(self) -> str:
        return hidden_repr(self)


class _Record(NamedTuple):
    sentences: list[_Sentence]
    stems: frozenset[str]
    relevance: float
    chosen: list[tuple[_Sentence, float]]

    def __repr__(self) -> str:
        return hidden_repr(self)


def candidates(question: Question, records: tuple[str, ...]) -> list[Candidate]:
    """Return the sentences that may answer a question, the best one first.

    1. A record is on the subject if it holds the question's names and (most of) its
       subject's words, not denied, and none of what the question excludes.
    2. In each such record the candidates are the sentences closest to the question;
       what is asked for counts double.
    3. A word's support is the number of records on the subject with a candidate that
       holds the word; a candidate's score is its best word's support, and half of
       the support of every word that more than half of the records share.

    Equals stay in the order of the records. Nothing on the subject: no candidates.

    Args:
        question: The question, read by `understand`.
        records: The context's records.

    Example:
        >>> from langchain_dpicl.offline.question import understand
        >>> notes = ("Iron gave me a rash.", "Iron: cough.", "A cough from iron!")
        >>> candidates(understand("What do patients on iron report?"), notes)[0].text
        'Iron: cough.'
    """
    chosen = [record.chosen for record in on_subject(question, records)]
    chosen = [ranked for ranked in chosen if ranked]
    if not chosen:
        return []
    top = max(relevance for ranked in chosen for _, relevance in ranked)
    support: defaultdict[str, float] = defaultdict(float)
    total = 0.0
    for ranked in chosen:
        weight = (max(relevance for _, relevance in ranked) / top) ** 2
        total += weight
        held = frozenset().union(*(_content(one, question) for one, _ in ranked))
        for word in held:
            support[word] += weight
    scored = [
        (_score(one, question, support, total), relevance, one.text)
        for ranked in chosen
        for one, relevance in ranked
    ]
    # The sort is stable: equals stay in the order of the records.
    scored.sort(key=lambda item: (-item[0], -item[1]))
    return [Candidate(text, score) for score, _, text in scored]


def option_support(
    question: Question, records: tuple[str, ...], options: tuple[str, ...]
) -> list[int]:
    """Return for each option how many records on the subject state it.

    A record states an option if one of its candidate sentences, or failing that any
    of its sentences, holds all of the option's words; of options that hold one
    another, the longest counts.
    """
    counts = [0] * len(options)
    wanted = [frozenset(map(stem, words(option))) for option in options]
    for record in on_subject(question, records):
        near = [one.stems - one.denied for one, _ in record.chosen]
        far = [one.stems - one.denied for one in record.sentences]
        for pool in (near, far):
            stated = {
                at
                for at, option in enumerate(wanted)
                if option and any(option <= held for held in pool)
            }
            longest = [
                at for at in stated if not any(wanted[at] < wanted[o] for o in stated)
            ]
            if longest:
                for at in longest:
                    counts[at] += 1
                break
    return counts


def on_subject(question: Question, records: tuple[str, ...]) -> list[_Record]:
    """Return the records that are about the question's subject."""
    read = [[_sentence(text) for text in sentences(record)] for record in records]
    values = _values_by_key(read)
    found: list[tuple[float, _Record]] = []
    for parts in read:
        stated = _stated(question, parts, values)
        if not question.names <= stated or (
            question.excluded and question.excluded <= stated
        ):
            continue
        coverage = (
            len(question.subject & stated) / len(question.subject)
            if question.subject
            else 1.0
        )
        if coverage >= (_ENOUGH if question.asked else _ENOUGH_UNPARSED):
            found.append((coverage, _record(question, parts, stated)))
    best = max((coverage for coverage, _ in found), default=0.0)
    return [record for coverage, record in found if coverage == best]


def _sentence(text: str) -> _Sentence:
    tokens = words(text)
    roots = [stem(token) for token in tokens]
    denied: set[str] = set()
    if "n't" in text or "n\u2019t" in text or not NEGATORS.isdisjoint(tokens):
        for at, token in enumerate(tokens):
            if token in NEGATORS or token.endswith("n't"):
                denied.update(roots[at + 1 : at + 1 + _REACH])
    key: frozenset[str] = frozenset()
    value: frozenset[str] = frozenset()
    if ": " in text and (match := _KEY_VALUE.fullmatch(text)):
        key = frozenset(map(stem, words(match[1]))) - STOP_STEMS
        said = words(match[2])
        value = frozenset(map(stem, said))
        if said and said[0] in _NEGATIVE:
            denied |= key
    return _Sentence(text, frozenset(roots), frozenset(denied), key, value)


def _values_by_key(read: list[list[_Sentence]]) -> dict[frozenset[str], set[str]]:
    found: dict[frozenset[str], set[str]] = {}
    for parts in read:
        for one in parts:
            if one.key:
                found.setdefault(one.key, set()).update(one.value)
    return found


def _stated(
    question: Question,
    parts: list[_Sentence],
    values: dict[frozenset[str], set[str]],
) -> frozenset[str]:
    """Return the stems that a record states, without denied ones.

    "ST slope: up" does not state "flat ST slope": where the question names a value
    that some record gives for this key, the record must give it too.
    """
    stated: set[str] = set()
    wanted = question.subject | question.excluded
    for one in parts:
        if one.key and one.key <= wanted:
            named = wanted & values[one.key] - one.key
            if named and not (named & one.value or one.value & _AFFIRMATIVE):
                continue
        stated |= one.stems - one.denied
    return frozenset(stated)


def _record(
    question: Question, parts: list[_Sentence], stated: frozenset[str]
) -> _Record:
    ranked = [(one, _relevance(one, question)) for one in parts]
    best = max((relevance for _, relevance in ranked), default=0.0)
    chosen = [
        (one, relevance)
        for one, relevance in ranked
        if relevance > 0.0 and relevance >= best - _NEAR
    ]
    return _Record(parts, stated, best, chosen)


def _relevance(one: _Sentence, question: Question) -> float:
    """Return how close a sentence is to the question, 0 to 3.5."""
    return (
        2.0 * _share(question.asked, one.stems)
        + _share(question.subject | question.names, one.stems)
        + 0.5 * _share(question.generic, one.stems)
    )


def _share(wanted: frozenset[str], held: frozenset[str]) -> float:
    met = wanted & held
    return _weight(met) / _weight(wanted) if met else 0.0


def _weight(held: frozenset[str]) -> float:
    return len(held) - (1.0 - _GENERIC_SHARE) * len(held & GENERIC_STEMS)


def _content(one: _Sentence, question: Question) -> frozenset[str]:
    """Return what a sentence adds to the question; a short value may be "no"."""
    if one.key and len(one.value) <= _SHORT:
        return one.value - question.every
    return one.stems - one.denied - STOP_STEMS - GENERIC_STEMS - question.every


def _score(
    one: _Sentence,
    question: Question,
    support: defaultdict[str, float],
    total: float,
) -> float:
    shares = [support[word] / total for word in _content(one, question)]
    if not shares:
        return 0.0
    return max(shares) + 0.5 * sum(share for share in shares if share > 0.5)  # noqa: PLR2004 - a majority.
