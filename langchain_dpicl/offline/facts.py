"""Rows of a table, written as facts: how near one row is to another.

A row is often shown to a model as sentences of one form: "The age is 37 years. The job
is clerk." To a bag of words 37 is as far from 38 as from 90. A language model knows
better, so the stand-in must too. It reads such facts, and compares them one by one:
words are equal or not, and numbers are near or far *in comparison with the other texts
of the prompt* (Gower, *A General Coefficient of Similarity and Some of Its Properties*,
Biometrics 27, 1971). It knows nothing about any table, nor which facts matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from langchain_dpicl.offline.words import stems

_FACT = re.compile(
    r"(?:\A|(?<=[.!?;]\s)|(?<=\n))the[ ]+(?P<name>[^\s.]+(?:[ ]+[^\s.]+){0,7}?)[ ]+"
    # Short values only: longer ones are no values of a column, and it bounds the work.
    r"(?:is|are|was|were)[ ]+(?P<value>[^\n]{1,80}?)[.;](?=\s|\Z)",
    re.IGNORECASE,
)
_NUMBER = r"[-+\u2212]?[$\u20ac\u00a3]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNIT = r"\s?[%\u00b0]\S{0,3}|(?:\s+(?!to\b|and\b|or\b)[^\W\d]\S*){0,4}?"
_QUANTITY = re.compile(
    rf"(?:(?P<lead>below|under|less than|at most|up to|"
    rf"above|over|more than|at least|between|from)\s+)?"
    rf"(?P<first>{_NUMBER})(?P<unit>{_UNIT})"
    rf"(?:\s*(?:to|and|-|\u2013)\s*(?P<second>{_NUMBER})(?P<last_unit>{_UNIT}))?"
    r"(?:\s+(?:or|and)\s+(?P<tail>more|above|over|less|fewer|below|under)"
    rf"(?P<tail_unit>{_UNIT}))?",
    re.IGNORECASE,
)
_DOWNWARD = frozenset(
    ("below", "under", "less than", "at most", "up to", "less", "fewer")
)
_UPWARD = frozenset(("above", "over", "more than", "at least", "more"))
_LARGEST = 1e100
"""Larger numbers are taken for words: their differences could not be computed."""

_LEAST = 2
"""Facts that all texts must have in common: fewer are no row of a table."""

_SCALE = 0.1
"""Mean distance over which an exemplar's vote falls to 1/e: near rows decide."""


class Quantity(NamedTuple):
    """A number, or an interval of numbers, maybe open to one side."""

    low: float
    high: float
    unit: str

    @property
    def middle(self) -> float:
        """The middle of an interval, or the end of one that has one end."""
        if math.isinf(self.low):
            return self.high
        return self.low if math.isinf(self.high) else (self.low + self.high) / 2

    def apart(self, other: Quantity) -> float:
        """Return how far apart the middles are; a number is 0 from its interval."""
        for one, two in ((self, other), (other, self)):
            if one.low == one.high and two.low <= one.low <= two.high:
                return 0.0
        return abs(self.middle - other.middle)


def facts(text: str) -> dict[str, str]:
    """Return the facts of a text, value by name, case-folded.

    Example:
        >>> facts("The age is 37 years. The job is Clerk. He likes tea.")
        {'age': '37 years', 'job': 'clerk'}
    """
    found: dict[str, str] = {}
    for fact in _FACT.finditer(text):
        name, value = (" ".join(part.casefold().split()) for part in fact.groups())
        found.setdefault(name, value)
    return found


def quantity(value: str) -> Quantity | None:
    """Return the number or the interval that a value states, or None.

    Example:
        >>> quantity("30 to 40 years")
        Quantity(low=30.0, high=40.0, unit='year')
        >>> quantity("1,500 or more")
        Quantity(low=1500.0, high=inf, unit='')
        >>> quantity("5th grade") is None
        True
    """
    found = _QUANTITY.fullmatch(value)
    if found is None:
        return None
    first = _number(found["first"])
    second = first if found["second"] is None else _number(found["second"])
    if max(abs(first), abs(second)) > _LARGEST:
        return None
    unit = found["unit"] or found["last_unit"] or found["tail_unit"] or ""
    unit = " ".join(stems(unit)) or unit.strip()
    lead, tail = ((found[part] or "").casefold() for part in ("lead", "tail"))
    if found["second"] is not None:
        whole = not tail and lead in {"", "between", "from"}
        return Quantity(min(first, second), max(first, second), unit) if whole else None
    if lead in {"between", "from"} or (lead and tail):
        return None
    side = lead or tail
    return Quantity(
        -math.inf if side in _DOWNWARD else first,
        math.inf if side in _UPWARD else first,
        unit,
    )


def _number(text: str) -> float:
    return float(re.sub(r"[^\d.e+-]", "", text.casefold().replace("\u2212", "-")))


def fact_weights(target: str, exemplars: Sequence[str]) -> list[float] | None:
    """Return how much each exemplar's label counts for a target.

    An exemplar's distance is the mean over the facts that it shares with the target.
    Two words differ by 0 or 1, two numbers by their distance over the range of all
    that the prompt shows of this fact. Facts that one of the two texts does not state
    are ignored.

    Args:
        target: The text to label.
        exemplars: The labeled texts, at least one.

    Returns:
        The weights, in (0, 1] and 1 for the nearest; None where the texts are no rows:
        where there are not two facts that all of them state.

    Example:
        >>> shown = ["The age is 20. The pay is low.", "The age is 60. The pay is low."]
        >>> near, far = fact_weights("The age is 24. The pay is low.", shown)
        >>> near > far
        True
    """
    rows = [facts(target), *map(facts, exemplars)]
    if len(rows[0].keys() & set.intersection(*(set(row) for row in rows))) < _LEAST:
        return None
    totals = [0.0] * len(exemplars)
    counts = [0] * len(exemplars)
    for name in rows[0]:
        for at, distance in _distances(name, rows):
            totals[at] += distance
            counts[at] += 1
    means = [total / count for total, count in zip(totals, counts, strict=True)]
    nearest = min(means)
    return [math.exp((nearest - mean) / _SCALE) for mean in means]


def _distances(name: str, rows: Sequence[Mapping[str, str]]) -> list[tuple[int, float]]:
    """Return how far the first row's fact is from the others' fact of this name."""
    value = rows[0][name]
    holders = [(at, row[name]) for at, row in enumerate(rows[1:]) if name in row]
    own = quantity(value)
    numbers = [quantity(other) if own else None for _, other in holders]
    same = [one for one in numbers if one and own and one.unit == own.unit]
    spread = _spread([own, *same]) if own else 0.0
    found = []
    for (at, other), number in zip(holders, numbers, strict=True):
        if value == other:
            distance = 0.0
        elif own is None or number is None or number.unit != own.unit:
            distance = 1.0
        else:
            apart = own.apart(number)
            distance = apart / spread if apart else 0.0
        found.append((at, distance))
    return found


def _spread(numbers: Sequence[Quantity]) -> float:
    middles = [number.middle for number in numbers]
    return max(middles) - min(middles)
