"""What every group source offers to the chain."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from langchain_core.documents import Document
from typing_extensions import Self

from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.units import Collect
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.filtering import UnitFilter
from langchain_dpicl.groups.terms import describe_source
from langchain_dpicl.mechanisms.random import SecureRandom, current
from langchain_dpicl.release.flow import Do, Flow, aresult, result


class GroupSource(ABC):
    """Turns a public question into slots, each a list of private documents.

    Not a `Runnable` and not a `BaseRetriever`: those publish what they return to
    callbacks and tracers, and the slots are private. Only the chain (and a test) may
    look at them.

    A draw has two halves. `prepare` is the public half: it looks at the question
    alone, and the chain calls it *before* the charge, so that an embedding server
    that is down costs no budget. `draw_prepared` is the private half: it touches
    records, and the chain calls it after the charge.

    Under a per-unit account the chain gives `draw_prepared` a `collect`, and the
    source charges every eligible unit with it; see `charges_units`. Without a per-unit
    account it passes none, so a source that cannot charge units may leave the argument
    out of its signature.

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
    def unit_key(self) -> str:
        """The metadata key that holds the unit id."""

    @property
    def metadata_keys(self) -> frozenset[str] | None:
        """Every key that any record's metadata has: for the operator, not for a query.

        When a chain is built, it checks whether its document prompt names keys that no
        record has. Every group would then fail, which would look like disagreement.
        None means that the source does not know its keys.
        """
        return None

    @property
    def sampling_rate(self) -> float:
        """The rate at which each unit is sampled; 1.0 where nothing is sampled."""
        return 1.0

    @property
    def charges_units(self) -> bool:
        """Whether a draw can charge each unit that takes part, and nobody else.

        Privacy:
            True is a promise. Whether a unit is eligible is a function of its own
            documents, the question, public parameters and what was released before,
            of nothing else. Every eligible unit is asked to pay, also one that a cap
            then leaves out. A unit that does not pay changes nothing in the slots.
            Membership in a ranked list is no such function: a unit that was compared
            and not ranked would not be charged.
        """
        return False

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""

    @abstractmethod
    def prepare(self, question: str) -> Any:
        """Do the public half of a draw; see the class docstring.

        Returns:
            What `draw_prepared` needs; it depends on the question alone.

        Raises:
            InvalidParameterError: If the question or its embedding cannot be used.
        """

    async def aprepare(self, question: str) -> Any:
        """Do the public half of a draw; the async twin of `prepare`."""
        return await asyncio.to_thread(self.prepare, question)

    @abstractmethod
    def draw_prepared(
        self, prepared: Any, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Do the private half of a draw; return the slots, which are private.

        Args:
            prepared: What `prepare` returned for the question.
            collect: Charges units, under a per-unit account. It is called once for
                a draw, with all eligible units. Units that do not pay are left out, as
                if not in the corpus. None: every unit may take part.

        Raises:
            InvalidParameterError: If a source that cannot charge gets a `collect`.
        """

    async def adraw_prepared(
        self, prepared: Any, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Do the private half of a draw; the async twin of `draw_prepared`."""
        # A source that charges no units may lack the argument.
        given = {} if collect is None else {"collect": collect}
        return await asyncio.to_thread(
            partial(self.draw_prepared, prepared, **given),
        )

    def where(self, filter: Mapping[str, Any] | UnitFilter) -> GroupSource:  # noqa: A002, ARG002  # what LangChain's stores call it
        """Return these groups for only the units that match a filter.

        Args:
            filter: For each metadata key the value that matches, or a list of them:
                `{"ward": "3"}`. A unit matches if all its records have the key and
                agree on the value, for every key. Texts and integers are compared as
                unit ids are. It is public.

        Raises:
            InvalidParameterError: If it is no such mapping, or this kind of source
                can't leave units out.

        Privacy:
            The relation and the charge stay those of the whole corpus; see
            `groups.filtering`.
        """
        raise InvalidParameterError(
            f"{type(self).__name__} can't be limited to some units. Use "
            "RetrievedGroups or SampledGroups."
        )

    def draw(self, question: str) -> list[list[Document]]:
        """Return the slots for a question; private, for the chain and for tests."""
        return result(self._draw(question))

    async def adraw(self, question: str) -> list[list[Document]]:
        """Return the slots for a question; the async twin of `draw`."""
        return await aresult(self._draw(question))

    def _draw(self, question: str) -> Flow[list[list[Document]]]:
        prepared = yield Do(
            partial(self.prepare, question), partial(self.aprepare, question)
        )
        slots: list[list[Document]] = yield Do(
            partial(self.draw_prepared, prepared),
            partial(self.adraw_prepared, prepared),
        )
        return slots

    def _check_charging(self, collect: Collect | None) -> None:
        if collect is not None and not self.charges_units:
            raise InvalidParameterError(
                f"This {type(self).__name__} cannot charge units one by one: who is "
                "in a slot depends on other units or on chance. Use RetrievedGroups "
                "with a score_threshold, or an account of the whole corpus."
            )

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


class TermedSource(Frozen, GroupSource):
    """A source whose public properties follow from its terms.

    A subclass sets `_terms` and `_random` when it is made, and `_only` where it can
    leave units out.
    """

    _terms: Any
    _random: SecureRandom | None
    _only: UnitFilter | None = None

    @property
    def _source(self) -> SecureRandom:
        """Where draws come from: the context says, if it was not given."""
        return self._random or current()

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
        found = {**self._terms.description(), "random": describe_source(self._source)}
        if self._only is not None:
            found["filter"] = self._only.description()
        return found

    def _narrowed(self, given: Mapping[str, Any] | UnitFilter) -> UnitFilter:
        """Return these groups' own filter and another one together."""
        only = UnitFilter.of(given)
        return only if self._only is None else self._only.also(only)
