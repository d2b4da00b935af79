"""Several releases under one charge, from disjoint classes of units or from all.

Privacy:
    `disjoint=True`: release i is made of the records of class i alone, and a public
    rule puts each unit into one class at most, by its own records. The classes compose
    in parallel (`accounting.Parallel`): the charge costs the largest of them, and
    each gets the least noise that the account allows it by itself. Under a plan of
    several queries a unit must stay in its class in all of them (a filter's sums hold
    whatever class it is in): where the records change between charges, or the rule
    does, another `partition` makes it another plan.
    `disjoint=False`: a unit may take part in all of them. Their costs add up, and what
    is left open of all of them follows one common scale.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.accounting import Event, Parallel
from langchain_dpicl.accounting.events import MAX_BRANCHES, require_partition
from langchain_dpicl.accounting.parts import misfit
from langchain_dpicl.accounting.template import (
    EventTemplate,
    NoiseRule,
    NoiseT,
    Template,
)
from langchain_dpicl.errors import InvalidParameterError


@dataclass(frozen=True)
class Bundle(Template[tuple[NoiseT, ...]]):
    """The shape of several releases that are charged together.

    Attributes:
        mechanism: The public name of the whole, for the record.
        templates: The releases, in a public order.
        disjoint: Whether each unit takes part in one of them at most.
        partition: With `disjoint`: the public name of the rule that says in which.
            Bundles of different names never share a plan.

    Raises:
        InvalidParameterError: If there are no templates or more than 10,000, one of
            them has a `share` of its own, or a partition is named that can't be.

    Example:
        >>> from langchain_dpicl.mechanisms import next_token_template
        >>> name = "few-shot/gaussian"
        >>> labels = [
        ...     next_token_template(name, sampling_rate=q, uses=15) for q in (0.1, 0.5)
        ... ]
        >>> Bundle(name, tuple(labels), disjoint=True).is_fixed
        False
    """

    mechanism: str
    templates: tuple[EventTemplate[NoiseT], ...]
    disjoint: bool
    partition: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.templates, (list, tuple)):
            raise InvalidParameterError("templates must be a list of templates.")
        object.__setattr__(self, "templates", tuple(self.templates))
        if not 0 < len(self.templates) <= MAX_BRANCHES:
            raise InvalidParameterError(
                f"A bundle holds 1 to {MAX_BRANCHES} templates, not "
                f"{len(self.templates)}."
            )
        if any(not isinstance(one, EventTemplate) for one in self.templates):
            raise InvalidParameterError("A bundle holds templates of one release each.")
        if any(one.share != 1 for one in self.templates):
            raise InvalidParameterError(
                "A template in a bundle has no share of its own."
            )
        if self.partition and not self.disjoint:
            raise InvalidParameterError("Only disjoint releases have a partition.")
        require_partition(self.partition)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to the account."""
        return all(template.is_fixed for template in self.templates)

    def filled(self, rule: NoiseRule) -> tuple[Event, ...]:
        """Return what the releases are charged together: disjoint ones in parallel."""
        if self.disjoint:
            known = {one: one.filled(rule) for one in dict.fromkeys(self.templates)}
            branches: Any = tuple(known[one] for one in self.templates)
            return (Parallel(branches, partition=self.partition),)
        failing = sum(template.needs_delta0 for template in self.templates)
        delta0s = tuple(
            rule.delta0(one, failing) if one.needs_delta0 else 0.0
            for one in self.templates
        )
        return rule.events(self, functools.partial(self._in_turn, delta0s=delta0s))

    def read(self, events: tuple[Event, ...]) -> tuple[NoiseT, ...]:
        """Return each release's noise; see `Template.read`."""
        pieces = self._branches(events) if self.disjoint else self._pieces(events)
        return tuple(
            template.read(piece)
            for template, piece in zip(self.templates, pieces, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the bundle as JSON-able values: two equal ones share a plan."""
        return {
            "templates": [template.to_dict() for template in self.templates],
            "disjoint": self.disjoint,
            "partition": self.partition,
        }

    def _in_turn(self, scale: float, delta0s: tuple[float, ...]) -> tuple[Event, ...]:
        """Return the events of releases that share units, at a common scale."""
        return tuple(
            event
            for template, delta0 in zip(self.templates, delta0s, strict=True)
            for event in template.events(scale, delta0)
        )

    def _branches(self, events: tuple[Event, ...]) -> list[tuple[Event, ...]]:
        only = events[0] if len(events) == 1 else None
        if (
            not isinstance(only, Parallel)
            or only.count != 1
            or only.partition != self.partition
            or len(only.branches) != len(self.templates)
        ):
            raise misfit()
        return list(only.branches)

    def _pieces(self, events: tuple[Event, ...]) -> list[tuple[Event, ...]]:
        pieces, start = [], 0
        for template in self.templates:
            end = start + template.n_events
            pieces.append(events[start:end])
            start = end
        if start != len(events):
            raise misfit()
        return pieces
