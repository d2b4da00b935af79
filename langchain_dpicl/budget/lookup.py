"""Finding the budget: in the runnable's own field, or among the run's handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.callbacks import BaseCallbackManager

from langchain_dpicl.budget.handler import PrivacyBudgetHandler
from langchain_dpicl.errors import InvalidParameterError, NoBudgetError


def check_budget(budget: Any) -> None:
    """Refuse as `budget=` what is no budget handler; None is allowed.

    Raises:
        InvalidParameterError: If it is something else.
    """
    if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
        raise InvalidParameterError(
            "budget must be a PrivacyBudgetHandler, or None where the run's config "
            f"names one, not {type(budget).__name__}."
        )


def find_budget(
    budget: PrivacyBudgetHandler | None, callbacks: Any = None
) -> PrivacyBudgetHandler:
    """Return the budget handler that a release must charge.

    Args:
        budget: The runnable's own `budget=`, or None.
        callbacks: A run manager, a callback manager, a list of handlers, or None.

    Raises:
        NoBudgetError: If there is none, or there are several different accounts:
            which of them is meant must not be guessed.

    Example:
        >>> handler = PrivacyBudgetHandler(
        ...     epsilon=1, delta=1e-6, queries=5, ledger=":memory:"
        ... )
        >>> find_budget(None, [handler]) is handler
        True
    """
    budgets = [] if budget is None else [budget]
    for handler in _handlers(callbacks):
        if isinstance(handler, PrivacyBudgetHandler) and handler not in budgets:
            budgets.append(handler)
    if not budgets:
        raise NoBudgetError(
            "No privacy budget: nothing was asked of the model and nothing was "
            "released. Pass config={'callbacks': [PrivacyBudgetHandler(...)]}, bind it "
            "with .with_config(callbacks=[...]), or give the runnable budget=."
        )
    if len(budgets) > 1:
        names = ", ".join(repr(handler.account) for handler in budgets)
        raise NoBudgetError(
            f"{len(budgets)} privacy budgets apply to this run ({names}); a release "
            "charges exactly one. Pass only one of them."
        )
    return budgets[0]


def require_account(
    budget: PrivacyBudgetHandler | None, payer: str
) -> PrivacyBudgetHandler:
    """Return the account of a release of all units, refusing one that charges each.

    Args:
        budget: The account, or None.
        payer: What has it, such as "table".

    Raises:
        NoBudgetError: If there is none.
        InvalidParameterError: If it charges units one by one.
    """
    if budget is None:
        raise NoBudgetError(
            "No privacy budget: nothing was read and nothing was released. Give the "
            f"{payer} budget=PrivacyBudgetHandler(...)."
        )
    if budget.scope == "unit":
        raise InvalidParameterError(
            f"Account {budget.account!r} charges units one by one, and the release of "
            f"a {payer} is charged to all of them. Use an account with scope='corpus'."
        )
    return budget


def _handlers(callbacks: Any) -> Iterable[Any]:
    if callbacks is None:
        return ()
    if isinstance(callbacks, BaseCallbackManager) or hasattr(callbacks, "handlers"):
        return (*callbacks.handlers, *getattr(callbacks, "inheritable_handlers", ()))
    return tuple(callbacks)
