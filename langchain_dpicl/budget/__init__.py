"""The account that pays for releases: the budget handler, and what it can be asked."""

from langchain_dpicl.budget.buying import Paid, Purchase, taken_or_payable
from langchain_dpicl.budget.forecast import Forecast, forecast
from langchain_dpicl.budget.handler import (
    BudgetState,
    PrivacyBudgetHandler,
    check_budget,
    find_budget,
    require_account,
)
from langchain_dpicl.budget.stored import (
    Stored,
    charges,
    forget,
    last,
    place_of,
    plan_of,
)

__all__ = [
    "BudgetState",
    "Forecast",
    "Paid",
    "PrivacyBudgetHandler",
    "Purchase",
    "Stored",
    "charges",
    "check_budget",
    "find_budget",
    "forecast",
    "forget",
    "last",
    "place_of",
    "plan_of",
    "require_account",
    "taken_or_payable",
]
