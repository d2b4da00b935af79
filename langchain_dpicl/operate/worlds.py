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


World = tuple[Canary, ShardIndex, bool]
"""A person, the corpus that differs by this person, and if the first one has them."""


class Worlds:
    """A group source with and without each canary.

    Args:
        source: The source of the chain.
        canaries: The people.

    Raises:
        UnitError: If a canary is not in the corpus, or a made-up one is in it.
        InvalidParameterError: If there is none, or the source can't be forked.
    """

    def __init__(self, source: GroupSource, canaries: Canaries) -> None:
        if not isinstance(source, RetrievedGroups):
            raise InvalidParameterError(
                f"A snapshot can't take a person out of {type(source).__name__}. Audit "
                "a copy of the chain over RetrievedGroups.from_documents(...) with the "
                "same records and embedding."
            )
        self._source: Any = source
        self._index: ShardIndex = self._source._index  # noqa: SLF001  # our own
        self.canaries = self._chosen(canaries)
        self._others: dict[str, ShardIndex] = {}

    def pairs(self) -> tuple[ShardIndex, Iterator[World]]:
        """Return a question's corpus, or a sample of it, and each canary's other one.

        A person of a sample has a coin of their own, which is held apart.
        """
        rate = self._source.sampling_rate
        if rate == 1:
            return self._index, self._each()
        units = self._index.unit_ids()
        places = poisson_sample(current(), len(units), rate).tolist()
        sample = {units[place] for place in places}
        index = self._index.part(sample)
        return index, self._sampled(index, sample)

    def draw(
        self, index: ShardIndex, question: PreparedQuestion
    ) -> list[list[Document]]:
        """Draw the slots for a question from a corpus, by the source's own code."""
        fork: RetrievedGroups = self._source.over(index)
        return fork.draw_prepared(question)

    def _each(self) -> Iterator[World]:
        for canary in self.canaries:
            name, rows = canary.name, canary.rows
            if name not in self._others:
                self._others[name] = (
                    self._index.without(name)
                    if rows is None
                    else self._index.with_rows(rows)
                )
            yield canary, self._others[name], rows is None

    def _sampled(self, index: ShardIndex, sample: set[str]) -> Iterator[World]:
        for canary in self.canaries:
            if canary.name in sample:
                yield canary, index.without(canary.name), True
            else:
                rows = canary.rows or self._index.rows_of(canary.name)
                yield canary, index.with_rows(rows), False

    def _chosen(self, canaries: Canaries) -> list[Canary]:
        if isinstance(canaries, int):
            names = self._index.unit_ids()
            count = max(min(canaries, len(names)), 0)
            places = current().sample(range(len(names)), count)
            found = [Canary(names[place]) for place in places]
        elif isinstance(canaries, str):
            raise InvalidParameterError("canaries must be a list, not one string.")
        else:
            made_up = [one for one in canaries if isinstance(one, Document)]
            ids = [one for one in canaries if not isinstance(one, Document)]
            found = [Canary(self._known(one)) for one in ids]
            found += self._made_up(made_up) if made_up else []
        if not found:
            raise InvalidParameterError("There is nobody to audit: give canaries.")
        return list({canary.name: canary for canary in found}.values())

    def _known(self, unit_id: str | int) -> str:
        name = canonical_unit_id(unit_id)
        if name is None or not self._index.rows_of(name).unit_ids:
            raise UnitError(
                "A canary is not in the corpus. Give ids of the corpus, or made-up "
                "records."
            )
        return name

    def _made_up(self, documents: Sequence[Document]) -> list[Canary]:
        lines, unit_ids = read_documents(documents, self._source.unit_key)
        if any(self._index.rows_of(unit_id).unit_ids for unit_id in unit_ids):
            raise UnitError(
                "A made-up canary has the id of a person of the corpus: give it "
                "another."
            )
        made = embed_documents(self._source._embedding, lines, unit_ids)  # noqa: SLF001  # our own
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(unit_ids):
            rows.setdefault(name, []).append(row)
        return [Canary(name, made.take(np.array(own))) for name, own in rows.items()]
