"""What the queries of an account have in common, from its first one on."""

from __future__ import annotations

import threading

from langchain_dpicl.accounting import Event
from langchain_dpicl.budget.bundle import AnyDemand, require_demand
from langchain_dpicl.budget.planning import plan_queries
from langchain_dpicl.budget.pricing import price_release
from langchain_dpicl.budget.report import is_planned
from langchain_dpicl.exceptions import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import AccountTerms, Ledger, Plan


class Commitment:
    """An account's plan: made by the first query, kept by the ledger, held to since.

    Under a plan it is the calibrated events and the kind of unit; under a filter the
    kind of unit alone.

    Args:
        terms: The account.
        queries: How many queries its budget is shared into.
        ledger: Where the plan is kept.
    """

    def __init__(
        self, terms: AccountTerms, queries: int | None, ledger: Ledger
    ) -> None:
        self._terms = terms
        self._queries = queries
        self._ledger = ledger
        self._plan: Plan | None = None
        # Demands that were found to fit the plan: the comparison is not free.
        self._fitting: set[tuple[AnyDemand, str | None]] = set()
        self._calibrated: dict[AnyDemand, tuple[Event, ...]] = {}
        self._lock = threading.Lock()

    def plan_for(self, demand: AnyDemand, unit_key: str | None) -> Plan:
        """Return the plan, which a first query makes, if a release fits it.

        Raises:
            PlanMismatchError: If it does not fit, or no plan can be made for it.
            InvalidParameterError: If noise is left open that nothing determines.
            LedgerError: If the ledger can't be used.
        """
        name = self._terms.name
        with self._lock:
            if self._plan is not None and (demand, unit_key) in self._fitting:
                return self._plan
            if self._plan is None:
                self._plan = self._ledger.state(name).plan
            if self._plan is None:
                self._plan = self._ledger.fix_plan(name, self._first(demand, unit_key))
            plan = self._plan
        if self._terms.filter is None and not is_planned(demand, plan):
            raise self._misplanned(demand, plan)
        if unit_key != plan.demand.get("unit_key"):
            raise PlanMismatchError(
                f"Account {name!r} protects {_units(plan.demand['unit_key'])}, and "
                f"this release {_units(unit_key)}. Open an account of its own for the "
                "other kind of unit."
            )
        with self._lock:
            self._fitting.add((demand, unit_key))
        return plan

    def price(self, demand: AnyDemand) -> tuple[Event, ...]:
        """Return what a release would be charged: by the plan, if there is one.

        Raises:
            PlanMismatchError: If it does not fit the plan, or none can be made.
            InvalidParameterError: If noise is left open that nothing determines.
            LedgerError: If the ledger can't be read.
        """
        require_demand(demand)
        if self._terms.filter is not None:
            return price_release(demand, self._terms.filter, self._queries)
        plan = self._ledger.state(self._terms.name).plan
        if plan is None:
            return self._events(demand)
        if not is_planned(demand, plan):
            raise self._misplanned(demand, plan)
        return plan.events

    def can_plan(self, demand: AnyDemand) -> bool:
        """Return whether a first query of this shape could make a plan."""
        try:
            self._first(demand, None)
        except (InvalidParameterError, PlanMismatchError):
            return False
        return True

    def _first(self, demand: AnyDemand, unit_key: str | None) -> Plan:
        if self._terms.filter is None:
            asked = {**demand.to_dict(), "unit_key": unit_key}
            return Plan(demand=asked, events=self._events(demand))
        # A demand that can't be priced must not bind the account to its unit key.
        price_release(demand, self._terms.filter, self._queries)
        return Plan(demand={"unit_key": unit_key}, events=())

    def _events(self, demand: AnyDemand) -> tuple[Event, ...]:
        # Calibrated once, for whoever asks the price first and then pays.
        found = self._calibrated.get(demand)
        if found is None:
            found = self._calibrated[demand] = plan_queries(
                demand,
                epsilon=self._terms.epsilon,
                delta=self._terms.delta,
                queries=self._terms.queries or 1,
            )
        return found

    def _misplanned(self, demand: AnyDemand, plan: Plan) -> PlanMismatchError:
        events = f"{' and '.join(str(event) for event in plan.events):.200}"
        return PlanMismatchError(
            f"Account {self._terms.name!r} is planned for another kind of release than "
            f"this {demand.mechanism} release: each of its queries spends {events}. "
            "Use a parser that asks for the same, or open an account of its own "
            "for this one (accounting='zcdp' opens one that takes any release)."
        )


def _units(unit_key: object) -> str:
    if unit_key is None:
        return "each record by itself"
    return f"units named by {unit_key!r}"
