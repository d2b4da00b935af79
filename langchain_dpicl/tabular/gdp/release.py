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

from dataclasses import dataclass
from typing import Any

from langchain_dpicl.accounting import PureEvent
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import PureNoise, SecureRandom
from langchain_dpicl.mechanisms.table_statistics import noisy_tallies
from langchain_dpicl.release.purchase import Purchase, header_of, paid_for
from langchain_dpicl.release.record import paid_part, release_record
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tallies
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms
from langchain_dpicl.tabular.released_table import require_rows
from langchain_dpicl.tabular.rows.reader import RowReader
from langchain_dpicl.tabular.rows.wanted import ExtraColumns

NEIGHBORS = "all rows of one unit added or removed"

Released = tuple[NoisyStatistics, dict[str, Any]]

_STORED = {"created", "library", "events", "epsilon", "charge", "account"}


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
        terms, purchase = self.terms, self._purchase(resume=resume)
        entry = purchase.found() or purchase.require_payable(terms.event_template())
        if entry is not None and (numbers := entry.step(0)) is not None:
            return self._found(entry, numbers)
        if entry is None:
            self._require_recordable()
        reader = self._reader(data)
        tallies = self._tallied(reader)
        require_rows(reader.n_rows)
        # Another process may have released these terms while rows were read.
        entry = entry or purchase.begun(
            terms.event_template(),
            _costs,
            unit_key=terms.unit_key,
            n_units=reader.n_units,
        )
        numbers = entry.step(0)
        if numbers is None:
            numbers = self._drawn(entry, tallies)
        return self._found(entry, numbers)

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
        noise = self.budget.quote(self.terms.event_template())
        self.terms.epsilons(noise.epsilon)
        trial = {
            **header_of((PureEvent(1.0),), 1),
            "epsilon": 1.0,
            "epsilon_before_sampling": noise.epsilon,
            "account": {"name": "trial"},
        }
        checked_record(self._record(trial))

    def _drawn(self, entry: Entry, tallies: Hidden[Tallies]) -> list[int]:
        terms = self.terms
        epsilons = terms.epsilons(self._paid(entry))

        def draw() -> list[int]:
            noisy = noisy_tallies(
                tallies.value.exact,
                epsilons=epsilons,
                bounds=[quantity.bound for quantity in terms.quantities],
                rows_per_unit=terms.rows_per_unit,
                random=self.random,
            )
            flat = [int(number) for tally in noisy for number in tally.ravel()]
            return entry.release(0, flat)

        # A draw that could not be stored is shown to nobody, in no traceback either:
        # there will be another one for the same charge.
        return without_frames(draw)

    def _found(self, entry: Entry, numbers: list[int]) -> Released:
        paid = self._paid(entry)
        epsilons = self.terms.epsilons(paid)
        statistics = None
        try:
            statistics = NoisyStatistics.of(self.terms, epsilons, numbers)
        except OverflowError:
            # Numbers that no release of these terms has stored.
            statistics = None
        if statistics is None or not entry.header.keys() >= _STORED:
            raise damaged()
        # The header lies beside the charge; what it cost is the charge's to say.
        header = {**entry.header, "epsilon_before_sampling": paid}
        record = checked_record(self._record(header, statistics))
        return statistics, record

    def _paid(self, entry: Entry) -> float:
        """Return epsilon before sampling, computed from the charge."""
        noise, _ = paid_for(entry, self.terms.event_template)
        return noise.epsilon

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
        self, header: dict[str, Any], statistics: NoisyStatistics | None = None
    ) -> dict[str, Any]:
        terms = self.terms
        found: dict[str, Any] = {}
        if statistics is not None:
            found = {
                "epsilons": {
                    one.name: epsilon
                    for one, epsilon in zip(
                        terms.quantities, statistics.epsilons, strict=True
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
                "epsilon_before_sampling": header["epsilon_before_sampling"],
                **found,
            },
            unit="one row"
            if terms.unit_key is None
            else f"all rows with the same {terms.unit_key!r}",
            unit_key=terms.unit_key,
            relation=Relation.ADD_REMOVE.value,
            neighbors=NEIGHBORS,
            random=self.random,
            **paid_part({**header, "delta": 0.0}),
        )


def _costs(paid: PaidCharge[PureNoise]) -> dict[str, Any]:
    return {
        "epsilon": pure_epsilon(paid.events),
        "epsilon_before_sampling": paid.noise.epsilon,
    }
