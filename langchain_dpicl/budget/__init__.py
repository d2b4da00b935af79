"""Who pays for a release: the budget handler, and what a release may ask of it."""

from langchain_dpicl.budget.bundle import AnyDemand, Bundle
from langchain_dpicl.budget.demand import (
    Demand,
    ExponentialPart,
    GaussianPart,
    Grant,
    Granted,
    PurePart,
)
from langchain_dpicl.budget.forecast import Forecast, forecast
from langchain_dpicl.budget.handler import PrivacyBudgetHandler
from langchain_dpicl.budget.lookup import find_budget
from langchain_dpicl.budget.planning import plan_queries
from langchain_dpicl.budget.state import BudgetState

__all__ = [
    "AnyDemand",
    "BudgetState",
    "Bundle",
    "Demand",
    "ExponentialPart",
    "Forecast",
    "GaussianPart",
    "Grant",
    "Granted",
    "PrivacyBudgetHandler",
    "PurePart",
    "find_budget",
    "forecast",
    "plan_queries",
]
