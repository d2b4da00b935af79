"""What every group source offers to the chain, and the terms of this package's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NoReturn, TypedDict

from langchain_core.documents import Document
from pydantic import BeforeValidator, Field
from typing_extensions import Required, Self

from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Collect, Relation
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.filtering import RecordFilter, narrowed
from langchain_dpicl.mechanisms.random import SecureRandom, current
from langchain_dpicl.public import Frozen, Public

_LEAST_RATE = 1e-6


class HoldsRecords:
    """Base of objects that hold private records.

    A repr names the class alone, a copy is the object itself, and a pickle is refused.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds private records and cannot be pickled. "
            "Build it in each process, or use save(path) and load(path, embedding) "
            "where the source offers them."
        )


class GroupSource(HoldsRecords, ABC):
    """Turns a public question into slots, each a list of private documents.

    Not a `Runnable` and not a `BaseRetriever`: those publish what they return to
    callbacks and tracers, and the slots are private. Only the chain (and a test) may
    look at them.

    A draw has two halves, both blocking. `prepare` is the public half: it looks at the
    question alone, and the chain calls it *before* the charge, so that an embedding
    server that is down costs no budget. `draw_prepared` is the private half: it
    touches records, and the chain calls it after the charge.

    No property of a source promises that it can charge units one by one: see
    `charging_units`.

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
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""

    @abstractmethod
    def prepare(self, question: str) -> Any:
        """Do the public half of a draw; return what `draw_prepared` needs.

        Raises:
            InvalidParameterError: If the question or its embedding cannot be used.
        """

    @abstractmethod
    def draw_prepared(
        self, prepared: Any, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Do the private half of a draw; return the slots, which are private.

        Args:
            prepared: What `prepare` returned for the question.
            collect: Charges units, under a per-unit account; only a source that
                `charging_units` accepts gets one. It is called once for a draw, with
                all eligible units. Units that do not pay are left out, as if not in
                the corpus. None: every unit may take part.
        """

    def where(
        self,
        filter: Mapping[str, Any] | RecordFilter | None = None,  # noqa: A002, ARG002  # what LangChain's stores call it
        **values: Any,  # noqa: ARG002
    ) -> GroupSource:
        """Return these groups for only the records that match a filter.

        Both share the records: what is added, deleted or saved through one of them is
        so for both, whether it matches or not.

        Args:
            filter: For each metadata key the value that matches, or a list of them:
                `{"ward": "3"}`. It is public.
            **values: The same as keywords: `groups.where(ward="3")`.

        Raises:
            InvalidParameterError: If it is no filter, or this kind of source can't
                leave records out.

        Privacy:
            A record that does not match is as if it were not in the corpus. The
            relation and the charge stay those of the whole corpus; see
            `groups.filtering`.
        """
        raise InvalidParameterError(
            f"{type(self).__name__} can't be limited to some records. Use "
            "RetrievedGroups or SampledGroups."
        )

    def draw(self, question: str) -> list[list[Document]]:
        """Return the slots for a question; private, for the chain and for tests."""
        return self.draw_prepared(self.prepare(question))

    def __repr__(self) -> str:
        # A runnable that cannot be serialized is dumped into traces with its repr,
        # so that only public parameters may stand here.
        terms = ", ".join(
            f"{name}={value!r}"
            for name, value in self.description.items()
            if name != "source"
        )
        return f"{type(self).__name__}({terms})"


def _checked(check: Callable[[Any], Any]) -> Any:
    """Return a validator that leaves None to the field's type."""
    return BeforeValidator(lambda value: None if value is None else check(value))


def _count(name: str) -> Any:
    return _checked(partial(parameters.count, name=name))


def _rate(value: Any) -> float:
    rate = parameters.sampling_rate(value)
    if rate < _LEAST_RATE:
        raise InvalidParameterError(f"sampling_rate must be at least {_LEAST_RATE:g}.")
    return rate


class Terms(Public):
    """The public parameters of this package's sources."""

    unit_key: Annotated[str, Field(min_length=1)]
    """The metadata key that holds the unit id."""

    n_groups: Annotated[int, _count("n_groups")]
    """Public slot count: the number of model calls to pad to."""

    sampling_rate: Annotated[float, BeforeValidator(parameters.sampling_rate)] = 1.0
    """Probability with which each unit is in a draw; 1: everybody is."""

    @property
    def retrieval(self) -> str:
        """How the units of a slot are found, for the record."""
        return "poisson"

    @property
    def relation(self) -> Relation:
        """How one unit more or less changes the slots.

        Privacy:
            *Retrieved.* The unit's documents sit in one shard, and a shard's slot is a
            function of that shard alone: `REPLACE`. Of the units in a sample it holds
            whatever the coins; see `groups.sampling`.

            *Sampled.* Fix the coin and the slot number of every unit; they are
            independent of each other and of all documents. Then a sampled unit's
            documents are in one slot, and that slot changes: `REPLACE`.
        """
        return Relation.REPLACE


class RetrievalOptions(TypedDict, total=False):
    """What groups that retrieve are given by name; all of it is public."""

    unit_key: Required[str]
    """The metadata key, or the column, that holds the unit id."""

    n_groups: Required[int]
    """Slot count: number of shards, and of model calls."""

    docs_per_group: int
    """Most documents in one slot; 8 by default."""

    score_threshold: float | None
    """Least cosine, from -1 to 1, of a document that counts; None: no threshold."""

    sampling_rate: float
    """Probability with which a unit is searched at all; 1 by default.

    Who is in the sample is secret, and drawn afresh for each question. Below 1 an
    answer costs less; `RetrievedGroups.rate_for` computes a rate.
    """


class RetrievalTerms(Terms):
    """`RetrievalOptions`, checked."""

    docs_per_group: Annotated[int, _count("docs_per_group")] = 8

    score_threshold: Annotated[
        Annotated[float, Field(ge=-1, le=1)] | None,
        _checked(partial(parameters.finite, "score_threshold")),
    ] = None

    sampling_rate: Annotated[float, BeforeValidator(_rate)] = 1.0

    @classmethod
    def of(cls, options: RetrievalOptions) -> Self:
        """Return the terms, or refuse them; an unknown name is in the message."""
        if unknown := sorted(set(options).difference(cls.model_fields)):
            raise InvalidParameterError(
                f"There is no argument {unknown[0]!r}; see RetrievalOptions."
            )
        return cls(**options)

    @property
    def retrieval(self) -> str:
        """How the units of a slot are found, for the record."""
        return "shard" if self.score_threshold is None else "threshold"


class SamplingTerms(Terms):
    """Public parameters of `SampledGroups`."""

    docs_per_unit: Annotated[int | None, _count("docs_per_unit")] = None
    """Most documents of one unit in a draw; None: all of them."""


def check_enough_units(n_units: int, n_groups: int) -> None:
    """Refuse a corpus that is empty or has fewer units than groups, with a `UnitError`.

    The number of units is private and is not in the message.
    """
    if n_units == 0:
        raise UnitError("There are no documents to answer from.")
    if n_groups > n_units:
        raise UnitError(
            f"There are fewer units than n_groups={n_groups}: some groups could never "
            "hold anybody. Ask for fewer groups or bring more units."
        )


class TermedSource(Frozen, GroupSource):
    """A source whose public properties follow from its terms.

    A subclass sets `_terms` and `_random` when it is made. It embeds the question in
    `prepare`; in `draw_prepared` it lists the eligible units where they pay
    (`collect`), samples those who paid, and searches the records of these units alone.

    Privacy:
        A search keeps three rules, without which the relation `REPLACE` does not hold.

        *A shard is a function of itself.* Its slot depends on the matching records of
        the given units of that shard, the question and public parameters, to the bit:
        exact scores, or an approximate index that was built from that shard alone. A
        record that does not match, and a unit that did not pay or is not sampled, leave
        no trace in their own shard either: no place, no tie, no rounding. Equal scores
        are put in an order of keyed digests, never of insertion.

        *Eligibility is a unit's own.* A unit is eligible if a record of its own matches
        the filter and reaches the threshold, exactly: an asker can put a threshold on
        the edge.

        *One moment.* Who pays and what is searched come from the same records; or the
        second of two looks sees no unit that did not pay.
    """

    _terms: Terms
    _random: SecureRandom | None
    _only: RecordFilter | None = None

    @staticmethod
    def rate_for(people: float, n_groups: int, people_per_group: float = 2) -> float:
        """Return the sampling rate at which groups hold so many people on average.

        It is n_groups * people_per_group / people, and 1 at most. It is published:
        `people` must be *public*, such as a guess of how many have something to say on
        a question, not a count. With one a group, every third group is empty by chance.

        Example:
            >>> TermedSource.rate_for(1600, n_groups=100)
            0.125
        """
        groups = parameters.count(n_groups, "n_groups")
        size = parameters.positive("people_per_group", people_per_group)
        return min(1.0, groups * size / parameters.positive("people", people))

    @property
    def _source(self) -> SecureRandom:
        """Where draws come from: the context says, if it was not given."""
        return self._random or current()

    @property
    def relation(self) -> Relation:
        """How one unit more or less changes the slots; derived, never chosen."""
        return self._terms.relation

    @property
    def n_groups(self) -> int:
        """Public slot count: the number of model calls that the chain pads to."""
        return self._terms.n_groups

    @property
    def unit_key(self) -> str:
        """The metadata key that holds the unit id."""
        return self._terms.unit_key

    @property
    def sampling_rate(self) -> float:
        """The rate at which each unit is sampled; 1.0 where nothing is sampled."""
        return self._terms.sampling_rate

    @property
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""
        is_seeded = self._source.is_seeded
        public = {
            "source": type(self).__name__,
            "retrieval": self._terms.retrieval,
            **self._terms.model_dump(),
            "relation": self.relation.value,
            "random": "NOT SECURE, for tests only" if is_seeded else "operating system",
        }
        if self._only is not None:
            public["filter"] = self._only.description()
        return public

    def where(
        self,
        filter: Mapping[str, Any] | RecordFilter | None = None,  # noqa: A002  # what LangChain's stores call it
        **values: Any,
    ) -> Self:
        """Return these groups for only the records that match; see `GroupSource`."""
        return self._changed(_only=narrowed(self._only, filter, values))

    def _changed(self, **attributes: Any) -> Self:
        """Return a source over the same records, with some attributes replaced."""
        same = object.__new__(type(self))
        vars(same).update(vars(self), **attributes)
        return same

    def _check_charging(self, collect: Collect | None) -> None:
        """Refuse a `collect` where units can't be charged one by one."""
        if collect is not None and not charging_units(self):
            raise InvalidParameterError(
                f"This {type(self).__name__} cannot charge units one by one: who is in "
                "a slot depends on other units or on chance. Use RetrievedGroups with "
                "a score_threshold, or an account of the whole corpus."
            )


def charging_units(source: GroupSource) -> bool:
    """Return whether a draw of a source can charge each unit that takes part.

    It can where the source is this package's own and retrieves by a public threshold.
    No source of another package can say so of itself: a subclass of ours can't either.

    Privacy:
        A per-unit account needs four things of a source. Whether a unit is eligible is
        a function of its own records, the question, public parameters and what was
        released before, of nothing else. Every eligible unit is asked to pay, in one
        `collect`, also one that finds no room in its slot or is not sampled. A unit
        that does not pay changes nothing in the slots: it is left out before anything
        is ranked. Membership in a ranked list is no such function: a unit that was
        compared and not ranked would not be charged.
    """
    is_ours = type(source).__module__.startswith(f"{__package__}.")
    terms = source._terms if isinstance(source, TermedSource) else None  # noqa: SLF001
    return (
        is_ours
        and isinstance(terms, RetrievalTerms)
        and terms.score_threshold is not None
    )
