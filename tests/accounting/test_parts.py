"""The parts of a charge, and the templates that are made of them: there and back."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    ExponentialPart,
    Gaussian,
    GaussianPart,
    Pure,
    PurePart,
)
from langchain_dpicl.accounting.parts import Part
from langchain_dpicl.errors import InvalidParameterError

# -- parts ----------------------------------------------------------------------------


MISFITS: list[tuple[Part, Event, float]] = [
    (GaussianPart(), Gaussian(1.0, 0.5), 0.25),
    (GaussianPart(), Gaussian(1.0, 0.5), 1.0),
    (GaussianPart(), Pure(1.0), 1.0),
    (PurePart(), Exponential(1.0), 1.0),
    (PurePart(), Gaussian(1.0), 1.0),
    (ExponentialPart(), Gaussian(1.0), 1.0),
]


@pytest.mark.parametrize(("part", "event", "rate"), MISFITS)
def test_an_event_of_another_part_is_refused(
    part: Part, event: Event, rate: float
) -> None:
    with pytest.raises(
        InvalidParameterError, match="The charged events do not fit the rel"
    ):
        part.read(event, rate)


# -- templates ------------------------------------------------------------------------


def values(*found: Any) -> tuple[Any, ...]:
    return found
