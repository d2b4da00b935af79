"""Privacy accounting: events, their composition, and calibration of a plan.

Numbers only: nothing here knows LangChain or the mechanisms.

Example:
    >>> from langchain_dpicl import accounting
    >>> z = accounting.noise_multiplier(epsilon=8, delta=1e-6, uses=20)
    >>> event = accounting.Gaussian(noise_multiplier=z, count=20)
    >>> accounting.compose([event], delta=1e-6) <= 8
    True
"""

from langchain_dpicl.accounting.calibrate import calibrate, noise_multiplier
from langchain_dpicl.accounting.check import Check, check
from langchain_dpicl.accounting.compose import compose, epsilon, sampled_epsilon
from langchain_dpicl.accounting.events import (
    Charge,
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    merge,
    read_events,
)
from langchain_dpicl.accounting.filter import UNITS, Cost, Filter, best_order

__all__ = [
    "UNITS",
    "Charge",
    "Check",
    "Cost",
    "Event",
    "Exponential",
    "Failure",
    "Filter",
    "Gaussian",
    "Parallel",
    "Pure",
    "best_order",
    "calibrate",
    "check",
    "compose",
    "epsilon",
    "merge",
    "noise_multiplier",
    "read_events",
    "sampled_epsilon",
]
