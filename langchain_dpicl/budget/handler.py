"""`PrivacyBudgetHandler`: the account that a chain must charge before it answers.

LangChain swallows what most callback methods raise, so no callback can *enforce*
anything. The budget is a callback handler because handlers reach every nested runnable
of an application; the enforcing is done by the private runnables themselves, which look
the handler up, call `charge`, and refuse to run where none is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from typing_extensions import override

from langchain_dpicl.accounting import Charge, Event
from langchain_dpicl.budget.charge import PaidCharge, require_possible
from langchain_dpicl.budget.state import BudgetState
from langchain_dpicl.budget.terms import (
    account_of,
    account_terms,
    check_delta,
    described,
)
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.ledger import (
    AccountTerms,
    CorpusTerms,
    Ledger,
    open_ledger,
)


class PrivacyBudgetHandler(Frozen, BaseCallbackHandler):
    """A privacy account, handed to chains in `config={"callbacks": [...]}`.

    The account is opened when the handler is made; the same name in the same ledger is
    the same account, in every thread, process and run of the program.

    With `queries=` alone the account has a *plan*: that many equal releases, whose
    noise is calibrated once, at the first query, and stored with the account. It is the
    least noise there is for so many queries. With `accounting=` it has a *filter*: each
    release is charged for what it is, parsers with different noise share the account,
    and the noise may be chosen as the run goes.

    Args:
        epsilon: Total privacy loss bound of the account.
        delta: Total failure probability; keep it well below 1 / (number of people).
        ledger: Where charges are kept: a SQLAlchemy URL, a `Ledger`, or `":memory:"`.
        queries: How many releases the account pays for. With `accounting=` it is no
            limit, but says how noise that a parser leaves open is chosen: so many such
            releases would use up the account.
        accounting: The filter: `renyi` adds up any releases, at one order that is fixed
            now.
        scope: `corpus`: every query charges everybody. `unit`: each unit has a balance
            of its own, a query charges the units that take part, and who can't pay
            takes no part; this needs retrieval by a score threshold. The account then
            never ends.
        account: The account's name in the ledger. By default that of the corpus and
            the period, as in `clinic/2026-12`; without a corpus `default`.
        delta0_share: With `accounting=`, the part of delta set aside for releases that
            may fail (KSA-PTR, threshold release).
        order: The order of a Renyi filter; None is the best one for many Gaussian
            releases.
        create: Whether to make a ledger where the URL names none. Services say False,
            so that none begins anew because its ledger was lost; `dpicl ledger create`
            makes the ledger once.
        require_synchronous: For a PostgreSQL URL, whether to refuse a server that waits
            for no standby: see `ledger.SQLLedger`.
        corpus: The corpus whose people the account protects, by name; or its
            `ledger.CorpusTerms`, which create it with its cap if it is not there. All
            of its accounts that count together stay within that cap.
        period: When the account pays: `2026`, `2026-12`, a day,
            or `2026-12-01/2026-12-15`, in UTC. None is without an end.
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
        BudgetExhaustedError: If the corpus's cap has no room for a new account. The
            account takes its part of the cap with its first charge.
        LedgerError: If the ledger can't be used, its journal is damaged, there is none
            and `create` is False, or it waits for no standby and `require_synchronous`
            asks for it.

    Privacy:
        The guarantee is (epsilon, delta) for all the account's releases together, under
        the group source's neighboring relation, against an adversary who chooses the
        questions adaptively. Under a plan the events are fixed before the first use
        and only the questions vary. Under a filter the events may depend on every
        answer before (`accounting.Filter`). With `scope="corpus"` a query
        charges every unit, which is sound for any group source. With `scope="unit"`
        the guarantee is (epsilon, delta) for each unit, for any number of queries:
        whether a unit takes part depends on its own records, the public question and
        threshold, and its own balance, and on nothing else (Feldman and Zrnic, 2021).
        A charge is durable before any group call is made and before any noise is drawn;
        there are no refunds.

    Example:
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, ledger=":memory:", account="notes"
        ... )
        >>> budget.spent().queries, budget.remaining().queries
        (0, 20)
        >>> for_months = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, scope="unit", ledger=":memory:"
        ... )
        >>> for_months.remaining().queries is None
        True
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
        known_as = corpus.name if isinstance(corpus, CorpusTerms) else corpus
        named = "/".join(part for part in (known_as, period) if part) or "default"
        self._terms, self._queries = account_terms(
            name=named if account is None else account,
            epsilon=epsilon,
            delta=delta,
            queries=queries,
            accounting=accounting,
            scope=scope,
            delta0_share=delta0_share,
            order=order,
        )
        check_delta(self._terms.delta, people_at_most)
        self._terms = replace(
            self._terms, corpus=known_as, period=period, purpose=purpose
        )
        self._ledger = open_ledger(
            ledger, create=create, require_synchronous=require_synchronous
        )
        if isinstance(corpus, CorpusTerms):
            # A corpus keeps its cap for good, so none is created for what has no room.
            corpus.require_possible(self._terms)
            self._ledger.create_corpus(corpus)
        self._ledger.open(self._terms)
        self._account = account_of(self._terms, self._queries, self._ledger)

    def __repr__(self) -> str:
        return (
            f"PrivacyBudgetHandler({described(self._terms, self._queries)}, "
            f"ledger={self._ledger!r})"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (_open_handler, (self._terms, self._queries, self._ledger))

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
        """`plan`, or the filter: `renyi`."""
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
        return self._account.fixes_classes

    @property
    def ledger(self) -> Ledger:
        """The ledger that holds the account."""
        return self._ledger

    def charge(
        self,
        charge: Charge,
        *,
        unit_key: str | None = None,
        charges_units: bool = False,
        salt: str | None = None,
        starts: tuple[str, Callable[[PaidCharge], str]] | None = None,
    ) -> PaidCharge:
        """Charge one release, durably, and return what it may do.

        Args:
            charge: What the release costs.
            unit_key: The metadata key that names the protected unit; an account
                protects one kind of unit.
            charges_units: Whether the caller will name every unit that takes part to
                the charge's `charge_units`.
            salt: The fingerprint of the salt that deals them to groups. A per-unit
                account of a corpus is bound to the first one.
            starts: The stored release that the charge starts: its kind, and its header
                given the charge. It is written together with the charge, or neither is.

        Returns:
            The charge, with the events that the release must use.

        Raises:
            InvalidParameterError: If noise is left open that nothing determines, or if
                the account charges units and the caller can't name them.
            PlanMismatchError: If the account's plan is for another kind of release, or
                can't be made, or its filter can't add up such a release; or if its
                corpus protects another kind of unit, or it is bound to another salt.
            BudgetExhaustedError: If the account can't pay, its period is not now, or
                it is the first charge and the corpus's cap has no room left.
            LedgerError: If the ledger can't be used or the account is closed.
        """
        require_possible(self._terms, charge, unit_key, charges_units=charges_units)
        return self._account.charge(charge, unit_key, starts, salt)

    async def acharge(
        self,
        charge: Charge,
        *,
        unit_key: str | None = None,
        charges_units: bool = False,
        salt: str | None = None,
    ) -> PaidCharge:
        """Charge one release without blocking the event loop; see `charge`."""
        return await asyncio.to_thread(
            self.charge,
            charge,
            unit_key=unit_key,
            charges_units=charges_units,
            salt=salt,
        )

    def spent(self) -> BudgetState:
        """Return the epsilon that all releases so far have cost, at the full delta.

        Under a plan the figure is tight for what was charged: after the last query it
        equals the account's epsilon up to the calibration's slack. In a per-unit
        account it is what a unit has spent that took part in every query, an upper
        bound for all of them: what a unit has really spent is private.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        return self._account.spent()

    def remaining(self) -> BudgetState:
        """Return the epsilon and the queries that are left.

        Epsilon does not add up: the difference is what is left of the total, not the
        cost of the remaining queries alone. The number of queries is None where it is
        not fixed: under a filter without `queries=`, and in a per-unit account, which
        does not end.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        return self._account.remaining()

    def can_afford(self, event: Charge | Event | Sequence[Event] | None = None) -> bool:
        """Return whether the account would pay for one more release; charge nothing.

        Args:
            event: The release: a parser's charge, an event or several. None asks only
                whether a query is left.

        Returns:
            True if `charge` would charge it now. A per-unit account always pays for
            what a unit could pay out of a full balance; how many can is private.
        """
        return self._account.can_afford(event)

    def require_payable(self, charge: Charge) -> None:
        """Refuse what `charge` would refuse now; charge nothing.

        It saves the public calls of a question that can't be paid for; raises the same.
        """
        self._account.require_payable(charge)

    def quote(self, charge: Charge) -> tuple[Event, ...]:
        """Return the events that a charge would pay for; charge nothing.

        Args:
            charge: What the release costs.

        Returns:
            The events, in the order of the charge's parts.

        Raises:
            InvalidParameterError: If noise is left open that nothing determines.
            PlanMismatchError: If the account's plan is for another kind of release, or
                none can be made.
            LedgerError: If the ledger can't be read.
        """
        return self._account.quote(charge)

    def price(self, charge: Charge) -> tuple[Event, ...]:
        """Return what `charge` would charge; charge nothing; raises as `quote`."""
        return self._account.price(charge)

    def in_memory(self) -> PrivacyBudgetHandler:
        """Return a new account of the same terms in memory, for an audit."""
        alone = replace(self._terms, corpus=None, period=None)
        return _open_handler(alone, self._queries, open_ledger(":memory:"))

    def public_state(self, paid: PaidCharge | None = None) -> dict[str, Any]:
        """Return the account's state for an answer's public record.

        Args:
            paid: The state right after this charge; None is the state now. Of several
                queries at once each reports its own.
        """
        spent = self._account.spent(paid)
        return {
            "name": self._terms.name,
            "accounting": self._terms.accounting,
            "scope": self._terms.scope,
            "epsilon": self._terms.epsilon,
            "delta": self._terms.delta,
            "epsilon_spent": spent.epsilon,
            "queries": self._terms.queries,
            "queries_spent": spent.queries,
        }

    def require_filter(self, what: str) -> None:
        """Refuse what charges more than one kind of release, under a plan.

        Raises:
            InvalidParameterError: If the account has a plan.
        """
        self._account.require_filter(what)

    @override
    def _require_private(self, name: str) -> None:
        # What a subclass of yours notes for itself is its own.
        if hasattr(PrivacyBudgetHandler, name) or name in {"delta0_share", "order"}:
            super()._require_private(name)


def _open_handler(
    terms: AccountTerms,
    queries: int | None,
    ledger: Ledger,
) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=terms.epsilon,
        delta=terms.delta,
        ledger=ledger,
        queries=queries,
        accounting=None if terms.accounting == "plan" else terms.accounting,
        scope=terms.scope,
        account=terms.name,
        delta0_share=terms.delta0_share,
        order=terms.order,
        corpus=terms.corpus,
        period=terms.period,
        purpose=terms.purpose,
        people_at_most=1,  # Delta was compared when the account was first opened.
    )
