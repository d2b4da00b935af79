"""An account with a plan: so many equal releases, whose events are calibrated once."""

from __future__ import annotations

from typing import Any

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Charge, Cost, Event, merge
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.planning import is_affordable, plan_queries
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import AccountState, AccountTerms, Ledger, Plan
from langchain_dpicl.ledger.charging import charged


class AccountPlan(Account):
    """Pays for `queries` releases of one kind; see `Account` for the arguments."""

    def __init__(self, terms: AccountTerms, queries: int, ledger: Ledger) -> None:
        super().__init__(terms, queries, ledger)
        self.fixes_classes = queries > 1
        self._n = queries
        self._calibrated: dict[Charge, tuple[Event, ...]] = {}

    def price(self, charge: Charge) -> tuple[Event, ...]:
        """Return what a release would be charged: by the stored plan, if there is one.

        Raises:
            PlanMismatchError: If it does not fit the plan, or none can be made.
            InvalidParameterError: If an argument is out of its range.
            LedgerError: If the ledger can't be read.
        """
        stored = self._state().plan
        if stored is None:
            return self._planned(charge)
        return self._events(charge, stored)

    def require_filter(self, what: str) -> None:
        """Refuse what charges releases of more than one kind.

        Raises:
            InvalidParameterError: Always.
        """
        raise InvalidParameterError(
            f"{what} charges releases of more than one kind, and account "
            f"{self.terms.name!r} has a plan of equal ones. Open an account with "
            "accounting='renyi' besides queries=."
        )

    def _first(self, charge: Charge, unit_key: str | None) -> Plan:
        events = self._planned(charge)
        asked = {**_terms(charge), "unit_key": unit_key}
        return Plan(template=asked, events=events)

    def _events(self, charge: Charge, stored: Plan) -> tuple[Event, ...]:
        if not _is_planned(charge, stored):
            events = f"{' and '.join(str(event) for event in stored.events):.200}"
            raise PlanMismatchError(
                f"Account {self.terms.name!r} is planned for another kind of release "
                f"than this {charge.name} release: each of its queries spends "
                f"{events}. Ask for the same release, or open an account of "
                "its own for this one (accounting='renyi' opens one that takes any "
                "release)."
            )
        return stored.events

    def _require_payment(self, state: AccountState, charge: Charge) -> None:  # noqa: ARG002  # every release of a plan costs the same
        if state.plan is not None:
            charged(state, None)

    def _pays(
        self, state: AccountState, asked: Charge | tuple[Event, ...] | None
    ) -> bool:
        if self.terms.scope == "corpus" and state.used >= self._n:
            return False
        if asked is None:
            return True
        if isinstance(asked, Charge):
            if state.plan is not None:
                return _is_planned(asked, state.plan)
            return self._can_plan(asked)
        if state.plan is not None:
            return asked == state.plan.events
        return is_affordable(
            asked, epsilon=self.terms.epsilon, delta=self.terms.delta, queries=self._n
        )

    def _epsilon(self, events: tuple[Event, ...], used: int, total: Cost) -> float:  # noqa: ARG002  # uses are what a plan counts
        uses = min(used, self._n)
        return accounting.compose(merge(events, uses) if uses else (), self.terms.delta)

    def _queries_left(self, state: AccountState, queries: int) -> int:
        return queries - state.used

    def _can_plan(self, charge: Charge) -> bool:
        try:
            self._planned(charge)
        except (InvalidParameterError, PlanMismatchError):
            return False
        return True

    def _planned(self, charge: Charge) -> tuple[Event, ...]:
        # Calibrated once, for a caller that asks the price first and then pays.
        found = self._calibrated.get(charge)
        if found is None:
            found = self._calibrated[charge] = plan_queries(
                charge,
                epsilon=self.terms.epsilon,
                delta=self.terms.delta,
                queries=self._n,
            )
        return found


def _is_planned(charge: Charge, stored: Plan) -> bool:
    known = {key: value for key, value in stored.template.items() if key != "unit_key"}
    return known == _terms(charge)


def _terms(charge: Charge) -> dict[str, Any]:
    """Return a charge as JSON-able values: two of the same terms share a plan."""
    return charge.model_dump(mode="json", exclude={"name"})
