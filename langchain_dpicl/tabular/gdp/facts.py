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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document
from pydantic import Field, field_validator

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Public
from langchain_dpicl.tabular.columns import filled, names_in
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.terms import GDPTerms

MISSED = 0.01
"""How often a margin does not hold, at most."""

FALSE = 0.01
"""How often a document tells a value though it has no rows, or a group has none."""

EVEN = 0.05
"""How often one of two equal counts is said to lead, at most."""

UNTOLD = (
    "unknown",
    "not known",
    "not mentioned",
    "not stated",
    "not specified",
    "unspecified",
    "not recorded",
    "n/a",
)
"""Values that say that nothing is known: they answer no question for the most frequent
one, whatever their count. "no" and "none" are answers."""

_NAMED = 3
"""Values that one sentence ranks."""


class Words(Public):
    """The words of sentences: public, and in the record of the documents.

    Attributes:
        people: What rows are called.
        phrases: By column, how its value is said of people: "on {value}".
        untold: Values that are counted and never ranked, in any letter case.
    """

    people: str
    phrases: dict[str, str] = Field(default_factory=dict)
    untold: tuple[str, ...] = UNTOLD

    @field_validator("people")
    @classmethod
    def _not_blank(cls, given: str) -> str:
        if not given.strip():
            raise ValueError("say what rows are, such as 'patients'")
        return given

    @field_validator("phrases")
    @classmethod
    def _has_value(cls, given: dict[str, str]) -> dict[str, str]:
        for phrase in given.values():
            names_in(phrase, ("value",))
        return given

    @field_validator("untold", mode="before")
    @classmethod
    def _folded(cls, given: Any) -> Any:
        if isinstance(given, (list, tuple, set, frozenset)):
            return tuple(sorted(str(value).casefold() for value in given))
        return given

    def fit(self, terms: GDPTerms) -> Words:
        """Return these words, if their phrases are of counted columns.

        Raises:
            InvalidParameterError: If one is not.
        """
        for name in self.phrases:
            if name not in terms.counted:
                raise InvalidParameterError(
                    f"phrases names {name!r:.100}, which is no counted column. Those "
                    f"are {', '.join(map(repr, terms.counted)):.400}."
                )
        return self


@dataclass(frozen=True)
class FactWriter:
    """Writes what a release tells.

    Attributes:
        statistics: The released counts.
        words: The words to say it in.
    """

    statistics: NoisyStatistics
    words: Words

    def documents(self) -> Iterator[Document]:
        """Write a document for each column, and value of a pair's columns."""
        terms = self.statistics.terms
        for name in terms.counted:
            if self.statistics.can_tell((name,)):
                yield self._document(name, None)
        for table in terms.tables:
            both = table.columns if table.summed is None else ()
            for by, of in (both, both[::-1]) if len(both) > 1 else ():
                for value in terms.table_schema.column(by).options:
                    if not self._is_untold(value):
                        yield self._document(of, (by, value))

    def _document(self, of: str, where: tuple[str, str] | None) -> Document:
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
        told = told[: clear or _NAMED]
        named = [f"{value} ({_about(count, margin)})" for value, count in told]
        if clear:
            status, told_as = "ranked", ", then ".join(named)
        elif told:
            status = "close"
            named += [] if told[1:] else ["another, too rare to be named"]
            told_as = f"too close to tell, {' or '.join(named)}"
        else:
            status, told_as = "few", "the counts are too small to tell"
        if whole is not None and is_seen:
            told_as += self._of_all(of, whole, [count for _, count in (*told, *aside)])
        title = self._title(of)
        sentences = [f"Most frequent {title} of {self._who(where)}: {told_as}."]
        sentences += [
            f"{title.capitalize()} {value}: {_about(count, margin)}."
            for value, count in aside
        ]
        metadata: dict[str, Any] = {
            "of": of,
            "by": where[0] if where else "",
            "value": where[1] if where else "",
            "status": status,
            "numbers": json.dumps({value: [n, margin] for value, n in counts}),
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
        return f", of {_about(size, law.margin(MISSED))} {self.words.people}{each}"

    def _who(self, where: tuple[str, str] | None) -> str:
        if where is None:
            return self.words.people
        name, value = where
        usual = f"whose {self._title(name)} is {value}"
        if self._is_set(name):
            usual = f"with {value} among their {self._title(name)}"
        phrase = self.words.phrases.get(name)
        said = usual if phrase is None else filled(phrase, {"value": value})
        return f"{self.words.people} {said}"

    def _size(self, where: tuple[str, str] | None) -> tuple[int, SummedNoise] | None:
        """Return how many rows a sentence is about, and the law of the noise on it.

        None where no table tells it: sums over a column of sets count mentions.
        """
        if not self.statistics.can_tell((where or ())[:1]):
            return None
        if where is None:
            return self.statistics.total()
        table = self.statistics.table(where[0])
        return int(table.noisy[table.values[0].index(where[1])]), table.law

    def _is_set(self, name: str) -> bool:
        column = self.statistics.terms.table_schema.column(name)
        return getattr(column, "max_items", None) is not None

    def _title(self, name: str) -> str:
        return self.statistics.terms.table_schema.column(name).title

    def _is_untold(self, value: str) -> bool:
        return value.casefold() in self.words.untold


def facts_of(statistics: NoisyStatistics, wording: Mapping[str, Any]) -> list[Document]:
    """Return the documents of a release in the words that a record has.

    Raises:
        InvalidParameterError: If no sentence can be made of the words.
    """
    words = Words(**{str(name): value for name, value in wording.items()})
    return [*FactWriter(statistics, words.fit(statistics.terms)).documents()]


def _clear(told: Sequence[int], rest: Sequence[int], lead: int) -> int:
    """Return how many of the told counts are ahead of the next one by the lead.

    Told and rest, those that may not be told, come largest first.
    """
    after = [*told[1:], *rest[:1]]
    for place, count in enumerate(told[:_NAMED]):
        if place < len(after) and count - after[place] < lead:
            return place
    return min(len(told), _NAMED)


def _about(count: int, margin: int) -> str:
    return f"about {count} ± {margin}"
