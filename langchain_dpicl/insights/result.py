"""`Insights`: what was released, and all that follows from it for free."""

from __future__ import annotations

import copy
import json
import math
import os
from collections import Counter
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
)
from langchain_dpicl.insights.topics import Topics, topic_key
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms.exact import Integers
from langchain_dpicl.mechanisms.slots import SlotNoise
from langchain_dpicl.public import Frozen
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.tabular.gdp.margins import SummedNoise

_LARGEST_EXPONENT = 700.0


class Insights(Frozen):
    """What many people talk about, and nobody in particular. Public.

    `insights` makes it, `load` reads it. Every number is one of people: of those who
    have a topic among their first `max_topics`, as a model read them. Count ± error
    holds for 95 % of what comes out, `words` aside. It says nothing of the model's
    misreadings.

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

    @property
    def topics(self) -> tuple[Count, ...]:
        """The topics that came out, the most frequent first, equal ones as listed."""
        return self._everybody.topics

    @property
    def too_few(self) -> tuple[str, ...]:
        """The names of the other topics: too few people to tell."""
        return self._everybody.too_few

    @property
    def people(self) -> Count:
        """How many people took part."""
        return self._everybody.people

    @property
    def other(self) -> Count:
        """How many people have a topic that is not listed."""
        return self._bin("other", self._layout.other, self._laws.other)

    @property
    def empty(self) -> tuple[Count, ...]:
        """How many people's first, second, ... slot is empty.

        If few people have no second topic, allow one more next time.
        """
        law, rows = self._laws.topic(), enumerate(self._layout.empty, 1)
        return tuple(self._bin(name, self._layout.other + k, law) for k, name in rows)

    @property
    def not_read(self) -> Count:
        """How many people's conversations could not be read."""
        return self._bin("not read", self._layout.not_read, self._laws.topic())

    @cached_property
    def groups(self) -> tuple[Count, ...]:
        """The mentions of groups of topics, the most frequent first.

        A group's number is the sum of the noisy counts of *all* its topics. Those that
        come out are too few, and their sum is off. A person with two topics of a group
        is in it twice.
        """
        own = [name for name in self.listed.groups if name is not None]
        sums = Counter(dict.fromkeys(own, 0))
        for group, count in zip(self.listed.groups, self._totals, strict=False):
            if group is not None:
                sums[group] += int(count)
        laws = [self._laws.topic(rows=own.count(group)) for group in sums]
        errors = passing([*sums.values()], laws)
        groups = [
            Count(group, sums[group], errors[place])
            for place, group in enumerate(sums)
            if place in errors
        ]
        return tuple(sorted(groups, key=lambda one: -one.count))

    @property
    def has_words(self) -> bool:
        """Whether words that nobody listed could come out."""
        return self._laws.noise.gate is not None

    @cached_property
    def words(self) -> tuple[Count, ...]:
        """The words that came out of topics that nobody listed, most people first.

        The error is that of the noise alone. A rare word comes out only if its noise is
        high, and then its count is too high.
        """
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
            name: {one.people.name: one for one in self._segments(values, name)}
            for name, values in self._layout.by.items()
        }

    def changes(self, previous: Insights) -> dict[str, Count] | None:
        """Return by how many people topics have changed since the last period.

        Of R changes among L topics that both list, each holds at level 1 - 0.05 R / L
        by the law of both noises together.

        Args:
            previous: The last period's release.

        Returns:
            Now - then, of the topics that came out both times; None where the releases
            can't be compared, as their people had different numbers of topics.

        Privacy:
            Post-processing of two releases, each of which was paid for.
        """
        if self.max_topics != previous.max_topics:
            return None
        then = {topic_key(topic.name): topic.count for topic in previous.topics}
        listed = set(map(topic_key, previous.listed.names))
        among = sum(topic_key(name) in listed for name in self.listed.names)
        both = [topic for topic in self.topics if topic_key(topic.name) in then]
        own, last = self._laws.topic(), previous._laws.topic()
        law = SummedNoise(own.noise, own.draws, ((last.noise, last.draws),))
        error = margin(law, max(1, len(both)), among or 1)
        return {
            topic.name: Count(
                topic.name, topic.count - then[topic_key(topic.name)], error
            )
            for topic in both
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
        from langchain_dpicl.operate.pages import rendered

        epsilon = self._record["epsilon"]
        return rendered(
            "insights.html",
            package=__package__,
            result=self,
            record=self._record,
            json=json.dumps(self._record, indent=2, ensure_ascii=False),
            previous=previous,
            changes=None if previous is None else self.changes(previous),
            factor=math.exp(min(epsilon, _LARGEST_EXPONENT)),
            sure=100 / (1 + math.exp(-epsilon)),
        )

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
    def _totals(self) -> list[int]:
        totals: list[int] = self._layout.totals(self._counts)[:, 0].tolist()
        return totals

    @cached_property
    def _everybody(self) -> Segment:
        (everybody,) = self._segments(("people",))
        return everybody

    def _bin(self, name: str, row: int, law: SummedNoise) -> Count:
        return Count(name, max(0, self._totals[row]), margin(law))

    def _segments(
        self, values: tuple[str, ...], attribute: str | None = None
    ) -> list[Segment]:
        """Return what came out, by the values of an attribute; of all, where None."""
        m, n = self.max_topics, len(values)
        table = self._layout.totals(self._counts, attribute)
        cells = table[: self._layout.other].ravel().tolist()
        errors = passing(cells, [self._laws.topic(values=n)] * len(cells))
        listed = [*zip(self.listed.names, self.listed.groups, strict=True)]
        segments = []
        for column, value in enumerate(values):
            places = [row * n + column for row in range(len(listed))]
            topics = [
                Count(name, cells[place], errors[place], group)
                for place, (name, group) in zip(places, listed, strict=True)
                if place in errors
            ]
            topics.sort(key=lambda one: -one.count)
            too_few = (listed[place // n][0] for place in places if place not in errors)
            people = max(0, (2 * int(table[:, column].sum()) + m) // (2 * m))
            size = Count(value, people, self._laws.people_error(n))
            segments.append(Segment(tuple(topics), tuple(too_few), size))
        return segments

    def _documents(self) -> Iterator[Document]:
        m, everybody = self.max_topics, ("", "", self._everybody)
        among = "main topic" if m == 1 else f"among the first {m} topics"
        crossed = ((by, v, s) for by, made in self.by.items() for v, s in made.items())
        for by, value, segment in (everybody, *crossed):
            people = f"about {_number(segment.people)} people"
            people += f" whose {by} is {value}" if by else ""
            for one in segment.topics:
                text = f"{one.name}: {among} of about {_number(one)} of {people}."
                yield _fact(text, one, "topic", by, value)
        for counts, status, text in (
            (self.groups, "group", "{}: about {} mentions of its topics."),
            (self.words, "word", "{}: a word in what about {} people talk of."),
            ((self.other,), "other", "Not listed: what about {1} people talk of."),
            ((self.people,), "people", "About {1} people took part."),
        ):
            for one in counts:
                yield _fact(text.format(one.name, _number(one)), one, status)
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
