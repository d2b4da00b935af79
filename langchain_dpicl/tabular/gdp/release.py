"""One release of a table's statistics: read, charge, noise, store - in this order.

Privacy:
    Rows are read, checked and tallied before the charge, so that a bad row costs
    nothing; nothing of the tallies leaves `made` but through `noisy_tallies`. The
    charge is durable before the noise is drawn, the noise is computed from what was
    charged, and what was drawn is stored before it is returned: the first draw that is
    stored is the released one. Where the process stops between charge and storing,
    `resume=True` draws for that charge, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from langchain_dpicl.accounting import Event, GaussianEvent, compose
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import GaussianNoise, SecureRandom
from langchain_dpicl.mechanisms.table_statistics import (
    noisy_histograms,
    noisy_tallies,
)
from langchain_dpicl.release.purchase import Purchase, header_of, paid_for
from langchain_dpicl.release.record import paid_part, release_record
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tallies
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms, Paid
from langchain_dpicl.tabular.released_table import require_rows
from langchain_dpicl.tabular.rows.reader import RowReader
from langchain_dpicl.tabular.rows.wanted import ExtraColumns

NEIGHBORS = "all rows of one unit added or removed"

Released = tuple[NoisyStatistics, dict[str, Any]]

_STORED = {"created", "library", "events", "epsilon", "charge", "account"}
"""What the header of each stored release has; where noise is Gaussian, delta too."""


@dataclass(repr=False)
class Release:
    """Makes one release, or finds it.

    Attributes:
        terms: What is measured.
        budget: The account.
        random: Where noise and samples come from.
        extra_columns: Whether unknown columns are refused or ignored.
        progress: Whether to show a bar while reading.
        has_read: Whether it has begun to read the rows.
    """

    terms: GDPTerms
    budget: PrivacyBudgetHandler
    random: SecureRandom
    extra_columns: ExtraColumns
    progress: bool | None
    has_read: bool = False

    def run(self, data: Hidden[Any], *, resume: bool) -> Released:
        """Return the release of these terms; see `GDPTable.release`."""
        purchase = self._purchase(resume=resume)
        if (entry := purchase.found()) is None:
            self.terms = self.terms.settled(self.budget)
            entry = purchase.require_payable(self.terms.event_template())
        if entry is not None:
            self._settle_by(entry)
        if entry is not None and (numbers := entry.step(0)) is not None:
            return self._found(entry, numbers)
        if entry is None:
            self._require_recordable()
        reader = self._reader(data)
        tallies = self._tallied(reader)
        require_rows(reader.n_rows)
        # Another process may have released these terms while rows were read.
        entry = entry or purchase.begun(
            self.terms.event_template(),
            lambda paid: {**self._cost(paid.events), **_noise_of(paid.noise)},
            unit_key=self.terms.unit_key,
            n_units=reader.n_units,
        )
        self._settle_by(entry)
        numbers = entry.step(0)
        if numbers is None:
            numbers = self._drawn(entry, tallies)
        return self._found(entry, numbers)

    def _settle_by(self, entry: Entry) -> None:
        """Take the kind of noise that a stored release has paid for."""
        if self.terms.measure is not None:
            _, events = entry.charged()
            is_gaussian = any(isinstance(event, GaussianEvent) for event in events)
            self.terms = replace(
                self.terms, noise="gaussian" if is_gaussian else "laplace"
            )

    def _cost(self, events: tuple[Event, ...]) -> dict[str, float]:
        """Return what a release costs, by what it is charged."""
        if self.terms.noise != "gaussian":
            return {"epsilon": pure_epsilon(events)}
        delta = self.budget.delta
        return {"epsilon": compose(events, delta), "delta": delta}

    def _reader(self, data: Hidden[Any]) -> RowReader:
        terms = self.terms
        return RowReader(
            data.value,
            terms.schema.names,
            Tallies(terms).encode,
            categories=terms.schema.categories,
            unit_key=terms.unit_key,
            rows_per_unit=terms.rows_per_unit,
            sampling_rate=terms.sampling_rate,
            random=self.random,
            extra_columns=self.extra_columns,
            progress=self.progress,
        )

    def _tallied(self, reader: RowReader) -> Hidden[Tallies]:
        tallies = Tallies(self.terms)

        self.has_read = True

        def read() -> None:
            for block in reader.blocks():
                tallies.add(block)

        without_frames(read)
        return Hidden(tallies)

    def _require_recordable(self) -> None:
        """Refuse what could not be recorded afterwards."""
        events = self.budget.price(self.terms.event_template())
        paid = self.budget.quote(self.terms.event_template())
        self.terms.deviations(paid)
        trial = {
            **header_of(events, 1),
            **self._cost(events),
            "account": {"name": "trial"},
        }
        checked_record(self._record(trial, paid))

    def _drawn(self, entry: Entry, tallies: Hidden[Tallies]) -> list[int]:
        terms, paid = self.terms, self._paid(entry)

        def draw() -> list[int]:
            noisy = _noisy(terms, paid, tallies.value.exact, self.random)
            flat = [int(number) for tally in noisy for number in tally.ravel()]
            return entry.release(0, flat)

        # A draw that could not be stored is shown to nobody, in no traceback either:
        # there will be another one for the same charge.
        return without_frames(draw)

    def _found(self, entry: Entry, numbers: list[int]) -> Released:
        paid = self._paid(entry)
        statistics = None
        try:
            statistics = NoisyStatistics.of(self.terms, paid, numbers)
        except OverflowError:
            # Numbers that no release of these terms has stored.
            statistics = None
        stored = _STORED | ({"delta"} if isinstance(paid, GaussianNoise) else set())
        if statistics is None or not entry.header.keys() >= stored:
            raise damaged()
        record = checked_record(self._record(entry.header, paid, statistics))
        return statistics, record

    def _paid(self, entry: Entry) -> Paid:
        """Return the noise before sampling, computed from the charge."""
        noise, _ = paid_for(entry, self.terms.event_template)
        return noise

    def _purchase(self, *, resume: bool) -> Purchase:
        kind = self.terms.fingerprint(is_secure=self.random.secure)
        return Purchase(
            ReleaseStore(self.budget, kind, MECHANISM),
            lambda entry: entry.step(0) is not None,
            "release",
            "release(resume=True) takes it",
            resume,
        )

    def _record(
        self,
        header: dict[str, Any],
        paid: Paid,
        statistics: NoisyStatistics | None = None,
    ) -> dict[str, Any]:
        terms = self.terms
        delta = header["delta"] if isinstance(paid, GaussianNoise) else 0.0
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
        return release_record(
            kind="table",
            status=Status.RELEASED.value,
            mechanism=MECHANISM,
            parameters={
                **terms.described(),
                # Not out of the header: what it cost is the charge's to say.
                **_noise_of(paid),
                **found,
            },
            unit="one row"
            if terms.unit_key is None
            else f"all rows with the same {terms.unit_key!r}",
            unit_key=terms.unit_key,
            relation=Relation.ADD_REMOVE.value,
            neighbors=NEIGHBORS,
            random=self.random,
            **paid_part({**header, "delta": delta}),
        )


def _noise_of(paid: Paid) -> dict[str, float]:
    """Return the noise as the record has it."""
    if isinstance(paid, GaussianNoise):
        return {"noise_multiplier": paid.noise_multiplier}
    return {"epsilon_before_sampling": paid.epsilon}


def _noisy(
    terms: GDPTerms, paid: Paid, exact: Iterable[Any], random: SecureRandom
) -> list[Any]:
    """Return the tallies with the noise that was paid for."""
    if isinstance(paid, GaussianNoise):
        return noisy_histograms(
            list(exact),
            noise_multiplier=paid.noise_multiplier,
            rows_per_unit=terms.rows_per_unit,
            random=random,
        )
    return noisy_tallies(
        list(exact),
        epsilons=terms.epsilons(paid.epsilon),
        bounds=[quantity.bound for quantity in terms.quantities],
        rows_per_unit=terms.rows_per_unit,
        random=random,
    )
