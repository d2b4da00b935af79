"""Which words of a reply deny or only compare what stands beside them.

Public rules about one reply. The time is linear in the reply.
"""

from __future__ import annotations

from langchain_dpicl.parsers.reading.text import Passage, word_set

ARTICLES = frozenset({"a", "an", "the"})

NEGATORS = word_set(
    "cannot cant denied denies deny dont excluded excludes isnt neither never no "
    "nobody none nor not nothing without"
)
"""Words that deny what follows in their clause."""

_NO_DENIAL = word_set(
    "doubt doubts exception just least merely only question simply surprise "
    "surprising surprisingly wonder"
)
_NOTHING_BUT = word_set("except other besides")
_COMPARING = (
    ("rather", "than"),
    ("instead", "of"),
    ("opposed", "to"),
    ("other", "than"),
    ("than",),
    ("unlike",),
    ("except",),
    ("except", "for"),
    ("excluding",),
    ("versus",),
    ("vs",),
    ("compared", "to"),
    ("compared", "with"),
    ("comparison", "to"),
    ("comparison", "with"),
    ("followed", "by"),
    ("ahead", "of"),
    ("besides",),
    ("apart", "from"),
    ("aside", "from"),
    ("ruled", "out"),
    ("rules", "out"),
    ("rule", "out"),
)
_BEFORE = {
    first: tuple(phrase for phrase in _COMPARING if phrase[0] == first)
    for first, *_ in _COMPARING
}
"""Phrases after which a name is only compared, by their first word."""
_LIGHT = ARTICLES | word_set(
    "any by case cases few for in just of one only patients people some those with "
    "because due to"
)
_LOOK_BACK = 6
_AUXILIARIES = word_set(
    "appears are can could did do does had has have is may might seem seems should "
    "was were will would"
)
_OF_ONE = word_set("appears does has is seems was")
_RULED_OUT = word_set("absent denied excluded improbable unlikely")
_NO = word_set("no nope not")
# "Can be excluded" is read as "can excluded".
_FILLERS = word_set(
    "all already be been both clearly completely definitively effectively have largely "
    "since then therefore thus very"
)


def denied_before(read: Passage) -> set[int]:
    """Return the places of the words that a denial before them covers."""
    covered: set[int] = set()
    active: dict[int, bool] = {}
    tokens = read.tokens
    for place, token in enumerate(tokens):
        if active.get(token.clause):
            covered.add(place)
        if is_negator(token.word):
            last = place + 1 == len(tokens)
            if last or tokens[place + 1].word not in _NO_DENIAL:
                active[token.clause] = True
        elif token.word in _NOTHING_BUT and active.get(token.clause):
            active[token.clause] = False
    return covered


def is_negator(word: str) -> bool:
    """Return whether a word denies what follows.

    Example:
        >>> is_negator("doesn't"), is_negator("note")
        (True, False)
    """
    return word in NEGATORS or word.endswith("n't")


def compared(read: Passage, start: int) -> bool:
    """Return whether a name comes after "rather than", "followed by" and the like."""
    clause = read.tokens[start].clause
    words: list[str] = []
    for place in range(start - 1, max(start - 1 - _LOOK_BACK, -1), -1):
        token = read.tokens[place]
        if token.clause != clause:
            break
        words.insert(0, token.word)
        for phrase in _BEFORE.get(token.word, ()):
            size = len(phrase)
            head = tuple(words[:size])
            rest = words[size:]
            than = phrase == ("than",)
            if head != phrase or (than and set(rest) - ARTICLES):
                continue
            if than and place and read.tokens[place - 1].word == "other":
                continue
            nothing_but = phrase in {("other", "than"), ("except",), ("besides",)}
            if nothing_but and _nothing_before(read, place, clause):
                return False
            if all(word in _LIGHT or word.isdigit() for word in rest):
                return True
    return False


def _nothing_before(read: Passage, place: int, clause: int) -> bool:
    """Return whether "none", "nothing" or "no" stands shortly before."""
    before = read.tokens[max(place - _LOOK_BACK, 0) : place]
    return any(token.clause == clause and is_negator(token.word) for token in before)


def denied_after(read: Passage, end: int) -> bool:
    """Return whether what ends at a word is denied by the words behind it.

    "Was ruled out" and "can be excluded" deny, and so does "no" after a question.
    "Can't be excluded" does not.
    """
    asked = end < len(read.tokens) and "?" in read.gap(end)
    if asked and read.tokens[end].word in _NO:
        return True
    words: list[str] = []
    for token in read.tokens[end : end + 6]:
        if token.clause != read.tokens[end - 1].clause:
            break
        if not words or token.word not in _FILLERS:
            words.append(token.word)
    if not words:
        return False
    first, second, third, fourth = (*words, "", "", "", "")[:4]
    if _ruled_out(first, second):
        return len(words) == (2 if first == "ruled" else 1)
    if first in _AUXILIARIES and not is_negator(second):
        return _ruled_out(second, third)
    if first in _AUXILIARIES:
        return third not in _NO_DENIAL and not _ruled_out(third, fourth)
    denies = first.endswith("n't") or first in {"not", "cannot", "isnt"}
    return denies and second not in _NO_DENIAL and not _ruled_out(second, third)


def said_of_many(read: Passage, place: int) -> bool:
    """Return whether a verb can be said of several: "were", and not "was"."""
    verb = read.tokens[place].word.removesuffix("n't")
    said = verb in _AUXILIARIES or verb in _RULED_OUT or verb == "ruled"
    return said and verb not in _OF_ONE


def _ruled_out(first: str, second: str) -> bool:
    return first in _RULED_OUT or (first, second) == ("ruled", "out")
