"""Several releases under one charge, from disjoint classes of units or from all.

Privacy:
    `disjoint=True`: demand i is made of the records of class i alone, and a public rule
    puts each unit into one class at most, by its own records. The classes compose in
    parallel (`accounting.ParallelEvent`): the charge costs the largest of them, and
    each gets the least noise that the account allows it by itself. Under a plan of
    several queries a unit must stay in its class in all of them (a filter's sums hold
    whatever class it is in): where the records change between charges, or the rule
    does, another `partition` makes it another plan.
    `disjoint=False`: a unit may take part in all of them. Their costs add up, and what
    is left open of all of them follows one common scale, with less noise for those
    that cost less (`Bundle.weights`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from langchain_dpicl.accounting import Event, ParallelEvent, PlainEvent
from langchain_dpicl.accounting.events import MAX_BRANCHES, require_partition
from langchain_dpicl.budget.demand import (
    Demand,
    Granted,
    length,
    misfit,
    read_parameters,
)
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.parameters import ParameterError


@dataclass(frozen=True)
class Bundle:
    """The shape of several releases that are charged together.

    Attributes:
        mechanism: The public name of the whole, for the record.
        demands: The releases, in a public order.
        disjoint: Whether each unit takes part in one of them at most.
        partition: With `disjoint`: the public name of the rule that says in which.
            Bundles of different names never share a plan.

    Raises:
        InvalidParameterError: If there are no demands or more than 10,000, one of them
            has a `share` of its own, or a partition is named that can't be.

    Example:
        >>> from langchain_dpicl.budget import GaussianPart
        >>> labels = [Demand("x", (GaussianPart(),), q, uses=15) for q in (0.1, 0.5)]
        >>> Bundle("few-shot/gaussian", tuple(labels), disjoint=True).is_fixed
        False
    """

    mechanism: str
    demands: tuple[Demand, ...]
    disjoint: bool
    partition: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.demands, (list, tuple)):
            raise InvalidParameterError("demands must be a list of demands.")
        object.__setattr__(self, "demands", tuple(self.demands))
        if not 0 < len(self.demands) <= MAX_BRANCHES:
            raise InvalidParameterError(
                f"A bundle holds 1 to {MAX_BRANCHES} demands, not {len(self.demands)}."
            )
        if any(not isinstance(demand, Demand) for demand in self.demands):
            raise InvalidParameterError("A bundle holds demands.")
        if any(demand.share != 1 for demand in self.demands):
            raise InvalidParameterError("A demand in a bundle has no share of its own.")
        if self.partition and not self.disjoint:
            raise InvalidParameterError("Only disjoint demands have a partition.")
        try:
            require_partition(self.partition)
        except ParameterError as error:
            raise InvalidParameterError(str(error)) from None

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""
        return all(demand.is_fixed for demand in self.demands)

    @property
    def sampling_rate(self) -> float:
        """The smallest of the demands' sampling rates."""
        return min(demand.sampling_rate for demand in self.demands)

    @property
    def n_failing(self) -> int:
        """How many of the demands need a delta0."""
        return sum(demand.needs_delta0 for demand in self.demands)

    def parallel(self, branches: Iterable[tuple[Event, ...]]) -> tuple[Event, ...]:
        """Return the events of a disjoint bundle, given those of each demand."""
        plain = cast("tuple[tuple[PlainEvent, ...], ...]", tuple(branches))
        return (ParallelEvent(plain, partition=self.partition),)

    @property
    def weights(self) -> tuple[float, ...]:
        """Each demand's scale over the common one, where demands are not disjoint.

        n uses with noise z at rate q cost about n q^2 / z^2. Of all noises that cost
        the same together, the sum of z^2 is least for z in proportion to
        sqrt(q sqrt(n)). One noise for all would be that of the label with the largest
        rate, which is the rarest: of TREC's six labels at epsilon 1 it is 11.7 for all,
        and with weights 13.8 for the rarest and 3.6 to 4.4 for the others.
        """
        each = [math.sqrt(d.sampling_rate * math.sqrt(d.uses)) for d in self.demands]
        return tuple(weight / max(each) for weight in each)

    def in_turn(self, scale: float, delta0s: tuple[float, ...]) -> tuple[Event, ...]:
        """Return the events of a bundle that is not disjoint, at a common scale."""
        each = zip(self.demands, self.weights, delta0s, strict=True)
        return tuple(
            event
            for demand, weight, delta0 in each
            for event in demand.events(scale * weight, delta0)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the bundle as JSON-able values: two equal ones share a plan."""
        return {
            "demands": [demand.to_dict() for demand in self.demands],
            "disjoint": self.disjoint,
            "partition": self.partition,
        }


AnyDemand: TypeAlias = Demand | Bundle
"""What an account may be asked to pay for."""


def require_demand(demand: object) -> None:
    """Refuse what can't be paid for.

    Raises:
        InvalidParameterError: If it is neither a demand nor a bundle.
    """
    if not isinstance(demand, (Demand, Bundle)):
        raise InvalidParameterError(
            "An account pays for a Demand or a Bundle (parser.demand() is one), not "
            f"for a value of type {type(demand).__name__}."
        )


def read_parts(demand: AnyDemand, events: tuple[Event, ...]) -> tuple[Granted, ...]:
    """Return the parameters of each demand that spend exactly `events` together.

    Args:
        demand: A demand, or several in a bundle.
        events: What was charged.

    Raises:
        InvalidParameterError: If the events are not those of such a release.
    """
    if isinstance(demand, Demand):
        return (Granted(*read_parameters(demand, events)),)
    pieces = _by_branch(demand, events) if demand.disjoint else _in_turn(demand, events)
    return tuple(
        Granted(*read_parameters(one, piece))
        for one, piece in zip(demand.demands, pieces, strict=True)
    )


def _by_branch(bundle: Bundle, events: tuple[Event, ...]) -> list[tuple[Event, ...]]:
    only = events[0] if len(events) == 1 else None
    if (
        not isinstance(only, ParallelEvent)
        or only.count != 1
        or only.partition != bundle.partition
        or len(only.branches) != len(bundle.demands)
    ):
        raise misfit()
    return list(only.branches)


def _in_turn(bundle: Bundle, events: tuple[Event, ...]) -> list[tuple[Event, ...]]:
    pieces, start = [], 0
    for demand in bundle.demands:
        end = start + length(demand)
        pieces.append(events[start:end])
        start = end
    if start != len(events):
        raise misfit()
    return pieces
