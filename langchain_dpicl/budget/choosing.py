"""Which shape of a release an account pays for, and at which order.

A release that may be made in two ways (`EventTemplate.instead`) is made in the one
whose lead is smaller, where the account can pay for it. A plan that holds a release
curve is composed wholly at Renyi orders up to the curve's, so its order is chosen with
the plan, for the least lead. A Renyi filter has one order of its own.

Privacy: what is chosen follows from public numbers alone: the terms of the account and
the template. What was chosen is stored, as the events of the charge or of the plan;
`read` takes the noise from these and chooses nothing again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from langchain_dpicl.accounting import Event
from langchain_dpicl.accounting.template import NoiseRule, Template
from langchain_dpicl.errors import PlanMismatchError

_GOLDEN = (math.sqrt(5) - 1) / 2
_ROUNDS = 16


def chosen(template: Template[Any], rule: NoiseRule) -> tuple[Event, ...]:
    """Return what the shape with the smallest lead is charged by a rule.

    Of equal leads the first shape is taken.

    Raises:
        PlanMismatchError: If the rule can pay for no shape.
        InvalidParameterError: If an argument is out of its range.
    """
    first, *others = template.shapes
    if not others and not first.needs_order:
        return first.filled(rule)
    found = [_tried(shape, rule) for shape in (first, *others)]
    paid = [one for one in found if not isinstance(one, PlanMismatchError)]
    if not paid:
        [failure, *_] = [one for one in found if isinstance(one, PlanMismatchError)]
        raise failure
    return min(paid, key=lambda one: one[0])[1]


def least(value_at: Callable[[float], float], low: float, high: float) -> float:
    """Return nearly where a function with one valley is least, by golden sections.

    It may be infinite at the low end.

    Example:
        >>> round(least(lambda x: (x - 2) ** 2, 0, 5), 2)
        2.0
    """
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value_at(left), value_at(right)
    for _ in range(_ROUNDS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value_at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value_at(right)
    return left if at_left < at_right else right


def _tried(
    shape: Template[Any], rule: NoiseRule
) -> tuple[float, tuple[Event, ...]] | PlanMismatchError:
    """Return the whole lead of a shape and its events, or why there are none."""
    try:
        if shape.needs_order:
            shape = shape.at_order(rule.order(shape))
        events = shape.filled(rule)
    except PlanMismatchError as error:
        return error
    lead = shape.lead_of(shape.read(events))
    if math.isinf(lead):
        return PlanMismatchError(
            f"No lead is enough for a {shape.mechanism} release to be made: raise "
            "epsilon, delta or delta0, lower the number of queries, or use "
            "mechanism='gaussian'."
        )
    return math.ceil(lead), events
