"""Where a reply names an option, and whether it is named to be set aside.

Public rules about one reply and the public options. The time is linear in the reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.parsers.reading.denials import (
    ARTICLES,
    compared,
    denied_after,
    denied_before,
    said_of_many,
)
from langchain_dpicl.parsers.reading.text import Passage, Token, passage, word_set

NOTHING_FITS = -1
"""The place of "none of these" among the options."""

_POLAR = frozenset({"no", "yes"})
_BEFORE_POLAR = word_set(
    "a answer be clearly definitely is mostly probably say simply was"
)
_NO_NAME = word_set(
    "and best common commonest eg etc example frequent ie least less likely mainly "
    "more most of often or other others rare the usual usually very"
)
_NONE_TEXT = (
    "none of these, none of those, none of the above, none of the options, none of "
    "the choices, none of the answers, none of the labels, none of these options, "
    "none of these choices, none of the given options, none of the listed options, "
    "none of the provided options, none of the options above, none of the options "
    "given, none of the options listed, none of the options provided, none of the "
    "above options, none of the categories, none of these categories, none of the "
    "options apply, none of the options fit, no option fits, no option applies, no "
    "option matches, none apply, none applies, none fits, none fit, none match, not "
    "any of these, no answer"
)
_NONE = frozenset(_NONE_TEXT.split(", "))

_AFTER_NONE = word_set(
    "applies apply are as based because can clearly fit fits for from given here i is "
    "match matches since the they"
)
_SYMBOLS = "<>=+#%$&\u20ac\u00a3"
_PREFIX = re.compile(r"(?:[<>=]+ ?|[$+\u20ac\u00a3]|(?<![^\s(])-(?=\Z))\Z")
_SUFFIX = re.compile(rf"[{_SYMBOLS}]{{1,3}}")
_LISTED = re.compile(r"[\s,/&\"'*_`]*")
_PREFIX_LENGTH = 4
_EXTRA_WORDS = 4


@dataclass(frozen=True)
class Form:
    """One public spelling of an option.

    Attributes:
        option: The option's place.
        raw: Its words in a row, with their endings.
        marks: The signs that belong to it, such as "<" or "++".
    """

    option: int
    raw: str
    marks: str


@dataclass(frozen=True)
class Options:
    """The public options as a reader looks for them.

    Attributes:
        forms: From the stems of a spelling, in a row, to what is spelled so.
        whole: From an option's stems in any order to the option.
        texts: From an option's whole text to the option.
        longest: Most words of a spelling.
        letters: Most letters of a spelling.
    """

    forms: Mapping[str, tuple[Form, ...]]
    whole: Mapping[tuple[str, ...], int]
    texts: Mapping[str, int]
    longest: int
    letters: int


class Mention(NamedTuple):
    """An option named in a reply. Private: its repr shows nothing.

    Attributes:
        option: The option's place.
        start: The place of its first word.
        end: The place behind its last word.
        aside: Whether it is denied, or named only to compare.
    """

    option: int
    start: int
    end: int
    aside: bool = False

    def __repr__(self) -> str:
        return hidden_repr(self)


@lru_cache(maxsize=256)
def options_of(
    labels: tuple[str, ...], aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
) -> Options:
    """Return what to look for. Labels and aliases are public.

    Spellings of a label are its words, what stands outside its brackets, what stands
    inside them, and its aliases. A spelling shared by two labels counts for neither.
    """
    forms: dict[str, list[Form]] = {}
    whole: dict[tuple[str, ...], set[int]] = {}
    texts: dict[str, int] = {}
    other_names = dict(aliases)
    lengths: set[int] = set()
    for option, label in enumerate(labels):
        texts.setdefault(passage(label).text.strip(), option)
        for spelling in (label, *other_names.get(label, ())):
            stems = tuple(sorted(token.stem for token in passage(spelling).tokens))
            whole.setdefault(stems, set()).add(option)
            for part, marks in _spellings(spelling):
                _add(forms, Form(option, _row(part, "word"), marks), part)
                lengths.add(len(part))
    for phrase in sorted(_NONE):
        tokens = passage(phrase).tokens
        if _row(tokens, "stem") not in forms:
            _add(forms, Form(NOTHING_FITS, _row(tokens, "word"), ""), tokens)
        lengths.add(len(tokens))
    return Options(
        {key: tuple(found) for key, found in forms.items()},
        {key: min(found) for key, found in whole.items() if key and len(found) == 1},
        texts,
        max(lengths) + _EXTRA_WORDS,
        max(map(len, forms)),
    )


def chooses_none(read: Passage) -> bool:
    """Return whether a reply is "none of these", by itself or with a remark.

    Example:
        >>> chooses_none(passage("None of these (all are tied)."))
        True
    """
    told = (token.word for token in read.tokens if not _bracketed(read, token))
    return " ".join(told) in _NONE


def mentions(read: Passage, options: Options) -> list[Mention]:
    """Return where a reply names options, in order; longer names come first."""
    found: list[Mention] = []
    index, size = 0, len(read.tokens)
    while index < size:
        mention = _longest(read, options, index)
        if mention is None:
            index += 1
        else:
            found.append(mention)
            index = mention.end
    return _judged(read, found)


def listed(read: Passage, first: Mention, second: Mention) -> str | None:
    """Return what joins two neighboring mentions of a list: "or", "and", ",", None."""
    between = read.tokens[first.end : second.start]
    words = {token.word for token in between} - ARTICLES
    if len(between) > _EXTRA_WORDS or words - {"or", "nor", "and"}:
        return None
    gaps = "".join(read.gap(i) for i in range(first.end, second.start + 1))
    if "\n" in gaps or _LISTED.fullmatch(gaps) is None:
        return None
    if words & {"or", "nor"} or "/" in gaps:
        return "or"
    return "and" if words or "&" in gaps else ("," if "," in gaps else None)


def _spellings(text: str) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Yield the words of each spelling of a label, with the signs among them."""
    read = passage(text)
    yield _bare(read.tokens), _marks(read, 0, len(read.tokens))
    inside = [token for token in read.tokens if _bracketed(read, token)]
    outside = [token for token in read.tokens if token not in inside]
    if not inside or not outside:
        return
    for part in (outside, inside):
        words = {token.word for token in part}
        letters = any(any(map(str.isalpha, word)) for word in words)
        if letters and not words & _NO_NAME:
            yield _bare(tuple(part)), ""


def _bracketed(read: Passage, token: Token) -> bool:
    before = read.text[: token.start]
    return before.count("(") > before.count(")")


def _bare(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Return words without a leading article."""
    return tokens[1:] if len(tokens) > 1 and tokens[0].word in ARTICLES else tokens


def _row(tokens: Iterable[Token], what: str) -> str:
    return "".join(getattr(token, what) for token in tokens)


def _add(forms: dict[str, list[Form]], form: Form, tokens: Sequence[Token]) -> None:
    key = _row(tokens, "stem")
    if key and form not in forms.setdefault(key, []):
        forms[key].append(form)


def _marks(read: Passage, start: int, end: int) -> str:
    """Return the signs directly before, among and behind some words."""
    if start >= end:
        return ""
    first, last = read.tokens[start].start, read.tokens[end - 1].end
    prefix = _PREFIX.search(read.text[max(first - _PREFIX_LENGTH, 0) : first])
    suffix = _SUFFIX.match(read.text, last)
    among = "".join(sign for sign in read.text[first:last] if sign in _SYMBOLS)
    return (prefix[0].strip() if prefix else "") + among + (suffix[0] if suffix else "")


def _longest(read: Passage, options: Options, start: int) -> Mention | None:
    """Return the longest name of an option that begins at a word."""
    best: Mention | None = None
    key = raw = ""
    for end in range(start, min(start + options.longest, len(read.tokens))):
        token = read.tokens[end]
        if end > start and token.sentence != read.tokens[start].sentence:
            break
        key += token.stem
        if len(key) > options.letters:
            break
        raw += token.word
        forms = options.forms.get(key)
        if forms is None:
            continue
        option = _chosen(forms, raw, read, start, end + 1)
        if option is not None and _stands(read, option, start, end + 1, raw):
            best = Mention(option, start, end + 1)
    return best


def _chosen(
    forms: Sequence[Form], raw: str, read: Passage, start: int, end: int
) -> int | None:
    """Return the one option that is spelled so: by its signs, then by its endings."""
    if len(forms) == 1:
        return forms[0].option
    if len({form.option for form in forms}) > 1:
        marks = _marks(read, start, end)
        forms = [form for form in forms if form.marks == marks]
        if len({form.option for form in forms}) > 1:
            forms = [form for form in forms if form.raw == raw]
    found = {form.option for form in forms}
    return found.pop() if len(found) == 1 else None


def _stands(read: Passage, option: int, start: int, end: int, raw: str) -> bool:
    """Return whether short words are meant as a name and not as a part of speech."""
    last = end == len(read.tokens)
    after = "" if last else read.gap(end)
    ends = last or bool(re.search(r"[^\s\"']", after)) or "\n" in after
    if option == NOTHING_FITS:
        return ends or read.tokens[end].word in _AFTER_NONE
    if raw not in _POLAR:
        return True
    before = read.tokens[start - 1] if start else None
    fresh = before is None or before.clause != read.tokens[start].clause or before.item
    return ends and (fresh or before is None or before.word in _BEFORE_POLAR)


def _judged(read: Passage, found: list[Mention]) -> list[Mention]:
    """Return the mentions with those set aside marked, through lists as well."""
    scopes = denied_before(read)
    judged: list[Mention] = []
    run: list[int] = []
    for place, mention in enumerate(found):
        how = listed(read, found[place - 1], mention) if place else None
        if how is None:
            run = []
        fits = mention.option != NOTHING_FITS
        before = mention.start in scopes or compared(read, mention.start)
        after = fits and denied_after(read, mention.end)
        # "Not asthma, COPD or flu" denies all three.
        forward = how == "or" and judged[run[0]].aside
        # "Asthma, COPD and flu were excluded" denies all three, too.
        back = after and (
            how == "or" or (how == "and" and said_of_many(read, mention.end))
        )
        if forward or back:
            for earlier in run:
                judged[earlier] = judged[earlier]._replace(aside=True)
            run = run[:1]  # All are aside: none is looked at again.
        aside = (fits and before) or after or forward
        judged.append(mention._replace(aside=aside))
        run.append(place)
    return judged
