"""One collection of reports: read, charge, randomize, store - in this order.

Privacy:
    All rows are read and checked before the charge, so that a bad row costs nothing.
    The charge is durable before the first report is drawn, the reports are drawn at
    the epsilon that was paid, and their counts are stored before they are returned
    (`budget.buying`). An error before that drops the reports that were drawn: nobody
    has seen them, and it did not look at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from langchain_dpicl.accounting import Event, Pure
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Purchase, Stored
from langchain_dpicl.budget.buying import taken_or_payable
from langchain_dpicl.common.hidden import without_frames
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.release.record import Status, damaged, release_record
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.tabular.distribution import Distribution
from langchain_dpicl.tabular.ldp.model import estimates, fit
from langchain_dpicl.tabular.ldp.reports import (
    ReportCounts,
    Wording,
    encoded,
    null_rows,
    randomized,
)
from langchain_dpicl.tabular.ldp.terms import MECHANISM, LDPTerms
from langchain_dpicl.tabular.people import People, read_people
from langchain_dpicl.tabular.released_table import require_rows
from langchain_dpicl.tabular.schema.table import TableSchema

_BLOCK = 1 << 16
"""How many rows are randomized, or reports read, at a time."""


@dataclass(frozen=True)
class Collected:
    """Reports, counted, and what is made of them: all public.

    Attributes:
        terms: The public terms, with the epsilon that was paid.
        counts: How often which values were reported.
        events: What they cost.
        facts: What the record has besides, or otherwise.
    """

    terms: LDPTerms
    counts: ReportCounts
    events: tuple[Event, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon for one row."""
        return self.terms.epsilons(self.terms.epsilon or 0)

    @cached_property
    def distribution(self) -> Distribution:
        """The rows' distribution as reconstructed."""
        return fit(self.counts, [*self.epsilons.values()], model=self.terms.model)

    @cached_property
    def shares(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Each value's unbiased share and its standard error, by column."""
        columns = estimates(self.counts, [*self.epsilons.values()])
        named = zip(Wording(self.terms.schema).texts.items(), columns, strict=True)
        return {
            name: dict(zip(texts, pairs, strict=True)) for (name, texts), pairs in named
        }

    @cached_property
    def record(self) -> dict[str, Any]:
        """The public record."""
        errors = {
            name: max(error for _, error in shares.values())
            for name, shares in self.shares.items()
        }
        sizes = {"n_reports": self.counts.n, "standard_errors": errors}
        return record_of(self.terms, self.events, sizes, self.facts)


def record_of(
    terms: LDPTerms,
    events: tuple[Event, ...],
    sizes: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the public record of a collection.

    Args:
        terms: The public terms, with the epsilon that was paid.
        events: What the reports cost.
        sizes: What is known about the estimate: sizes and errors, all of reports.
        facts: What the record has besides, or otherwise.

    Raises:
        InvalidParameterError: If it would claim less than the events cost.
    """
    parameters = {
        **terms.described(),
        "model": terms.model,
        "invited": terms.invited,
        "randomized_by": "curator",
        "text_key": "text",
        "label_key": "label",
    }
    record = release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters={**parameters, **sizes, **facts.get("parameters", {})},
        unit=terms.unit,
        unit_key=terms.charged_unit,
        relation=terms.relation,
        neighbors=terms.neighbors,
        random=None,
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
    budget: PrivacyBudgetHandler,
    *,
    resume: bool,
) -> Collected:
    """Charge the account, then randomize and count all rows; or find the counts.

    Args:
        rows: Gives the rows.
        terms: The public terms.
        budget: The account.
        resume: Whether a collection of the same terms that this account has paid for
            is taken, or made for its charge, instead of paying for another one.

    Raises:
        DPError: See `LDPTable.release`.
    """
    epsilon = terms.epsilon or 1.0
    # Made before the charge: what can't be recorded is not paid for.
    trial = record_of(replace(terms, epsilon=epsilon), (Pure(epsilon=epsilon),), {}, {})
    purchase = Purchase(
        budget,
        terms.charge(),
        f"{MECHANISM} {terms.fingerprint(is_secure=not current().is_seeded)}",
        unit_key=terms.charged_unit,
        header={
            "record": trial,
            "schema": terms.schema.describe(),
            "terms": terms.stored(),
        },
        resumable=True,
        anew=not resume,
    )
    stored = taken_or_payable(purchase, "collection", "release(resume=True) takes it")
    if stored is None:
        # That each column gets enough of it for anything to be seen.
        terms.epsilons(terms.paid(budget.quote(terms.charge())))
    if stored is None or not stored.is_complete:
        people = _read(rows, terms)
        with purchase.bought() as paid:
            # Counts that could not be stored are in no traceback: there will be others
            # for the same charge.
            counts = without_frames(
                lambda: paid.once(lambda: _counted(paid, people, terms).stored())
            )
        stored = replace(paid.stored, values=(counts,))
    account = budget.public_state(stored)
    return _released(stored, terms, {"account": account, "charge": stored.charge})


def _read(rows: Callable[[], Any], terms: LDPTerms) -> People:
    """Read, check and encode the rows."""
    people = read_people(
        rows(),
        terms.schema.names,
        lambda columns: encoded(terms.schema, columns),
        unit_key=terms.unit_key,
        rows_per_unit=terms.rows_per_unit,
        random=None,
    )
    require_rows(people.n_rows)
    if terms.reports is not None and _length(people) > terms.reports:
        raise InvalidParameterError(
            f"There are more rows than {terms.invited} invited units may have. "
            "invited= is the length of a public list of invitations, answered or not, "
            "and every row is an answer to one. Nothing was charged."
        )
    return people


def _length(people: People) -> int:
    return len(next(iter(people.codes.values())))


def _counted(paid: Paid, people: People, terms: LDPTerms) -> ReportCounts:
    """Randomize and count the rows, by the noise that the charge paid for."""
    counts = terms.no_reports()
    epsilons = [*terms.epsilons(terms.paid(paid.events)).values()]
    for start in range(0, _length(people), _BLOCK):
        part = slice(start, start + _BLOCK)
        block = {name: codes[part] for name, codes in people.codes.items()}
        counts.add(randomized(block, terms.sizes, epsilons))
    while terms.reports is not None and counts.n < terms.reports:
        counts.add(null_rows(min(_BLOCK, terms.reports - counts.n), terms.sizes))
    return counts


def stored_collection(stored: Stored, model: Any) -> Collected:
    """Return what a ledger holds of a collection; of the account nothing.

    Args:
        stored: The charge.
        model: The model of the distribution.

    Raises:
        LedgerError: If no collection has stored this.
    """
    terms = None
    with suppress(InvalidParameterError, KeyError, TypeError):
        schema = TableSchema(**stored.header["schema"])
        chosen: Any = "joint" if model == "joint" else "label"
        terms = LDPTerms(schema, model=chosen, **stored.header["terms"])
    if terms is None:
        raise damaged()
    return _released(stored, terms, {})


def _released(stored: Stored, terms: LDPTerms, charged: dict[str, Any]) -> Collected:
    """Return what stored counts say. What they cost is the charge's to say."""
    (values,) = stored.values or (None,)
    counts = terms.no_reports().restored(values)
    if counts is None or not terms.charge().fits(stored.events):
        raise damaged()
    record = stored.header.get("record", {})
    made = ("created", "library", "random")
    facts = {name: record[name] for name in made if name in record} | charged
    terms = replace(terms, epsilon=terms.paid(stored.events))
    return Collected(terms, counts, stored.events, facts)


# -- reports that clients made ---------------------------------------------------------


def count_reports(
    reports: Iterable[Any], terms: LDPTerms, reports_per_unit: int, *, drops: bool
) -> Collected:
    """Count reports that clients made; post-processing, nothing is charged.

    Args:
        reports: What `LDPClient.report` returned, many of them.
        terms: The public terms of the clients: epsilon is what one report cost.
        reports_per_unit: Most reports of one person.
        drops: Whether a report that can't be read is left out, and counted.

    Raises:
        InvalidParameterError: If there are none, one can't be read, or there are not as
            many as were invited.
    """
    epsilon, unit = terms.epsilon or 0, "one report"
    events = (Pure(epsilon=epsilon, count=reports_per_unit),)
    if reports_per_unit > 1:
        # A claim is rounded up.
        epsilon = math.nextafter(epsilon * reports_per_unit, math.inf)
        unit = f"one person's reports, of which there are at most {reports_per_unit}"
    parameters: dict[str, Any] = {"randomized_by": "clients"}
    facts: dict[str, Any] = {"epsilon": epsilon, "unit": unit, "unit_key": None}
    facts["parameters"] = parameters
    # Before reports are read, which may come only once.
    record_of(terms, events, {}, facts)
    if isinstance(reports, str | bytes | Mapping) or not isinstance(reports, Iterable):
        raise InvalidParameterError(
            f"reports are a {type(reports).__name__}. What can be read is an iterable "
            "of mappings from column to reported value."
        )
    wording, counts, dropped = Wording(terms.schema), terms.no_reports(), 0
    numbered = enumerate(reports)
    while block := list(islice(numbered, _BLOCK)):
        kept = []
        for place, report in block:
            codes = wording.read(report)
            if not isinstance(codes, str):
                kept.append(codes)
            elif drops:
                dropped += 1
            else:
                raise InvalidParameterError(
                    f"Report {place} (counted from 0) can't be read: {codes}. Give "
                    "invalid='drop' to count the others, if clients of other schemas "
                    "or strangers may send reports."
                )
        if kept:
            counts.add(np.array(kept, np.int64))
    if not counts.n:
        raise InvalidParameterError(
            f"There are no reports that can be read ({dropped} were dropped)."
        )
    if terms.invited is not None and counts.n != terms.invited * reports_per_unit:
        raise InvalidParameterError(
            f"There are {counts.n} reports that can be read, and not exactly "
            f"{reports_per_unit} for each of {terms.invited} invitations. Those that "
            "nobody answered have LDPClient.null_report()."
        )
    parameters["n_dropped"] = dropped
    return Collected(terms, counts, events, facts)
