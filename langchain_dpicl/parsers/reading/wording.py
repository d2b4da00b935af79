"""Whether a sentence keeps the words that were released and paid for.

The sentence and the words are public: a model wrote the sentence from the words.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_dpicl.parsers.reading.denials import is_negator
from langchain_dpicl.parsers.reading.keywords import lemma
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.reading.text import Passage, Token, passage, word_set

LEAST_SHARE = 1 / 3
"""More than this share of the released words is named in a sentence that keeps them."""

_OPPOSITES = {"yes": "no", "no": "yes"}
_BE = word_set("are be been do does did is was were")
_DENIED_AS = word_set(
    "a actually among an as commonly frequently generally listed main major mentioned "
    "mostly often one really reported the typically usually very"
)
_ASIDE = (
    ("rather", "than"),
    ("instead", "of"),
    ("opposed", "to"),
    ("other", "than"),
    ("than",),
    ("not",),
    ("unlike",),
    ("except",),
)
_LIGHT = word_set("a an because by due from of the to")
_NOT_DENIED = word_set("doubt just merely only question")
_BETWEEN = 2


def keeps(
    wording: str, words: Sequence[str], question: str = "", language: str = "en"
) -> bool:
    """Return whether a sentence says what the released words say.

    It does not if it says that it has no answer, if it names a third of the words or
    fewer (in any inflection), or if it denies them: "X is not a common one", "rather
    than X", "Yes" where "no" was released.

    Args:
        wording: The sentence.
        words: The released words or phrases.
        question: The question, whose words are no evidence unless all are.
        language: Of the inflection; see `keywords.lemma`.

    Example:
        >>> keeps("They mostly complain about overdraft fees.", ["overdraft", "fee"])
        True
        >>> keeps("Overdraft fees are not a common complaint.", ["overdraft", "fee"])
        False
    """
    if says_nothing(wording):
        return False
    read = passage(wording)
    released = [token for word in words for token in passage(word).tokens]
    if not released:
        return False
    stems = {token.stem for token in released}
    if stems <= _OPPOSITES.keys():
        return len(stems) == 1 and _answers(read, stems.pop())
    asked = _names(passage(question).tokens, language)
    telling = [one for one in released if not _names([one], language) & asked]
    wanted = [_names([token], language) for token in telling or released]
    named = [_names([token], language) for token in read.tokens]
    for place in range(1, len(named)):
        if read.gap(place) == "-":  # "non-adherence" is "nonadherence" as well.
            row = read.tokens[place - 1].stem + read.tokens[place].stem
            named[place - 1].add(row)
            named[place].add(row)
    spans = _spans(named, set().union(*wanted))
    denial = any(is_negator(token.word) for token in released)
    kept = [
        place
        for start, end in spans
        if denial or not _denied(read, start, end)
        for place in range(start, end)
    ]
    said = set().union(*(named[place] for place in kept)) if kept else set()
    text = "".join(token.stem for token in read.tokens)
    joined = "".join(token.stem for token in released)
    if kept and len(released) > 1 and joined in text:
        return True
    return sum(bool(one & said) for one in wanted) > LEAST_SHARE * len(wanted)


def _names(tokens: Sequence[Token], language: str) -> set[str]:
    """Return the forms by which words are compared."""
    return {
        form
        for token in tokens
        for form in (token.stem, passage(lemma(token.word, language)).text)
    }


def _answers(read: Passage, wanted: str) -> bool:
    """Return whether a sentence answers a question by yes or no as released."""
    words = [token.word for token in read.tokens]
    if words[0] in _OPPOSITES:
        return words[0] == wanted
    clause = {token.word for token in read.tokens if token.part == read.tokens[0].part}
    denies = any(map(is_negator, clause))
    return denies if wanted == "no" else not denies


def _spans(named: Sequence[set[str]], wanted: set[str]) -> list[tuple[int, int]]:
    """Return the runs of released words in a sentence."""
    spans: list[tuple[int, int]] = []
    for place, forms in enumerate(named):
        if not forms & wanted:
            continue
        if spans and place - spans[-1][1] < _BETWEEN:
            spans[-1] = (spans[-1][0], place + 1)
        else:
            spans.append((place, place + 1))
    return spans


def _denied(read: Passage, start: int, end: int) -> bool:
    """Return whether released words are denied, or named only to compare."""
    tokens = read.tokens
    behind = [
        token.word
        for token in tokens[end : end + 3]
        if token.clause == tokens[end - 1].clause
    ]
    if len(behind) > 1 and (behind[0].endswith("n't") or behind[0] in _BE):
        after = behind[1:] if behind[0].endswith("n't") else behind[2:]
        denies = behind[0].endswith("n't") or behind[1] == "not"
        if denies and after and after[0] in _DENIED_AS:
            return True
    before = [
        token.word
        for token in tokens[max(start - 4, 0) : start]
        if token.clause == tokens[start].clause
    ]
    while before and before[-1] in _LIGHT and tuple(before[-2:]) not in _ASIDE:
        before.pop()
    return any(tuple(before[-len(phrase) :]) == phrase for phrase in _ASIDE)
