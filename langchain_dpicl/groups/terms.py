"""The public parameters of the group sources: checks, relation, description."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.mechanisms.source import SecureRandom

Grouping = Literal["shard", "unit"]
_LEAST_RATE = 1e-6


@dataclass(frozen=True)
class RetrievalTerms:
    """Public parameters of `RetrievedGroups`; `check` them before use."""

    unit_key: str  # The metadata key that holds the unit id.
    n_groups: int  # Number of shards, and of model calls to pad to.
    docs_per_group: int  # Most documents in one slot.
    # Least cosine, in [-1, 1], of a document that counts; None: no threshold.
    score_threshold: float | None
    grouping: Grouping  # `"shard"`: units hashed to slots; `"unit"`: one unit, one slot
    # Cap on the number of slots when grouping by unit; None: no cap.
    max_groups: int | None
    # Probability with which each unit is in a draw; 1: everybody is.
    sampling_rate: float = 1.0

    def check(self) -> RetrievalTerms:
        """Return the terms with exact types, or raise `InvalidParameterError`."""
        threshold = self.score_threshold
        if threshold is not None:
            threshold = parameters.finite("score_threshold", threshold)
            if not -1 <= threshold <= 1:
                raise InvalidParameterError(
                    "score_threshold is a cosine: it must be between -1 and 1, not "
                    f"{threshold:g}."
                )
        terms = RetrievalTerms(
            unit_key=check_unit_key(self.unit_key),
            n_groups=parameters.count(self.n_groups, "n_groups"),
            docs_per_group=parameters.count(self.docs_per_group, "docs_per_group"),
            score_threshold=threshold,
            grouping=check_grouping(self.grouping),
            max_groups=None
            if self.max_groups is None
            else parameters.count(self.max_groups, "max_groups"),
            sampling_rate=check_rate(self.sampling_rate),
        )
        terms._check_together()
        terms._check_sampling()
        return terms

    @property
    def is_sampled(self) -> bool:
        """Whether a draw looks at a sample of the units."""
        return self.sampling_rate < 1

    def _check_sampling(self) -> None:
        if not self.is_sampled:
            return
        if self.grouping == "unit" and self.max_groups is None:
            raise InvalidParameterError(
                'sampling_rate below 1 with grouping="unit" needs max_groups=: without '
                "it the number of model calls would tell how many units were sampled."
            )

    def _check_together(self) -> None:
        if self.grouping == "shard":
            if self.max_groups is not None:
                raise InvalidParameterError(
                    'max_groups goes with grouping="unit"; with grouping="shard" the '
                    "number of slots is n_groups."
                )
            return
        if self.score_threshold is None:
            raise InvalidParameterError(
                'grouping="unit" needs score_threshold=, a public cosine that every '
                "unit is compared with alone. Taking the best units of the whole "
                "corpus instead is not supported: removing one unit would let "
                "another one in, so that no unit's effect is bounded."
            )
        if self.max_groups is not None and self.max_groups > self.n_groups:
            raise InvalidParameterError(
                f"max_groups is {self.max_groups} and n_groups {self.n_groups}: the "
                "number of model calls is padded to n_groups, which must be at least "
                "max_groups to hide how many units were eligible."
            )

    @property
    def relation(self) -> Relation:
        """How one unit more or less changes the slots.

        Privacy:
            Shards: the unit's documents sit in one shard, and a shard's slot is a
            function of that shard alone: `REPLACE`. Units over a threshold: whether
            a unit is in, and with what, is a function of its own documents: one slot
            more or less, `ADD_REMOVE`. With a cap, the slots are those of the
            eligible units with the smallest of independent priorities; one eligible
            unit more enters or does not, and pushes out one other at most:
            `REPLACE`. Of the units in a sample it
            holds whatever the coins; see `groups.sampling`.
        """
        if self.grouping == "unit" and self.max_groups is None:
            return Relation.ADD_REMOVE
        return Relation.REPLACE

    def to_dict(self) -> dict[str, Any]:
        """Return the terms alone, ready for JSON, as `from_dict` reads them."""
        terms = asdict(self)
        if not self.is_sampled:
            # As before sampling existed, so that releases stored under these terms are
            # found again.
            del terms["sampling_rate"]
        return terms

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> RetrievalTerms:
        """Return the checked terms that `to_dict` made."""
        return cls(**stored).check()

    def description(self) -> dict[str, Any]:
        """Return the terms and what follows from them, ready for JSON."""
        return {
            "source": "RetrievedGroups",
            "retrieval": "threshold" if self.score_threshold is not None else "shard",
            **self.to_dict(),
            "relation": self.relation.value,
        }


@dataclass(frozen=True)
class SamplingTerms:
    """Public parameters of `SampledGroups`; `check` them before use."""

    unit_key: str  # The metadata key that holds the unit id.
    n_groups: int  # Number of slots, and of model calls to pad to.
    sampling_rate: float  # Probability with which each unit is in a draw.
    # `"shard"`: sampled units dealt to slots; `"unit"`: one unit, one slot.
    grouping: Grouping
    docs_per_unit: int | None  # Most documents of one unit in a draw; None: all of them

    def check(self) -> SamplingTerms:
        """Return the terms with exact types, or raise `InvalidParameterError`."""
        return SamplingTerms(
            unit_key=check_unit_key(self.unit_key),
            n_groups=parameters.count(self.n_groups, "n_groups"),
            sampling_rate=parameters.sampling_rate(self.sampling_rate),
            grouping=check_grouping(self.grouping),
            docs_per_unit=None
            if self.docs_per_unit is None
            else parameters.count(self.docs_per_unit, "docs_per_unit"),
        )

    @property
    def relation(self) -> Relation:
        """How one unit more or less changes the slots.

        Privacy:
            Fix the inclusion bit and the slot number of every unit; they are
            independent of each other and of all documents. Then a sampled unit's
            documents are in one slot. Dealt to `n_groups` slots, that slot changes:
            `REPLACE`. One unit, one slot: it appears or vanishes: `ADD_REMOVE`.
        """
        return Relation.REPLACE if self.grouping == "shard" else Relation.ADD_REMOVE

    def description(self) -> dict[str, Any]:
        """Return the terms and what follows from them, ready for JSON."""
        return {
            "source": "SampledGroups",
            "retrieval": "poisson",
            **asdict(self),
            "relation": self.relation.value,
        }


def check_unit_key(unit_key: Any) -> str:
    """Return the metadata key of unit ids, refusing what is not a non-empty string."""
    if not isinstance(unit_key, str) or not unit_key:
        raise InvalidParameterError(
            "unit_key must be the name of the metadata key that holds the unit id."
        )
    return unit_key


def check_rate(rate: Any) -> float:
    """Return a sampling rate, refusing one that would leave a sample almost empty."""
    found: float = parameters.sampling_rate(rate)
    if found < _LEAST_RATE:
        raise InvalidParameterError(
            f"sampling_rate must be at least {_LEAST_RATE:g}, not {found:g}: a sample "
            "would be almost empty."
        )
    return found


def check_grouping(grouping: Any) -> Grouping:
    """Return the grouping, refusing what is neither "shard" nor "unit"."""
    if grouping == "shard":
        return "shard"
    if grouping == "unit":
        return "unit"
    raise InvalidParameterError('grouping must be "shard" or "unit".')


def describe_source(random: SecureRandom) -> str:
    """Return what the public record says about where randomness comes from."""
    return "operating system" if random.secure else "NOT SECURE, for tests only"


def check_enough_units(n_units: int, n_groups: int) -> None:
    """Refuse a corpus that is empty or has fewer units than groups, with a `UnitError`.

    Both numbers are in the message: it is raised at ingest, for the operator who holds
    the records, never in answer to a question.
    """
    if n_units == 0:
        raise UnitError("There are no documents to answer from.")
    if n_groups > n_units:
        raise UnitError(
            f"n_groups is {n_groups} and there are {n_units} units: some groups could "
            "never hold anybody. Ask for fewer groups or bring more units."
        )
