"""`PrivacyBudgetHandler`: the account that a chain must charge before it answers.

LangChain swallows what most callback methods raise, so no callback can *enforce*
anything. The budget is a callback handler because handlers reach every nested runnable
of an application; the enforcing is done by the private runnables themselves, which look
the handler up, call `admit`, and refuse to run where none is found.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from typing_extensions import Self

from langchain_dpicl import accounting, parameters
from langchain_dpicl.accounting import Event
from langchain_dpicl.budget.demand import Demand, Grant, read_parameters
from langchain_dpicl.budget.planning import is_affordable, plan_queries
from langchain_dpicl.exceptions import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import (
    AccountTerms,
    Ledger,
    Plan,
    open_ledger,
)
from langchain_dpicl.parameters import ParameterError


class BudgetState(float):
    """An amount of epsilon, which also says at which delta and for how many queries.

    It *is* the epsilon: compare it, format it, add it up as a number.

    Attributes:
        delta: The total failure probability at which this epsilon is stated.
        queries: The number of queries it stands for.

    Example:
        >>> state = BudgetState(1.5, delta=1e-6, queries=2)
        >>> state < 8, state.epsilon, state.queries
        (True, 1.5, 2)
    """

    delta: float
    queries: int

    def __new__(cls, epsilon: float, *, delta: float, queries: int) -> Self:
        """Make the amount."""
        self = super().__new__(cls, epsilon)
        self.delta = delta
        self.queries = queries
        return self

    def __reduce__(self) -> tuple[Callable[..., BudgetState], tuple[Any, ...]]:
        return (_budget_state, (float(self), self.delta, self.queries))

    @property
    def epsilon(self) -> float:
        """The amount as a plain float."""
        return float(self)

    def __repr__(self) -> str:
        return (
            f"BudgetState(epsilon={float(self):.6g}, delta={self.delta:g}, "
            f"queries={self.queries})"
        )


def _budget_state(epsilon: float, delta: float, queries: int) -> BudgetState:
    return BudgetState(epsilon, delta=delta, queries=queries)


class PrivacyBudgetHandler(BaseCallbackHandler):
    """A privacy account, handed to chains in `config={"callbacks": [...]}`.

    The account is opened when the handler is made; the same name in the same ledger is
    the same account, in every thread, process and run of the program. The noise of its
    queries is calibrated once, at the first query, and stored with it.

    Args:
        epsilon: Total privacy loss bound of the account.
        delta: Total failure probability; must stay below 1 / (number of units).
        ledger: Where charges are kept: a SQLAlchemy URL, a `Ledger`, or `":memory:"`.
        queries: How many releases the account pays for.
        account: The account's name in the ledger.

    Raises:
        InvalidParameterError: If a number is out of its range.
        PlanMismatchError: If the account is open with other terms.
        LedgerError: If the ledger can't be used.

    Privacy:
        Every query charges every unit of the corpus (a *whole-corpus account*), which
        is sound for any group source. The guarantee is (epsilon, delta) for all the
        account's releases together, under the group source's neighboring relation,
        against an adversary who chooses the questions adaptively: the events are fixed
        before the first use, only the questions vary. A charge is durable before any
        group call is made and before any noise is drawn; there are no refunds.

    Example:
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, ledger=":memory:", account="notes"
        ... )
        >>> budget.spent().queries, budget.remaining().queries
        (0, 20)
    """

    # A handler's own hooks never veto; if one is ever added, it must not be swallowed.
    raise_error = True
    run_inline = True

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        queries: int,
        ledger: str | Ledger,
        account: str = "default",
    ) -> None:
        super().__init__()
        try:
            self._terms = AccountTerms(
                name=account,
                epsilon=parameters.epsilon(epsilon),
                delta=parameters.delta(delta),
                queries=parameters.count(queries, "queries"),
            )
        except ParameterError as error:
            raise InvalidParameterError(str(error)) from None
        self._ledger = open_ledger(ledger)
        self._ledger.open(self._terms)
        self._plan: Plan | None = None
        # Demands that were found to fit the plan: the comparison is not free.
        self._fitting: set[tuple[Demand, str | None]] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        terms = self._terms
        return (
            f"PrivacyBudgetHandler(account={terms.name!r}, epsilon={terms.epsilon:g}, "
            f"delta={terms.delta:g}, queries={terms.queries}, ledger={self._ledger!r})"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        terms = self._terms
        return (
            _open_handler,
            (terms.epsilon, terms.delta, terms.queries, self._ledger, terms.name),
        )

    @property
    def account(self) -> str:
        """The account's name."""
        return self._terms.name

    @property
    def epsilon(self) -> float:
        """The account's total privacy loss bound."""
        return self._terms.epsilon

    @property
    def delta(self) -> float:
        """The account's total failure probability."""
        return self._terms.delta

    @property
    def queries(self) -> int:
        """How many releases the account pays for in all."""
        return self._terms.queries

    @property
    def ledger(self) -> Ledger:
        """The ledger that holds the account."""
        return self._ledger

    def admit(
        self,
        demand: Demand,
        *,
        unit_key: str | None = None,
        n_units: int | None = None,
    ) -> Grant:
        """Charge one release, durably, and return what it may do.

        Args:
            demand: The shape of the release.
            unit_key: The metadata key that names the protected unit; an account
                protects one kind of unit.
            n_units: Number of units in the corpus, to check delta against.

        Returns:
            The parameters that the release must use.

        Raises:
            InvalidParameterError: If delta is 1 / n_units or more.
            PlanMismatchError: If the account's plan is for another kind of release, or
                can't be made.
            BudgetExhaustedError: If all queries are spent.
            LedgerError: If the ledger can't be used or the account is closed.
        """
        terms = self._terms
        if n_units is not None and terms.delta * n_units >= 1:
            raise InvalidParameterError(
                f"delta {terms.delta:g} is too large for a corpus of {n_units} units: "
                "a mechanism that publishes one random person's records outright "
                f"would satisfy it. Open an account with delta below {1 / n_units:.2g}."
            )
        plan = self._plan_for(demand, unit_key)
        charge = self._ledger.charge(terms.name)
        multiplier, epsilon, delta0 = read_parameters(demand, charge.events)
        if charge.events != plan.events:
            raise PlanMismatchError(
                f"Account {terms.name!r} was charged for another release than the one "
                "planned; nothing was released."
            )
        return Grant(
            noise_multiplier=multiplier,
            epsilon=epsilon,
            delta0=delta0,
            events=charge.events,
            account=charge.account,
            sequence=charge.sequence,
        )

    async def aadmit(
        self,
        demand: Demand,
        *,
        unit_key: str | None = None,
        n_units: int | None = None,
    ) -> Grant:
        """Charge one release without blocking the event loop; see `admit`."""
        return await asyncio.to_thread(
            self.admit, demand, unit_key=unit_key, n_units=n_units
        )

    def spent(self) -> BudgetState:
        """Return the epsilon that all releases so far have cost, at the full delta.

        The figure is tight for what was charged (not the plan's share of it): after
        the last query it equals the account's epsilon up to the calibration's slack.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        state = self._ledger.state(self._terms.name)
        return self._spent(state.plan.events if state.plan else (), state.used)

    def remaining(self) -> BudgetState:
        """Return the epsilon and the queries that are left.

        Epsilon does not add up: the difference is what is left of the total, not the
        cost of the remaining queries alone.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        spent = self.spent()
        return BudgetState(
            max(self._terms.epsilon - spent, 0.0),
            delta=self._terms.delta,
            queries=self._terms.queries - spent.queries,
        )

    def can_afford(self, event: Demand | Event | Sequence[Event] | None = None) -> bool:
        """Return whether the account would pay for one more release; charge nothing.

        Args:
            event: The release: a parser's demand, an event or several. None asks only
                whether a query is left.

        Returns:
            True if `admit` would charge it now.
        """
        state = self._ledger.state(self._terms.name)
        if state.closed or state.used >= self._terms.queries:
            return False
        if event is None:
            return True
        if isinstance(event, Demand):
            return self._fits(event, state.plan)
        events = tuple(event) if isinstance(event, Sequence) else (event,)
        if state.plan is not None:
            return events == state.plan.events
        return is_affordable(
            events,
            epsilon=self._terms.epsilon,
            delta=self._terms.delta,
            queries=self._terms.queries,
        )

    def public_state(self, grant: Grant | None = None) -> dict[str, Any]:
        """Return the account's state for an answer's public record.

        Args:
            grant: The state right after this charge; None is the state now. Of several
                queries at once each reports its own.
        """
        if grant is None:
            spent = self.spent()
        else:
            spent = self._spent(grant.events, grant.sequence)
        return {
            "name": self._terms.name,
            "epsilon": self._terms.epsilon,
            "delta": self._terms.delta,
            "epsilon_spent": spent.epsilon,
            "queries": self._terms.queries,
            "queries_spent": spent.queries,
        }

    def _spent(self, events: tuple[Event, ...], used: int) -> BudgetState:
        epsilon = accounting.spent(events, used, self._terms.delta)
        return BudgetState(epsilon, delta=self._terms.delta, queries=used)

    def _plan_for(self, demand: Demand, unit_key: str | None) -> Plan:
        with self._lock:
            if self._plan is not None and (demand, unit_key) in self._fitting:
                return self._plan
            if self._plan is None:
                self._plan = self._ledger.state(self._terms.name).plan
            if self._plan is None:
                self._plan = self._ledger.fix_plan(
                    self._terms.name,
                    Plan(
                        demand={**demand.to_dict(), "unit_key": unit_key},
                        events=self._plan_events(demand),
                    ),
                )
            plan = self._plan
        if not _same_release(plan.demand, demand.to_dict()):
            raise PlanMismatchError(
                f"Account {self.account!r} is planned for another kind of release than "
                f"this {demand.mechanism} release: every one of its queries spends "
                f"{_describe(plan.events)}. Use a parser that asks for the same, or "
                "open an account of its own for this one."
            )
        if unit_key != plan.demand.get("unit_key"):
            raise PlanMismatchError(
                f"Account {self.account!r} protects units named by "
                f"{plan.demand['unit_key']!r}, this source names them by {unit_key!r}. "
                "Open an account of its own for the other kind of unit."
            )
        with self._lock:
            self._fitting.add((demand, unit_key))
        return plan

    def _fits(self, demand: Demand, plan: Plan | None) -> bool:
        if plan is not None:
            return _same_release(plan.demand, demand.to_dict())
        try:
            self._plan_events(demand)
        except PlanMismatchError:
            return False
        return True

    def _plan_events(self, demand: Demand) -> tuple[Event, ...]:
        return plan_queries(
            demand,
            epsilon=self._terms.epsilon,
            delta=self._terms.delta,
            queries=self._terms.queries,
        )


def _open_handler(
    epsilon: float, delta: float, queries: int, ledger: Ledger, account: str
) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=epsilon, delta=delta, queries=queries, ledger=ledger, account=account
    )


def _same_release(planned: dict[str, Any], asked: dict[str, Any]) -> bool:
    return {key: planned.get(key) for key in asked} == asked


def _describe(events: tuple[Event, ...]) -> str:
    return " and ".join(str(event) for event in events)
