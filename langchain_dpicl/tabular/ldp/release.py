"""Collections of reports: of rows that a curator holds, and of what clients sent.

The order of the steps: `tabular.released_table`. A curator's counts are stored, and no
report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from langchain_dpicl.accounting import Event, Pure
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Purchase, Stored
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.release.record import Status, damaged, release_record
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.tabular.distribution import Distribution
from langchain_dpicl.tabular.ldp.model import Model, estimates, fit
from langchain_dpicl.tabular.ldp.reports import (
    ReportCounts,
    null_rows,
    randomized,
    read_reports,
)
from langchain_dpicl.tabular.ldp.terms import MECHANISM, LDPTerms
from langchain_dpicl.tabular.people import People, read_people
from langchain_dpicl.tabular.released_table import drawn_once, require_rows

_BLOCK = 1 << 16
"""How many rows are randomized, or reports read, at a time."""


@dataclass(frozen=True)
class Collection:
    """Reports, counted, and what is made of them: all public.

    Attributes:
        terms: The public terms, with the epsilon that was paid.
        model: What rows are drawn from. It is free, and no part of the terms.
        counts: How often which values were reported.
        events: What they cost.
        facts: What the record has besides, or otherwise.
    """

    terms: LDPTerms
    model: Model
    counts: ReportCounts
    events: tuple[Event, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon for one row."""
        return self.terms.column_epsilons(self.terms.epsilon or 0)

    @cached_property
    def distribution(self) -> Distribution:
        """The rows' distribution as reconstructed."""
        return fit(self.counts, [*self.epsilons.values()], model=self.model)

    @cached_property
    def shares(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Each value's unbiased share and its standard error, by column."""
        pairs = estimates(self.counts, [*self.epsilons.values()])
        columns = zip(self.terms.table_schema.columns, pairs, strict=True)
        return {
            column.name: dict(zip(column.options, own, strict=True))
            for column, own in columns
        }

    @cached_property
    def record(self) -> dict[str, Any]:
        """The public record."""
        errors = {
            name: max(error for _, error in shares.values())
            for name, shares in self.shares.items()
        }
        sizes = {"n_reports": self.counts.n, "standard_errors": errors}
        return record_of(self.terms, self.model, self.events, sizes, self.facts)


def record_of(
    terms: LDPTerms,
    model: Model,
    events: tuple[Event, ...],
    sizes: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the public record of a collection, with the facts besides, or otherwise.

    Raises:
        InvalidParameterError: If it would claim less than the events cost.
    """
    known = {"model": model, "randomized_by": "curator", **sizes}
    record = release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters={**terms.parameters(), **known, **facts.get("parameters", {})},
        unit=terms.unit,
        unit_key=terms.charged_unit,
        relation=terms.relation,
        neighbors=terms.neighbors,
        events=events,
        epsilon=terms.epsilon,
        delta=0.0,
    )
    others = {name: fact for name, fact in facts.items() if name != "parameters"}
    return checked_record({**record, **others})


# -- rows that a curator holds ---------------------------------------------------------


def collect(
    rows: Callable[[], Any],
    terms: LDPTerms,
    model: Model,
    budget: PrivacyBudgetHandler,
    *,
    resume: bool,
) -> Collection:
    """Charge the account, then randomize and count all rows; or find the counts.

    See `LDPTable.release`.
    """
    # Made before the charge: what can't be recorded is not paid for.
    trial = Pure(epsilon=terms.epsilon or 1.0)
    record = record_of(terms.paid_by((trial,)), model, (trial,), {}, {})
    is_seeded = current().is_seeded
    purchase = Purchase(
        budget,
        terms.charge(),
        f"{MECHANISM} {terms.digest()}{' of a seed' * is_seeded}",
        unit_key=terms.charged_unit,
        header={"record": record, "terms": terms.model_dump(mode="json")},
        resumable=True,
        anew=not resume,
    )

    def read() -> People:
        # That each column gets enough of epsilon for anything to be seen.
        terms.paid_by(budget.quote(terms.charge()))
        return _read(rows, terms)

    def draw(paid: Paid, people: People) -> list[list[int]]:
        return _counted(terms.paid_by(tuple(paid.events)), people).stored()

    stored = drawn_once(purchase, "collection", read, draw)
    charged = {"account": budget.public_state(stored), "charge": stored.charge}
    return _released(stored, terms, model, charged)


def _read(rows: Callable[[], Any], terms: LDPTerms) -> People:
    """Read, check and encode the rows."""
    people = read_people(
        rows(),
        terms.table_schema,
        unit_key=terms.unit_key,
        rows_per_unit=terms.rows_per_unit,
    )
    require_rows(people.n_rows)
    if terms.reports is not None and len(people) > terms.reports:
        raise InvalidParameterError(
            f"There are more rows than {terms.invited} invited units may have. "
            "invited= is the length of a public list of invitations, answered or not, "
            "and every row is an answer to one. Nothing was charged."
        )
    return people


def _counted(terms: LDPTerms, people: People) -> ReportCounts:
    """Randomize and count the rows, by the noise that was paid for."""
    counts, sizes = terms.no_reports(), terms.sizes
    epsilons = [*terms.column_epsilons(terms.epsilon or 0).values()]
    for start in range(0, len(people), _BLOCK):
        part = slice(start, start + _BLOCK)
        block = {name: codes[part] for name, codes in people.codes.items()}
        counts.add(randomized(block, sizes, epsilons))
    while terms.reports is not None and counts.n < terms.reports:
        counts.add(null_rows(min(_BLOCK, terms.reports - counts.n), sizes))
    return counts


def stored_collection(stored: Stored, model: Any) -> Collection:
    """Return what a ledger holds of a collection; of the account nothing.

    Raises:
        LedgerError: If no collection has stored this.
    """
    terms = None
    with suppress(InvalidParameterError, KeyError, TypeError):
        terms = LDPTerms(**stored.header["terms"])
    if terms is None:
        raise damaged()
    return _released(stored, terms, "joint" if model == "joint" else "label", {})


def _released(
    stored: Stored, terms: LDPTerms, model: Model, charged: dict[str, Any]
) -> Collection:
    """Return what stored counts say. What they cost is the charge's to say."""
    (values,) = stored.values or (None,)
    counts = terms.no_reports().restored(values)
    if counts is None or not terms.charge().fits(stored.events):
        raise damaged()
    record = stored.header.get("record", {})
    made = ("created", "library", "random")
    facts = {name: record[name] for name in made if name in record} | charged
    return Collection(terms.paid_by(stored.events), model, counts, stored.events, facts)


# -- reports that clients made ---------------------------------------------------------


def count_reports(
    reports: Iterable[Any],
    terms: LDPTerms,
    model: Model,
    reports_per_unit: int,
) -> Collection:
    """Count reports that clients made; see `LDPTable.from_reports`."""
    epsilon, unit = terms.epsilon or 0, "one report"
    events = (Pure(epsilon=epsilon, count=reports_per_unit),)
    if reports_per_unit > 1:
        # A claim is rounded up.
        epsilon = math.nextafter(epsilon * reports_per_unit, math.inf)
        unit = f"one person's reports, of which there are at most {reports_per_unit}"
    told: dict[str, Any] = {"randomized_by": "clients"}
    facts = {"epsilon": epsilon, "unit": unit, "unit_key": None, "parameters": told}
    # Before reports are read, which may come only once.
    record_of(terms, model, events, {}, facts)
    if isinstance(reports, str | bytes | Mapping) or not isinstance(reports, Iterable):
        raise InvalidParameterError(
            f"reports are a {type(reports).__name__}. What can be read is an iterable "
            "of mappings from column to reported value."
        )
    codes, counts = read_reports(reports, terms.table_schema), terms.no_reports()
    while block := list(itertools.islice(codes, _BLOCK)):
        counts.add(np.array(block, np.int64))
    if not counts.n:
        raise InvalidParameterError("There are no reports.")
    if terms.invited is not None and counts.n != terms.invited * reports_per_unit:
        raise InvalidParameterError(
            f"There are {counts.n} reports, and not {reports_per_unit} for each of "
            f"{terms.invited} invitations. Those that nobody answered have "
            "LDPClient.null_report()."
        )
    return Collection(terms, model, counts, events, facts)
