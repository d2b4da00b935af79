"""Limits of filters and what is added up under them: exact, but for known roundings."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from langchain_dpicl.accounting import (
    Failure,
    Parallel,
    Pure,
    RenyiEvent,
    limits,
)
from langchain_dpicl.errors import InvalidParameterError


def test_what_has_no_rho_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="only a plan"):
        limits.exact_rho(RenyiEvent(8.0, 0.1))
    for event in (Failure(0.1), Parallel(((Pure(0.1),),))):
        name = type(event).__name__
        with pytest.raises(
            InvalidParameterError, match=f"A {name} has no loss that can be"
        ):
            limits.exact_rho(event)


def test_of_a_renyi_event_its_own_order_and_below_are_known() -> None:
    event = RenyiEvent(6.0, 0.1, 9)
    assert limits.renyi_loss(event, 6.0) == Fraction(0.1)
    assert limits.renyi_loss(event, 1.5) == Fraction(0.1)
    with pytest.raises(
        InvalidParameterError, match=r"RenyiEvent\(.*\) at order 6\.00000000"
    ):
        limits.renyi_loss(event, math.nextafter(6.0, 7.0))
