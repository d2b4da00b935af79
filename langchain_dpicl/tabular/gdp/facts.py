"""Released counts as plain sentences, with their margins: documents for any RAG chain.

Everything here is computed from released numbers and public terms: post-processing. The
counts are the unbiased ones, whose errors are known, and not those that are cut off at
zero.

A sentence ranks values only where their counts differ by `CLEAR` standard errors of the
difference. Of two values with the same true count one is then said to lead in at most
5 % of releases, by Gaussian noise and by the longer tails of Laplace noise. Where they
differ by less, it says that they are too close to tell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.tabular.gdp.counts import Estimate
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics

CLEAR = 2.1
"""Standard errors of a difference: two draws of Laplace noise of scale b differ by
4.2 b or more, 2.1 of their standard deviations, in 5 % of cases; Gaussian ones in 4.
Whole numbers need one more: 2.1 of their deviations may be little more than the step
before, and without it two equal counts would be ranked in up to 18 % of cases."""

MARGIN = 3.0
"""Standard errors behind a "±": Laplace noise exceeds them in 1.4 % of cases, Gaussian
noise in 0.3. A count is told because it is large, so that more of those that are told
are too large."""

FALSE = 0.01
"""How often one of a document's counts is told though it is 0."""

UNTOLD = frozenset(
    {"none", "no", "nothing", "unknown", "other", "not mentioned", "not known", "n/a"}
)
"""Values that answer no question for the most frequent one, whatever their count."""

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
        found = table.unbiased
        if where is not None:
            found = found[table.values[0].index(where[1])]
        counts = [
            (table.values[-1][code], Estimate(float(found[code]), table.error))
            for code in np.argsort(-found, kind="stable").tolist()
        ]
        lead = table.lead_errors[-1]
        size = self._size(of, where)
        ranked = [one for one in counts if not self._is_untold(one[0])]
        aside = [one for one in counts if self._is_untold(one[0])]
        # Laplace noise of k counts of 0 reaches this in `FALSE` of cases at most.
        shown = math.log(len(counts) / (2 * FALSE)) / math.sqrt(2)
        told, status = _clear(ranked, lead), "ranked"
        if not ranked or ranked[0][1].value < shown * ranked[0][1].error:
            told, status = 0, "few"
        elif not told:
            status = "close"
        is_counted = size.value >= MARGIN * size.error
        of_all = f", of {_about(size)} {self.people}" if is_counted else ""
        if status == "few":
            told_as = "the counts are too small to tell"
        elif status == "close":
            near = [one for one in ranked if one[1].value >= shown * one[1].error]
            listed = " or ".join(map(_said, near[:_NAMED]))
            told_as = f"too close to tell, {listed}"
        else:
            told_as = ", then ".join(map(_said, ranked[:told]))
        title = self._title(of)
        head = f"Most frequent {title} of {self._who(where)}"
        sentences = [f"{head}: {told_as}{of_all}."]
        sentences += [
            f"{title.capitalize()} {value}: {_about(one)}."
            for value, one in aside
            if one.value >= shown * one.error
        ]
        numbers = {
            str(value): [round(one.value, 2), round(one.error, 2)]
            for value, one in counts
        }
        metadata = {
            "of": of,
            "by": where[0] if where else "",
            "value": str(where[1]) if where else "",
            "status": status,
            "size": round(size.value, 2),
            "size_error": round(size.error, 2),
            "numbers": json.dumps(numbers),
        }
        return Document(" ".join(sentences), metadata=metadata)

    def _who(self, where: tuple[str, Any] | None) -> str:
        if where is None:
            return self.people
        phrase = self.phrases.get(where[0], PHRASE)
        said = phrase.replace("{column}", self._title(where[0]))
        return f"{self.people} {said.replace('{value}', str(where[1]))}"

    def _size(self, of: str, where: tuple[str, Any] | None) -> Estimate:
        """Return how many people a sentence is about."""
        table = self.statistics.table((where[0] if where else of,))
        if where is not None:
            place = table.values[0].index(where[1])
            return Estimate(float(table.unbiased[place]), table.error)
        # Every measured column's counts have the same sum after the fit.
        (size,) = self.statistics.sizes
        return Estimate(float(table.unbiased.sum()), size.error)

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


def _clear(ranked: Sequence[tuple[str, Estimate]], lead_error: float) -> int:
    """Return how many of the first values are clearly ahead of the next one."""
    values = [one.value for _, one in ranked[: _NAMED + 1]]
    if len(ranked) <= _NAMED:
        values.append(0.0)
    for place in range(len(values) - 1):
        if values[place] - values[place + 1] < CLEAR * lead_error + 1:
            return place
    return len(values) - 1


def _said(counted: tuple[str, Estimate]) -> str:
    return f"{counted[0]} ({_about(counted[1])})"


def _about(count: Estimate) -> str:
    return f"about {max(count.value, 0):.0f} ± {math.ceil(MARGIN * count.error)}"
