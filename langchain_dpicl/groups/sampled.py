"""Groups by Poisson sampling of units, without retrieval."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from typing_extensions import Self

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import Collect, canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.base import HoldsRecords, TermedSource
from langchain_dpicl.groups.filtering import RecordFilter
from langchain_dpicl.groups.ingest import (
    check_document_ids,
    shallow_copy,
    take_documents,
)
from langchain_dpicl.groups.sampling import deal, poisson_sample
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
        sampled units (`Terms.relation`).
        Event: the mechanism's own, Poisson-subsampled at `sampling_rate`: every
        unit is in a draw with at most that probability, independently, from fresh
        secure randomness (`groups.sampling`).
    """

    def __init__(
        self,
        terms: SamplingTerms,
        corpus: _Corpus,
        random: SecureRandom | None = None,
        only: RecordFilter | None = None,
    ) -> None:
        self._terms: SamplingTerms = terms
        self._corpus = corpus
        self._random = checked_source(random)
        self._only = only

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
        terms = SamplingTerms(
            unit_key=unit_key,
            n_groups=n_groups,
            sampling_rate=sampling_rate,
            docs_per_unit=docs_per_unit,
        )
        corpus = _Corpus(*take_documents(documents, unit_key))
        if n_units is None:
            n_units = len(corpus.units)
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

    def where(
        self,
        filter: Mapping[str, Any] | RecordFilter | None = None,  # noqa: A002  # what LangChain's stores call it
        **values: Any,
    ) -> Self:
        """Return these groups for only the records that match; see `GroupSource.where`.

        Both share the records. The rate is that of each unit.

        Raises:
            InvalidParameterError: If the filter can't be used.
        """
        only = self._narrowed(filter, **values)
        return type(self)(self._terms, self._corpus, self._random, only)

    def add_documents(self, documents: Iterable[Document]) -> int:
        """Add documents, of new units or of known ones; return how many.

        All are added or, if an error is raised, none. The sampling rate stays what it
        is: it is public and fixed.

        Raises:
            UnitError: If a document has no usable unit id.
            InvalidParameterError: If a document's id is taken.
        """
        taken, unit_ids = take_documents(documents, self.unit_key)
        self._corpus.add(taken, unit_ids)
        return len(taken)

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete all documents of a unit; return how many, at least 1.

        Raises:
            UnitError: If no document has that id. The id is not in the message.
        """
        deleted = self._corpus.delete(canonical_unit_id(unit_id))
        if not deleted:
            refuse_unknown_unit(self.unit_key)
        return deleted

    @property
    def n_units(self) -> int:
        """Number of units, private: for the operator alone."""
        return len(self._corpus.units)

    @property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any record's metadata has: for the operator."""
        records = self._corpus.units.values()
        return frozenset(key for own in records for one in own for key in one.metadata)

    def prepare(self, question: str) -> None:
        """Do nothing: a draw does not look at the question."""

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
        terms, random = self._terms, self._source
        # Read once: the whole draw sees one state, also while others write.
        units = self._corpus.in_order
        sample = poisson_sample(random, len(units), terms.sampling_rate).tolist()
        records = [self._matching(units[place]) for place in sample]
        # The modulus favors low slots by n_groups / 2^64 at most. No sensitivity
        # depends on it: any function of the unit's own word gives a valid slot.
        words = random.words(len(sample)) % np.uint64(terms.n_groups)
        documents = [document for own in records for document in own]
        slots = deal(
            np.repeat(np.arange(len(sample)), [len(own) for own in records]),
            words.astype(np.int64),
            random.words(len(documents)),
            terms.n_groups,
            terms.docs_per_unit,
        )
        return [[documents[row] for row in slot] for slot in slots]

    def _matching(self, records: Sequence[Document]) -> Sequence[Document]:
        """Return those of a unit's records that match the filter."""
        only = self._only
        if only is None:
            return records
        return [document for document in records if only.matches(document.metadata)]


class _Corpus(HoldsRecords):
    """The records of each unit, which groups and their filtered views share.

    Writers take turns and put a new mapping in place; readers use the one in place.
    """

    def __init__(self, documents: Sequence[Document], unit_ids: Sequence[str]) -> None:
        self.units: dict[str, list[Document]] = {}
        self._writing = threading.Lock()
        self.add(documents, unit_ids)

    def add(self, documents: Sequence[Document], unit_ids: Sequence[str]) -> None:
        """Add documents: all or, if an error is raised, none."""
        with self._writing:
            records = [one for own in self.units.values() for one in own]
            known = [record.id for record in records if record.id is not None]
            check_document_ids(documents, known)
            units = {unit_id: list(own) for unit_id, own in self.units.items()}
            for document, unit_id in zip(documents, unit_ids, strict=True):
                units.setdefault(unit_id, []).append(document)
            self._put(units)

    def delete(self, unit_id: str | None) -> int:
        """Delete a unit, which may be unknown; return how many records it had."""
        with self._writing:
            units = dict(self.units)
            deleted = len(units.pop(unit_id, ())) if unit_id is not None else 0
            self._put(units)
        return deleted

    def _put(self, units: dict[str, list[Document]]) -> None:
        self.units, self.in_order = units, list(units.values())
