"""Words, stems and sentences: how the offline stand-ins look at text.

Both stand-ins (`HashingEmbeddings`, `OfflineChatModel`) compare texts by stems of
case-folded Unicode words. The word lists are small, English and public; text in
other languages works, only without their help.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Scripts written without spaces count each character as a word.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:['\u2019][^\W_]+)*"
)
_BREAK = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\s*\n\s*")
_ABBREVIATION = re.compile(
    r"(?:^|\s)(?:mr|mrs|ms|dr|prof|st|vs|approx|e\.g|i\.e|[a-z])\.$", re.IGNORECASE
)


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as running text."""
    return frozenset(text.split())


# Words that say nothing about a text's subject.
STOP_WORDS = word_set(
    """
    a about above after again all also am among an and any are aren't as at be because
    been before being below between both but by can cannot could did didn't do does
    doesn't doing don't down during each either ever every few for from further had has
    hasn't have haven't having he her here hers herself him himself his how i i'm if in
    into is isn't it it's its itself just least less many may me might more most mostly
    much must my myself neither no nor not now of off often on once one only or other
    others our ours out over own per same shall she should since so some still such
    than that the their theirs them themselves then there these they this those through
    to too under until up upon us very was wasn't we were weren't what when where
    whether which while who whom whose why will with within without won't would you
    your yours
    """
)
# Words that occur around any subject: they count, but little.
GENERIC_WORDS = word_set(
    """
    answer ask call case chief choose client come common commonly customer describe
    everyone feel find frequent frequently general generally get give go highest
    individual keep know largest last list main mainly majority make member mention
    name new note old patient people person popular prefer present record regular
    regularly report say see show sort start state take tell time today top total turn
    typical typically use user usual usually visit want way week well work year
    """
)
_IRREGULAR = dict(
    pair.split(":")
    for pair in word_set(
        """
        men:man women:woman children:child people:person feet:foot teeth:tooth took:tak
        taken:tak gave:giv given:giv said:say told:tell felt:feel found:find got:get
        went:go came:com chose:choos chosen:choos kept:keep made:mak note:note
        notes:note noted:note saw:see seen:see slept:sleep used:use using:use
        """
    )
)
_VOWELS = frozenset("aeiouy")


def words(text: str) -> list[str]:
    """Return the case-folded words of a text, in order.

    Example:
        >>> words("She doesn't take Lisinopril, 10 mg.")
        ['she', "doesn't", 'take', 'lisinopril', '10', 'mg']
    """
    return _WORD.findall(text.casefold().replace("\u2019", "'"))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without its plural, possessive, or verb ending.

    Light on purpose: it joins "report", "reports", "reported", "reporting", and
    leaves alone what it does not know.

    Example:
        >>> [stem(word) for word in ("reports", "reported", "reporting", "studies")]
        ['report', 'report', 'report', 'study']
        >>> stem("dose") == stem("doses") == stem("dosing")
        True
    """
    word = word.removesuffix("'s").rstrip("'")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 3 and word.isalpha():  # noqa: PLR2004 - "was", "yes", "red" stay.
        word = _without_verb_ending(_without_plural(word))
        if len(word) > 3 and word.endswith("e"):  # noqa: PLR2004 - as above.
            word = word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > len("ties"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_verb_ending(word: str) -> str:
    if word.endswith("ied") and len(word) > len("tied"):
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root == word or len(root) < 3 or not _VOWELS & set(root):  # noqa: PLR2004 - "sing" has no shorter root.
            continue
        if ending == "ed" and root.endswith("e"):
            continue  # "bleed" is no past tense.
        doubled = root[-1] == root[-2] and root[-1] not in "lsz"
        return root[:-1] if doubled else root
    return word


STOP_STEMS = frozenset(map(stem, STOP_WORDS)) | STOP_WORDS
GENERIC_STEMS = frozenset(map(stem, GENERIC_WORDS)) - STOP_STEMS


def stems(text: str) -> list[str]:
    """Return the stems of a text's words, stop words included, in order.

    Example:
        >>> stems("Two notes mentioned it")
        ['two', 'note', 'mention', 'it']
    """
    return [stem(word) for word in words(text)]


def sentences(text: str) -> list[str]:
    r"""Cut a text into sentences and lines.

    Example:
        >>> sentences("Seen by Dr. Lee today. No fever.\nBack in May!")
        ['Seen by Dr. Lee today.', 'No fever.', 'Back in May!']
    """
    found: list[str] = []
    for piece in _BREAK.split(text):
        if found and _ABBREVIATION.search(found[-1]):
            found[-1] = f"{found[-1]} {piece}"
        elif piece:
            found.append(piece)
    return [sentence.strip() for sentence in found if sentence.strip()]
