"""Which of the public options a reply chooses.

The rules are public and look at one reply alone, in this order:

1. The whole reply is an option: in any letter case, markdown, quotes, simple
   inflection, or order of its words.
2. It declares its answer: the text after "Answer:", "the answer is", "I'd say".
3. It begins with an option that is a clause by itself: "asthma (4 of 6)",
   "asthma, because ...", unless another option is listed beside it.
4. It says that it does not know: then only the text after "but", "if I had to choose"
   and the like counts.
5. It names one option only. Options that are denied ("not asthma"), or named to
   compare ("rather than asthma"), don't count.
6. Of several options, the only one that it concludes ("so ..."); else the only one that
   it calls most or main; else the only one in bold; else the only one in a first
   sentence without numbers.

Anything else can't be read. Of options that contain another, the longest one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from langchain_dpicl.parsers.reading.denials import ARTICLES, is_negator
from langchain_dpicl.parsers.reading.mentions import (
    NOTHING_FITS,
    Mention,
    Options,
    listed,
    mentions,
    options_of,
)
from langchain_dpicl.parsers.reading.refusal import nothing_said, refuses, says_nothing
from langchain_dpicl.parsers.reading.text import (
    CONCLUSIONS,
    Passage,
    Token,
    folded,
    passage,
    word_set,
)


class NoChoice(Enum):
    """What a reply says that chooses no option."""

    NONE = "none"
    """None of the options, or that the records don't tell."""

    UNREADABLE = "unreadable"
    """Several options, or something else."""


NONE = NoChoice.NONE
UNREADABLE = NoChoice.UNREADABLE

_CLAIMS = word_set(
    "ahead answer best bet biggest chief choice chosen commonest dominant dominate "
    "dominates edges generally guess highest largest leading main mainly majority most "
    "mostly overwhelmingly pick predominant predominantly primarily primary principal "
    "top tops typically usually wins"
)
_OFTEN = word_set("common commonly frequent frequently likely often prevalent")
_DECLARING = word_set(
    "answer category choice conclusion label option pick selection verdict"
)
_IS = word_set("are be is seems was were would")
_SAYING = word_set("answer choose go guess lean opt pick say select vote")
_IF_SO = word_set("i i'd i'll will would")
_LEADING = ARTICLES | word_set(
    "answer certainly definitely final it it's its my okay probably sure they they're "
    "that's"
)
_TIES = word_set("equal equally evenly split tie tied ties")
_AMOUNTS = word_set("another each half one other others several some")
_POINTING = word_set("it that them these this those which")
_NOTHING = frozenset({("none",), ("n", "a"), ("na",), ("nothing",), ("neither",)})
_NOTHING_IS = word_set("neither no nobody none nothing")
_SHORT_GAP = 5
_AROUND = " \t\n\"'*_`."
"""What may stand around an option that is the whole reply."""
_SIGNS = re.compile("[<>=+#%]")


def read_choice(
    reply: str,
    labels: Sequence[str],
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> int | NoChoice:
    """Return which label a reply chooses.

    Privacy:
        A pure function of one reply and of public things, so that no record changes
        how another group's reply is read.

    Args:
        reply: What a group answered. Private.
        labels: The public options.
        aliases: Further public spellings of a label.

    Returns:
        The label's place; `NONE` if the reply says "none of these" or that it does
        not know; `UNREADABLE` if it names several, or something else.

    Example:
        >>> labels = ["asthma", "COPD"]
        >>> read_choice("**Asthma** (4 of 6)", labels)
        0
        >>> read_choice("It is not asthma but C.O.P.D.", labels, {"COPD": ["C O P D"]})
        1
        >>> read_choice("None of these.", labels), read_choice("Asthma, COPD", labels)
        (<NoChoice.NONE: 'none'>, <NoChoice.UNREADABLE: 'unreadable'>)
    """
    given = tuple((label, tuple(names)) for label, names in (aliases or {}).items())
    options = options_of(tuple(labels), given)
    exact = options.texts.get(folded(reply).strip(_AROUND))
    if exact is not None:
        return exact  # The fast path, for most replies: no word is parsed.
    read = passage(reply)
    chosen = _whole(read, options)
    if chosen is None:
        chosen = _Reading(read, options, labels).chosen()
    if chosen is None:
        return NONE if nothing_said(read) else UNREADABLE
    return NONE if chosen == NOTHING_FITS else chosen


def _whole(read: Passage, options: Options) -> int | None:
    """Return the option that the whole reply is, by its words."""
    tokens = [token for token in read.tokens if not token.item]
    words = tuple(token.word for token in tokens)
    if words in _NOTHING:
        return NOTHING_FITS
    if any(read.tokens[-1].sentence != token.sentence for token in tokens):
        return None
    if _SIGNS.search(read.text):
        return None
    option = options.whole.get(_stems(tokens))
    if option is None and len(tokens) > 1 and words[0] in ARTICLES:
        option = options.whole.get(_stems(tokens[1:]))
    return option


def _stems(tokens: Iterable[Token]) -> tuple[str, ...]:
    return tuple(sorted(token.stem for token in tokens))


class _Reading:
    """One reply and the options that it names."""

    def __init__(self, read: Passage, options: Options, labels: Sequence[str]) -> None:
        self.read = read
        self.labels = labels
        self.all = mentions(read, options)
        self.found = [mention for mention in self.all if not mention.aside]
        self.clauses: dict[int, int] = {}
        """The place of each clause's first word."""
        for place, token in enumerate(read.tokens):
            self.clauses.setdefault(token.clause, place)
        self.inside = {place for one in self.all for place in range(one.start, one.end)}

    def __repr__(self) -> str:
        return "_Reading(<hidden>)"

    def chosen(self) -> int | None:
        """Return the option that is chosen; see the module."""
        if not self.found:
            return None
        for rule in (self._declared, self._head):
            option = rule()
            if option is not None:
                return option
        turn = refuses(self.read)
        if turn is not None:
            silent = [one for one in self.found if self._silent(one.option)]
            behind = [one for one in self.found if one.start >= turn]
            return self._one(silent) if silent else self._one(behind)
        only = self._one(self.found)
        if only is not None:
            off = only != NOTHING_FITS and (self._elsewhere() or self._none_leads())
            return None if off else only
        return self._of_several()

    def _silent(self, option: int) -> bool:
        return option == NOTHING_FITS or says_nothing(self.labels[option])

    def _one(self, found: Iterable[Mention]) -> int | None:
        options = {mention.option for mention in found}
        return options.pop() if len(options) == 1 else None

    def _token(self, mention: Mention) -> Token:
        return self.read.tokens[mention.start]

    def _parts(self) -> dict[int, list[int]]:
        """Return the places of the words of each part of a sentence."""
        parts: dict[int, list[int]] = {}
        for place, token in enumerate(self.read.tokens):
            parts.setdefault(token.part, []).append(place)
        return parts

    def _declared(self) -> int | None:
        """Return the text after the last "Answer:" or "I'd say"."""
        tokens = self.read.tokens
        starts = [
            place + 1
            for place, token in enumerate(tokens)
            if place not in self.inside and self._declares(place, token)
        ]
        following = {one.start: at for at, one in enumerate(self.found)}
        result: int | None = None
        for start in starts:
            at = next(
                (
                    following[place]
                    for place in range(start, start + _SHORT_GAP + 1)
                    if place in following
                ),
                None,
            )
            if at is None or (
                self.found[at].start > start
                and self._token(self.found[at]).part != tokens[start - 1].part
            ):
                continue
            if any(
                is_negator(token.word) for token in tokens[start : self.found[at].start]
            ):
                continue
            result = self._listed_from(at)
        return result

    def _declares(self, place: int, token: Token) -> bool:
        tokens = self.read.tokens
        if token.word in _SAYING and token.word not in _DECLARING:
            return any(one.word in _IF_SO for one in tokens[max(place - 2, 0) : place])
        if token.word == "boxed":
            return self.read.gap(place + 1).startswith("{")
        if token.word not in _DECLARING:
            return False
        after = self.read.gap(place + 1)
        following = tokens[place + 1].word if place + 1 < len(tokens) else ""
        return ":" in after or "=" in after or following in _IS

    def _listed_from(self, at: int) -> int | None:
        """Return the option of a mention, if no other is listed beside it."""
        first = self.found[at]
        for one, other in zip(self.found[at:], self.found[at + 1 :], strict=False):
            if listed(self.read, one, other) is None:
                break
            if other.option != first.option:
                return None
        return first.option

    def _head(self) -> int | None:
        """Return the option that the reply begins with as a clause by itself."""
        first = self.found[0]
        tokens = self.read.tokens
        before = [token for token in tokens[: first.start] if not token.item]
        if any(token.word not in _LEADING for token in before):
            return None
        end = first.end
        if end < len(tokens) and tokens[end].clause == tokens[end - 1].clause:
            return None
        gap = self.read.gap(end)
        if end < len(tokens) and tokens[end].word.isdigit() and ":" in gap:
            return None
        return None if self._rows() or "?" in gap else self._listed_from(0)

    def _rows(self) -> bool:
        """Return whether several options stand each on a line of its own."""
        alone = {
            one.option
            for one in self.found
            if self._starts_line(one.start) and self._ends_clause(one.end)
        }
        return len(alone) > 1

    def _starts_line(self, place: int) -> bool:
        tokens = self.read.tokens
        begin = place
        while begin and tokens[begin - 1].item:
            begin -= 1
        return begin == 0 or "\n" in self.read.gap(begin)

    def _ends_clause(self, end: int) -> bool:
        tokens = self.read.tokens
        return end == len(tokens) or tokens[end].clause != tokens[end - 1].clause

    def _elsewhere(self) -> bool:
        """Return whether the reply claims something else and adds an option to it."""
        tokens = self.read.tokens
        if all(self._added(one) for one in self.found):
            return bool(self._claimed())
        if any(self._token(one).sentence == 0 for one in self.all):
            return False
        first = [place for place, one in enumerate(tokens) if one.sentence == 0]
        claim = self._claims(first)
        return claim is not None and not any(
            tokens[place].word in _POINTING
            for place in first
            if tokens[place].clause == tokens[claim].clause
        )

    def _added(self, mention: Mention) -> bool:
        """Return whether an option stands in ", with ..."."""
        place = self.clauses[self._token(mention).clause]
        return place > 0 and self.read.tokens[place].word == "with"

    def _none_leads(self) -> bool:
        """Return whether the reply says that nothing stands out among what it names."""
        tokens = self.read.tokens
        parts = self._parts()
        begun = tokens[0].word in _NOTHING_IS and 0 not in self.inside
        denies = any(one.aside and self._token(one).part == 0 for one in self.all)
        if begun and not denies and tokens[1].clause == tokens[0].clause:
            return not self._claimed()
        return any(
            tokens[places[0]].word in CONCLUSIONS
            and len(places) > 1
            and tokens[places[1]].word in _NOTHING_IS
            and places[1] not in self.inside
            for places in parts.values()
        )

    def _claimed(self) -> list[Mention]:
        """Return the options in parts that say "most", "main" and the like."""
        claiming = {
            part
            for part, places in self._parts().items()
            if self._claims(places) is not None
        }
        return [one for one in self.found if self._token(one).part in claiming]

    def _claims(self, places: Sequence[int]) -> int | None:
        """Return where words say "most", "main" and the like, if they don't deny it."""
        tokens = self.read.tokens
        for number, place in enumerate(places):
            if place in self.inside:
                continue
            word = tokens[place].word
            if is_negator(word):
                return None
            after = tokens[places[number + 1]].word if number + 1 < len(places) else ""
            if word in _CLAIMS or (word == "more" and after in _OFTEN):
                return place
        return None

    def _of_several(self) -> int | None:
        claims = [one for one in self._claimed() if not self._added(one)]
        # Such a word begins its part.
        concluding = {t.part for t in self.read.tokens if t.word in CONCLUSIONS}
        concluded = [one for one in self.found if self._token(one).part in concluding]
        tied = any(
            token.word in _TIES
            for place, token in enumerate(self.read.tokens)
            if place not in self.inside
        )
        all_bold = all(token.bold for token in self.read.tokens)
        bold = [one for one in self.found if self._token(one).bold and not all_bold]
        first = [one for one in self.found if self._token(one).sentence == 0]
        for found in (
            concluded,
            () if tied else claims,
            () if tied else bold,
            () if tied or self._counts_up() else first,
        ):
            if found:
                return self._one(found)
        return None

    def _counts_up(self) -> bool:
        """Return whether the first sentence speaks of amounts, or is the only one."""
        tokens = self.read.tokens
        return (
            tokens[-1].sentence == 0
            or self._rows()
            or any(
                token.word in _AMOUNTS or token.stem.isdigit()
                for place, token in enumerate(tokens)
                if token.sentence == 0 and place not in self.inside and not token.item
            )
        )
