"""Groups by Poisson sampling of units, without retrieval."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray
from typing_extensions import Self

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import Collect, canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.base import TermedSource
from langchain_dpicl.groups.filtering import UnitAttributes, UnitFilter
from langchain_dpicl.groups.ingest import (
    check_document_ids,
    shallow_copy,
    take_documents,
)
from langchain_dpicl.groups.selection import deal, poisson_sample
from langchain_dpicl.groups.terms import SamplingTerms, check_enough_units
from langchain_dpicl.groups.units import refuse_unknown_unit
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source


@hiding_in("documents", "delete_unit")
class SampledGroups(TermedSource):
    """Slots from a fresh Poisson sample of units, for in-context exemplars.

    For every draw each unit is sampled with probability `sampling_rate`,
    independently of everything else, with all its documents. The question is not used:
    a similarity search before the sampling would void the amplification.

    Each sampled unit is dealt to one of `n_groups` slots by fresh randomness of its
    own; there are always `n_groups` slots.

    Documents inside a slot are in random order. Adding, deleting and drawing may run
    in different threads.

    Example:
        >>> from langchain_core.documents import Document
        >>> reviews = [Document(f"text {i}", metadata={"user": i}) for i in range(50)]
        >>> groups = SampledGroups.from_documents(
        ...     reviews, unit_key="user", n_groups=5, sampling_rate=0.4
        ... )
        >>> len(groups.draw("positive or negative?")), groups.sampling_rate
        (5, 0.4)

    Privacy:
        Unit: what one value of `unit_key` names. Relation: `REPLACE`, given the
        sampled units (`SamplingTerms.relation`).
        Event: the mechanism's own, Poisson-subsampled at `sampling_rate`: every
        unit is in a draw with at most that probability, independently, from fresh
        secure randomness (`groups.selection`).
    """

    def __init__(
        self,
        terms: SamplingTerms,
        corpus: _Corpus | _Held,
        random: SecureRandom | None = None,
        only: UnitFilter | None = None,
    ) -> None:
        self._terms: SamplingTerms = terms
        self._held = corpus if isinstance(corpus, _Held) else _Held(corpus)
        self._random = checked_source(random)
        self._only = only

    @property
    def _corpus(self) -> _Corpus:
        return self._held.corpus

    @classmethod
    def from_documents(  # the contract's own signature
        cls,
        documents: Iterable[Document],
        *,
        unit_key: str,
        n_groups: int,
        sampling_rate: float,
        docs_per_unit: int | None = None,
        n_units: int | None = None,
        random: SecureRandom | None = None,
    ) -> Self:
        """Take the documents.

        Args:
            documents: The records; each must carry its unit's id in its metadata.
            unit_key: The metadata key that holds the unit id.
            n_groups: Public slot count, and number of model calls.
            sampling_rate: Probability q with which a unit is in a draw, public.
                `rate_for` computes it from the wanted group size.
            docs_per_unit: Most documents of one unit in a draw, a fresh random
                subset; None: all, however many they are.
            n_units: A public number of units, which `n_groups` is checked against;
                None counts them.
            random: For tests: a random source instead of the operating system's.
                An insecure one is named so in the repr and the description.

        Returns:
            The group source.

        Raises:
            UnitError: If a document has no usable unit id, or there are no
                documents, or fewer units than groups.
            InvalidParameterError: If another argument is out of range.
        """
        terms = SamplingTerms(unit_key, n_groups, sampling_rate, docs_per_unit).check()
        taken, unit_ids = take_documents(documents, terms.unit_key)
        corpus = _Corpus.of(taken, unit_ids)
        if n_units is None:
            n_units = len(corpus.unit_ids)
        else:
            parameters.count(n_units, "n_units")
        check_enough_units(n_units, terms.n_groups)
        return cls(terms, corpus, random)

    @staticmethod
    def rate_for(n_units: int, n_groups: int, records_per_group: float) -> float:
        """Return the sampling rate that fills groups to a wanted size on average.

        It is q = n_groups * records_per_group / n_units, and is published: `n_units`
        must be a *public* number, not a count that is private.

        Raises:
            InvalidParameterError: If that is more than 1, or an argument is out of
            range.

        Example:
            >>> rate = SampledGroups.rate_for(30_000, n_groups=10, records_per_group=3)
            >>> rate
            0.001
        """
        units = parameters.count(n_units, "n_units")
        groups = parameters.count(n_groups, "n_groups")
        size = parameters.positive("records_per_group", records_per_group)
        rate = groups * size / units
        if rate > 1:
            raise InvalidParameterError(
                f"{groups} groups of {size:g} units need a sampling rate of {rate:g} "
                f"over {units} units; it can be 1 at most. Ask for less."
            )
        return rate

    def where(self, filter: Mapping[str, Any] | UnitFilter) -> Self:  # noqa: A002  # what LangChain's stores call it
        """Return these groups for only the units that match; see `GroupSource.where`.

        Both share the records. The rate is that of each unit that matches.

        Raises:
            InvalidParameterError: If the filter can't be used.
        """
        only = self._narrowed(filter)
        return type(self)(self._terms, self._held, self._random, only)

    def add_documents(self, documents: Iterable[Document]) -> int:
        """Add documents, of new units or of known ones; return how many.

        All are added or, if an error is raised, none. The sampling rate stays what it
        is: it is public and fixed.

        Raises:
            UnitError: If a document has no usable unit id.
            InvalidParameterError: If a document's id is taken.
        """
        taken, unit_ids = take_documents(documents, self.unit_key)
        with self._held.writing:
            old = self._corpus
            check_document_ids(
                taken, [known.id for known in old.documents if known.id is not None]
            )
            self._held.corpus = _Corpus.of(
                [*old.documents, *taken], [*old.row_unit_ids(), *unit_ids]
            )
        return len(taken)

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete all documents of a unit; return how many, at least 1.

        Raises:
            UnitError: If no document has that id. The id is not in the message.
        """
        known_as = canonical_unit_id(unit_id)
        with self._held.writing:
            old = self._corpus
            row_unit_ids = old.row_unit_ids()
            kept = [row for row, unit in enumerate(row_unit_ids) if unit != known_as]
            deleted = len(row_unit_ids) - len(kept)
            if deleted == 0:
                refuse_unknown_unit(self.unit_key)
            self._held.corpus = _Corpus.of(
                [old.documents[row] for row in kept],
                [row_unit_ids[row] for row in kept],
            )
        return deleted

    @property
    def n_units(self) -> int:
        """Number of units, private: for the operator alone."""
        return len(self._corpus.unit_ids)

    @property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any record's metadata has: for the operator."""
        return frozenset(
            key for document in self._corpus.documents for key in document.metadata
        )

    @property
    def sampling_rate(self) -> float:
        """Probability with which a unit is in a draw, an upper bound."""
        return self._terms.sampling_rate

    def prepare(self, question: str) -> None:
        """Do nothing: a draw does not look at the question."""

    async def aprepare(self, question: str) -> None:
        """Do nothing; the async twin of `prepare`."""

    def draw_prepared(
        self, prepared: None, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Sample units afresh and return their slots; `prepared` is None.

        A sampled event is charged to every unit, so there is no `collect`: the
        amplification holds only while nobody knows who was in the sample.

        Returns:
            `n_groups` slots, some may be empty. The documents are copies.

        Raises:
            InvalidParameterError: If a `collect` is given.
        """
        self._check_charging(collect)
        del prepared  # a sample must not depend on the question
        return [
            [shallow_copy(document) for document in slot] for slot in self.draw_shared()
        ]

    def draw_shared(self) -> list[list[Document]]:
        """Sample units afresh and return their slots, of the corpus's own documents.

        For code that only reads them: a copy takes longer than the rest of a draw.
        `draw_prepared` returns copies of these documents.
        """
        terms, corpus, random = self._terms, self._corpus, self._source
        sample = poisson_sample(random, len(corpus.unit_ids), terms.sampling_rate)
        if self._only is not None:
            sample = sample[corpus.attributes.matching(self._only)[sample]]
        rows, units = corpus.rows_of(sample)
        words = random.words(len(sample))
        # The modulus favors low slots by n_groups / 2^64 at most. No sensitivity
        # depends on it: any function of the unit's own word gives a valid slot.
        n_slots = terms.n_groups
        unit_slots = (words % np.uint64(n_slots)).astype(np.int64)
        slots = deal(
            units, unit_slots, random.words(len(rows)), n_slots, terms.docs_per_unit
        )
        found = rows.tolist()
        return [[corpus.documents[found[place]] for place in slot] for slot in slots]


class _Held:
    """Where the corpus is kept that groups and their filtered views share."""

    def __init__(self, corpus: _Corpus) -> None:
        self.corpus = corpus
        # Writers take turns; readers use whatever corpus is in place.
        self.writing = threading.Lock()


@dataclass(frozen=True, repr=False, eq=False)
class _Corpus:
    """Documents, laid out so that a unit's rows are found at once."""

    # The documents, one a row, all rows of a unit side by side.
    documents: tuple[Document, ...]
    unit_ids: tuple[str, ...]  # The units, each once.
    # Where each unit's rows start, and the number of rows at the end.
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, documents: list[Document], unit_ids: list[str]) -> _Corpus:
        """Lay out documents and the unit ids that go with them."""
        place = {unit_id: n for n, unit_id in enumerate(dict.fromkeys(unit_ids))}
        units = np.fromiter((place[unit] for unit in unit_ids), np.int64, len(unit_ids))
        order = np.argsort(units, kind="stable")
        return cls(
            documents=tuple(documents[row] for row in order),
            unit_ids=tuple(place),
            starts=np.searchsorted(units[order], np.arange(len(place) + 1)),
        )

    @cached_property
    def attributes(self) -> UnitAttributes:
        """What the documents of each unit agree on."""
        n_units = len(self.unit_ids)
        units = np.repeat(np.arange(n_units), np.diff(self.starts))
        return UnitAttributes(self.documents, units, n_units)

    def row_unit_ids(self) -> list[str]:
        """Return the unit id of each row."""
        counts = np.diff(self.starts).tolist()
        return [
            unit_id
            for unit_id, count in zip(self.unit_ids, counts, strict=True)
            for _ in range(count)
        ]

    def rows_of(
        self, sample: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of some units, and for each row its place in `sample`."""
        counts = self.starts[sample + 1] - self.starts[sample]
        units = np.repeat(np.arange(len(sample)), counts)
        first_place = np.cumsum(counts) - counts
        rows = np.arange(len(units)) + (self.starts[sample] - first_place)[units]
        return rows, units
