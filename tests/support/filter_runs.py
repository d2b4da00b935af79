"""How tests run releases through a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_dpicl.accounting import (
    Cost,
    Event,
    PrivacyFilter,
)

Admission = Callable[[Sequence[Event]], Cost]


def admit(
    account: PrivacyFilter, releases: Sequence[Sequence[Event]], cost: Admission
) -> list[Event]:
    """Replay a run: a release that does not fit is refused, and the next is tried."""
    spent, admitted = Cost(0, 0), []
    for events in releases:
        price = cost(events)
        if account.affords(spent, price):
            spent = Cost(spent.loss + price.loss, spent.failure + price.failure)
            admitted.extend(events)
            assert account.epsilon_spent(spent) <= account.epsilon
    return admitted
