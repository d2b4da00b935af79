"""What an account pays for: one rule and one wording for every ledger."""

from __future__ import annotations

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger.book import Book, Transaction

_NOTHING_HAPPENED = "nothing was asked of the model and nothing was released"


def require_open(book: Book) -> None:
    """Refuse an account that an operator has closed.

    Raises:
        LedgerError: If it is closed.
    """
    if not book.is_open:
        raise LedgerError(
            f"Account {book.name!r} is closed: it pays for nothing any more. Open an "
            "account with another name if the people in the corpus agree to a new "
            "guarantee."
        )


def require_unit_key(
    transaction: Transaction, book: Book, unit_key: str | None
) -> None:
    """Refuse a release about another kind of unit than the account's corpus protects.

    Raises:
        PlanMismatchError: If its unit is another one.
    """
    if (name := book.account.corpus) is not None:
        corpus = transaction.load("corpus", name)
        corpus.corpus.require_unit_key(book.name, unit_key)


def require_payable(transaction: Transaction, book: Book, cost: Cost) -> int:
    """Return the time of a charge that an account pays for now, or refuse it.

    A transaction that writes has locked the account alone. This locks its corpus: alone
    for the first charge, which is compared with the cap, and else shared.

    Args:
        transaction: One that writes, before a charge; one that reads, to ask.
        book: The account.
        cost: What the charge would cost.

    Returns:
        The ledger's time, in microseconds.

    Raises:
        BudgetExhaustedError: If the account can't pay, its period is over or has not
            begun, or the cap of its corpus has no room for its first charge.
        LedgerError: If it is closed, or its corpus is damaged.
    """
    terms = book.account
    require_open(book)
    state = None
    if terms.corpus is None:
        at = transaction.now(book)
    else:
        lock = "shared" if book.used else "alone"
        state = transaction.state_of(transaction.load("corpus", terms.corpus, lock))
        at = state.at
    _require_current(book, at)
    _require_left(book, cost)
    if state is not None and not book.used:
        state.require_room(terms)
    return at


def _require_current(book: Book, at: int) -> None:
    terms = book.account
    start, end = terms.span
    if start <= at < end:
        return
    when = (
        f"is over. 'dpicl ledger renew {terms.name}' opens the next one, if the cap of "
        f"corpus {terms.corpus!r} has room for it"
        if end <= at
        else "has not begun"
    )
    raise BudgetExhaustedError(
        f"Account {terms.name!r} pays for the period {terms.period} (UTC), which "
        f"{when}; {_NOTHING_HAPPENED}."
    )


def _require_left(book: Book, cost: Cost) -> None:
    terms, limit = book.account, book.account.limit
    if max(cost.loss - limit.loss, cost.failure - limit.failure) > 0:
        raise BudgetExhaustedError(
            f"This release alone costs {_figures(cost, limit)} of the whole budget of "
            f"account {terms.name!r} (epsilon {terms.epsilon:g}, delta "
            f"{terms.delta:g}): {_NOTHING_HAPPENED}. Give it more noise (and a smaller "
            "delta0, if it has one)."
        )
    # A per-unit account is a price list: its limit is each unit's own.
    spent = Cost(0, 0) if book.unit_key else book.spent
    left = Cost(limit.loss - spent.loss, limit.failure - spent.failure)
    if cost.loss <= left.loss and cost.failure <= left.failure:
        return
    if terms.queries is None:
        what = (
            f"has spent {_figures(spent, limit)} of its budget, and this release "
            f"costs {_figures(cost, limit)}"
        )
    elif terms.queries == 1:
        what = "has spent the only query of its budget"
    else:
        what = f"has spent all {terms.queries} queries of its budget"
    renewal = f" 'dpicl ledger renew {terms.name}' opens the next period's account."
    raise BudgetExhaustedError(
        f"Account {terms.name!r} {what} (epsilon {terms.epsilon:g}, delta "
        f"{terms.delta:g}); {_NOTHING_HAPPENED}. Answers that were released stay "
        "usable; a new account is a new promise to the same people, and the two add up."
        + renewal
        * bool(terms.period)
    )


def _figures(cost: Cost, limit: Cost) -> str:
    """Return the larger share of two, in words."""
    share = max(
        part / most if most else float(part > 0)
        for part, most in zip(cost, limit, strict=True)
    )
    return f"{100 * share:.3g} %"
