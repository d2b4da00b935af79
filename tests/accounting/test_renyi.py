"""Renyi divergences against closed forms in many digits, and what is made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    ZCDPEvent,
    rho,
)
from langchain_dpicl.accounting.renyi import divergence
from langchain_dpicl.errors import InvalidParameterError


def at(event: Event, *orders: float) -> list[float]:
    return [float(r) for r in divergence(event, np.array(orders) - 1)]


# -- one use --------------------------------------------------------------------------


def test_losses_beyond_all_doubles_are_infinite_and_no_error() -> None:
    assert at(Gaussian(1e-200, 0.1), 1.5, 30.0) == [math.inf, math.inf]
    assert at(Gaussian(1e-3), 2.0) == [1e6]


def test_one_use_of_each_other_kind() -> None:
    assert at(ZCDPEvent(0.25, 9), 1.5, 8.0) == [0.375, 2.0]
    assert at(Gaussian(2.0, count=9), 1.5, 8.0) == [0.1875, 1.0]
    branches = (
        (ZCDPEvent(0.25, 2), Failure(0.5), ZCDPEvent(0.5)),
        (ZCDPEvent(0.5, 3),),
        (ZCDPEvent(0.25, 2), Failure(0.5), ZCDPEvent(0.5)),
    )
    assert at(Parallel(branches, 9), 2.0, 4.0, 7.0) == [3.0, 6.0, 10.5]
    assert at(Parallel(branches[:1], 9), 2.0, 7.0) == [2.0, 7.0]
    assert at(Parallel(((Failure(0.5),),)), 2.0) == [0.0]


def test_rho_adds_up_every_kind() -> None:
    for event, one in (
        (Gaussian(2.0, count=3), 0.125),
        (Gaussian(2.0, 0.5, 3), 0.125),
        (Exponential(2.0, 3), 0.5),
        (Pure(2.0, 3), 2.0),
        (ZCDPEvent(0.75, 3), 0.75),
        (Failure(0.5, 3), 0.0),
        (Parallel(((ZCDPEvent(0.25, 5),), (Pure(1.0),)), 3), 1.25),
    ):
        assert rho([event]) == 3 * one
        assert rho([event, Pure(4.0), event]) == 6 * one + 8
    assert rho([]) == 0
    with pytest.raises(InvalidParameterError, match="Not a privacy event: object"):
        rho([object()])  # type: ignore[list-item]


# -- all uses -------------------------------------------------------------------------
