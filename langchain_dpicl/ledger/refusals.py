"""Why a charge is refused: one rule, and one wording, for every ledger."""

from __future__ import annotations

from langchain_dpicl.exceptions import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger.base import NAME_LIMIT, AccountState, Plan


def require_chargeable(state: AccountState) -> Plan:
    """Return the plan of an account that can pay for one more query.

    Raises:
        BudgetExhaustedError: If all queries are spent.
        LedgerError: If the account is closed or has no plan.
    """
    name = state.terms.name
    if state.closed:
        raise LedgerError(
            f"Account {name!r} is closed: it pays for nothing any more. Open an "
            "account with another name if the people in the corpus agree to a new "
            "guarantee."
        )
    if state.used >= state.terms.queries:
        raise BudgetExhaustedError(
            f"Account {name!r} has spent all {state.terms.queries} queries of its "
            f"budget (epsilon {state.terms.epsilon:g}, delta {state.terms.delta:g}); "
            "nothing was asked of the model and nothing was released. Answers that "
            "were released stay usable; a new account is a new promise to the same "
            "people, and the two add up."
        )
    if state.plan is None:
        raise LedgerError(
            f"Account {name!r} has no plan yet: fix one before the first charge."
        )
    return state.plan


def unknown_account(name: str) -> LedgerError:
    """Return the error for an account that the ledger does not hold."""
    return LedgerError(
        f"The ledger holds no account {name!r}. Is the name right ('dpicl ledger list' "
        "shows them), and is it the ledger that was charged before?"
    )


def require_name(name: object) -> str:
    """Return a usable account name.

    Raises:
        LedgerError: If it is not a printable string of a sensible length.
    """
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or len(name) > NAME_LIMIT
    ):
        raise LedgerError(
            "An account's name must be a printable string of 1 to "
            f"{NAME_LIMIT} characters."
        )
    return name
