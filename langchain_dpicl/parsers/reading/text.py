"""From a reply to its words, and where each one stands.

Every function here is a public rule about one text. The time is linear in its length.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from langchain_dpicl.common.slots import hidden_repr


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(text.split())


_SPELLING = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-"),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), None),
    ord("\u2015"): "\u2014",
    ord("\u2265"): ">=",
    ord("\u2264"): "<=",
}
_THOUGHTS = tuple(
    (re.compile(f"<{tag}>", re.IGNORECASE), re.compile(f"</{tag}>", re.IGNORECASE))
    for tag in ("think", "thinking", "reasoning", "thought")
)
# Scripts that are written without spaces, or glue endings on: each sign is a word.
_SIGN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"\d+(?:[.,]\d+)+|[{_SIGN}]|(?:(?![{_SIGN}])[^\W_])+(?:'[^\W_]+)*")
_RANGE = re.compile(r"(?<=\d) to (?=\d)")
_ITEM = re.compile(
    r"^[ \t>#*_\"'`(\[{+\u2022-]{0,12}"
    r"(?:option |choice )?"
    r"(?:(?:\d{1,3}|[a-z])[.):]{1,2}[ \t*_]+(?=\S)|\d{1,3}[.)](?=[^\W\d]))",
    re.MULTILINE,
)
_END = re.compile("[.!?](?=[\\s\"'*_)\\]`.!?])|\n|[\u3002\u0964\u061f]")
_PAUSE = re.compile("[,;:()\\[\\]{}/\u2014\u3001\u060c\u061b|]|\\s-+\\s|\\.\\.")
_BRACKET = re.compile(r"[()\[\]{}]")
_STRONG_PAUSE = re.compile(r"[;\u2014\u061b]|\s-+\s")
_ABBREVIATIONS = word_set("approx ca dr e.g etc g i.e mr mrs ms st vs")


TURNS = word_set("although but despite however though unless whereas while yet")
"""Words after which another thought begins."""

CONCLUSIONS = word_set(
    "accordingly altogether conclusion consequently hence overall so summary "
    "therefore thus"
)
"""Words that announce what follows from what was said."""

_BREAKS = TURNS | CONCLUSIONS | {"because", "since"}
_VERBS = word_set(
    "are can did do does had has have he is it she takes they uses was we were"
)

_COUNTING = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: str(number) for number, word in enumerate(_COUNTING.split())}
_UNINFLECTED = word_set(
    "always anything ceiling during evening everything fasting hundred kindred less "
    "lightning morning news nothing offspring plus pudding series sibling something "
    "species spring string wedding"
)
_VOWELS = frozenset("aeiouy")
_STEM_LENGTH = 3

LONGEST = 20_000
"""Characters of a reply that are read, from its end: where an answer stands."""


class Token(NamedTuple):
    """A word of a reply. Private: its repr shows nothing.

    Attributes:
        word: The word, case-folded.
        stem: The word without its simple English endings.
        start: Where it begins in the passage's text.
        end: Where it ends.
        sentence: The number of its sentence or line.
        part: The number of its part of a sentence: up to a turn, a conclusion, a
            semicolon or a dash; brackets are parts of their own.
        clause: The number of its clause: a part is cut further at commas and colons.
        bold: Whether it is set in bold or as code, or boxed.
        item: Whether it numbers a line ("2." or "b)").
    """

    word: str
    stem: str
    start: int
    end: int
    sentence: int = 0
    part: int = 0
    clause: int = 0
    bold: bool = False
    item: bool = False

    def __repr__(self) -> str:
        return hidden_repr(self)


@dataclass(frozen=True, repr=False)
class Passage:
    """A text in one spelling, and its words. Private: its repr shows nothing."""

    text: str
    tokens: tuple[Token, ...]

    def __repr__(self) -> str:
        return hidden_repr(self)

    def gap(self, index: int) -> str:
        """Return what stands between a word and the one before."""
        before = self.tokens[index - 1].end if index else 0
        after = self.tokens[index].start if index < len(self.tokens) else len(self.text)
        return self.text[before:after]


def spelled(text: str) -> str:
    """Return a text in one spelling of quotes, dashes and widths.

    What a reasoning model thinks aloud in tags is left out. The letter case stays.

    Example:
        >>> spelled("<think>COPD?</think>Non\u2011anginal \u201cpain\u201d")
        'Non-anginal "pain"'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_SPELLING)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for begin, end in _THOUGHTS if "<" in text else ():
        ends = list(end.finditer(text))
        if ends:
            text = text[ends[-1].end() :]
        begins = begin.search(text)
        if begins:
            text = text[: begins.start()]
    return text


def folded(text: str) -> str:
    """Return the text that is read: in one spelling, and without its letter case.

    Of a longer text the last `LONGEST` characters are read.

    Example:
        >>> folded("**COPD** or 2 TO 3")
        '**copd** or 2-3'
    """
    read = unicodedata.normalize("NFKC", spelled(text).casefold())[-LONGEST:]
    return _RANGE.sub("-", read)


def stem(word: str) -> str:
    """Return a word without its plural, possessive and simple verb endings.

    Example:
        >>> stem("conflicts"), stem("exercising"), stem("exercise"), stem("US")
        ('conflict', 'exercis', 'exercis', 'US')
    """
    word = word.removesuffix("'s").replace("'", "")
    word = _NUMBERS.get(word, word)
    if word[:1].isdigit():
        return word.replace(",", "")
    if len(word) <= _STEM_LENGTH or not word.isascii() or word in _UNINFLECTED:
        return word
    if word.endswith("ies") and len(word) > _STEM_LENGTH + 1:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _without_verb_ending(word)


def _without_verb_ending(word: str) -> str:
    for ending in ("ied", "ing", "ed"):
        root = word.removesuffix(ending)
        if root == word or len(root) < _STEM_LENGTH or not _VOWELS & set(root):
            continue
        if ending == "ied":
            return f"{root}y"
        if ending == "ed" and root.endswith("e"):
            break
        if root[-1] == root[-2] and root[-1] not in "aeioulsz":
            root = root[:-1]
        return root.removesuffix("e")
    return word[:-1] if word.endswith("e") and len(word) > _STEM_LENGTH else word


def passage(text: str) -> Passage:
    """Read a text: one spelling, its words, and where each one stands.

    Example:
        >>> [token.word for token in passage("**Asthma** (4 of 6).").tokens]
        ['asthma', '4', 'of', '6']
        >>> [token.sentence for token in passage("Yes. No, not COPD.").tokens]
        [0, 1, 1, 1]
    """
    read = folded(text)
    items = [match.span() for match in _ITEM.finditer(read)]
    reader = _Reader(read, items)
    for match in _WORD.finditer(read):
        reader.add(*match.span())
    return Passage(read, tuple(reader.tokens))


class _Reader:
    """Reads words one after the other and keeps in mind where it is."""

    def __init__(self, text: str, items: list[tuple[int, int]]) -> None:
        self.text = text
        self.items = items
        self.tokens: list[Token] = []
        self.sentence = self.part = self.clause = 0
        self.next = 1
        self.open: list[tuple[int, int]] = []
        self.marks: set[str] = set()
        self.last = 0
        self.item = 0

    def __repr__(self) -> str:
        return hidden_repr(self)

    def add(self, start: int, end: int) -> None:
        """Take the next word."""
        while end < len(self.text) and _is_mark(self.text[end]):
            end += 1
        word = self.text[start:end]
        self._pass(self.text[self.last : start], word)
        while self.item < len(self.items) and self.items[self.item][1] < end:
            self.item += 1
        inside = self.item < len(self.items) and self.items[self.item][0] <= start
        self.tokens.append(
            Token(
                word=word,
                stem=stem(word),
                start=start,
                end=end,
                sentence=self.sentence,
                part=self.part,
                clause=self.clause,
                bold=bool(self.marks),
                item=inside,
            )
        )
        self.last = end

    def _new(self, *, part: bool) -> None:
        self.clause = self.next
        if part:
            self.part = self.next
        self.next += 1

    def _pass(self, gap: str, word: str) -> None:
        """Take what stands between the last word and this one."""
        before = self.tokens[-1] if self.tokens else None
        if gap == " " and before is not None:
            # Between most words, and no sign to look for.
            self._word(word, before, result=False)
            return
        self._emphasis(gap)
        if before is not None and before.item and "\n" not in gap:
            return
        end = None if before is None else _sentence_end(gap, before)
        if end is not None:
            self.sentence += 1
            self.open.clear()
            self._new(part=True)
            gap = gap[end:]
        rest = self._brackets(gap)
        if before is not None and end is None and _PAUSE.search(rest):
            self._new(part=_STRONG_PAUSE.search(rest) is not None)
        if before is not None:
            # "..., making it the most common"
            self._word(word, before, result=word == "making" and "," in rest)

    def _word(self, word: str, before: Token, *, result: bool) -> None:
        """Take what the next word itself begins."""
        if word in _BREAKS or result:
            self._new(part=True)
        elif before.word == "and" and word in _VERBS:
            self._new(part=False)

    def _brackets(self, gap: str) -> str:
        """Enter and leave brackets; return what stands after the last one.

        Behind a bracket the clause goes on in which it was opened.
        """
        for sign in gap:
            if sign in "([{":
                self.open.append((self.part, self.clause))
                self._new(part=True)
            elif sign in ")]}" and self.open:
                self.part, self.clause = self.open.pop()
        return _BRACKET.split(gap)[-1]

    def _emphasis(self, gap: str) -> None:
        if "\n" in gap:
            self.marks.clear()
            gap = gap[gap.rindex("\n") + 1 :]
        for mark in ("**", "__", "`"):
            if gap.count(mark) % 2:
                self.marks ^= {mark}
        if "{" in gap and self.tokens and self.tokens[-1].word == "boxed":
            self.marks.add("{")
        if "}" in gap:
            self.marks.discard("{")


def _is_mark(sign: str) -> bool:
    """Return whether a sign belongs to the letter before it; the first is U+0300."""
    return sign >= "\u0300" and unicodedata.category(sign)[0] == "M"


def _sentence_end(gap: str, before: Token) -> int | None:
    """Return the place in a gap behind which a new sentence begins, if one does."""
    match = _END.search(gap)
    if match is None:
        return None
    short = len(before.word) == 1 and before.word.isalpha()
    if "\n" not in gap and match[0] == "." and (short or before.word in _ABBREVIATIONS):
        return None
    return match.end()
