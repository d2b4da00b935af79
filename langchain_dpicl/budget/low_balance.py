"""Telling the operator, once, that an account is nearly spent."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger.base import share_left

if TYPE_CHECKING:
    from langchain_dpicl.budget.charge import PaidCharge
    from langchain_dpicl.budget.handler import PrivacyBudgetHandler
    from langchain_dpicl.ledger import AccountTerms

OnLow: TypeAlias = "tuple[float, Callable[[PrivacyBudgetHandler], object]]"
"""The share of the budget below which a function is called, and the function."""


class LowBalance:
    """Calls a function of the operator's when the share that is left is low, once.

    Raises:
        InvalidParameterError: If `on_low` is no share between 0 and 1 with a function.
    """

    def __init__(self, on_low: OnLow) -> None:
        if not isinstance(on_low, tuple) or len(on_low) != 2 or not callable(on_low[1]):  # noqa: PLR2004 - a pair
            raise InvalidParameterError(
                "on_low must be a share and a function, such as (0.2, tell_the_admin)."
            )
        self.on_low = on_low
        self._share = parameters.positive("on_low", on_low[0])
        self._lock = threading.Lock()
        self._is_told = False

    def look(
        self, budget: PrivacyBudgetHandler, terms: AccountTerms, paid: PaidCharge[Any]
    ) -> None:
        """Call the function if a charge has left less; its errors are warnings.

        The charge stands, and its answer must not be lost because nobody could be told.
        """
        with self._lock:
            if self._is_told or share_left(terms, paid.spent) >= self._share:
                return
            self._is_told = True
        try:
            self.on_low[1](budget)
        except Exception as error:  # noqa: BLE001 - whatever an operator's function does
            warnings.warn(
                f"on_low of account {terms.name!r} failed with a "
                f"{type(error).__name__}; the charge stands.",
                stacklevel=2,
            )
