"""Released counts as plain sentences, with their margins: documents for any RAG chain.

Everything here is computed from released numbers and public terms: post-processing. The
counts are the whole numbers as they were released, of the table that tells them with
the least noise. So the law of what noise adds to each is known exactly (`margins`), and
so is how often a sentence is wrong, each taken by itself:

* A margin does not hold in `MISSED` of releases, whether its count is told or not.
* One or more of the values that nobody has are told in `FALSE` of releases. A group
  whose own number is not as clear of 0 tells nothing.
* Of two values with the same true count one is said to lead in `EVEN` of releases. Of
  those that differ by less, the sentence says that they are too close to tell.

A part is not told "of" a whole where the noise has made the parts larger than it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics

MISSED = 0.01
"""How often a margin does not hold, at most."""

FALSE = 0.01
"""How often a document tells a value though it has no rows, or a group has none."""

EVEN = 0.05
"""How often one of two equal counts is said to lead, at most."""

UNTOLD = frozenset(
    {
        "unknown",
        "not known",
        "not mentioned",
        "not stated",
        "not specified",
        "unspecified",
        "not recorded",
        "n/a",
    }
)
"""Values that say that nothing is known: they answer no question for the most frequent
one, whatever their count. "no" and "none" are answers."""

PHRASE = "whose {column} is {value}"
_NAMED = 3
"""Values that one sentence ranks."""


@dataclass(frozen=True)
class FactWriter:
    """Writes what a release tells.

    Attributes:
        statistics: The released counts.
        people: What rows are called.
        phrases: How one column's value is said of people: "on {value}".
        untold: Values that are counted, and never ranked.
    """

    statistics: NoisyStatistics
    people: str
    phrases: Mapping[str, str]
    untold: Collection[str]

    def documents(self) -> Iterator[Document]:
        """Write a document for each column, open one, and value of a pair's columns."""
        for name in self.statistics.terms.measured_names:
            yield self._document(name, None)
        for name, names in self.statistics.named.items():
            yield self._named(name, names)
        for own in self.statistics.terms.measure or ():
            for by, of in (own, own[::-1]) if len(own) > 1 else ():
                for value in self.statistics.table((by,)).values[0]:
                    if not self._is_untold(value):
                        yield self._document(of, (by, value))

    def _named(self, of: str, names: Sequence[str]) -> Document:
        """Write what an open column names outside its list."""
        title = self._title(of)
        text = f"No {title} beyond the listed ones is named by enough {self.people}."
        if names:
            also = f"Also named by {self.people} as {title}, though not listed"
            text = f"{also}: {', '.join(names)}."
        metadata = {
            "of": of,
            "by": "",
            "value": "",
            "status": "named",
            "names": json.dumps(list(names)),
        }
        return Document(text, metadata=metadata)

    def _document(self, of: str, where: tuple[str, Any] | None) -> Document:
        table = self.statistics.table((*(where or ())[:1], of))
        noisy = table.noisy
        if where is not None:
            noisy = noisy[table.values[0].index(where[1])]
        counts = [
            (table.values[-1][code], int(noisy[code]))
            for code in np.argsort(-noisy, kind="stable").tolist()
        ]
        least = table.law.threshold(FALSE, among=len(counts))
        margin = table.law.margin(MISSED)
        size, size_law = self._size(where)
        is_seen = size >= size_law.threshold(FALSE, among=1)
        size_margin = size_law.margin(MISSED)
        told: list[tuple[str, int]] = []
        aside: list[tuple[str, int]] = []
        for value, count in counts if is_seen else ():
            if count >= least:
                (aside if self._is_untold(value) else told).append((value, count))
        answers = [count for value, count in counts if not self._is_untold(value)]
        clear = _clear(answers[: len(told)], answers[len(told) :], table.law.lead(EVEN))
        if clear:
            told = told[:clear]
            status, told_as = "ranked", ", then ".join(_said(told, margin))
        elif told:
            told = told[:_NAMED]
            status = "close"
            told_as = f"too close to tell, {' or '.join(_said(told, margin))}"
        else:
            status, told_as = "few", "the counts are too small to tell"
        parts = sum(count for _, count in (*told, *aside))
        of_all = ""
        if is_seen and parts <= size:
            of_all = f", of {_about(size, size_margin)} {self.people}"
        title = self._title(of)
        head = f"Most frequent {title} of {self._who(where)}"
        sentences = [f"{head}: {told_as}{of_all}."]
        sentences += [
            f"{title.capitalize()} {value}: {_about(count, margin)}."
            for value, count in aside
        ]
        metadata = {
            "of": of,
            "by": where[0] if where else "",
            "value": str(where[1]) if where else "",
            "status": status,
            "size": size,
            "size_margin": size_margin,
            "numbers": json.dumps({str(v): [n, margin] for v, n in counts}),
        }
        return Document(" ".join(sentences), metadata=metadata)

    def _who(self, where: tuple[str, Any] | None) -> str:
        if where is None:
            return self.people
        phrase = self.phrases.get(where[0], PHRASE)
        said = phrase.replace("{column}", self._title(where[0]))
        return f"{self.people} {said.replace('{value}', str(where[1]))}"

    def _size(self, where: tuple[str, Any] | None) -> tuple[int, SummedNoise]:
        """Return how many rows a sentence is about, and the law of the noise on it."""
        if where is None:
            return self.statistics.total()
        table = self.statistics.table((where[0],))
        return int(table.noisy[table.values[0].index(where[1])]), table.law

    def _title(self, name: str) -> str:
        return self.statistics.terms.schema.column(name).title

    def _is_untold(self, value: Any) -> bool:
        return str(value).casefold() in self.untold


def check_words(
    names: Sequence[str], people: Any, phrases: Any, untold: Any
) -> frozenset[str]:
    """Refuse, before anything is charged, words that no sentence can be made of.

    Args:
        names: The measured columns.
        people: What rows are called.
        phrases: How a column's value is said of them.
        untold: Values that are never ranked.

    Returns:
        The values that are never ranked, in lower case.

    Raises:
        InvalidParameterError: If one can't be used; it is named.
    """
    if not isinstance(people, str) or not people.strip():
        raise InvalidParameterError(
            "people must be a text that says what rows are, such as 'patients'."
        )
    if not isinstance(phrases, Mapping):
        raise InvalidParameterError(
            "phrases must be a mapping from columns to texts, such as "
            "{'drug': 'on {value}'}."
        )
    for name, phrase in phrases.items():
        if name not in names:
            raise InvalidParameterError(
                f"phrases names {name!r:.100}, which is no measured column. Those are "
                f"{', '.join(map(repr, names)):.400}."
            )
        if not isinstance(phrase, str) or "{value}" not in phrase:
            raise InvalidParameterError(
                f"phrases[{name!r}] must be a text with {{value}} in it, such as "
                "'on {value}'."
            )
    # A text is a collection of letters.
    if isinstance(untold, str) or not isinstance(untold, Collection):
        raise InvalidParameterError(
            "untold must be a list of values, such as ['none', 'unknown']."
        )
    return frozenset(str(value).casefold() for value in untold)


def _clear(told: Sequence[int], rest: Sequence[int], lead: int) -> int:
    """Return how many of the first counts are clearly ahead of the next one.

    Args:
        told: Counts that may be told, largest first.
        rest: Those that may not, largest first.
        lead: What a count must be ahead by.
    """
    after = [*told[1:], *rest[:1]]
    for place, count in enumerate(told[:_NAMED]):
        if place < len(after) and count - after[place] < lead:
            return place
    return min(len(told), _NAMED)


def _said(told: Sequence[tuple[str, int]], margin: int) -> list[str]:
    return [f"{value} ({_about(count, margin)})" for value, count in told]


def _about(count: int, margin: int) -> str:
    return f"about {count} ± {margin}"
