"""One release of a table's statistics: read, charge, noise, store - in this order.

Privacy:
    Rows are read, checked and tallied before the charge, so that a bad row costs
    nothing; nothing of the tallies leaves `made` but through `noisy_tallies`, and of
    the names in open columns through `threshold_words`. The charge is durable before
    the noise is drawn, the noise is that of the events that were paid, and what was
    drawn is stored before it is returned (`budget.paid`). Where a process stops between
    charge and storing, `resume=True` draws what is not stored under the same charge:
    what stopped it did not look at the draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from langchain_dpicl.accounting import Event, Gaussian, compose
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Purchase, Stored, last
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.keyword_threshold import pass_rate, threshold_words
from langchain_dpicl.mechanisms.random import SecureRandom, current, use
from langchain_dpicl.mechanisms.tables import noisy_histograms, noisy_tallies
from langchain_dpicl.release.buying import taken_or_payable
from langchain_dpicl.release.record import damaged, release_record
from langchain_dpicl.released.checking import checked_record, pure_epsilon
from langchain_dpicl.tabular.gdp.mergeable import Tally
from langchain_dpicl.tabular.gdp.names import names_stored
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Counted, count_rows
from langchain_dpicl.tabular.gdp.terms import MECHANISM, GDPTerms, TableEvent, Test
from langchain_dpicl.tabular.released_table import require_rows
from langchain_dpicl.tabular.rows.wanted import ExtraColumns
from langchain_dpicl.tabular.schema.table import TableSchema

NEIGHBORS = "all rows of one unit added or removed"

Released = tuple[NoisyStatistics, dict[str, Any]]

_WAY_OUT = "release(resume=True) takes it"


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
        # Before the noise is settled: a stored release settles it.
        is_seeded = (self.random or current()).is_seeded
        kind = self.terms.fingerprint(is_secure=not is_seeded)
        key = f"{MECHANISM} {kind}"
        stored = last(self.budget.ledger, self.budget.account, key) if resume else None
        if stored is None:
            self.terms = self.terms.settled(self.budget)
            purchase = self._purchase(key, resume=resume)
            stored = taken_or_payable(purchase, "release", _WAY_OUT)
        if stored is None:
            self._require_recordable()
        else:
            self._settle_by(stored)
            if stored.is_complete:
                return self._found(stored)
        counted = self._counted(data)
        require_rows(counted.value.n_rows)
        with self._purchase(key, resume=resume).bought() as paid:
            self._settle_by(paid.stored)
            values: list[Any] = [self._drawn(paid, counted)]
            if self.terms.opened:
                values.append(self._named(paid, counted))
        return self._found(replace(paid.stored, values=tuple(values)))

    def _purchase(self, key: str, *, resume: bool) -> Purchase:
        terms = self.terms
        header = {
            "record": _record_terms(terms, self.random),
            "terms": terms.stored(),
            "row_unit": terms.row_unit,
            "schema": terms.schema.describe(),
        }
        return Purchase(
            self.budget,
            terms.charge(),
            key,
            steps=2 if terms.opened else 1,
            unit_key=terms.charged_unit,
            header=header,
            resumable=True,
            anew=not resume,
        )

    def _settle_by(self, stored: Stored) -> None:
        """Take the kind of noise that a stored release has paid for."""
        if self.terms.measure is not None:
            # What the tables are charged is first; names have Gaussian noise anyway.
            is_gaussian = isinstance(stored.events[0], Gaussian)
            self.terms = replace(
                self.terms, noise="gaussian" if is_gaussian else "laplace"
            )

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
        terms = self.terms
        events = self.budget.quote(terms.charge())
        paid, named = terms.paid(events)
        terms.deviations(paid)
        if named is not None:
            pass_rate(1, named, Relation.ADD_REMOVE, items_per_answer=terms.most_named)
        record = _record_terms(terms, self.random)
        checked_record(_charged_record(record, terms, events, self.budget.delta))

    def _drawn(self, charge: Paid, counted: Hidden[Counted]) -> list[int]:
        terms = self.terms
        paid, _ = terms.paid(charge.events)

        def draw() -> list[int]:
            with use(self.random):
                noisy = _noisy(terms, paid, counted.value.exact)
            return [int(number) for tally in noisy for number in tally.ravel()]

        # A draw that could not be stored is shown to nobody, in no traceback either:
        # there may be another one for the same charge.
        numbers: list[int] = without_frames(lambda: charge.once(draw))
        return numbers

    def _named(self, charge: Paid, counted: Hidden[Counted]) -> list[str]:
        _, paid = self.terms.paid(charge.events)

        def draw() -> list[str]:
            if paid is None:
                raise damaged()
            with use(self.random):
                found = threshold_words(
                    counted.value.names,
                    paid,
                    Relation.ADD_REMOVE,
                    items_per_answer=self.terms.most_named,
                )
            return sorted(found)

        names: list[str] = without_frames(lambda: charge.once(draw))
        return names

    def _found(self, stored: Stored) -> Released:
        statistics, record = _released(self.terms, stored, self.budget.delta)
        account = {"account": self.budget.public_state(stored)}
        return statistics, checked_record({**record, **account})


def stored_release(stored: Stored, delta: float) -> Released:
    """Return what a ledger holds of a release: its statistics and its record.

    Args:
        stored: The charge.
        delta: The delta at which the record states what it cost.

    Raises:
        LedgerError: If no release has stored this.
    """
    header, terms = stored.header, None
    with suppress(InvalidParameterError, KeyError, TypeError):
        found = GDPTerms.read(TableSchema(**header["schema"]), header["terms"])
        terms = replace(found, row_unit=header["row_unit"])
    if terms is None:
        raise damaged()
    return _released(terms, stored, delta)


def _released(terms: GDPTerms, stored: Stored, delta: float) -> Released:
    """Return the statistics and the record of a release; of the account nothing."""
    statistics, record = None, None
    numbers, *named = stored.values or ([],)
    names = names_stored(terms.opened, named[0] if named else [])
    if not terms.charge().fits(stored.events) or not _are_whole(numbers):
        raise damaged()
    paid, _ = terms.paid(stored.events)
    # Not numbers that no release of these terms has stored.
    with suppress(OverflowError, KeyError, TypeError):
        statistics = NoisyStatistics.of(terms, paid, numbers, names)
        record = stored.header["record"]
    if statistics is None or record is None:
        raise damaged()
    charged = _charged_record(record, terms, stored.events, delta)
    found: dict[str, Any] = {
        "epsilons": {
            quantity.name: epsilon
            for quantity, epsilon in zip(
                terms.quantities, statistics.epsilons, strict=False
            )
        },
        "noise": {q.name: statistics.noise(q.name) for q in terms.quantities},
        "groups_hidden_by_noise": statistics.seen.count(False),
    }
    if terms.opened:
        found["named"] = {name: list(each) for name, each in statistics.named.items()}
    parameters = {**charged["parameters"], **found}
    return statistics, {**charged, "parameters": parameters, "charge": stored.charge}


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)


def _record_terms(terms: GDPTerms, random: SecureRandom | None) -> dict[str, Any]:
    """Return a release's record as far as it is known before the charge."""
    return release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters=terms.described(),
        unit=terms.unit,
        unit_key=terms.charged_unit,
        relation=Relation.ADD_REMOVE.value,
        neighbors=NEIGHBORS,
        random=random,
    )


def _charged_record(
    record: Mapping[str, Any],
    terms: GDPTerms,
    events: tuple[Event, ...],
    delta: float,
) -> dict[str, Any]:
    """Return a release's record with what it cost, by what it was charged."""
    delta = 0.0 if terms.is_pure else delta
    return {
        **record,
        "parameters": {**terms.described(), **_noise_of(*terms.paid(events))},
        "events": [event.model_dump(mode="json") for event in events],
        "epsilon": compose(events, delta) if delta else pure_epsilon(events),
        "delta": delta,
    }


def _noise_of(paid: TableEvent, names: Test | None) -> dict[str, Any]:
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


def _noisy(terms: GDPTerms, paid: TableEvent, exact: Sequence[Any]) -> list[Any]:
    """Return the tallies with the noise that was paid for."""
    rows = terms.rows_per_unit
    if isinstance(paid, Gaussian):
        return list(noisy_histograms(exact, paid, rows_per_unit=rows))
    shares = terms.epsilons(paid)
    noisy = noisy_tallies(
        exact, paid, bounds=terms.bounds, shares=shares, rows_per_unit=rows
    )
    return list(noisy)
