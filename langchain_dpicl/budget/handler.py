"""`PrivacyBudgetHandler`: the account that a chain must charge before it answers.

LangChain swallows what most callback methods raise, so no callback can *enforce*
anything. The budget is a callback handler because handlers reach every nested runnable
of an application. The enforcing is done by the private runnables themselves: they look
the handler up, call `buy`, and refuse to run where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from typing_extensions import override

from langchain_dpicl.accounting import UNITS, Charge, Cost, Event, best_order
from langchain_dpicl.budget.buying import Paid, Purchase
from langchain_dpicl.budget.pricing import (
    check_delta,
    epsilon_spent,
    planned,
    priced,
    require_charge,
    require_payable,
    require_planned,
)
from langchain_dpicl.budget.stored import Stored, forget, plan_of
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    NoBudgetError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import (
    AccountTerms,
    CorpusTerms,
    Ledger,
    Plan,
    open_ledger,
)
from langchain_dpicl.public import Frozen

DELTA0_SHARE = 0.2
"""The part of a filter's delta set aside for failure probabilities.

Unlike a plan, a filter does not know which releases will come. Setting aside a fifth
costs those without a delta0 one percent of epsilon, and those with one a threshold that
is three percent further out than that of half of delta.
"""


@dataclass(frozen=True)
class BudgetState:
    """How much of an account is spent, or left.

    Attributes:
        epsilon: A privacy loss bound.
        delta: The total failure probability at which it is stated.
        queries: How many queries it stands for; None where that is not fixed.

    Example:
        >>> BudgetState(epsilon=1.5, delta=1e-6, queries=2).epsilon
        1.5
    """

    epsilon: float
    delta: float
    queries: int | None


class PrivacyBudgetHandler(Frozen, BaseCallbackHandler):
    """A privacy account, handed to chains in `config={"callbacks": [...]}`.

    The account is opened when the handler is made. The same name in the same ledger is
    the same account, in every thread, process and run of the program.

    With `queries=` alone the account has a *plan*: that many equal releases, whose
    noise is calibrated once, at the first query, and stored with the account. It is the
    least noise there is for so many queries. With `accounting="renyi"` it has a
    *filter*: each release is charged for what it is, parsers with different noise share
    the account, and the noise may be chosen as the run goes.

    Args:
        epsilon: Total privacy loss bound of the account.
        delta: Total failure probability; keep it well below 1 / (number of people).
        ledger: Where charges are kept: a SQLAlchemy URL, a `Ledger`, or `":memory:"`.
        queries: How many releases the account pays for. With `accounting=` it is no
            limit, but says how noise that a parser leaves open is chosen: so many such
            releases would use up the account.
        accounting: `renyi`: a filter at one order, which adds up any releases.
        scope: `corpus`: every query charges everybody. `unit`: each unit has a balance
            of its own, a query charges the units that take part, and those that can't
            pay take no part; this needs retrieval by a score threshold. The account
            then never ends.
        account: The account's name in the ledger. By default that of the corpus and
            the period, as in `clinic/2026-12`; without a corpus `default`.
        delta0_share: With `accounting=`, the part of delta set aside for releases that
            may fail (KSA-PTR, threshold release).
        order: With `accounting=`, the filter's order; None is the best one for many
            Gaussian releases.
        create: Whether to make a ledger where the URL names none. Services say False,
            so that none begins anew because its ledger was lost; `dpicl ledger create`
            makes the ledger once.
        require_synchronous: For a PostgreSQL URL, whether to refuse a server that waits
            for no standby.
        corpus: The corpus whose people the account protects, by name; or its
            `ledger.CorpusTerms`, which create it with its cap if it is not there. All
            of its accounts that count together stay within that cap.
        period: When the account pays: `2026`, `2026-12`, a day, or
            `2026-12-01/2026-12-15`, in UTC. None is without an end.
        purpose: What the answers are for, kept with the account's terms.
        people_at_most: A public number: the account's corpus will never hold more
            people (units) than that. Delta is compared with it, here and nowhere else:
            it is no term of the account, and is never compared with the records.
            Without it a delta above 1e-5 is warned of.

    Raises:
        InvalidParameterError: If an argument is out of its range, neither `queries`
            nor `accounting` is given, or delta is 1 / people_at_most or more.
        PlanMismatchError: If the account is open, or the corpus is there, with other
            terms.
        BudgetExhaustedError: If the corpus's cap has no room for a new account.
        LedgerError: If the ledger can't be used or trusted, there is none and `create`
            is False, or it waits for no standby and `require_synchronous` asks for it.

    Privacy:
        The guarantee is (epsilon, delta) for all the account's releases together, under
        the group source's neighboring relation, against an adversary who chooses the
        questions adaptively. Under a plan the events are fixed before the first use
        and only the questions vary. Under a filter the events may depend on every
        answer before (`accounting.Filter`). With `scope="corpus"` a query charges every
        unit, which is sound for any group source. With `scope="unit"` the guarantee is
        (epsilon, delta) for each unit, for any number of queries: whether a unit takes
        part depends on its own records, the public question and threshold, and its own
        balance, and on nothing else (Feldman and Zrnic, 2021). A charge is durable
        before any group call is made and before any noise is drawn; there are no
        refunds.

    Example:
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, ledger=":memory:", account="notes"
        ... )
        >>> budget.spent().queries, budget.remaining().queries
        (0, 20)
        >>> from langchain_dpicl.mechanisms import voting
        >>> vote = voting.charge(noise_multiplier=3)
        >>> with budget.buy(vote, key="a question") as paid:
        ...     paid.once(lambda: [41, 7])
        [41, 7]
        >>> budget.buy(vote, key="a question").once(lambda: [0, 0])
        [41, 7]
        >>> budget.spent().queries
        1
    """

    # A handler's own hooks never veto; if one is ever added, it must not be swallowed.
    raise_error = True
    run_inline = True

    @property
    def ignore_custom_event(self) -> bool:
        """Whether custom events pass by: a query's steps are its own doing."""
        return True

    def __init__(  # noqa: PLR0913  # the account's terms, one by one
        self,
        *,
        epsilon: float,
        delta: float,
        ledger: str | Ledger,
        queries: int | None = None,
        accounting: Literal["renyi"] | None = None,
        scope: Literal["corpus", "unit"] = "corpus",
        account: str | None = None,
        delta0_share: float | None = None,
        order: float | None = None,
        create: bool = True,
        require_synchronous: bool = False,
        corpus: str | CorpusTerms | None = None,
        period: str | None = None,
        purpose: str | None = None,
        people_at_most: int | None = None,
    ) -> None:
        super().__init__()
        cap = corpus if isinstance(corpus, CorpusTerms) else None
        name = corpus.name if isinstance(corpus, CorpusTerms) else corpus
        epsilon, delta = parameters.epsilon(epsilon), parameters.delta(delta)
        if queries is not None and parameters.count(queries, "queries") > UNITS:
            raise InvalidParameterError(f"queries must be at most {UNITS}.")
        check_delta(delta, people_at_most)
        terms = AccountTerms(
            name=account or "/".join(filter(None, [name, period])) or "default",
            epsilon=epsilon,
            delta=delta,
            queries=queries if accounting is None else None,
            **_filter_terms(accounting, queries, epsilon, delta, delta0_share, order),
            scope=scope,
            corpus=name,
            period=period,
            purpose=purpose,
        )
        opened = open_ledger(
            ledger, create=create, require_synchronous=require_synchronous
        )
        self._open(terms, queries, opened, cap)

    def _open(
        self,
        terms: AccountTerms,
        queries: int | None,
        ledger: Ledger,
        cap: CorpusTerms | None = None,
    ) -> None:
        self._terms, self._queries, self._ledger = terms, queries, ledger
        self._plan: Plan | None = None
        ledger.open(terms, cap)

    def __repr__(self) -> str:
        terms = {**self._terms.model_dump(), "queries": self._queries}
        terms["accounting"] = self.accounting
        usual = {"accounting": "plan", "scope": "corpus"}
        shown = ["epsilon", "delta", "queries", "accounting", "scope", "corpus"]
        parts = [f"account={self.account!r}"] + [
            f"{name}={terms[name]!r}"
            for name in [*shown, "period"]
            if terms[name] not in (None, usual.get(name))
        ]
        return f"PrivacyBudgetHandler({', '.join(parts)}, ledger={self._ledger!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (_opened, (self._terms, self._queries, self._ledger))

    @property
    def terms(self) -> AccountTerms:
        """What the account promises in all."""
        return self._terms

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
    def queries(self) -> int | None:
        """How many releases the account pays for, or shares its budget into."""
        return self._queries

    @property
    def accounting(self) -> str:
        """`plan`, or `renyi` for the filter."""
        return self._terms.accounting

    @property
    def scope(self) -> str:
        """`corpus` or `unit`: who is charged."""
        return self._terms.scope

    @property
    def fixes_classes(self) -> bool:
        """Whether units must stay in one class of a `Parallel` in all charges.

        A plan of several queries is calibrated for that; a filter's sums hold whatever
        class a unit is in.
        """
        return (self._terms.queries or 1) > 1

    @property
    def ledger(self) -> Ledger:
        """The ledger that holds the account."""
        return self._ledger

    # -- paying ------------------------------------------------------------------------

    def buy(self, charge: Charge, *, key: str | None = None, **terms: Any) -> Paid:
        """Pay for one release, durably, and return the right to draw for it once.

        With a key what is stored under it is given again and costs nothing. While
        another asking draws it, this one waits. If the other is gone, this one pays
        anew, or goes on where it left off if the release is resumable.

        Args:
            charge: What the release costs, with holes that the account fills.
            key: Text made of all public values that the release depends on, and of
                nothing else; None is a release of its own.
            terms: The other attributes of a `Purchase`, by name.

        Raises:
            InvalidParameterError: If noise is left open that nothing determines, or if
                the account charges units and the caller can't name them.
            PlanMismatchError: If the account's plan is for another kind of release, or
                can't be made, or its filter can't add up such a release; or if its
                corpus protects another kind of unit.
            BudgetExhaustedError: If the account can't pay, its period is not now, or
                it is the first charge and the corpus's cap has no room left.
            LedgerError: If the ledger can't be used or the account is closed, or if
                another asking has drawn nothing for an hour.
        """
        return Purchase(self, charge, key, **terms).bought()

    def forget(self) -> int:
        """Give no stored answer again that was charged before now; see `forget`."""
        return forget(self.ledger, self.account)

    # -- asking ------------------------------------------------------------------------

    def quote(self, charge: Charge) -> tuple[Event, ...]:
        """Return the events that `buy` would pay for, without holes; charge nothing."""
        require_charge(charge)
        terms = self._terms
        if terms.filter is not None:
            return priced(charge, terms.filter, self._queries)
        plan = self._fixed()
        if plan is not None:
            require_planned(terms, plan, charge, plan.unit_key)
            return plan.events
        return planned(charge, terms.epsilon, terms.delta, terms.queries or 1)

    def require_payable(self, charge: Charge | None = None) -> None:
        """Refuse what `buy` would refuse now; charge nothing.

        It saves the public calls of a question that can't be paid for; raises the same.

        Args:
            charge: The release; None asks only whether a query is left.
        """
        # The least charge, where none is asked about.
        cost = Cost(1, 0) if charge is None else self._terms.cost(self.quote(charge))
        self.ledger.run(
            lambda t: require_payable(t, t.load("account", self.account), cost),
            writes=False,
        )

    def can_afford(self, asked: Charge | Event | None = None) -> bool:
        """Return whether the account would pay for one more release; charge nothing.

        Args:
            asked: The release: a parser's charge, or an event. None asks only whether
                a query is left.

        Returns:
            True if `buy` would charge it now. A per-unit account always pays for
            what a unit could pay out of a full balance; how many can is private.
        """
        if asked is not None and not isinstance(asked, Charge):
            asked = Charge(name="release", parts=(asked,))
        if not self.ledger.state(self.account).is_open:
            return False
        try:
            self.require_payable(asked)
        except (BudgetExhaustedError, PlanMismatchError, InvalidParameterError):
            return False
        return True

    def spent(self) -> BudgetState:
        """Return the epsilon that all releases so far have cost, at the full delta.

        Under a plan the figure is tight for what was charged: after the last query it
        equals the account's epsilon up to the calibration's slack. In a per-unit
        account it is what a unit has spent that took part in every query, an upper
        bound for all of them: what a unit has really spent is private.
        """
        book = self.ledger.state(self.account)
        return self._state(book.used, book.spent)

    def remaining(self) -> BudgetState:
        """Return the epsilon and the queries that are left.

        Epsilon does not add up: the difference is what is left of the total, not the
        cost of the remaining queries alone. The number of queries is None where it is
        not fixed: under a filter without `queries=`, and in a per-unit account, which
        does not end.
        """
        book, queries = self.ledger.state(self.account), self._queries
        left = max(self.epsilon - self._state(book.used, book.spent).epsilon, 0.0)
        if self.scope == "unit" or queries is None:
            queries = None
        elif (limit := self._terms.filter) is None:
            queries -= book.used
        else:
            most = max(book.spent) if limit.failure_share else book.loss
            queries = (UNITS - most) // (UNITS // queries)
        return BudgetState(left, self.delta, queries)

    def public_state(self, stored: Stored | None = None) -> dict[str, Any]:
        """Return the account's state for an answer's public record.

        Args:
            stored: The state right after this charge; None is the state now. Of several
                queries at once each reports its own.
        """
        # After a charge nothing is read any more: it could fail a paid answer.
        spent = self._state(stored.charge, stored.spent) if stored else self.spent()
        return {
            "name": self.account,
            "accounting": self.accounting,
            "scope": self.scope,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_spent": spent.epsilon,
            "queries": self._terms.queries,
            "queries_spent": spent.queries,
        }

    def in_memory(self) -> PrivacyBudgetHandler:
        """Return a new account of the same terms in memory, for an audit."""
        alone = self._terms.model_copy(update={"corpus": None, "period": None})
        return _opened(alone, self._queries, open_ledger(":memory:"))

    def _fixed(self) -> Plan | None:
        """Return the plan that is stored; one that was read stays."""
        if self._plan is None:
            self._plan = plan_of(self.ledger, self.account)
        return self._plan

    def keep_plan(self, plan: Plan) -> None:
        """Keep the plan of a charge: after a draw nothing is read of the ledger."""
        self._plan = self._plan or plan

    def _state(self, used: int, cost: Cost) -> BudgetState:
        plan = self._fixed() if used else None
        epsilon = epsilon_spent(self._terms, plan, used, cost)
        return BudgetState(epsilon, self._terms.delta, used)

    @override
    def _require_private(self, name: str) -> None:
        # What a subclass of yours notes for itself is its own.
        if hasattr(PrivacyBudgetHandler, name) or name in {"delta0_share", "order"}:
            super()._require_private(name)


def _opened(*terms: Any) -> PrivacyBudgetHandler:
    """Return a handler whose arguments were checked when its account was opened."""
    handler = PrivacyBudgetHandler.__new__(PrivacyBudgetHandler)
    handler._open(*terms)  # noqa: SLF001 - another way to make one
    return handler


def _filter_terms(
    method: str | None,
    queries: int | None,
    epsilon: float,
    delta: float,
    share: float | None,
    order: float | None,
) -> dict[str, Any]:
    """Return the terms of a filter; none under a plan."""
    if method not in (None, "renyi"):
        raise InvalidParameterError(
            "accounting must be 'renyi', or left out for a plan of queries= equal "
            "releases."
        )
    if method is None and queries is None:
        raise InvalidParameterError(
            "How is the budget to be spent? Give queries=, the number of answers it "
            "should last for (in a per-unit account: for each person), or "
            "accounting='renyi', which takes any release, and parsers with noise of "
            "their own."
        )
    if method is None and not share is order is None:
        raise InvalidParameterError(
            "delta0_share and order go with accounting=; a plan needs neither."
        )
    if method is None:
        return {}
    share = DELTA0_SHARE if share is None else share
    order = best_order(epsilon, delta * (1 - share)) if order is None else order
    return {"order": order, "delta0_share": share}


# ---- Finding the account: a runnable's own, or among the run's handlers --------------


def check_budget(budget: Any) -> None:
    """Refuse as `budget=` what is no budget handler; None is allowed."""
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
    """Return the account of a release of all units, refusing one that charges each."""
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
    if hasattr(callbacks, "handlers"):
        return (*callbacks.handlers, *getattr(callbacks, "inheritable_handlers", ()))
    return callbacks or ()
