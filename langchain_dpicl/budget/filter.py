"""An account with a filter: each release is charged for what it is, as the run goes."""

from __future__ import annotations

import functools

from langchain_dpicl.accounting import UNITS, Charge, Cost, Event, Filter
from langchain_dpicl.accounting.events import HOLES, is_open
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.charge import require_charge
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
        limit: Filter,
    ) -> None:
        super().__init__(terms, queries, ledger)
        self._filter = limit

    def price(self, charge: Charge) -> tuple[Event, ...]:
        """Return what a release would be charged; see `price_release`."""
        return price_release(charge, self._filter, self.queries)

    def require_filter(self, what: str) -> None:
        """Refuse nothing: releases of any kind are added up."""

    def _first(self, charge: Charge, unit_key: str | None) -> Plan:
        # A release that can't be priced must not bind the account to its unit key.
        self.price(charge)
        return Plan(template={"unit_key": unit_key}, events=())

    def _events(self, charge: Charge, stored: Plan) -> tuple[Event, ...]:  # noqa: ARG002  # nothing but the unit key is fixed
        return self.price(charge)

    def _require_payment(self, state: AccountState, charge: Charge) -> None:
        charged(state, self.price(charge))

    def _pays(
        self, state: AccountState, asked: Charge | tuple[Event, ...] | None
    ) -> bool:
        # What a unit has left is private: the account pays for what a full balance
        # could.
        spent = state.spent if self.terms.scope == "corpus" else Cost(0, 0)
        if asked is None:
            return spent.loss < UNITS
        try:
            events = self.price(asked) if isinstance(asked, Charge) else asked
            cost = self._filter.cost(events)
        except (InvalidParameterError, PlanMismatchError):
            return False
        total = Cost(spent.loss + cost.loss, spent.failure + cost.failure)
        return fits(total, self.terms.limit)

    def _epsilon(self, events: tuple[Event, ...], used: int, total: Cost) -> float:  # noqa: ARG002  # the sum of the costs says it all
        limit = self.terms.limit
        within = Cost(min(total.loss, limit.loss), min(total.failure, limit.failure))
        return min(self._filter.epsilon_spent(within), self.terms.epsilon)

    def _queries_left(self, state: AccountState, queries: int) -> int:
        left = UNITS - state.spent.loss
        if self._filter.failure_share:
            left = min(left, UNITS - state.spent.failure)
        # At least one step each: `terms` allows no more queries than there are steps.
        return left // (UNITS // queries)


@functools.lru_cache(maxsize=1024)
def price_release(
    charge: Charge, budget: Filter, queries: int | None
) -> tuple[Event, ...]:
    """Return what one release is charged in an account without a plan.

    What the user fixed is taken as it is. What is left open gets the least noise with
    which `queries` such releases use up the budget. It depends on public numbers alone,
    and a filter allows it to depend on anything that was released.

    Raises:
        InvalidParameterError: If noise is left open and `queries` is None.
        PlanMismatchError: If no noise is enough.

    Example:
        >>> from langchain_dpicl.accounting import best_order
        >>> from langchain_dpicl.mechanisms import voting
        >>> account = Filter(epsilon=8, delta=1e-6, order=best_order(8, 5e-7))
        >>> price_release(voting.charge(noise_multiplier=3.0), account, None)
        (Gaussian(noise_multiplier=3.0),)
    """
    require_charge(charge)
    if charge.is_open and queries is None:
        names = sorted({f"{HOLES[kind]}=" for kind in _open_kinds(charge)})
        raise InvalidParameterError(
            f"The account has no plan, and this {charge.name} release leaves "
            f"its noise open. Say how much there is ({', '.join(names)}), or give "
            "the budget queries=: how many such releases it should last for."
        )
    try:
        return budget.fill(charge, queries or 1)
    except InvalidParameterError as error:
        raise PlanMismatchError(
            f"The account can't pay for a {charge.name} release: {error}"
        ) from None


def _open_kinds(charge: Charge) -> set[str]:
    branches = (getattr(part, "branches", ((part,),)) for part in charge.parts)
    plain = (event for part in branches for branch in part for event in branch)
    return {event.kind for event in plain if is_open(event)}
