"""Groups by Poisson sampling of units, without retrieval."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray
from typing_extensions import Self

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import Collect, canonical_unit_id
from langchain_dpicl.groups.base import (
    HoldsRecords,
    SamplingTerms,
    TermedSource,
    check_enough_units,
)
from langchain_dpicl.groups.records import (
    check_document_ids,
    shallow_copy,
    take_documents,
)
from langchain_dpicl.groups.sampling import poisson_sample
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

    _terms: SamplingTerms

    def __init__(
        self,
        terms: SamplingTerms,
        corpus: _Corpus,
        random: SecureRandom | None = None,
    ) -> None:
        self._terms = terms
        self._corpus = corpus
        self._random = checked_source(random)

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
        corpus = _Corpus()
        corpus.add(*take_documents(documents, unit_key))
        if n_units is None:
            n_units = len(corpus.units)
        check_enough_units(parameters.count(n_units, "n_units", minimum=0), n_groups)
        return cls(terms, corpus, random)

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
        """Delete all documents of a unit; return how many, or raise a `UnitError`."""
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
        return frozenset(
            key for unit in records for one in unit for key in one.metadata
        )

    def prepare(self, question: str) -> None:
        """Do nothing: a draw does not look at the question."""

    def draw_prepared(
        self, prepared: None, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Sample units afresh and return their slots; `prepared` is None.

        A sampled event is charged to every unit, so a `collect` is refused: the
        amplification holds only while nobody knows who was in the sample.
        """
        self._check_charging(collect)
        del prepared  # a sample must not depend on the question
        return [list(map(shallow_copy, slot)) for slot in self.draw_shared()]

    def draw_shared(self) -> list[list[Document]]:
        """Sample units afresh and return their slots, of the corpus's own documents.

        For code that only reads them: a copy takes longer than the rest of a draw.
        """
        terms, random = self._terms, self._source
        # Read once: the whole draw sees one state, also while others write.
        units = self._corpus.in_order
        sample = poisson_sample(random, len(units), terms.sampling_rate).tolist()
        records = [self._matching(units[place]) for place in sample]
        # The modulus favors low slots by n_groups / 2^64 at most. No sensitivity
        # depends on it: any function of the unit's own word gives a valid slot.
        words = random.words(len(sample)) % np.uint64(terms.n_groups)
        documents = [document for unit in records for document in unit]
        slots = deal(
            np.repeat(np.arange(len(sample)), [len(unit) for unit in records]),
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

    def __init__(self) -> None:
        self.units: dict[str, list[Document]] = {}
        self.in_order: list[list[Document]] = []
        self._writing = threading.Lock()

    def add(self, documents: Sequence[Document], unit_ids: Sequence[str]) -> None:
        """Add documents: all or, if an error is raised, none."""
        with self._writing:
            units = {unit_id: list(records) for unit_id, records in self.units.items()}
            known = (one.id for records in units.values() for one in records)
            check_document_ids((document.id for document in documents), known)
            for document, unit_id in zip(documents, unit_ids, strict=True):
                units.setdefault(unit_id, []).append(document)
            self.units, self.in_order = units, list(units.values())

    def delete(self, unit_id: str | None) -> int:
        """Delete a unit, which may be unknown; return how many records it had."""
        with self._writing:
            units = dict(self.units)
            deleted = units.pop(unit_id or "", [])
            self.units, self.in_order = units, list(units.values())
        return len(deleted)


def deal(
    units: NDArray[np.int64],
    unit_slots: NDArray[np.int64],
    row_words: NDArray[np.uint64],
    n_slots: int,
    docs_per_unit: int | None,
) -> list[list[int]]:
    """Return each slot's rows, given everybody's own randomness.

    Args:
        units: For each row (document), its unit's place in `unit_slots`.
        unit_slots: For each unit, its slot.
        row_words: For each row, a random word of its own: the order inside a slot.
        n_slots: Number of slots.
        docs_per_unit: Most rows of one unit, those of lowest words; None: all.

    Example:
        >>> units, words = np.array([0, 0, 1]), np.array([9, 4, 7], np.uint64)
        >>> deal(units, np.array([1, 1]), words, 3, None)
        [[], [1, 2, 0], []]

    Privacy:
        One unit more brings one entry of `unit_slots` and rows of its own. Which rows
        of a unit are kept depends on that unit's words alone, and a slot's order on the
        words in that slot, so that one slot changes.
    """
    kept = np.arange(len(units))
    if docs_per_unit is not None and len(units):
        by_unit = np.lexsort((row_words, units))
        starts = np.flatnonzero(np.diff(units[by_unit], prepend=-1))
        counts = np.diff(np.append(starts, len(units)))
        rank = np.arange(len(units)) - np.repeat(starts, counts)
        kept = by_unit[rank < docs_per_unit]
    slots = unit_slots[units[kept]]
    order = np.lexsort((row_words[kept], slots))
    edges = np.searchsorted(slots[order], np.arange(n_slots + 1))
    rows = kept[order].tolist()
    return [rows[first:end] for first, end in pairwise(edges)]
