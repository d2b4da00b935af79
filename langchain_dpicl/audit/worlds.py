"""Two corpora that differ by one person, without copying either.

A shard's index is immutable, and taking a person out, or putting one in, makes anew the
one shard that the person is in. A fork of the group source searches the one or the
other, by its own code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import GroupSource, RetrievedGroups
from langchain_dpicl.groups.base import HoldsRecords
from langchain_dpicl.groups.index import PreparedQuestion, ShardIndex
from langchain_dpicl.groups.records import Rows, embed_documents, read_documents
from langchain_dpicl.groups.sampling import poisson_sample
from langchain_dpicl.mechanisms.random import current

Canaries = int | Sequence[str | int | Document]
"""So many people of the corpus, or some by their ids, or made-up records to add."""


@dataclass(frozen=True, repr=False)
class Canary(HoldsRecords):
    """A person whose loss is measured. Private.

    Attributes:
        name: The canonical unit id.
        rows: Made-up records; None for a person of the corpus.
    """

    name: str
    rows: Rows | None = None


class Worlds:
    """A group source with and without each canary.

    Args:
        source: The source of the chain.
        canaries: The people.

    Raises:
        InvalidParameterError: If the source can't be forked.
    """

    def __init__(self, source: GroupSource, canaries: Sequence[Canary]) -> None:
        self.canaries = canaries
        self._index = forkable_index(source)
        self._source: Any = source
        self._others: dict[str, ShardIndex] = {}

    def pairs(self) -> tuple[ShardIndex, Iterator[tuple[Canary, ShardIndex, bool]]]:
        """Return a question's corpus, and for each canary the other one.

        Returns:
            The corpus, or a sample of it, and the canaries: each with the corpus that
            differs by this person alone, and whether the first one has the person.
        """
        rate = self._source.sampling_rate
        if rate == 1:
            return self._index, self._each()
        # A sample is drawn here, with a person's own coin held apart.
        units = self._index.unit_ids()
        sample = poisson_sample(current(), len(units), rate).tolist()
        return self._sampled(frozenset(units[place] for place in sample))

    def draw(
        self, index: ShardIndex, question: PreparedQuestion
    ) -> list[list[Document]]:
        """Draw the slots for a question from a corpus, by the source's own code."""
        fork: RetrievedGroups = self._source.over(index)
        return fork.draw_prepared(question)

    def _each(self) -> Iterator[tuple[Canary, ShardIndex, bool]]:
        for canary in self.canaries:
            name, rows = canary.name, canary.rows
            if name not in self._others:
                self._others[name] = (
                    self._index.without(name)
                    if rows is None
                    else self._index.with_rows(rows)
                )
            yield canary, self._others[name], rows is None

    def _sampled(
        self, sample: frozenset[str]
    ) -> tuple[ShardIndex, Iterator[tuple[Canary, ShardIndex, bool]]]:
        index = self._index.part(sample)

        def others() -> Iterator[tuple[Canary, ShardIndex, bool]]:
            for canary in self.canaries:
                rows = canary.rows or self._index.rows_of(canary.name)
                is_in = canary.name in sample
                yield (
                    canary,
                    index.without(canary.name) if is_in else index.with_rows(rows),
                    is_in,
                )

        return index, others()


def forkable_index(source: GroupSource) -> ShardIndex:
    """Return the index of a source of which worlds can be made.

    Raises:
        InvalidParameterError: If there is none: the message says why, and the way out.
    """
    if not isinstance(source, RetrievedGroups):
        raise InvalidParameterError(
            f"A snapshot can't take a person out of {type(source).__name__}. Audit a "
            "copy of the chain over RetrievedGroups.from_documents(...) with the same "
            "records and embedding."
        )
    return source._index  # noqa: SLF001  # our own


def chosen(source: GroupSource, canaries: Canaries) -> list[Canary]:
    """Return the people to audit.

    Raises:
        UnitError: If one is not in the corpus, or a made-up one is in it.
        InvalidParameterError: If there is none.
    """
    index = forkable_index(source)
    if isinstance(canaries, int):
        names = index.unit_ids()
        count = max(min(canaries, len(names)), 0)
        found = [Canary(names[i]) for i in current().sample(range(len(names)), count)]
    else:
        if isinstance(canaries, str):
            raise InvalidParameterError("canaries must be a list, not one string.")
        made_up = [one for one in canaries if isinstance(one, Document)]
        ids = [one for one in canaries if not isinstance(one, Document)]
        found = [Canary(_known(index, one)) for one in ids]
        if made_up:
            found += _made_up(source, index, made_up)
    if not found:
        raise InvalidParameterError("There is nobody to audit: give canaries.")
    return list({canary.name: canary for canary in found}.values())


def _known(index: ShardIndex, unit_id: str | int) -> str:
    name = canonical_unit_id(unit_id)
    if name is None or not index.rows_of(name).unit_ids:
        raise UnitError(
            "A canary is not in the corpus. Give ids of the corpus, or made-up records."
        )
    return name


def _made_up(
    source: GroupSource, index: ShardIndex, documents: Sequence[Document]
) -> list[Canary]:
    lines, unit_ids = read_documents(documents, source.unit_key)
    if any(index.rows_of(unit_id).unit_ids for unit_id in unit_ids):
        raise UnitError(
            "A made-up canary has the id of a person of the corpus: give it another."
        )
    rows = embed_documents(source._embedding, lines, unit_ids)  # type: ignore[attr-defined]  # noqa: SLF001  # our own
    places: dict[str, list[int]] = {}
    for place, name in enumerate(unit_ids):
        places.setdefault(name, []).append(place)
    return [Canary(name, rows.take(np.array(own))) for name, own in places.items()]
