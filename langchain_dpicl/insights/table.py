"""The table of people's slots: its cells, who fills which, and what its noise hides.

| row | who fills it |
|---|---|
| a listed topic | who has it among the first m, by the own order |
| "other" | who has a topic that is not listed: in the last slot |
| "nothing listed", "no second topic", ... | whose slot of that number is empty |
| "not read" | whose conversations could not be read: in the first slot |

Thresholds and margins follow from the exact law of the noise that was paid for. A topic
that nobody has comes out, one or more of all, in at most `UNUSED_RATE` of releases. If
R of L topics come out, their margin has the level 1 - `ERROR_RATE` R / L. A count comes
out more easily if its noise is high, so a margin of 95 % would hold for fewer than 95 %
of those that do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.insights.reading import Reading
from langchain_dpicl.insights.topics import Topics
from langchain_dpicl.mechanisms.exact import Integers, RoundedGaussian
from langchain_dpicl.mechanisms.slots import SlotNoise
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.text.asking import ReadingForecast

UNUSED_RATE = 0.01
"""Most releases in which one or more topics come out that nobody has."""

ERROR_RATE = 0.05
"""Most stated margins that do not hold."""

LEAST_RATE = 0.95
"""Least releases in which a topic of `Forecast.least` people comes out."""

OTHER_VALUE = "other"
"""The value of an attribute that stands for all that are not listed."""

MOST_SLOTS = 8
_MOST_CELLS = 1_000_000
_ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_QUARTER = 4


@dataclass(frozen=True)
class Count:
    """A released number of people or, of a group, of mentions.

    Attributes:
        name: What was counted.
        count: The noisy number.
        error: The margin: count ± error.
        group: The topic's group, if it has one.
    """

    name: str
    count: int
    error: int
    group: str | None = None


@dataclass(frozen=True)
class Segment:
    """The topics of the people who have one value of an attribute.

    Attributes:
        topics: Those that came out, the most frequent first.
        too_few: The names of the others.
        people: How many people have the value.
    """

    topics: tuple[Count, ...]
    too_few: tuple[str, ...]
    people: Count


@dataclass(frozen=True)
class Layout:
    """Which cells a table has. Public.

    Attributes:
        topics: The listed topics: the first rows.
        slots: How many slots m each person fills.
        by: The values of each attribute, the last one `OTHER_VALUE`; by their names.
    """

    topics: Topics
    slots: int
    by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Any, slots: Any, by: Any = None) -> Layout:
        """Return the layout of public terms, or refuse them."""
        m = parameters.count(slots, "max_topics")
        if m > MOST_SLOTS:
            raise InvalidParameterError(f"max_topics must be at most {MOST_SLOTS}.")
        layout = cls(Topics.of(topics), m, _domains({} if by is None else by))
        if math.prod(layout.shape) > _MOST_CELLS:
            raise InvalidParameterError(
                f"Topics and attributes make more than {_MOST_CELLS:,} cells. Cross "
                "fewer attributes, or fewer values."
            )
        return layout

    @property
    def other(self) -> int:
        """The row "other"; the row of an empty slot k is k rows behind it."""
        return len(self.topics.names)

    @property
    def not_read(self) -> int:
        """The row of people who could not be read."""
        return self.other + self.slots + 1

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns the table has."""
        return self.not_read + 1, math.prod(map(len, self.by.values()))

    @property
    def empty(self) -> tuple[str, ...]:
        """The names of the rows of empty slots."""
        more = (f"no {word} topic" for word in _ORDINALS[: self.slots - 1])
        return ("nothing listed", *more)

    def filled(self, reading: Reading | None) -> list[int]:
        """Return the rows that a person fills: always m different ones.

        A topic of the person's own takes the last slot. Where there is only one, a
        listed topic goes before it.

        Example:
            >>> layout = Layout.of(["refunds", "late fees", "login"], 2)
            >>> layout.filled(Reading((2, 0, 1))), layout.filled(Reading((1,), "app"))
            ([2, 0], [1, 3])
            >>> layout.filled(Reading(())), layout.filled(None)
            ([4, 5], [6, 5])
        """
        first, last = [self.not_read], list[int]()
        if reading is not None:
            first = list(dict.fromkeys(reading.topics))[: self.slots]
            if reading.other is not None and not (self.slots == 1 and first):
                first, last = first[: self.slots - 1], [self.other]
        empty = range(len(first) + 1, self.slots + 1 - len(last))
        return [*first, *(self.other + slot for slot in empty), *last]

    def column(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Return the column of a person with this metadata of the own records.

        A person has one value of each attribute: the listed one that most of the own
        records state, of several the first in the list; "other" where none states one.
        """
        column, own = 0, list(records)
        for name, values in self.by.items():
            votes = Counter[str]()
            for record in own:
                with suppress(Exception):  # An integer may be too long for a text.
                    votes[_folded(record.get(name))] += 1
            counts = [votes[_folded(value)] for value in values]
            place = counts.index(max(counts)) if any(counts) else len(values) - 1
            column = column * len(values) + place
        return column

    def totals(self, table: Integers, attribute: str | None = None) -> Integers:
        """Return the rows summed over all attributes but one, shape (rows, values)."""
        whole = table.reshape(len(table), *map(len, self.by.values()))
        others = (n for n, name in enumerate(self.by, 1) if name != attribute)
        summed: Integers = whole.sum(axis=tuple(others))
        return summed.reshape(len(table), -1)


def _domains(by: Any) -> dict[str, tuple[str, ...]]:
    domains: dict[str, tuple[str, ...]] = {}
    pairs: Iterable[Any] = by.items() if isinstance(by, Mapping) else [(by, None)]
    for name, values in pairs:
        is_list = isinstance(values, Iterable) and not isinstance(values, str)
        listed = list(values) if is_list else []
        if not (isinstance(name, str) and listed) or not all(
            isinstance(value, str) and value.strip() for value in listed
        ):
            raise InvalidParameterError(
                "by must be a mapping from a metadata key to the public list of its "
                'values, such as {"plan": ["basic", "plus"]}.'
            )
        if len(set(map(_folded, listed))) < len(listed):
            raise InvalidParameterError(f"by: a value of {name!r} is listed twice.")
        kept = (value for value in listed if _folded(value) != OTHER_VALUE)
        domains[name] = (*kept, OTHER_VALUE)
    # What is stored may have lost its order, and columns are counted by it.
    return dict(sorted(domains.items()))


def _folded(value: Any) -> str:
    return str(value).strip().casefold()


# ---- what the noise hides ------------------------------------------------------------


@dataclass(frozen=True)
class Laws:
    """The laws of the noise on the numbers of a table. Public.

    Attributes:
        layout: The table.
        noise: What was paid for.
    """

    layout: Layout
    noise: SlotNoise

    @property
    def kind(self) -> str:
        """What the noise is called."""
        is_gaussian = isinstance(self.noise.cell, RoundedGaussian)
        return "gaussian" if is_gaussian else "geometric"

    def topic(self, rows: int = 1, values: int = 1) -> SummedNoise:
        """Return the law of listed topics' numbers, or of empty slots'.

        Args:
            rows: Over how many of them is summed.
            values: How many values the attribute has that is not summed over.
        """
        return SummedNoise(self.noise.cell, rows * self.layout.shape[1] // values)

    @property
    def other(self) -> SummedNoise:
        """The law of the number of people with another topic."""
        return SummedNoise(self.noise.other, self.layout.shape[1])

    def people_error(self, values: int = 1) -> int:
        """Return the margin of a number of people: the sum of all rows, over m."""
        m, (rows, columns) = self.layout.slots, self.layout.shape
        across = columns // values
        others = ((self.noise.other, across),)
        law = SummedNoise(self.noise.cell, (rows - 1) * across, others)
        return max(1, (2 * margin(law) + m) // (2 * m))


@lru_cache(maxsize=256)
def threshold(law: SummedNoise, among: int) -> int:
    """Return the least noisy count that comes out, of so many topics."""
    return law.threshold(UNUSED_RATE, among)


@lru_cache(maxsize=256)
def margin(law: SummedNoise, released: int = 1, among: int = 1) -> int:
    """Return the margin of counts of which so many among so many come out."""
    return max(1, law.margin(ERROR_RATE * released / among))


def least(law: SummedNoise, among: int) -> int:
    """Return the least true number that comes out in `LEAST_RATE` of releases.

    Example:
        >>> from langchain_dpicl.accounting import Pure
        >>> noise = SlotNoise.of([Pure(epsilon=3.0)], 2)
        >>> least(SummedNoise(noise.cell, 1), among=30)
        7
    """
    return threshold(law, among) + law.threshold(1 - LEAST_RATE, 1) - 1


def passing(counts: Sequence[int], laws: Sequence[SummedNoise]) -> dict[int, int]:
    """Return the margins of the counts that come out, by their places."""
    among = len(counts)
    passed = {
        place: law
        for place, (count, law) in enumerate(zip(counts, laws, strict=True))
        if count >= threshold(law, among)
    }
    return {place: margin(law, len(passed), among) for place, law in passed.items()}


# ---- before the charge ---------------------------------------------------------------


@dataclass(frozen=True)
class Forecast:
    """What a release will show; computed from public numbers before the charge.

    Attributes:
        noise: `geometric` or `gaussian`: the one under which smaller topics come out.
        threshold: The least noisy count that comes out.
        least: So many people must have a topic for it to come out in 95 %.
        error: The margin of topics, if a quarter of the list comes out.
        least_other: The same as `least` for people with a topic that is not listed.
        least_word: The same for a word that they share; None: words are off.
        least_by: By attribute, the same as `least` among the people of one value.
        people_error: The margin of the number of people.
        people: The declared number of people, if there is one.
        reading: Calls, tokens and price, if the length of conversations is declared.
    """

    noise: str
    threshold: int
    least: int
    error: int
    least_other: int
    least_word: int | None
    least_by: Mapping[str, int]
    people_error: int
    people: int | None = None
    reading: ReadingForecast | None = None

    @classmethod
    def of(
        cls,
        laws: Laws,
        people: int | None = None,
        reading: ReadingForecast | None = None,
    ) -> Forecast:
        """Return what follows from the laws of the noise."""
        among, gate = len(laws.layout.topics.names), laws.noise.gate
        return cls(
            noise=laws.kind,
            threshold=threshold(laws.topic(), among),
            least=least(laws.topic(), among),
            error=margin(laws.topic(), math.ceil(among / _QUARTER), among),
            least_other=least(laws.other, 1),
            least_word=None if gate is None else gate.required(LEAST_RATE, 1),
            least_by={
                name: least(laws.topic(values=len(values)), among * len(values))
                for name, values in laws.layout.by.items()
            },
            people_error=laws.people_error(),
            people=people,
            reading=reading,
        )

    def __str__(self) -> str:
        share, calls = "", [] if self.reading is None else [f"{self.reading}."]
        if self.people is not None:
            share = f" ({100 * self.least / self.people:.2g} % of {self.people:,})"
            calls = calls or [f"{self.people + 1:,} calls of the model, or more."]
        topic = f"A topic comes out if at least {self.least:,} people have it"
        words = "Words that nobody listed are off: too few people are declared."
        if self.least_word is not None:
            words = f"A word that nobody listed needs {self.least_word:,} people."
        lines = (
            f"{topic}{share}, ± {self.error:,}.",
            f'"Other" comes out from {self.least_other:,} people on.',
            words,
            *(
                f"Among the people of one {name} a topic needs {needed:,} of them."
                for name, needed in self.least_by.items()
            ),
            f"The number of people: ± {self.people_error:,}.",
            *calls,
        )
        return "\n".join(lines)
