"""From a text to its words: public rules, the same for every text.

Privacy:
    Each function is a pure one of its text. The lemmatizer has no cache, which would
    keep private words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

from simplemma import Lemmatizer

from langchain_dpicl.common.replies import answer_of

LONGEST = 20_000
"""Characters of a text that are read, from its end: where an answer stands."""

LONGEST_WORD = 40
"""Letters of the longest word that has a lemma."""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written with spaces."""
    return frozenset(text.split())


_SPELLING = {
    **str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2013\u2212", "''\"\"----"),
    ord("\u2264"): "<=",
    ord("\u2265"): ">=",
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad")),
}
_JOINED = re.compile(r"([<>]=?) (?=\d)|(?<=\d) to (?=\d)")
# Signs of scripts without spaces are words of their own.
_WORD = re.compile(
    r"[<>=]*[$\u20ac\u00a3]?\d+(?:[.,]\d+)*(?:%|\+|[a-z]+)?"
    r"|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"|[^\W\d_]+(?:'[^\W_]+)*[+#]*"
)
_HYPHENATED = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+(?:['-][^\W_]+)*")
_DIGITS = {"one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6"}
_DIGITS |= {"seven": "7", "eight": "8", "nine": "9", "ten": "10", "zero": "0"}
_lemmatizer = Lemmatizer(cache_max_size=0)  # A cache would keep private words.


def spelled(text: str) -> str:
    """Return a text in one spelling, without what a model thinks aloud in tags.

    Example:
        >>> spelled("<think>COPD?</think>Non\u2011anginal \u201cpain\u201d")
        'Non-anginal "pain"'
    """
    text = answer_of(text)[-LONGEST:]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_SPELLING)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def words_of(text: str) -> list[str]:
    """Return the words and numbers of a spelled text in lower case, with their signs.

    Example:
        >>> words_of("**Type-2** (C++), <= 50K")
        ['type', '2', 'c++', '<=50k']
    """
    joined = _JOINED.sub(lambda match: match[1] or "-", text.casefold())
    return [word.removesuffix("'s") for word in _WORD.findall(joined)]


def tokenize(text: str) -> list[str]:
    """Return the words of any text in lower case; inner hyphens belong to them.

    Example:
        >>> tokenize("A dry cough, non-productive.")
        ['a', 'dry', 'cough', 'non-productive']
    """
    found = _HYPHENATED.findall(spelled(text).casefold())
    return [word.removesuffix("'s") for word in found]


def lemma(word: str, language: str | None = "en") -> str:
    """Return a word's lemma, a pure function of the word.

    Args:
        word: One word, case-folded.
        language: A language code of simplemma; None leaves words unchanged.

    Raises:
        ValueError: If simplemma does not know the language.

    Example:
        >>> lemma("adapters"), lemma("children"), lemma("adapters", None)
        ('adapter', 'child', 'adapters')
    """
    if language is None or len(word) > LONGEST_WORD or word[:1].isdigit():
        return word
    return _lemmatizer.lemmatize(word, lang=language).casefold() if word else word


def form(word: str) -> str:
    """Return the form by which words are compared."""
    return _DIGITS.get(word) or lemma(word)


def forms_once() -> Callable[[str], str]:
    """Return `form` for the words of one text: each is looked up once.

    Privacy:
        What it remembers belongs to the reading of one text and ends with it. A table
        that outlived it would read a reply the quicker for words of others' replies.
    """
    return cache(form)


def row(words: Iterable[str], form: Callable[[str], str] = form) -> str:
    """Return words in one order: "Diabetes, type 2"."""
    return " ".join(sorted(map(form, words)))


STOP_WORDS = word_set(
    "a about also although am an and any are as at be because been being but by can "
    "could did do does doing due each either etc for from had has have having he her "
    "here hers herself him himself his how however i if into is it its itself just "
    "let may me might mine must my myself of one or other others ought our ours "
    "ourselves own per quite rather same shall she should so some such than that the "
    "their theirs them themselves then there therefore these they this those though "
    "through thus to too upon us very was we were what when where whether which while "
    "who whom whose why will with within would yet you your yours yourself according "
    "based given indicate look provide provided seem show suggest i'm i'd i'll i've "
    "it's that's there's he's she's they're we're you're what's let's"
)
"""English words that answer no question: of grammar, and of where an answer is from.

Words that can be an answer, such as "up" and "none", are not among them.
"""

NEGATORS = word_set(
    "not no none neither nor never without nothing nobody hardly cannot cant"
)
"""Words that deny what they stand beside."""
