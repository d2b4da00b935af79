"""`Insights`: what was released, and all that follows from it for free."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.accounting import read_events
from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.insights.table import (
    Count,
    Forecast,
    Laws,
    Layout,
    Segment,
    margin,
    passing,
    totals,
)
from langchain_dpicl.insights.topics import Topics
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms.exact import Integers
from langchain_dpicl.mechanisms.slots import SlotNoise
from langchain_dpicl.public import Frozen
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.tabular.gdp.margins import SummedNoise


class Insights(Frozen):
    """What many people talk about, and nobody in particular. Public.

    `insights` makes it, `load` reads it. Every number is one of people: of those who
    have a topic among their first `max_topics`, as a model read them. Each is count ±
    error in 95 % of releases, which says nothing of the model's misreadings.

    Args:
        record: The public record of the release; its parameters hold the topics.
        counts: The noisy table as it was released, row by row.
        words: The words that came out, and their noisy counts.

    Raises:
        InvalidParameterError: If these do not fit together.

    Privacy:
        Post-processing of one release, `mechanisms.slots`: to use, save and share it is
        free. Unit, events and epsilon at delta are those of `record`.
    """

    def __init__(
        self, record: Mapping[str, Any], counts: Any, words: Mapping[str, int]
    ) -> None:
        self._record, self._words = checked_record(record), dict(words)
        try:
            terms = self._record["parameters"]
            topics = Topics(**terms["topics"])
            self._layout = Layout.of(topics, terms["max_topics"], terms["by"])
            noise = SlotNoise.of(read_events(self._record["events"]), self.max_topics)
            people = terms["people_at_most"]
            self._people = people and parameters.count(people, "people_at_most")
            self._counts: Integers = np.array(counts, np.int64)
            is_sound = self._counts.shape == self._layout.shape
            is_sound &= all(type(count) is int for count in self._words.values())
        except (KeyError, TypeError, ValueError, OverflowError):
            is_sound = False
        if not is_sound:
            raise InvalidParameterError(
                "These are no insights: the counts do not fit the record's topics. "
                "Load a good copy."
            )
        self._laws = Laws(self._layout, noise)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.topics)} of {len(self.listed.names)} "
            f"topics, people={self.people.count}, epsilon={self._record['epsilon']:.3g}"
            f", delta={self._record['delta']:g})"
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Insights):
            return self._content() == other._content()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def record(self) -> dict[str, Any]:
        """A copy of the public record of the release."""
        return copy.deepcopy(self._record)

    @property
    def listed(self) -> Topics:
        """The topics that were chosen from."""
        return self._layout.topics

    @property
    def max_topics(self) -> int:
        """How many topics a person has at most."""
        return self._layout.slots

    @cached_property
    def forecast(self) -> Forecast:
        """What the terms promised before the charge."""
        return Forecast.of(self._laws, self._people)

    @cached_property
    def topics(self) -> tuple[Count, ...]:
        """The topics that came out, the most frequent first, equal ones as listed."""
        return self._topics(self._totals[: self._layout.other], self._laws.topic)

    @cached_property
    def too_few(self) -> tuple[str, ...]:
        """The names of the other topics: too few people to tell."""
        return self._too_few(self.topics)

    @cached_property
    def people(self) -> Count:
        """How many people took part."""
        return self._size("people", self._totals, None)

    @cached_property
    def other(self) -> Count:
        """How many people have a topic that is not listed."""
        law, row = self._laws.other, self._layout.other
        return Count("other", max(0, int(self._totals[row])), margin(law))

    @cached_property
    def empty(self) -> tuple[Count, ...]:
        """How many people's first, second, ... slot is empty.

        If few people have no second topic, allow one more next time.
        """
        first = self._layout.other + 1
        return tuple(
            self._bin(name, first + place)
            for place, name in enumerate(self._layout.empty)
        )

    @cached_property
    def not_read(self) -> Count:
        """How many people's conversations could not be read."""
        return self._bin("not read", self._layout.not_read)

    @cached_property
    def groups(self) -> tuple[Count, ...]:
        """The mentions of groups of topics, the most frequent first.

        A group's number is the sum of *all* its topics' noisy counts, told or not: the
        sum of some would be too small. A person with two of them is in it twice.
        """
        rows: dict[str, list[int]] = {}
        for row, group in enumerate(self.listed.groups):
            if group is not None:
                rows.setdefault(group, []).append(row)
        sums = {
            group: (int(self._totals[own].sum()), self._laws.cells(rows=len(own)))
            for group, own in rows.items()
        }
        found = [Count(group, *pair) for group, pair in passing(sums).items()]
        return tuple(sorted(found, key=lambda one: -one.count))

    @property
    def has_words(self) -> bool:
        """Whether words that nobody listed could come out."""
        return self._laws.noise.gate is not None

    @cached_property
    def words(self) -> tuple[Count, ...]:
        """The words that came out of topics that nobody listed, most people first."""
        gate = self._laws.noise.gate
        if gate is None:
            return ()
        error = margin(SummedNoise(gate.noise, 1))
        ranked = sorted(self._words.items(), key=lambda pair: (-pair[1], pair[0]))
        return tuple(Count(word, count, error) for word, count in ranked)

    @cached_property
    def by(self) -> dict[str, dict[str, Segment]]:
        """By attribute and value, the topics of the people who have that value."""
        return {
            name: self._crossed(axis, values)
            for axis, (name, values) in enumerate(self._layout.by.items())
        }

    def documents(self) -> ReleasedCorpus:
        """Return what was released as sentences, for any RAG chain; it is free."""
        return ReleasedCorpus(self._documents(), self._record)

    def html(self, previous: Insights | None = None) -> str:
        """Return the page of this release: one file that needs no other.

        Args:
            previous: The last period's release, to which changes are shown.

        Raises:
            InvalidParameterError: If Jinja2 is not installed.
        """
        from langchain_dpicl.insights.page import render

        return render(self, previous)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to a JSON file that `load` verifies.

        Args:
            path: The file. One that holds this very release is left as it is.
            overwrite: Whether to replace anything else that is there.

        Raises:
            InvalidParameterError: If something else is there, or the file can't be
                written.
        """
        file_format.write(
            path, self._content(), file_format.INSIGHTS, overwrite=overwrite
        )

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, ledger: str | Ledger | None = None
    ) -> Insights:
        """Read what `save` wrote, and verify it.

        Args:
            path: The file.
            ledger: The ledger that was charged, or its URL, to compare with; None
                leaves that out.

        Raises:
            InvalidParameterError: If it is no such file, was changed, claims less than
                its events cost, or the ledger says otherwise.
            LedgerError: If the ledger can't be used or trusted.
        """
        loaded = cls(**file_format.read(path, file_format.INSIGHTS))
        if ledger is not None:
            loaded.documents().verify(ledger)
        return loaded

    def _content(self) -> dict[str, Any]:
        return {
            "record": self._record,
            "counts": self._counts.tolist(),
            "words": self._words,
        }

    @cached_property
    def _totals(self) -> Integers:
        return totals(self._counts, None, self._layout.domains)

    def _bin(self, name: str, row: int) -> Count:
        return Count(name, max(0, int(self._totals[row])), margin(self._laws.topic))

    def _size(self, name: str, rows: Integers, columns: int | None) -> Count:
        """Return a number of people: the sum of all rows, by slots."""
        m = self.max_topics
        count = max(0, (2 * int(rows.sum()) + m) // (2 * m))
        return Count(name, count, self._laws.people_error(columns))

    def _topics(self, counts: Integers, law: SummedNoise) -> tuple[Count, ...]:
        given = {place: (int(count), law) for place, count in enumerate(counts)}
        return self._named(passing(given))

    def _named(self, found: Mapping[int, tuple[int, int]]) -> tuple[Count, ...]:
        names, groups = self.listed.names, self.listed.groups
        ranked = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[0]))
        return tuple(
            Count(names[place], count, error, groups[place])
            for place, (count, error) in ranked
        )

    def _too_few(self, found: tuple[Count, ...]) -> tuple[str, ...]:
        out = {one.name for one in found}
        return tuple(name for name in self.listed.names if name not in out)

    def _crossed(self, axis: int, values: tuple[str, ...]) -> dict[str, Segment]:
        table = totals(self._counts, axis, self._layout.domains)
        columns = self._layout.shape[1] // len(values)
        law = self._laws.cells(columns=columns)
        found = passing(
            {
                (row, place): (int(table[row, place]), law)
                for row in range(self._layout.other)
                for place in range(len(values))
            }
        )
        made = {}
        for place, value in enumerate(values):
            own = {row: pair for (row, at), pair in found.items() if at == place}
            topics = self._named(own)
            people = self._size(value, table[:, place], columns)
            made[value] = Segment(topics, self._too_few(topics), people)
        return made

    # -- sentences ---------------------------------------------------------------------

    def _documents(self) -> Iterator[Document]:
        whole, m = _number(self.people), self.max_topics
        among = "main topic" if m == 1 else f"among the first {m} topics"
        for one in self.topics:
            text = (
                f"{one.name}: {among} of about {_number(one)} of about {whole} people."
            )
            yield _fact(text, one, "topic")
        for name, values in self.by.items():
            for value, found in values.items():
                people = f"{_number(found.people)} people whose {name} is {value}"
                for one in found.topics:
                    text = f"{one.name}: {among} of about {_number(one)} of {people}."
                    yield _fact(text, one, "topic", name, value)
        for one in self.groups:
            text = f"{one.name}: about {_number(one)} mentions of its topics."
            yield _fact(text, one, "group")
        for one in self.words:
            text = f"{one.name}: a word in what about {_number(one)} people talk of."
            yield _fact(text, one, "word")
        text = f"Not listed: what about {_number(self.other)} people talk of."
        yield _fact(text, self.other, "other")
        yield _fact(f"About {whole} people took part.", self.people, "people")
        if self.too_few:
            about = {"of": "", "by": "", "value": "", "status": "too few"}
            names = ", ".join(self.too_few)
            yield Document(f"Too few people to tell: {names}.", metadata=about)


def _number(one: Count) -> str:
    return f"{one.count} ± {one.error}"


def _fact(
    text: str, one: Count, status: str, by: str = "", value: str = ""
) -> Document:
    about = {"of": one.name, "by": by, "value": value, "status": status}
    figures = {"count": one.count, "error": one.error, "group": one.group or ""}
    return Document(text, metadata={**about, **figures})
