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

A part is not told "of" a whole where the noise has made the parts larger than it. Of a
column that holds sets, parts overlap: each is compared with the whole by itself, and
no whole is made of them.
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
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics, values_of
from langchain_dpicl.tabular.gdp.terms import GDPTerms

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
SET_PHRASE = "with {value} among their {column}"
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
        """Write a document for each column, and value of a pair's columns."""
        terms = self.statistics.terms
        for name in counted_names(terms):
            if self.statistics.can_tell((name,)):
                yield self._document(name, None)
        for table in terms.tables:
            both = table.columns if table.summed is None else ()
            for by, of in (both, both[::-1]) if len(both) > 1 else ():
                for value in values_of(terms.table_schema.column(by)):
                    if not self._is_untold(value):
                        yield self._document(of, (by, value))

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
        whole = self._size(where)
        is_seen = whole is None or whole[0] >= whole[1].threshold(FALSE, among=1)
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
            alone = [] if told[1:] else ["another, too rare to be named"]
            named = " or ".join([*_said(told, margin), *alone])
            told_as = f"too close to tell, {named}"
        else:
            status, told_as = "few", "the counts are too small to tell"
        of_all = ""
        if whole is not None and is_seen:
            of_all = self._of_all(of, whole, [count for _, count in (*told, *aside)])
        title = self._title(of)
        sentences = [f"Most frequent {title} of {self._who(where)}: {told_as}{of_all}."]
        sentences += [
            f"{title.capitalize()} {value}: {_about(count, margin)}."
            for value, count in aside
        ]
        metadata: dict[str, Any] = {
            "of": of,
            "by": where[0] if where else "",
            "value": str(where[1]) if where else "",
            "status": status,
            "numbers": json.dumps({str(v): [n, margin] for v, n in counts}),
        }
        if whole is not None:
            size_margin = whole[1].margin(MISSED)
            metadata |= {"size": whole[0], "size_margin": size_margin}
        return Document(" ".join(sentences), metadata=metadata)

    def _of_all(
        self, of: str, whole: tuple[int, SummedNoise], parts: Sequence[int]
    ) -> str:
        """Return what the parts are of, unless noise has made them larger than it."""
        size, law = whole
        is_set = self._is_set(of)
        if (max(parts, default=0) if is_set else sum(parts)) > size:
            return ""
        each = " (each may have several)" if is_set else ""
        return f", of {_about(size, law.margin(MISSED))} {self.people}{each}"

    def _who(self, where: tuple[str, Any] | None) -> str:
        if where is None:
            return self.people
        usual = SET_PHRASE if self._is_set(where[0]) else PHRASE
        phrase = self.phrases.get(where[0], usual)
        said = phrase.replace("{column}", self._title(where[0]))
        return f"{self.people} {said.replace('{value}', str(where[1]))}"

    def _size(self, where: tuple[str, Any] | None) -> tuple[int, SummedNoise] | None:
        """Return how many rows a sentence is about, and the law of the noise on it.

        None where no table tells it: sums over a column of sets count mentions.
        """
        columns = where[:1] if where else ()
        if not self.statistics.can_tell(columns):
            return None
        if where is None:
            return self.statistics.total()
        table = self.statistics.table(columns)
        return int(table.noisy[table.values[0].index(where[1])]), table.law

    def _is_set(self, name: str) -> bool:
        column = self.statistics.terms.table_schema.column(name)
        return getattr(column, "max_items", None) is not None

    def _title(self, name: str) -> str:
        return self.statistics.terms.table_schema.column(name).title

    def _is_untold(self, value: Any) -> bool:
        return str(value).casefold() in self.untold


def counted_names(terms: GDPTerms) -> tuple[str, ...]:
    """Return the columns that rows are counted by, in the schema's order."""
    column = terms.table_schema.column
    return tuple(name for name in terms.names if column(name).has_codes)


def check_words(
    names: Sequence[str], people: Any, phrases: Any, untold: Any
) -> frozenset[str]:
    """Refuse, before anything is charged, words that no sentence can be made of.

    Args:
        names: The counted columns.
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
                f"phrases names {name!r:.100}, which is no counted column. Those are "
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
