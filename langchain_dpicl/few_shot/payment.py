"""What a generation may spend: read off the charge itself, now and when it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from langchain_dpicl.accounting import Event
from langchain_dpicl.budget.bundle import read_parts
from langchain_dpicl.budget.demand import Granted
from langchain_dpicl.exceptions import DPError
from langchain_dpicl.few_shot.terms import Terms
from langchain_dpicl.released.journal import Entry, damaged


@dataclass(frozen=True)
class Payment:
    """What was charged for a generation.

    Attributes:
        rates: Each class's sampling rate.
        noise: Each class's noise multiplier, or epsilon of a noisy-max step.
        events: The charged events, of which both follow.
        charge: The charge's number.
    """

    rates: Mapping[str, float]
    noise: Mapping[str, float]
    events: tuple[Event, ...]
    charge: int

    @classmethod
    def of(
        cls,
        terms: Terms,
        rates: Mapping[str, float],
        parts: Sequence[Granted],
        events: tuple[Event, ...],
        charge: int,
    ) -> Payment:
        """Return a payment, given the parameters of each class."""
        is_gaussian = terms.mechanism == "gaussian"
        noise = {
            name: (part.noise_multiplier if is_gaussian else part.epsilon) or 0.0
            for name, part in zip(terms.classes, parts, strict=True)
        }
        return cls(rates, noise, events, charge)


def paid_for(entry: Entry, terms: Terms, per_label: int) -> Payment:
    """Return what a stored generation was charged.

    Raises:
        LedgerError: If the ledger has no such charge, or it was for something else.
    """
    number, events = entry.charged()
    rates = entry.header.get("rates")
    if not isinstance(rates, dict) or set(rates) != set(terms.classes):
        raise damaged()
    parts: tuple[Granted, ...] = ()
    with suppress(DPError, TypeError, ValueError):
        parts = read_parts(terms.demand(rates, per_label), events)
    if not parts:
        raise damaged()
    return Payment.of(terms, rates, parts, events, number)
