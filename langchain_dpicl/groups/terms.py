"""The public parameters of the group sources: checks, relation, description."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.mechanisms.random import SecureRandom

_LEAST_RATE = 1e-6


@dataclass(frozen=True)
class RetrievalTerms:
    """Public parameters of `RetrievedGroups`; `check` them before use."""

    unit_key: str  # The metadata key that holds the unit id.
    n_groups: int  # Number of shards, and of model calls to pad to.
    docs_per_group: int  # Most documents in one slot.
    # Least cosine, in [-1, 1], of a document that counts; None: no threshold.
    score_threshold: float | None
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
        return RetrievalTerms(
            unit_key=check_unit_key(self.unit_key),
            n_groups=parameters.count(self.n_groups, "n_groups"),
            docs_per_group=parameters.count(self.docs_per_group, "docs_per_group"),
            score_threshold=threshold,
            sampling_rate=check_rate(self.sampling_rate),
        )

    @property
    def is_sampled(self) -> bool:
        """Whether a draw looks at a sample of the units."""
        return self.sampling_rate < 1

    @property
    def relation(self) -> Relation:
        """How one unit more or less changes the slots.

        Privacy:
            The unit's documents sit in one shard, and a shard's slot is a function of
            that shard alone: `REPLACE`. Of the units in a sample it holds whatever the
            coins; see `groups.sampling`.
        """
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
    docs_per_unit: int | None  # Most documents of one unit in a draw; None: all of them

    def check(self) -> SamplingTerms:
        """Return the terms with exact types, or raise `InvalidParameterError`."""
        return SamplingTerms(
            unit_key=check_unit_key(self.unit_key),
            n_groups=parameters.count(self.n_groups, "n_groups"),
            sampling_rate=parameters.sampling_rate(self.sampling_rate),
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
            documents are in one slot, and that slot changes: `REPLACE`.
        """
        return Relation.REPLACE

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


def describe_source(random: SecureRandom) -> str:
    """Return what the public record says about where randomness comes from."""
    return "NOT SECURE, for tests only" if random.is_seeded else "operating system"


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
