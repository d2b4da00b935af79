"""One release of a table's statistics: read, charge, noise, store - in this order.

Privacy:
    Rows are read, checked and tallied before the charge, so that a bad row costs
    nothing; nothing of the tallies leaves `made` but through `noisy_tallies`, and of
    the names in open columns through `threshold_words`. The charge is durable before
    the noise is drawn, the noise is computed from what was charged, and what was drawn
    is stored before it is returned. One owner draws for a charge (`release/owner.py`).
    Where its process stops between charge and storing, `resume=True` claims the charge
    and draws what is not stored, once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_dpicl.accounting import Event, Gaussian, compose
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.keyword_threshold import pass_rate, threshold_words
from langchain_dpicl.mechanisms.random import SecureRandom, current, use
from langchain_dpicl.mechanisms.tables import noisy_histograms, noisy_tallies
from langchain_dpicl.release.flow import result
from langchain_dpicl.release.purchase import Purchase, header_of, paid_for
from langchain_dpicl.release.record import paid_part, release_record
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.tabular.gdp.mergeable import Tally
from langchain_dpicl.tabular.gdp.names import names_stored
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Counted, count_rows
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms, Paid, Test
from langchain_dpicl.tabular.released_table import require_rows
from langchain_dpicl.tabular.rows.wanted import ExtraColumns
from langchain_dpicl.tabular.schema.table import TableSchema

NEIGHBORS = "all rows of one unit added or removed"

Released = tuple[NoisyStatistics, dict[str, Any]]
AllPaid = tuple[Paid, Test | None]

_STORED = {"created", "library", "events", "epsilon", "charge", "account"}
"""What the header of each stored release has; where noise is Gaussian, delta too."""


@dataclass(repr=False)
class Release:
    """Makes one release, or finds it.

    Attributes:
        terms: What is measured.
        budget: The account.
        random: Where noise and samples come from; None: the context says.
        extra_columns: Whether unknown columns are refused or ignored.
        progress: Whether to show a bar while reading.
        has_read: Whether it has begun to read the rows.
    """

    terms: GDPTerms
    budget: PrivacyBudgetHandler
    random: SecureRandom | None
    extra_columns: ExtraColumns
    progress: bool | None
    has_read: bool = False

    def run(self, data: Hidden[Any], *, resume: bool) -> Released:
        """Return the release of these terms; see `GDPTable.release`."""
        purchase = self._purchase(resume=resume)
        entry = self._stored(purchase)
        if entry is None:
            self._require_recordable()
        elif self._is_complete(entry):
            return self._found(entry)
        counted = self._counted(data)
        require_rows(counted.value.n_rows)
        with purchase.owner:
            entry = result(purchase.taken(partial(self._begun, purchase)))
            self._settle_by(entry)
            if not entry.steps:
                entry = entry.drawn(self._drawn(entry, counted))
            if not self._is_complete(entry):
                entry = entry.drawn(self._named(entry, counted))
        return self._found(entry)

    def _stored(self, purchase: Purchase) -> Entry | None:
        """Return a release that is paid for, or None if the account can pay for one."""
        if (entry := purchase.found()) is None:
            self.terms = self.terms.settled(self.budget)
            entry = purchase.require_payable(self.terms.charge())
        if entry is not None:
            self._settle_by(entry)
        return entry

    def _begun(self, purchase: Purchase) -> Entry:
        return purchase.begun(
            self.terms.charge(),
            self._header,
            unit_key=self.terms.charged_unit,
        )

    def _header(self, paid: PaidCharge) -> dict[str, Any]:
        """Return what the ledger keeps of a release, for `stored_release` to read."""
        cost, noise = self._cost(paid.events), self.terms.paid(paid.events)
        trial = {**header_of(paid.events, paid.sequence), **cost}
        return {
            **cost,
            **_noise_of(*noise),
            "record": self._record(trial, noise),
            "terms": self.terms.stored(),
            "row_unit": self.terms.row_unit,
            "schema": self.terms.schema.describe(),
        }

    def _is_complete(self, entry: Entry) -> bool:
        return len(entry.steps) > bool(self.terms.opened)

    def _settle_by(self, entry: Entry) -> None:
        """Take the kind of noise that a stored release has paid for."""
        if self.terms.measure is not None:
            # What the tables are charged is first; names have Gaussian noise anyway.
            _, (tables, *_) = entry.charged()
            is_gaussian = isinstance(tables, Gaussian)
            self.terms = replace(
                self.terms, noise="gaussian" if is_gaussian else "laplace"
            )

    def _cost(self, events: tuple[Event, ...]) -> dict[str, float]:
        """Return what a release costs, by what it is charged."""
        if self.terms.is_pure:
            return {"epsilon": pure_epsilon(events)}
        delta = self.budget.delta
        return {"epsilon": compose(events, delta), "delta": delta}

    def _counted(self, data: Hidden[Any]) -> Hidden[Counted]:
        if isinstance(data.value, Tally):
            return Hidden(data.value.counted_for(self.terms))
        self.has_read = True
        return Hidden(
            count_rows(
                data,
                self.terms,
                random=self.random,
                extra_columns=self.extra_columns,
                progress=self.progress,
            )
        )

    def _require_recordable(self) -> None:
        """Refuse what could not be recorded afterwards."""
        events = self.budget.price(self.terms.charge())
        paid = self.terms.paid(self.budget.quote(self.terms.charge()))
        self.terms.deviations(paid[0])
        if (named := paid[1]) is not None:
            pass_rate(
                1, named, Relation.ADD_REMOVE, items_per_answer=self.terms.most_named
            )
        trial = {
            **header_of(events, 1),
            **self._cost(events),
            "account": {"name": "trial"},
        }
        checked_record(self._record(trial, paid))

    def _drawn(self, entry: Entry, counted: Hidden[Counted]) -> str:
        terms, (paid, _) = self.terms, self._paid(entry)

        def draw() -> str:
            with use(self.random):
                noisy = _noisy(terms, paid, counted.value.exact)
            flat = [int(number) for tally in noisy for number in tally.ravel()]
            return entry.keep(0, json.dumps(flat))

        # A draw that could not be stored is shown to nobody, in no traceback either:
        # there may be another one for the same charge.
        return without_frames(draw)

    def _named(self, entry: Entry, counted: Hidden[Counted]) -> str:
        _, paid = self._paid(entry)

        def draw() -> str:
            if paid is None:
                raise damaged()
            with use(self.random):
                found = threshold_words(
                    counted.value.names,
                    paid,
                    Relation.ADD_REMOVE,
                    items_per_answer=self.terms.most_named,
                )
            return entry.keep(1, json.dumps(sorted(found)))

        return without_frames(draw)

    def _found(self, entry: Entry) -> Released:
        paid, numbers = self._paid(entry), entry.step(0) or []
        kept = entry.text(1) if self.terms.opened else "[]"
        names = names_stored(self.terms.opened, kept or "")
        statistics = None
        try:
            statistics = NoisyStatistics.of(self.terms, paid[0], numbers, names)
        except OverflowError:
            # Numbers that no release of these terms has stored.
            statistics = None
        stored = _STORED | (set() if self.terms.is_pure else {"delta"})
        if statistics is None or not entry.header.keys() >= stored:
            raise damaged()
        record = checked_record(self._record(entry.header, paid, statistics))
        return statistics, record

    def _paid(self, entry: Entry) -> AllPaid:
        """Return the events that were charged."""
        return self.terms.paid(paid_for(entry, self.terms.charge))

    def _purchase(self, *, resume: bool) -> Purchase:
        is_seeded = (self.random or current()).is_seeded
        kind = self.terms.fingerprint(is_secure=not is_seeded)
        return Purchase(
            ReleaseStore(self.budget, kind, MECHANISM),
            self._is_complete,
            "release",
            "release(resume=True) takes it",
            resume,
        )

    def _record(
        self,
        header: dict[str, Any],
        paid: AllPaid,
        statistics: NoisyStatistics | None = None,
    ) -> dict[str, Any]:
        terms = self.terms
        delta = 0.0 if terms.is_pure else header["delta"]
        found: dict[str, Any] = {}
        if statistics is not None:
            found = {
                "epsilons": {
                    one.name: epsilon
                    for one, epsilon in zip(
                        terms.quantities, statistics.epsilons, strict=False
                    )
                },
                "noise": {
                    one.name: statistics.noise(one.name) for one in terms.quantities
                },
                "groups_hidden_by_noise": statistics.seen.count(False),
            }
            if terms.opened:
                found["named"] = {
                    name: list(each) for name, each in statistics.named.items()
                }
        return release_record(
            kind="table",
            status=Status.RELEASED.value,
            mechanism=MECHANISM,
            parameters={
                **terms.described(),
                # Not out of the header: what it cost is the charge's to say.
                **_noise_of(*paid),
                **found,
            },
            unit=terms.unit,
            unit_key=terms.charged_unit,
            relation=Relation.ADD_REMOVE.value,
            neighbors=NEIGHBORS,
            random=self.random,
            **paid_part({**header, "delta": delta}),
        )


def stored_release(entry: Entry) -> Released:
    """Return what a ledger holds of a release: its statistics and its record.

    Raises:
        LedgerError: If no release has stored this.
    """
    header, terms = entry.header, None
    with suppress(InvalidParameterError, KeyError, TypeError):
        found = GDPTerms.read(TableSchema(**header["schema"]), header["terms"])
        terms = replace(found, row_unit=header["row_unit"])
    if terms is None:
        raise damaged()
    own = Release(terms, entry.store.budget, None, "refuse", None)
    return own._found(entry)  # noqa: SLF001 - of this module


def _noise_of(paid: Paid, names: Test | None) -> dict[str, Any]:
    """Return the noise as the record has it."""
    found: dict[str, Any] = {}
    if names is not None:
        noise, failure = names
        found = {
            "names_noise_multiplier": noise.noise_multiplier,
            "names_delta0": failure.delta0,
        }
    if isinstance(paid, Gaussian):
        return {"noise_multiplier": paid.noise_multiplier, **found}
    return {"epsilon_before_sampling": paid.epsilon, **found}


def _noisy(terms: GDPTerms, paid: Paid, exact: Sequence[Any]) -> list[Any]:
    """Return the tallies with the noise that was paid for."""
    rows = terms.rows_per_unit
    if isinstance(paid, Gaussian):
        return list(noisy_histograms(exact, paid, rows_per_unit=rows))
    shares = terms.epsilons(paid)
    noisy = noisy_tallies(
        exact, paid, bounds=terms.bounds, shares=shares, rows_per_unit=rows
    )
    return list(noisy)
