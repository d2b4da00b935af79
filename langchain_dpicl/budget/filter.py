"""An account with a filter: each release is charged for what it is, as the run goes."""

from __future__ import annotations

from typing import Any

from langchain_dpicl.accounting import BUDGET_UNITS, Cost, Event, PrivacyFilter
from langchain_dpicl.accounting.template import Template
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.pricing import price_release
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import AccountState, AccountTerms, Ledger, Plan
from langchain_dpicl.ledger.charging import charged, fits


class AccountFilter(Account):
    """Pays for any releases whose costs add up to its limit; see `Account`."""

    fixes_classes = False

    def __init__(
        self,
        terms: AccountTerms,
        queries: int | None,
        ledger: Ledger,
        limit: PrivacyFilter,
    ) -> None:
        super().__init__(terms, queries, ledger)
        self._filter = limit

    def price(self, template: Template[Any]) -> tuple[Event, ...]:
        """Return what a release would be charged; see `price_release`."""
        return price_release(template, self._filter, self.queries)

    def require_filter(self, what: str) -> None:
        """Refuse nothing: releases of any kind are added up."""

    def _first(self, template: Template[Any], unit_key: str | None) -> Plan:
        # A release that can't be priced must not bind the account to its unit key.
        self.price(template)
        return Plan(template={"unit_key": unit_key}, events=())

    def _events(self, template: Template[Any], stored: Plan) -> tuple[Event, ...]:  # noqa: ARG002  # nothing but the unit key is fixed
        return self.price(template)

    def _require_payment(self, state: AccountState, template: Template[Any]) -> None:
        charged(state, self.price(template))

    def _pays(
        self, state: AccountState, asked: Template[Any] | tuple[Event, ...] | None
    ) -> bool:
        # What a unit has left is private: the account pays for what a full balance
        # could.
        spent = state.spent if self.terms.scope == "corpus" else Cost(0, 0)
        if asked is None:
            return spent.loss < self._filter.limit.loss
        try:
            events = self.price(asked) if isinstance(asked, Template) else asked
            cost = self._filter.cost(events)
        except (InvalidParameterError, PlanMismatchError):
            return False
        total = Cost(spent.loss + cost.loss, spent.failure + cost.failure)
        return fits(total, self._filter.limit)

    def _epsilon(self, events: tuple[Event, ...], used: int, total: Cost) -> float:  # noqa: ARG002  # the sum of the costs says it all
        limit = self._filter.limit
        within = Cost(min(total.loss, limit.loss), min(total.failure, limit.failure))
        return min(self._filter.epsilon_spent(within), self.terms.epsilon)

    def _queries_left(self, state: AccountState, queries: int) -> int:
        left = BUDGET_UNITS - state.spent.loss
        if self._filter.delta0_share:
            left = min(left, BUDGET_UNITS - state.spent.failure)
        # At least one step each: `terms` allows no more queries than there are steps.
        return left // (BUDGET_UNITS // queries)
