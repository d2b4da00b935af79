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
    """Return the one budget handler that a release must charge.

    Args:
        budget: The runnable's own `budget=`, or None.
        callbacks: A run manager, a callback manager, a list of handlers, or None.

    Returns:
        The handler.

    Raises:
        NoBudgetError: If there is none, or there are several different accounts:
            which one is meant must not be guessed.

    Example:
        >>> handler = PrivacyBudgetHandler(
        ...     epsilon=1, delta=1e-6, queries=5, ledger=":memory:"
        ... )
        >>> find_budget(None, [handler]) is handler
        True
    """
    found: list[PrivacyBudgetHandler] = [] if budget is None else [budget]
    for handler in _handlers(callbacks):
        if isinstance(handler, PrivacyBudgetHandler) and handler not in found:
            found.append(handler)
    if not found:
        raise NoBudgetError(
            "No privacy budget: nothing was asked of the model and nothing was "
            "released. Pass config={'callbacks': [PrivacyBudgetHandler(...)]}, bind it "
            "with .with_config(callbacks=[...]), or give the runnable budget=."
        )
    if len(found) > 1:
        names = ", ".join(repr(one.account) for one in found)
        raise NoBudgetError(
            f"{len(found)} privacy budgets apply to this run ({names}); a release "
            "charges exactly one. Pass only one of them."
        )
    return found[0]


def _handlers(callbacks: Any) -> Iterable[Any]:
    if callbacks is None:
        return ()
    if isinstance(callbacks, BaseCallbackManager):
        return (*callbacks.handlers, *callbacks.inheritable_handlers)
    handlers = getattr(callbacks, "handlers", None)
    if handlers is not None:
        return (*handlers, *getattr(callbacks, "inheritable_handlers", ()))
    return tuple(callbacks)
