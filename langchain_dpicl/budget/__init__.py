"""The account that pays for releases: the budget handler, and what it can be asked."""

from langchain_dpicl.budget.charge import PaidCharge
from langchain_dpicl.budget.forecast import Cost, Forecast, forecast
from langchain_dpicl.budget.handler import PrivacyBudgetHandler
from langchain_dpicl.budget.lookup import check_budget, find_budget
from langchain_dpicl.budget.planning import plan_queries
from langchain_dpicl.budget.state import BudgetState

__all__ = [
    "BudgetState",
    "Cost",
    "Forecast",
    "PaidCharge",
    "PrivacyBudgetHandler",
    "check_budget",
    "find_budget",
    "forecast",
    "plan_queries",
]
