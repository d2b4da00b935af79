"""What every group source offers to the chain."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from langchain_dpicl.groups.terms import describe_source

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from typing_extensions import Self

    from langchain_dpicl.mechanisms import SecureRandom
    from langchain_dpicl.relation import Relation


class GroupSource(ABC):
    """Turns a public question into slots, each a list of private documents.

    Not a `Runnable` and not a `BaseRetriever`: those publish what they return to
    callbacks and tracers, and the slots are private. Only the chain (and a test) may
    look at them.

    A draw has two halves. `prepare` is the public half: it looks at the question
    alone, and the chain calls it *before* the charge, so that an embedding server
    that is down costs no budget. `draw_prepared` is the private half: it touches
    records, and the chain calls it after the charge.

    Privacy:
        For two corpora that differ by all documents of one unit, the slots differ as
        `relation` says: under `ADD_REMOVE` one slot appears or vanishes, under
        `REPLACE` one slot changes from any documents (or none) to any other. All
        other slots hold the same documents in the same order. Where a source draws
        randomness, this holds for each value of it, with the extra unit's own draw
        added or removed. The order *of* the slots carries no meaning.
    """

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """How one unit more or less changes the slots; derived, never chosen."""

    @property
    @abstractmethod
    def n_groups(self) -> int:
        """Public slot count: the number of model calls that the chain pads to."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of units, private: for the operator and the check of delta."""

    @property
    @abstractmethod
    def unit_key(self) -> str:
        """The metadata key that holds the unit id."""

    @property
    def metadata_keys(self) -> frozenset[str] | None:
        """Every key that any record's metadata has: for the operator, not for a query.

        The chain looks, when it is built, whether its document prompt names keys that
        no record has: every group would fail then, and it would look like disagreement.
        None means that the source can't tell.
        """
        return None

    @property
    def sampling_rate(self) -> float:
        """The rate at which each unit is sampled; 1.0 where nothing is sampled."""
        return 1.0

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""

    @abstractmethod
    def prepare(self, question: str) -> Any:
        """Do the public half of a draw; see the class docstring.

        Args:
            question: The public question.

        Returns:
            What `draw_prepared` needs; it depends on the question alone.

        Raises:
            InvalidParameterError: If the question, or what the embedding makes of
                it, cannot be used.
        """

    async def aprepare(self, question: str) -> Any:
        """Do the public half of a draw; the async twin of `prepare`."""
        return await asyncio.to_thread(self.prepare, question)

    @abstractmethod
    def draw_prepared(self, prepared: Any) -> list[list[Document]]:
        """Do the private half of a draw.

        Args:
            prepared: What `prepare` returned for the question.

        Returns:
            The slots. Private: for the sealed region and for tests.
        """

    async def adraw_prepared(self, prepared: Any) -> list[list[Document]]:
        """Do the private half of a draw; the async twin of `draw_prepared`."""
        return await asyncio.to_thread(self.draw_prepared, prepared)

    def draw(self, question: str) -> list[list[Document]]:
        """Return the slots for a question; private, for the chain and for tests."""
        return self.draw_prepared(self.prepare(question))

    async def adraw(self, question: str) -> list[list[Document]]:
        """Return the slots for a question; the async twin of `draw`."""
        return await self.adraw_prepared(await self.aprepare(question))

    def __repr__(self) -> str:
        # A runnable that cannot be serialized is dumped into traces with its repr,
        # so that only public parameters may stand here.
        terms = ", ".join(
            f"{name}={value!r}"
            for name, value in self.description.items()
            if name != "source"
        )
        return f"{type(self).__name__}({terms})"

    def __copy__(self) -> Self:
        # Pydantic copies the chain's fields; records and locks stay where they are.
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds private records and cannot be pickled. "
            "Build it in each process, or use save(path) and load(path, embedding) "
            "where the source offers them."
        )


class TermedSource(GroupSource):
    """A source whose public face is read off its terms.

    A subclass sets `_terms` and `_random` when it is made.
    """

    _terms: Any
    _random: SecureRandom

    @property
    def relation(self) -> Relation:
        """How one unit more or less changes the slots; derived, never chosen."""
        relation: Relation = self._terms.relation
        return relation

    @property
    def n_groups(self) -> int:
        """Public slot count: the number of model calls that the chain pads to."""
        n_groups: int = self._terms.n_groups
        return n_groups

    @property
    def unit_key(self) -> str:
        """The metadata key that holds the unit id."""
        unit_key: str = self._terms.unit_key
        return unit_key

    @property
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""
        return {**self._terms.description(), "random": describe_source(self._random)}
