"""The public parameters of the group sources: checks, relation, description."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.public import Public

_LEAST_RATE = 1e-6


def _count(name: str) -> Any:
    return BeforeValidator(lambda value: parameters.count(value, name))


def _optional(check: Callable[[Any], Any]) -> Any:
    return BeforeValidator(lambda value: None if value is None else check(value))


def _cosine(value: Any) -> float:
    threshold = parameters.finite("score_threshold", value)
    if not -1 <= threshold <= 1:
        raise InvalidParameterError(
            f"score_threshold is a cosine: it must be between -1 and 1, not "
            f"{threshold:g}."
        )
    return threshold


def _retrieval_rate(value: Any) -> float:
    rate = parameters.sampling_rate(value)
    if rate < _LEAST_RATE:
        raise InvalidParameterError(
            f"sampling_rate must be at least {_LEAST_RATE:g}, not {rate:g}: a sample "
            "would be almost empty."
        )
    return rate


class Terms(Public, ABC):
    """What all group sources of this package have."""

    unit_key: Annotated[str, Field(min_length=1)]
    """The metadata key that holds the unit id."""

    n_groups: Annotated[int, _count("n_groups")]
    """Public slot count: the number of model calls to pad to."""

    sampling_rate: Annotated[float, BeforeValidator(parameters.sampling_rate)] = 1.0
    """Probability with which each unit is in a draw; 1: everybody is."""

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

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return the terms and what follows from them, ready for JSON."""


class RetrievalTerms(Terms):
    """Public parameters of `RetrievedGroups`."""

    docs_per_group: Annotated[int, _count("docs_per_group")]
    """Most documents in one slot."""

    score_threshold: Annotated[float | None, _optional(_cosine)] = None
    """Least cosine, in [-1, 1], of a document that counts; None: no threshold."""

    sampling_rate: Annotated[float, BeforeValidator(_retrieval_rate)] = 1.0
    """Probability with which each unit is in a draw; 1: everybody is."""

    def description(self) -> dict[str, Any]:
        """Return the terms and what follows from them, ready for JSON."""
        return {
            "source": "RetrievedGroups",
            "retrieval": "shard" if self.score_threshold is None else "threshold",
            **self.model_dump(),
            "relation": self.relation.value,
        }


class SamplingTerms(Terms):
    """Public parameters of `SampledGroups`."""

    docs_per_unit: Annotated[
        int | None, _optional(lambda value: parameters.count(value, "docs_per_unit"))
    ] = None
    """Most documents of one unit in a draw; None: all of them."""

    def description(self) -> dict[str, Any]:
        """Return the terms and what follows from them, ready for JSON."""
        return {
            "source": "SampledGroups",
            "retrieval": "poisson",
            **self.model_dump(),
            "relation": self.relation.value,
        }


def describe_source(random: SecureRandom) -> str:
    """Return what the public record says about where randomness comes from."""
    return "NOT SECURE, for tests only" if random.is_seeded else "operating system"


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
