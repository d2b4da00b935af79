"""What a generation may spend: read off the charge itself, now and when it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_dpicl.accounting import Event
from langchain_dpicl.budget.demand import Granted
from langchain_dpicl.few_shot.terms import Terms
from langchain_dpicl.release import purchase
from langchain_dpicl.release.store import Entry, damaged


@dataclass(frozen=True)
class Payment:
    """What was charged for a generation.

    Attributes:
        rates: Each class's sampling rate.
        noise: Each class's noise multiplier, or epsilon of a noisy-max step.
        events: The charged events, of which both follow.
    """

    rates: Mapping[str, float]
    noise: Mapping[str, float]
    events: tuple[Event, ...]

    @classmethod
    def of(
        cls,
        terms: Terms,
        rates: Mapping[str, float],
        parts: Sequence[Granted],
        events: tuple[Event, ...],
    ) -> Payment:
        """Return a payment, given the parameters of each class."""
        is_gaussian = terms.mechanism == "gaussian"
        noise = {
            name: (part.noise_multiplier if is_gaussian else part.epsilon) or 0.0
            for name, part in zip(terms.classes, parts, strict=True)
        }
        return cls(rates, noise, events)


def paid_for(entry: Entry, terms: Terms, per_label: int) -> Payment:
    """Return what a stored generation was charged.

    Raises:
        LedgerError: If the ledger has no such charge, or it was for something else.
    """
    rates = entry.header.get("rates")
    if not isinstance(rates, dict) or set(rates) != set(terms.classes):
        raise damaged()
    parts, events = purchase.paid_for(entry, lambda: terms.demand(rates, per_label))
    return Payment.of(terms, rates, parts, events)
