"""Two corpora that differ by one person, without copying either.

A shard's index is immutable, and taking a person out, or putting one in, makes anew the
one shard that the person is in. A fork of the group source searches the one or the
other, by its own code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import GroupSource, RetrievedGroups
from langchain_dpicl.groups.ingest import embed_documents, take_documents
from langchain_dpicl.groups.records import EmbeddedRecords
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.release.flow import result

Canaries = int | Sequence[str | int | Document]
"""So many people of the corpus, or some by their ids, or made-up records to add."""


Rows = tuple[Any, Sequence[Document], Sequence[str]]
"""Records: their vectors, and the unit id of each. Private."""


@dataclass(frozen=True, repr=False)
class Canary:
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
        index = forkable_index(source)
        self.canaries = canaries
        self._index, self._rate = index, source.sampling_rate
        # A sample is drawn here, with a person's own coin held apart.
        terms = replace(source._terms, sampling_rate=1.0)  # type: ignore[attr-defined]  # noqa: SLF001 - a fork
        self._records = _Shown(source.unit_key, source._records.embedding, index)  # type: ignore[attr-defined]  # noqa: SLF001
        kind: Any = type(source)
        self._fork: GroupSource = kind(terms, self._records, source._random)  # type: ignore[attr-defined]  # noqa: SLF001
        self._others: dict[str, ShardIndex] = {}

    def pairs(self) -> tuple[ShardIndex, Iterator[tuple[Canary, ShardIndex, bool]]]:
        """Return a question's corpus, and for each canary the other one.

        Returns:
            The corpus, or a sample of it, and the canaries: each with the corpus that
            differs by this person alone, and whether the first one has the person.
        """
        index = self._index
        if self._rate < 1:
            index = _sample(index, UnitSample(self._rate, current()))
        return index, self._each(index)

    def draw(self, index: ShardIndex, embedded: Any) -> list[list[Document]]:
        """Draw the slots for a question from a corpus."""
        self._records.show(index)
        return self._fork.draw_prepared(embedded)

    def _each(self, index: ShardIndex) -> Iterator[tuple[Canary, ShardIndex, bool]]:
        for canary in self.canaries:
            is_in = bool(index.documents_of(canary.name))
            if self._rate < 1:
                yield canary, self._other(index, canary, is_in=is_in), is_in
                continue
            if canary.name not in self._others:
                self._others[canary.name] = self._other(index, canary, is_in=is_in)
            yield canary, self._others[canary.name], is_in

    def _other(self, index: ShardIndex, canary: Canary, *, is_in: bool) -> ShardIndex:
        if is_in:
            return index.without(canary.name)
        rows = canary.rows or _rows_of(self._index, {canary.name})
        return index.with_documents(*rows)


class _Shown(EmbeddedRecords):
    """Records whose index is chosen for each draw."""

    def show(self, index: ShardIndex) -> None:
        """Have the next draw search an index."""
        self._index = index


def forkable_index(source: GroupSource) -> ShardIndex:
    """Return the index of a source of which worlds can be made.

    Raises:
        InvalidParameterError: If there is none: the message says why, and the way out.
    """
    instead = "Audit a copy of the chain over RetrievedGroups.from_documents(...)"
    if not isinstance(source, RetrievedGroups):
        raise InvalidParameterError(
            f"A snapshot can't take a person out of {type(source).__name__}. "
            f"{instead} with the same records."
        )
    if not isinstance(index := source._index, ShardIndex):  # noqa: SLF001 - a fork
        raise InvalidParameterError(
            "These records are searched by their store: a snapshot would have to "
            f"delete people there. {instead} with the same records and embedding."
        )
    return index


def chosen(source: GroupSource, canaries: Canaries) -> list[Canary]:
    """Return the people to audit.

    Raises:
        UnitError: If one is not in the corpus, or a made-up one is in it.
        InvalidParameterError: If there is none.
    """
    index = forkable_index(source)
    if isinstance(canaries, int):
        names = _names(index)
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
    if name is None or not index.documents_of(name):
        raise UnitError(
            "A canary is not in the corpus. Give ids of the corpus, or made-up records."
        )
    return name


def _made_up(
    source: GroupSource, index: ShardIndex, documents: Sequence[Document]
) -> list[Canary]:
    taken, unit_ids = take_documents(documents, source.unit_key)
    if any(index.documents_of(unit_id) for unit_id in unit_ids):
        raise UnitError(
            "A made-up canary has the id of a person of the corpus: give it another."
        )
    embedding = source._embedding  # type: ignore[attr-defined]  # noqa: SLF001 - its own
    vectors = result(embed_documents(embedding, taken, unit_ids, progress=False))
    places: dict[str, list[int]] = {}
    for place, name in enumerate(unit_ids):
        places.setdefault(name, []).append(place)
    return [
        Canary(name, (vectors[own], [taken[i] for i in own], [name] * len(own)))
        for name, own in places.items()
    ]


def _rows_of(index: ShardIndex, names: set[str]) -> Rows:
    vectors, documents, unit_ids = [], [], []
    for shard in index.shards:
        own = [place for place, unit in enumerate(shard.unit_ids) if unit in names]
        rows = np.flatnonzero(np.isin(shard.units, own))
        vectors.append(shard.vectors()[rows])
        documents += [shard.documents[row] for row in rows.tolist()]
        unit_ids += [shard.unit_ids[shard.units[row]] for row in rows]
    return np.concatenate(vectors), documents, unit_ids


def _sample(index: ShardIndex, sample: UnitSample) -> ShardIndex:
    names = _names(index)
    kept = {names[place] for place in sample.places(len(names)).tolist()}
    sampled = ShardIndex.from_vectors(
        *_rows_of(index, kept), n_shards=len(index.shards), salt=index.salt
    )
    return sampled if index.only is None else sampled.where(index.only)


def _names(index: ShardIndex) -> list[str]:
    return [unit for shard in index.shards for unit in shard.unit_ids]
