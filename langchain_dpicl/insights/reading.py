"""What one person's conversations are about: one sealed call, and its reply's topics.

Privacy:
    A reading is a function of one person's own records, the public topics and the
    model's answers to prompts that hold nobody else's. A person whose records are too
    long for one call is read in parts, which a public rule merges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate

from langchain_dpicl.insights.topics import Topics
from langchain_dpicl.parsers.reading import (
    DENYING,
    MOST_WORDS,
    NONE,
    forms_of,
    named_in,
    read_choice,
)
from langchain_dpicl.parsers.words import (
    NEGATORS,
    STOP_WORDS,
    lemma,
    spelled,
    tokenize,
    words_of,
)

ASK = ChatPromptTemplate.from_template(
    "Below are one person's conversations{about}. Which of these topics are they "
    "about?\n\n{topics}\n\n"
    "Name at most {most} of these topics, word for word, one a line, the main one "
    "first, and nothing else. If they are about something that is none of these "
    'topics, add one line: "other: " and one to three words for it. If they are about '
    "nothing of the kind, answer: none\n\n"
    "The conversations of the person:\n\n{records}\n\nTopics:"
)
NO_RECORDS = "(This is a test of the form. There are no conversations here.)"

LONGEST = 80
"""Characters of a topic of a person's own."""

_OTHER = re.compile(
    r"(?:^|[\n,;\[{(]|\.\s)[\s\"'*_`\d.)\-+\u2022]{0,12}\bothers?(?: topics?)?\b"
    r"[\"'*_`\s]{0,6}(?:[:=]|\s-{1,3}\s)\s{0,6}([^\n,;\]}]*)",
    re.IGNORECASE,
)
_REMARK = re.compile(r"(?<=\w)[*_\"'\s]{0,6}(?:[:;(\u2014]|\s-{1,3}\s)")
_DENIAL = re.compile(rf"\b(?:{'|'.join(sorted(DENYING))})\b|n't\b")
_LONGEST_LINE, _MOST_LINES = 500, 200
_SHORTEST_WORD = 3


class Reading(NamedTuple):
    """What a person's conversations are about. Private.

    Attributes:
        topics: The places of listed topics, the main one first, none twice.
        other: The person's own topic that is not listed, in the reader's words.
    """

    topics: tuple[int, ...]
    other: str | None = None


class TopicReader:
    r"""Asks for topics, and reads replies. Public, and the same for everybody.

    A person is asked for `most` of the topics.

    Example:
        >>> reader = TopicReader(Topics.of(["refunds", "late fees"]), most=2)
        >>> reply = "1. **Late fee** (twice)\n- other: a broken app"
        >>> reader.parse(reply)
        {'topics': ['late fees'], 'other': 'a broken app'}
        >>> reader.reading([reader.parse(reply)]), reader.word("a broken app")
        (Reading(topics=(1,), other='a broken app'), 'break')
    """

    def __init__(self, topics: Topics, most: int) -> None:
        self._topics, self._most = topics, most
        self._names = topics.names

    def prompt(self, records: str) -> PromptValue:
        """Return the prompt about a person's records."""
        about = self._topics.about.strip().rstrip(".")
        value: PromptValue = ASK.format_prompt(
            about=f" ({about})" if about else "",
            topics="\n".join(f"- {name}" for name in self._names),
            most=self._most,
            records=records,
        )
        return value

    def parse(self, reply: str) -> dict[str, Any]:
        """Return what one reply names: listed topics in its order, and one other.

        Names that are not listed are dropped. A reply that names none, and does not say
        that there is none, is not read: the result is empty.
        """
        text = spelled(reply)
        named, is_read = dict[str, None](), False
        other = None
        for phrase in _OTHER.findall(text)[:_MOST_LINES]:
            own = phrase.strip(" \t\"'*_`.")
            chosen = read_choice(own, self._names)
            if isinstance(chosen, int):
                named[self._names[chosen]] = None
            elif chosen is NONE or own.casefold() == "null":
                is_read = True
            elif other is None and words_of(own):
                other = own[:LONGEST]
        lines = filter(str.strip, _OTHER.sub("\n", text).split("\n"))
        for line in islice(lines, _MOST_LINES):
            found = self._line(line)
            is_read = is_read or found is not None
            named.update(dict.fromkeys(found or ()))
        if not named and other is None and not is_read:
            return {}
        parsed: dict[str, Any] = {"topics": list(named)}
        return parsed if other is None else {**parsed, "other": other}

    def fits(self, parsed: Mapping[str, Any]) -> bool:
        """Return whether something is of the form that `parse` returns."""
        topics, other = parsed.get("topics", []), parsed.get("other", "")
        return (
            parsed.keys() <= {"topics", "other"}
            and isinstance(topics, list)
            and all(isinstance(n, str) and n in self._places for n in topics)
            and isinstance(other, str)
            and len(other) <= LONGEST
        )

    def reading(self, parts: Sequence[Mapping[str, Any]]) -> Reading | None:
        """Return what the parts of a person tell together; None if none was read.

        Topics come by how many parts name them, then by where they are named first;
        the first topic of the person's own counts.
        """
        read = [part for part in parts if "topics" in part]
        if not read:
            return None
        counts = Counter(name for part in read for name in part["topics"])
        # A counter keeps the order of the first mentions, and so does sorting.
        ranked = sorted(counts, key=lambda name: -counts[name])
        other = next((part["other"] for part in read if "other" in part), None)
        return Reading(tuple(self._places[name] for name in ranked), other)

    def word(self, other: str | None) -> str | None:
        """Return the word of an own topic that is counted; None if it has none.

        It is the first lemma that is no stop word and in no listed name.
        """
        for token in tokenize(other or ""):
            word = lemma(token)
            is_known = {token, word} & self._dropped
            if not is_known and len(word) >= _SHORTEST_WORD and not word.isdigit():
                return word
        return None

    def _line(self, line: str) -> list[str] | None:
        """Return the listed topics that a line names; None where it can't be read."""
        chosen = read_choice(line, self._names)
        if isinstance(chosen, int):
            return [self._names[chosen]]
        words = words_of(line)
        places, others = named_in(words, forms_of(self._names))
        is_short = len(others) <= MOST_WORDS and len(words) <= _LONGEST_LINE
        if places and is_short and not _DENIAL.search(" ".join(others)):
            return [self._names[place] for place in places]
        if chosen is not NONE:
            chosen = read_choice(_REMARK.split(line, maxsplit=1)[0], self._names)
        if isinstance(chosen, int):
            return [self._names[chosen]]
        return [] if chosen is NONE else None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self._names)}

    @cached_property
    def _dropped(self) -> frozenset[str]:
        words = {word for name in self._names for word in tokenize(name)}
        return STOP_WORDS | NEGATORS | words | {lemma(word) for word in words}
