"""Privacy accounting: events, their composition, and calibration of a plan.

Numbers only: nothing here knows LangChain or the mechanisms, and only NumPy is imported
before something is computed.

Example:
    >>> from langchain_dpicl import accounting
    >>> z = accounting.noise_multiplier(epsilon=8, delta=1e-6, uses=20)
    >>> event = accounting.Gaussian(z, count=20)
    >>> accounting.compose([event], delta=1e-6) <= 8
    True
"""

from langchain_dpicl.accounting.calibration import calibrate, noise_multiplier
from langchain_dpicl.accounting.composition import compose, epsilon, spent
from langchain_dpicl.accounting.crosscheck import CrossCheck, cross_check
from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    PlainEvent,
    Pure,
    ZCDPEvent,
    merge,
    repeat,
    total_delta0,
)
from langchain_dpicl.accounting.filters import (
    BUDGET_UNITS,
    Cost,
    PrivacyFilter,
)
from langchain_dpicl.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gdp_mu,
)
from langchain_dpicl.accounting.parts import (
    ExponentialPart,
    GaussianPart,
    PurePart,
)
from langchain_dpicl.accounting.renyi import rho, zcdp_epsilon
from langchain_dpicl.accounting.sampling import sampled_epsilon, unsampled_epsilon
from langchain_dpicl.accounting.stored import event_from_dict, event_to_dict
from langchain_dpicl.accounting.template import EventTemplate, Template

__all__ = [
    "BUDGET_UNITS",
    "Cost",
    "CrossCheck",
    "Event",
    "EventTemplate",
    "Exponential",
    "ExponentialPart",
    "Failure",
    "Gaussian",
    "GaussianPart",
    "Parallel",
    "PlainEvent",
    "PrivacyFilter",
    "Pure",
    "PurePart",
    "Template",
    "ZCDPEvent",
    "calibrate",
    "compose",
    "cross_check",
    "epsilon",
    "event_from_dict",
    "event_to_dict",
    "gaussian_delta",
    "gaussian_epsilon",
    "gdp_mu",
    "merge",
    "noise_multiplier",
    "repeat",
    "rho",
    "sampled_epsilon",
    "spent",
    "total_delta0",
    "unsampled_epsilon",
    "zcdp_epsilon",
]
