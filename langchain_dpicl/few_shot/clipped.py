"""What only the clipped decoder has: a text for each person, and its own forecast.

A label's people are dealt to its n texts by a keyed hash of each person's id, or of the
record where each record is a person. In a step every text gets a token, and every
person of a text has a prompt of its own.

Privacy:
    Unit: what `unit_key` names, or one record. Neighbors: one unit more or less, so one
    prompt more or less, in one text: `add_remove`. Which text that is, and which of the
    unit's records are shown, depend on that unit and on public terms alone; nobody else
    moves, and nobody is left out because a text has many people. So a token of every
    text together is one use of `mechanisms.clipped_token`, whatever their number. The
    sum is divided by B, the people that a text expects by public figures.

    How many people there are is private, and a call for each would tell it in time and
    on a bill. So prompts without records are added: as many calls are made as for the
    people who are expected; for more people, a multiple of B. Their answers are not
    read.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.documents import Document

from langchain_dpicl.accounting import Event, Exponential
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import PlanMismatchError
from langchain_dpicl.few_shot.records import UNIT, Records
from langchain_dpicl.few_shot.terms import (
    GenerationTerms,
    MostlyNoiseWarning,
    paid_tokens,
)
from langchain_dpicl.groups.units import SALT_BYTES, shard_number, unit_digest
from langchain_dpicl.mechanisms import clipped_token

LEAST_CLIP = 0.1
"""Logarithm of the odds, over the temperature, below which nothing is written."""

MOST_FACTOR = 10_000
"""Odds above it are as good as any."""

USUAL_CLIP = 2.0
"""What texts are well written with, each person's differences up and down."""

Slots = list[list[Document]]


def texts_of(
    records: Records, terms: GenerationTerms, per_label: int
) -> dict[str, list[Slots]]:
    """Return for each label and text its slots: a person's own records each.

    A text has its people for all of its tokens, and after `resume` too.
    """
    most = max(1, int(terms.records_per_group))
    key = terms.key(per_label).encode()
    salt = hashlib.blake2b(key, digest_size=SALT_BYTES).digest()

    def texts(documents: Sequence[Document]) -> list[Slots]:
        by_unit: dict[str, list[Document]] = {}
        for document in documents:
            by_unit.setdefault(document.metadata[UNIT], []).append(document)
        dealt: list[Slots] = [[] for _ in range(per_label)]
        for unit, own in by_unit.items():
            # A place in a list is no id: it changes with the people before it.
            name = own[0].page_content if terms.unit_key is None else unit
            # Whose record comes first in a list may depend on everybody.
            shown = sorted(own, key=lambda one: unit_digest(salt, one.page_content))
            dealt[shard_number(unit_digest(salt, name), per_label)].append(shown[:most])
        return dealt

    return {label: texts(documents) for label, documents in records.items()}


def calls_of(people: int, expected: Sequence[int]) -> int:
    """Return how many calls a step makes for its texts' people.

    Example:
        >>> [calls_of(n, [40, 40]) for n in (0, 79, 80, 81)]
        [80, 80, 80, 120]
    """
    step = max(expected)
    return max(sum(expected), -(-people // step) * step)


@dataclass(frozen=True)
class ClippedForecast:
    """What a generation by the clipped decoder costs and can do; as text, in words.

    Attributes:
        people: For each label, the people that a text expects: B.
        clips: For each label, by how much a person's log-probabilities may differ from
            those without records, over the temperature: C / t. If all B people agree,
            they move the odds of two tokens by the factor e^(2 C / t).
        model_calls: Next-token questions to the model, if no more people come than are
            expected.
        tokens: Tokens of all examples, at most.
    """

    people: Mapping[str, int]
    clips: Mapping[str, float]
    model_calls: int
    tokens: int

    @property
    def is_possible(self) -> bool:
        """Whether the odds can move by e^2 or more for every label."""
        return min(self.clips.values()) >= 1.0

    def __str__(self) -> str:
        label = min(self.clips, key=lambda label: self.clips[label])
        people, clip = self.people[label], self.clips[label]
        cost = f"{self.tokens} tokens and about {self.model_calls} model calls."
        enough = math.ceil(people * USUAL_CLIP / clip) if clip else math.inf
        moves = (
            f"{people} people of a text who agree can move the odds of two tokens by "
            f"{_factor(clip)} ({label!r})."
        )
        if not self.is_possible:
            return (
                f"{moves} What comes out is mostly what the model writes without "
                f"records. A text needs about {enough} people: ask for fewer examples "
                f"(per_label) or tokens, or give a larger epsilon. {cost}"
            )
        if people >= 2 * enough:
            moves += (
                f" {enough} people a text would do: more examples cost the same, and "
                "a lower temperature costs nothing."
            )
        return f"{moves} {cost}"

    def require_signal(self) -> None:
        """Refuse a generation that no record could change; warn of one like it."""
        for label, clip in self.clips.items():
            if clip < LEAST_CLIP:
                raise PlanMismatchError(
                    f"The budget is too small for one example of {label!r}: all "
                    f"{self.people[label]} people of a text can move the odds of two "
                    f"tokens by {_factor(clip)} at most. Ask for fewer examples "
                    "(per_label) or tokens, or give a larger epsilon."
                )
        if not self.is_possible:
            warnings.warn(str(self), MostlyNoiseWarning, stacklevel=6)


def _factor(clip: float) -> str:
    factor = math.exp(2 * clip)
    return f"the factor {factor:.3g}" if factor < MOST_FACTOR else "any factor"


def forecast_of(
    terms: GenerationTerms, events: Sequence[Event], per_label: int
) -> ClippedForecast:
    """Return what a generation of these terms that pays these events can do."""
    people = terms.people(per_label)
    heat = terms.temperature
    clips = {
        label: clipped_token.clip(
            event, Relation.ADD_REMOVE, slots=people[label], temperature=heat
        )
        / heat
        for label, event in paid_tokens(terms.labels, events).items()
        if isinstance(event, Exponential)
    }
    steps = terms.max_tokens * per_label
    calls = sum(steps * (expected + 3) for expected in people.values())
    return ClippedForecast(people, clips, calls, steps * len(people))
