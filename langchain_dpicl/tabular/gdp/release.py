"""One release of a table's statistics: read, charge, noise, store - in this order.

Privacy:
    Rows are read, checked and tallied before the charge, so that a bad row costs
    nothing; nothing of the tallies leaves but through `mechanisms.tables`. The charge
    is durable before the noise is drawn, the noise is that of the event that was paid,
    and what was drawn is stored before it is returned (`budget.buying`). Where a
    process stops between charge and storing, `resume=True` draws what is not stored
    under the same charge: what stopped it did not look at the draw.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from langchain_dpicl.accounting import Gaussian, compose
from langchain_dpicl.budget import PrivacyBudgetHandler, Purchase, Stored, last
from langchain_dpicl.budget.buying import taken_or_payable
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, current, use
from langchain_dpicl.mechanisms.tables import noisy_histograms, noisy_tallies
from langchain_dpicl.release.record import Status, damaged, noise_of, release_record
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tally
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms, TableEvent
from langchain_dpicl.tabular.released_table import require_rows

NEIGHBORS = "all rows of one unit added or removed"

Released = tuple[NoisyStatistics, dict[str, Any]]

_WAY_OUT = "release(resume=True) takes it"


def released(
    terms: GDPTerms,
    budget: PrivacyBudgetHandler,
    count: Callable[[], Tally],
    *,
    random: SecureRandom | None,
    resume: bool,
) -> Released:
    """Make one release, or find it; see `GDPTable.release`.

    Args:
        terms: What is measured.
        budget: The account.
        count: Counts the rows; it is called where something is to be drawn.
        random: Where noise comes from; None: the context says.
        resume: Whether a release that was paid for is taken.
    """
    is_seeded = (random or current()).is_seeded
    key = f"{MECHANISM} {terms.digest()}{' of a seed' * is_seeded}"
    # Before the noise is settled: a stored release settles it.
    stored = last(budget.ledger, budget.account, key) if resume else None
    if stored is not None and stored.is_complete:
        return _found(stored, budget)
    terms = terms.settled(budget) if stored is None else _terms_of(stored)
    header = {
        "record": release_record(
            kind="table",
            status=Status.RELEASED.value,
            mechanism=MECHANISM,
            parameters=terms.parameters(),
            unit=terms.unit,
            unit_key=terms.charged_unit,
            relation=Relation.ADD_REMOVE.value,
            neighbors=NEIGHBORS,
            random=random,
        ),
        "terms": terms.model_dump(mode="json"),
    }
    purchase = Purchase(
        budget,
        terms.charge(),
        key,
        unit_key=terms.charged_unit,
        header=header,
        resumable=True,
        anew=not resume,
    )
    if stored is None:
        stored = taken_or_payable(purchase, "release", _WAY_OUT)
        if stored is not None and stored.is_complete:
            return _found(stored, budget)
    counted = Hidden(count())
    require_rows(counted.value.n_rows)

    def draw() -> list[int]:
        with use(random):
            noisy = _noisy(_terms_of(paid.stored), paid.events, counted.value)
        return [int(number) for table in noisy for number in table.ravel()]

    with purchase.bought() as paid:
        # A draw that could not be stored is shown to nobody, in no traceback either:
        # there may be another one for the same charge.
        numbers = without_frames(lambda: paid.once(draw))
    return _found(replace(paid.stored, values=(numbers,)), budget)


def stored_release(stored: Stored, delta: float) -> Released:
    """Return what a ledger holds of a release: its statistics and its record.

    Args:
        stored: The charge.
        delta: The delta at which the record states what it cost.

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
    is_pure = not isinstance(statistics.paid, Gaussian)
    noise = {
        table.name: law.standard_deviation
        for table, law in zip(terms.tables, statistics.noises, strict=True)
    }
    return statistics, {
        **record,
        "parameters": {
            **record["parameters"],
            **noise_of(stored.events),
            "noise_deviations": noise,
        },
        "events": [event.model_dump(mode="json") for event in stored.events],
        "epsilon": pure_epsilon(stored.events)
        if is_pure
        else compose(stored.events, delta),
        "delta": 0.0 if is_pure else delta,
        "charge": stored.charge,
    }


def _found(stored: Stored, budget: PrivacyBudgetHandler) -> Released:
    statistics, record = stored_release(stored, budget.delta)
    account = {"account": budget.public_state(stored)}
    return statistics, checked_record({**record, **account})


def _terms_of(stored: Stored) -> GDPTerms:
    """Return the terms that were stored with a charge: the noise is settled there."""
    with suppress(InvalidParameterError, KeyError, TypeError, ValueError):
        fields = dict(stored.header["terms"])
        fields["measure"] = tuple(map(tuple, fields["measure"]))
        return GDPTerms(**fields)
    raise damaged()


def _noisy(terms: GDPTerms, events: tuple[Any, ...], counted: Tally) -> list[Any]:
    """Return the tallies with the noise that was paid for."""
    (paid,) = events
    draw: Any = noisy_histograms if isinstance(paid, Gaussian) else noisy_tallies
    rows = terms.rows_per_unit
    return list(draw(counted.exact, paid, **terms.moved, rows_per_unit=rows))


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)
