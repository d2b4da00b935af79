"""One release of a table's statistics, and what a ledger holds of it.

Nothing of the tallies leaves but through `mechanisms.tables`. The order of the steps:
`tabular.released_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Purchase, Stored, last
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.mechanisms.tables import noisy_histograms, noisy_tallies
from langchain_dpicl.release.record import (
    NEIGHBORS,
    Status,
    charged_record,
    damaged,
    release_record,
)
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tally
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms, TableEvent
from langchain_dpicl.tabular.released_table import drawn_once, require_rows

Released = tuple[NoisyStatistics, dict[str, Any]]


def released(
    terms: GDPTerms,
    budget: PrivacyBudgetHandler,
    count: Callable[[], Tally],
    *,
    resume: bool,
) -> Released:
    """Make one release, or find it; see `GDPTable.release`."""
    key = f"{MECHANISM} {terms.digest()}{' of a seed' * current().is_seeded}"
    # A stored release has settled the noise.
    stored = last(budget.ledger, budget.account, key) if resume else None
    terms = terms.settled(budget) if stored is None else _terms_of(stored)
    purchase = Purchase(
        budget,
        terms.charge(),
        key,
        unit_key=terms.charged_unit,
        header={
            "record": _record(terms),
            "terms": terms.model_dump(mode="json"),
        },
        resumable=True,
        anew=not resume,
    )

    def read() -> Tally:
        counted = count()
        require_rows(counted.n_rows)
        return counted

    def draw(paid: Paid, counted: Tally) -> list[int]:
        noisy = _noisy(_terms_of(paid.stored), paid.events, counted)
        return [int(number) for table in noisy for number in table.ravel()]

    stored = drawn_once(purchase, "release", read, draw)
    statistics, record = stored_release(stored, budget.delta)
    return statistics, checked_record(
        {**record, "account": budget.public_state(stored)}
    )


def stored_release(stored: Stored, delta: float) -> Released:
    """Return what a ledger holds of a release: its statistics and its record.

    Its cost is stated at `delta`.

    Raises:
        LedgerError: If no release has stored this.
    """
    terms, (numbers,) = _terms_of(stored), stored.values or ([],)
    statistics, record = None, None
    if terms.charge().fits(stored.events) and _are_whole(numbers):
        # Not numbers that no release of these terms has stored.
        with suppress(OverflowError, KeyError, TypeError):
            paid = cast("TableEvent", stored.events[0])
            statistics = NoisyStatistics.of(terms, paid, numbers)
            record = dict(stored.header["record"])
    if statistics is None or record is None:
        raise damaged()
    laws = zip(terms.tables, statistics.noises, strict=True)
    record = charged_record(record, stored, delta)
    deviations = {table.name: law.standard_deviation for table, law in laws}
    record["parameters"]["noise_deviations"] = deviations
    if not isinstance(statistics.paid, Gaussian):
        record |= {"epsilon": pure_epsilon(stored.events), "delta": 0.0}
    return statistics, record


def _record(terms: GDPTerms) -> dict[str, Any]:
    """Return what a record has before the charge."""
    return release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters=terms.parameters(),
        unit=terms.unit,
        unit_key=terms.charged_unit,
        relation=Relation.ADD_REMOVE.value,
        neighbors=NEIGHBORS,
    )


def _terms_of(stored: Stored) -> GDPTerms:
    """Return the terms that were stored with a charge: the noise is settled there."""
    with suppress(InvalidParameterError, KeyError, TypeError, ValueError):
        return GDPTerms(**stored.header["terms"])
    raise damaged()


def _noisy(terms: GDPTerms, events: tuple[Any, ...], counted: Tally) -> list[Any]:
    """Return the tallies with the noise that was paid for."""
    (paid,) = events
    draw: Any = noisy_histograms if isinstance(paid, Gaussian) else noisy_tallies
    rows = terms.rows_per_unit
    return list(draw(counted.exact, paid, **terms.moved, rows_per_unit=rows))


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)
