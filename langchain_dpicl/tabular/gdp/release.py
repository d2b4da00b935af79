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

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Event, PureEvent, event_to_dict
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.budget.bundle import read_parts
from langchain_dpicl.exceptions import BudgetExhaustedError, DPError, LedgerError
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.mechanisms.table_statistics import noisy_tallies
from langchain_dpicl.outcome import Status
from langchain_dpicl.relation import Relation
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.released.journal import Entry, Journal, damaged
from langchain_dpicl.sealed.hidden import Hidden, without_frames
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tallies
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms
from langchain_dpicl.tabular.released_table import require_rows
from langchain_dpicl.tabular.rows.reader import RowReader
from langchain_dpicl.tabular.rows.wanted import ExtraColumns

NEIGHBORS = "all rows of one unit added or removed"

_LOOKS, _PAUSE = 50, 0.1
"""How often, and in what time, another process' release is looked for."""

T = TypeVar("T")

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

    def made(self, data: Hidden[Any], *, resume: bool) -> Released:
        """Return the release of these terms; see `GDPTable.release`."""
        entry = self._last() if resume else None
        if entry is None:
            entry = self._asked(self._require_payable, resume=resume)
        if entry is not None:
            numbers = entry.step(0)
            if numbers is not None:
                return self._found(entry, numbers)
        reader = self._reader(data)
        tallies = self._tallied(reader)
        require_rows(reader.n_rows)
        if entry is None and resume:
            # Another process may have released these terms while rows were read.
            entry = self._last()
        if entry is None:
            entry = self._asked(lambda: self._charged(reader), resume=resume)
        if entry is None:  # pragma: no cover  # A charge has an entry, or raises.
            raise damaged()
        numbers = entry.step(0)
        if numbers is None:
            numbers = self._drawn(entry, tallies)
        return self._found(entry, numbers)

    def _asked(self, step: Callable[[], Entry | None], *, resume: bool) -> Entry | None:
        """Ask the account; where it can't pay, maybe take what used it up."""
        try:
            return self._pay(step)
        except BudgetExhaustedError:
            entry = self._awaited() if resume else None
            if entry is None:
                raise
            return entry

    def _awaited(self) -> Entry | None:
        """Return the release that another process was charged for just now.

        Whoever uses an account up stores the beginning of its release right after its
        charge: it may take a moment to be there.
        """
        for _ in range(_LOOKS):
            entry = self._last()
            if entry is not None:
                return entry
            time.sleep(_PAUSE)
        return None

    def _pay(self, step: Callable[[], T]) -> T:
        """Run what asks the account; where it can't pay, say what is there."""
        message = ""
        try:
            return step()
        except BudgetExhaustedError as error:
            message = str(error)
        if self._journal().entries():
            message += (
                " A release of these very terms is stored in this account: "
                "release(resume=True) takes it, at no charge."
            )
        raise BudgetExhaustedError(message)

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

    def _require_payable(self) -> None:
        """Refuse what can't be paid for, or not be recorded afterwards."""
        demand = self.terms.demand()
        self.budget.require_payable(demand)
        part = self.budget.quote(demand)[0]
        self.terms.epsilons(part.epsilon or 0.0)
        trial = _header((PureEvent(1.0),), 1, part.epsilon or 0.0, {"name": "trial"})
        checked_record(self._record(trial))

    def _charged(self, reader: RowReader) -> Entry:
        grant = self.budget.admit(
            self.terms.demand(),
            unit_key=self.terms.unit_key,
            n_units=reader.n_units,
        )
        header = _header(
            grant.events,
            grant.sequence,
            grant.parts[0].epsilon or 0.0,
            self.budget.public_state(grant),
        )
        message = ""
        try:
            return self._journal().start(header)
        except LedgerError as error:
            message = str(error)
        raise LedgerError(
            f"{message} The release was charged (charge {grant.sequence}), and its "
            "beginning could not be stored, so it can't be gone on with."
        )

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
        _, events = entry.charged()
        epsilon = None
        try:
            epsilon = read_parts(self.terms.demand(), events)[0].epsilon
        except (DPError, TypeError, ValueError):
            # Events of another kind of release.
            epsilon = None
        if epsilon is None:
            raise damaged()
        return epsilon

    def _journal(self) -> Journal:
        kind = self.terms.fingerprint(is_secure=self.random.secure)
        return Journal(self.budget, kind, MECHANISM)

    def _last(self) -> Entry | None:
        """Return the oldest release that was paid for and not made; else the newest."""
        entries = self._journal().entries()
        for entry in entries:
            if entry.step(0) is None:
                return entry
        return entries[-1] if entries else None

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
        record = {
            "status": Status.RELEASED.value,
            "mechanism": MECHANISM,
            "parameters": {
                **terms.described(),
                "epsilon_before_sampling": header["epsilon_before_sampling"],
                **found,
            },
            "unit": "one row"
            if terms.unit_key is None
            else f"all rows with the same {terms.unit_key!r}",
            "unit_key": terms.unit_key,
            "relation": Relation.ADD_REMOVE.value,
            "neighbors": NEIGHBORS,
            "events": header["events"],
            "epsilon": header["epsilon"],
            "delta": 0.0,
            "charge": header["charge"],
            "account": header["account"],
            "model": None,
            "created": header["created"],
            "library": header["library"],
        }
        if not self.random.secure:
            record["random"] = f"{self.random!r}: for tests, not private"
        return record


def _header(
    events: tuple[Event, ...], charge: int, epsilon: float, account: dict[str, Any]
) -> dict[str, Any]:
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "library": __version__,
        "events": [event_to_dict(event) for event in events],
        "epsilon": pure_epsilon(events),
        "epsilon_before_sampling": epsilon,
        "charge": charge,
        "account": account,
    }
