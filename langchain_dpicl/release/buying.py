"""Buying a release in a flow: waiting for another asking holds up no thread."""

from __future__ import annotations

from langchain_dpicl.budget.buying import Purchase, Waiting
from langchain_dpicl.budget.paid import Paid
from langchain_dpicl.budget.stored import Stored, last
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.release.flow import Flow, in_thread, paused


def bought(purchase: Purchase) -> Flow[Paid]:
    """Hand on a purchase; see `PrivacyBudgetHandler.buy`."""
    waiting = Waiting()
    while True:
        paid: Paid | Stored = yield in_thread(
            purchase.attempt, shielded=True, lost=_leave
        )
        if isinstance(paid, Paid):
            return paid
        yield paused(waiting.pause(paid))


def look(purchase: Purchase) -> Flow[Paid | None]:
    """Hand on a look for what is stored; nothing is charged."""
    waiting = Waiting()
    while purchase.key is not None:
        paid: Paid | Stored | None = yield in_thread(purchase.look)
        if not isinstance(paid, Stored):
            return paid
        yield paused(waiting.pause(paid))
    return None


def taken_or_payable(purchase: Purchase, noun: str, way_out: str) -> Stored | None:
    """Return the stored release that is taken; None if another one can be paid for.

    Args:
        purchase: What is to be bought; with `anew` nothing stored is taken.
        noun: What a release is called, in messages.
        way_out: What takes a stored one, in messages.

    Raises:
        BudgetExhaustedError: If the account can't pay.
    """
    budget, key = purchase.budget, purchase.key or ""

    def stored() -> Stored | None:
        return last(budget.ledger, budget.account, key)

    known = None if purchase.anew else stored()
    if known is not None:
        return known
    try:
        budget.require_payable(purchase.charge)
    except BudgetExhaustedError as error:
        message = str(error)
    else:
        return None
    # Another asking of the same may have spent the account meanwhile.
    known = stored()
    if known is not None and not purchase.anew:
        return known
    if known is not None:
        message += (
            f" A {noun} of the same terms is stored in this account: {way_out}, at no "
            "charge."
        )
    elif not purchase.anew:
        message += f" There is no {noun} of these terms in it to take."
    raise BudgetExhaustedError(message)


def _leave(paid: Paid | Stored) -> None:
    """Give up what a canceled caller has bought."""
    if isinstance(paid, Paid):
        paid.leave()
