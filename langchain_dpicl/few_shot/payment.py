"""What a generation may spend: read off the charge itself, now and when it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from langchain_dpicl.accounting import Event
from langchain_dpicl.few_shot.calibration import TokenNoise, amount
from langchain_dpicl.few_shot.spec import GenerationSpec
from langchain_dpicl.release import purchase
from langchain_dpicl.release.store import Entry, damaged


@dataclass(frozen=True)
class ChargedNoise:
    """What was charged for a generation.

    Attributes:
        rates: Each class's sampling rate.
        noise: Each class's noise multiplier, or epsilon of a noisy-max step.
        events: The charged events, of which both follow.
    """

    rates: Mapping[str, float]
    noise: Mapping[str, float]
    events: tuple[Event, ...]


def noise_of(
    terms: GenerationSpec, paid: TokenNoise | tuple[TokenNoise, ...]
) -> dict[str, float]:
    """Return each class's noise multiplier, or epsilon of a noisy-max step."""
    each = paid if isinstance(paid, tuple) else (paid,)
    return dict(zip(terms.classes, map(amount, each), strict=True))


def paid_for(entry: Entry, terms: GenerationSpec, per_label: int) -> ChargedNoise:
    """Return what a stored generation was charged.

    Raises:
        LedgerError: If the ledger has no such charge, or it was for something else.
    """
    rates = entry.header.get("rates")
    if not isinstance(rates, dict) or set(rates) != set(terms.classes):
        raise damaged()
    noise, events = purchase.paid_for(
        entry, lambda: terms.event_template(rates, per_label)
    )
    return ChargedNoise(rates, noise_of(terms, noise), events)
