"""`PrivacyBudgetHandler`: the account that a chain must charge before it answers.

LangChain swallows what most callback methods raise, so no callback can *enforce*
anything. The budget is a callback handler because handlers reach every nested runnable
of an application. The enforcing is done by the private runnables themselves: they look
the handler up, call `buy`, and refuse to run where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from typing_extensions import override

from langchain_dpicl.accounting import UNITS, Charge, Cost, Event
from langchain_dpicl.budget.buying import Again, Purchase
from langchain_dpicl.budget.paid import Paid
from langchain_dpicl.budget.pricing import (
    epsilon_spent,
    planned,
    priced,
    require_charge,
    require_planned,
)
from langchain_dpicl.budget.stored import Stored, forget, plan_of
from langchain_dpicl.budget.terms import check_delta, filter_terms
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import (
    AccountTerms,
    CorpusTerms,
    Ledger,
    Plan,
    open_ledger,
)
from langchain_dpicl.ledger.book import Book, Transaction, reads
from langchain_dpicl.ledger.rules import require_payable
from langchain_dpicl.public import Frozen


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
        self._queries = queries
        self._terms = AccountTerms(
            name=account or "/".join(filter(None, [name, period])) or "default",
            epsilon=epsilon,
            delta=delta,
            queries=queries if accounting is None else None,
            **filter_terms(accounting, queries, epsilon, delta, delta0_share, order),
            scope=scope,
            corpus=name,
            period=period,
            purpose=purpose,
        )
        self._ledger = open_ledger(
            ledger, create=create, require_synchronous=require_synchronous
        )
        self._ledger.open(self._terms, cap)
        self._plan: Plan | None = None

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

    def buy(  # noqa: PLR0913  # what is bought, term by term
        self,
        charge: Charge,
        *,
        key: str | None = None,
        steps: int = 1,
        unit_key: str | None = None,
        charges_units: bool = False,
        header: Mapping[str, Any] | None = None,
        again: Again | None = None,
        resumable: bool = False,
        anew: bool = False,
    ) -> Paid:
        """Pay for one release, durably, and return the right to draw for it once.

        With a key what is stored under it is given again and costs nothing. While
        another asking draws it, this one waits. If the other is gone, this one pays
        anew, or goes on where it left off if the release is resumable.

        Args:
            charge: What the release costs, with holes that the account fills.
            key: Text made of all public values that the release depends on, and of
                nothing else; None is a release of its own.
            steps: How many draws the charge pays for.
            unit_key: The metadata key that names the protected unit; an account
                protects one kind of unit.
            charges_units: Whether the caller will name every unit that takes part to
                `Paid.collect`.
            header: Public terms of the release, ready for JSON, stored beside it.
            again: Whether a draw that is stored under the key is given again; if not,
                it is charged anew. By default it is.
            resumable: Whether what was not stored is drawn under the charge that was
                made for it. That is sound where nothing that loses a draw looks at it.
            anew: Whether to pay for another release whatever is stored under the key.

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
        purchase = Purchase(
            self,
            charge,
            key,
            steps,
            unit_key,
            charges_units=charges_units,
            header=header,
            again=again,
            resumable=resumable,
            anew=anew,
        )
        return purchase.bought()

    def forget(self) -> int:
        """Give no stored answer again that was charged before now; see `forget`."""
        return forget(self.ledger, self.account)

    # -- asking ------------------------------------------------------------------------

    def quote(self, charge: Charge) -> tuple[Event, ...]:
        """Return the events that `buy` would pay for, without holes; charge nothing.

        Raises:
            InvalidParameterError: If noise is left open that nothing determines.
            PlanMismatchError: If the account's plan is for another kind of release, or
                none can be made.
            LedgerError: If the ledger can't be read.
        """
        require_charge(charge)
        terms = self._terms
        if terms.filter is not None:
            return priced(charge, terms.filter, self._queries)
        plan = self._fixed()
        if plan is not None:
            require_planned(terms, plan, charge)
            return plan.events
        return planned(charge, terms.epsilon, terms.delta, terms.queries or 1)

    def require_payable(self, charge: Charge) -> None:
        """Refuse what `buy` would refuse now; charge nothing.

        It saves the public calls of a question that can't be paid for; raises the same.
        """
        self._require_payable(self.quote(charge))

    def can_afford(self, asked: Charge | Event | None = None) -> bool:
        """Return whether the account would pay for one more release; charge nothing.

        Args:
            asked: The release: a parser's charge, or an event. None asks only whether
                a query is left.

        Returns:
            True if `buy` would charge it now. A per-unit account always pays for
            what a unit could pay out of a full balance; how many can is private.

        Raises:
            InvalidParameterError: If what is asked about is no release.
        """
        if asked is not None and not isinstance(asked, Charge):
            asked = Charge(name="release", parts=(asked,))
        if not self._read().is_open:
            return False
        try:
            self._require_payable(None if asked is None else self.quote(asked))
        except (BudgetExhaustedError, PlanMismatchError, InvalidParameterError):
            return False
        return True

    def spent(self) -> BudgetState:
        """Return the epsilon that all releases so far have cost, at the full delta.

        Under a plan the figure is tight for what was charged: after the last query it
        equals the account's epsilon up to the calibration's slack. In a per-unit
        account it is what a unit has spent that took part in every query, an upper
        bound for all of them: what a unit has really spent is private.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        book = self._read()
        return self._state(book.used, Cost(book.loss, book.failure))

    def remaining(self) -> BudgetState:
        """Return the epsilon and the queries that are left.

        Epsilon does not add up: the difference is what is left of the total, not the
        cost of the remaining queries alone. The number of queries is None where it is
        not fixed: under a filter without `queries=`, and in a per-unit account, which
        does not end.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        book, queries, limit = self._read(), self._queries, self._terms.filter
        cost = Cost(book.loss, book.failure)
        left = max(self.epsilon - self._state(book.used, cost).epsilon, 0.0)
        if self.scope == "unit" or queries is None:
            return BudgetState(left, self.delta, None)
        if limit is None:
            return BudgetState(left, self.delta, queries - book.used)
        most = max(cost) if limit.failure_share else cost.loss
        return BudgetState(left, self.delta, (UNITS - most) // (UNITS // queries))

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

    # -- in one transaction ------------------------------------------------------------

    @reads
    def _read(self, transaction: Transaction) -> Book:
        return transaction.load("account", self._terms.name)

    @reads
    def _require_payable(
        self, transaction: Transaction, events: tuple[Event, ...] | None
    ) -> None:
        """Refuse events that can't be paid for now; None is the least charge."""
        book = transaction.load("account", self._terms.name)
        cost = Cost(1, 0)
        if events is not None and self._terms.filter is not None:
            cost = self._terms.filter.cost(events)
        require_payable(transaction, book, cost)

    def _fixed(self) -> Plan | None:
        """Return the plan that is stored; one that was read stays."""
        if self._plan is None:
            self._plan = plan_of(self.ledger, self.account)
        return self._plan

    def _state(self, used: int, cost: Cost) -> BudgetState:
        plan = self._fixed() if used else None
        epsilon = epsilon_spent(self._terms, plan, used, cost)
        return BudgetState(epsilon, self._terms.delta, used)

    @override
    def _require_private(self, name: str) -> None:
        # What a subclass of yours notes for itself is its own.
        if hasattr(PrivacyBudgetHandler, name) or name in {"delta0_share", "order"}:
            super()._require_private(name)


def _opened(
    terms: AccountTerms, queries: int | None, ledger: Ledger
) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=terms.epsilon,
        delta=terms.delta,
        ledger=ledger,
        queries=queries,
        accounting=None if terms.order is None else "renyi",
        scope=terms.scope,
        account=terms.name,
        delta0_share=terms.delta0_share,
        order=terms.order,
        corpus=terms.corpus,
        period=terms.period,
        purpose=terms.purpose,
        people_at_most=1,  # Delta was compared when the account was first opened.
    )
