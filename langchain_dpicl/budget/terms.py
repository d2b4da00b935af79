"""From a handler's arguments to the terms of an account, and to the account itself."""

from __future__ import annotations

import warnings

from langchain_dpicl.accounting import UNITS, best_order
from langchain_dpicl.accounting import Filter as EventFilter
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.filter import AccountFilter
from langchain_dpicl.budget.plan import AccountPlan
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import AccountTerms, Ledger
from langchain_dpicl.ledger.base import Filter, Scope

FILTER_DELTA0_SHARE = 0.2
"""The part of a filter's delta set aside for failure probabilities.

Unlike a plan, a filter does not know which releases will come. Setting aside a fifth
costs those without a delta0 one percent of epsilon, and those with one a threshold that
is three percent further out than that of half of delta.
"""

LARGEST_QUIET_DELTA = 1e-5
"""The largest delta that is no reason for a warning where no size is declared.

It is below one over the number of people in corpora of fewer than 100,000.
"""

FILTERS: tuple[Filter, ...] = ("renyi",)
SCOPES: tuple[Scope, ...] = ("corpus", "unit")


def account_terms(
    *,
    name: str,
    epsilon: float,
    delta: float,
    queries: int | None,
    accounting: Filter | None,
    scope: Scope,
    delta0_share: float | None,
    order: float | None,
) -> tuple[AccountTerms, int | None]:
    """Return checked terms, and how many queries the budget is shared into.

    Under a plan the number of queries is a term of the account. Under a filter it only
    says how open noise is chosen, and may change from one run to the next.

    Raises:
        InvalidParameterError: If an argument is out of its range, or they do not go
            together.
    """
    epsilon, delta = parameters.epsilon(epsilon), parameters.delta(delta)
    if queries is not None:
        queries = _queries(queries)
    _require_known(accounting, scope)
    if accounting is None:
        return _plan(name, epsilon, delta, queries, scope, delta0_share, order)
    share = FILTER_DELTA0_SHARE if delta0_share is None else delta0_share
    if not 0 <= parameters.finite("delta0_share", share) < 1:
        raise InvalidParameterError("delta0_share must be from 0 to below 1.")
    if order is None:
        order = best_order(epsilon, delta * (1 - share))
    found = EventFilter(epsilon=epsilon, delta=delta, order=order, failure_share=share)
    terms = AccountTerms(
        name=name,
        epsilon=epsilon,
        delta=delta,
        accounting=accounting,
        scope=scope,
        order=found.order,
        delta0_share=found.failure_share,
    )
    return terms, queries


def check_delta(delta: float, people_at_most: int | None) -> None:
    """Compare delta with the number of people that the operator declares.

    Without such a number a delta above `LARGEST_QUIET_DELTA` is warned of.

    Raises:
        InvalidParameterError: If delta is 1 / people_at_most or more.

    Privacy:
        Delta below one over the number of people is advice on a parameter, and no part
        of the theorem. Compared with the records themselves it would tell how many
        people there are, so nothing here looks at them.
    """
    if people_at_most is None:
        if delta > LARGEST_QUIET_DELTA:
            warnings.warn(
                f"delta {delta:g} means little to {1 / delta:.3g} people or more: to "
                "publish the records of one of them at random would satisfy it. Give "
                "people_at_most=, the largest number of people that the account may "
                "protect, or a smaller delta.",
                stacklevel=3,
            )
        return
    least = 1 / parameters.count(people_at_most, "people_at_most")
    if delta >= least:
        raise InvalidParameterError(
            f"delta {delta:g} is too large for people_at_most={people_at_most}: to "
            "publish the records of one of them at random would satisfy it. Open the "
            f"account with delta below {least:.2g}."
        )


def account_of(terms: AccountTerms, queries: int | None, ledger: Ledger) -> Account:
    """Return an account of a ledger: one with a plan, or with the filter of its terms.

    Raises:
        LedgerError: If the terms make no filter.
    """
    if (limit := terms.filter) is None:
        return AccountPlan(terms, terms.queries or 1, ledger)
    return AccountFilter(terms, queries, ledger, limit)


def described(terms: AccountTerms, queries: int | None) -> str:
    """Return the terms as a handler's repr shows them."""
    parts = [
        f"account={terms.name!r}",
        f"epsilon={terms.epsilon:g}",
        f"delta={terms.delta:g}",
    ]
    if queries is not None:
        parts.append(f"queries={queries}")
    if terms.accounting != "plan":
        parts.append(f"accounting={terms.accounting!r}")
    if terms.scope != "corpus":
        parts.append(f"scope={terms.scope!r}")
    if terms.corpus is not None:
        parts.append(f"corpus={terms.corpus!r}")
    if terms.period is not None:
        parts.append(f"period={terms.period!r}")
    return ", ".join(parts)


def _queries(number: int) -> int:
    # Every database's integers hold it, and a filter's steps can be shared into it.
    if parameters.count(number, "queries") > UNITS:
        raise InvalidParameterError(f"queries must be at most {UNITS}.")
    return int(number)


def _require_known(accounting: Filter | None, scope: Scope) -> None:
    if accounting is not None and accounting not in FILTERS:
        raise InvalidParameterError(
            "accounting must be 'renyi', or left out for a plan of queries= equal "
            "releases."
        )
    if scope not in SCOPES:
        raise InvalidParameterError("scope must be 'corpus' or 'unit'.")


def _plan(
    name: str,
    epsilon: float,
    delta: float,
    queries: int | None,
    scope: Scope,
    delta0_share: float | None,
    order: float | None,
) -> tuple[AccountTerms, int | None]:
    if queries is None:
        raise InvalidParameterError(
            "How is the budget to be spent? Give queries=, the number of answers it "
            "should last for (in a per-unit account: for each person), or accounting="
            "'renyi' and parsers with noise of their own."
        )
    if delta0_share is not None or order is not None:
        raise InvalidParameterError(
            "delta0_share and order go with accounting=; a plan needs neither."
        )
    terms = AccountTerms(name, epsilon, delta, queries, scope=scope)
    return terms, queries
