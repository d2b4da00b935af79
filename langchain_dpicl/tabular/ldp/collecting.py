"""From rows to counts of reports: the one pass over private rows.

The account is charged before the first report is drawn. Rows that can be read twice
are checked before that, at no cost; rows that come only once can't be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Purchase, Stored
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.errors import (
    DPError,
    InvalidParameterError,
)
from langchain_dpicl.mechanisms.random import SecureRandom, current
from langchain_dpicl.release.buying import taken_or_payable
from langchain_dpicl.release.record import damaged
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.fitting import share_errors
from langchain_dpicl.tabular.ldp.reporting import Reporter
from langchain_dpicl.tabular.ldp.result import (
    Collected,
    Spending,
    reconstructed,
    trial_record,
)
from langchain_dpicl.tabular.ldp.terms import MECHANISM, LDPTerms
from langchain_dpicl.tabular.released_table import require_account, require_rows
from langchain_dpicl.tabular.rows import RowReader
from langchain_dpicl.tabular.rows.wanted import ExtraColumns
from langchain_dpicl.tabular.schema.table import TableSchema

_KEPT = ("epsilon", "split", "unit_key", "rows_per_unit")
"""The terms that the ledger keeps beside the schema. Which model is fitted is free."""


@dataclass
class Rows:
    """A curator's rows, not read yet, and how to read them.

    Attributes:
        data: The rows.
        extra_columns: What to do with columns that the schema doesn't have.
        chunk_size: How many rows are read at once.
        progress: Whether to show a bar; None: at a terminal.
        is_spent: Whether rows that come only once have come.
    """

    data: Hidden[Any]
    extra_columns: ExtraColumns
    chunk_size: int
    progress: bool | None
    is_spent: bool = False

    @property
    def come_once(self) -> bool:
        """Whether the rows can be read only once."""
        data = self.data.value
        return isinstance(data, Iterator) or bool(getattr(data, "come_once", False))

    def reader(
        self,
        terms: LDPTerms,
        reporter: Reporter,
        random: SecureRandom | None,
        *,
        sampling_rate: float = 1.0,
    ) -> RowReader:
        """Return what reads the rows once, in bounded memory."""
        self.is_spent = self.come_once
        return RowReader(
            self.data.value,
            terms.schema.names,
            reporter.encode,
            categories=terms.schema.categories,
            unit_key=terms.unit_key,
            rows_per_unit=terms.rows_per_unit,
            sampling_rate=sampling_rate,
            random=random,
            extra_columns=self.extra_columns,
            chunk_size=self.chunk_size,
            progress=self.progress,
        )


def collect_reports(
    rows: Rows | None,
    terms: LDPTerms,
    budget: PrivacyBudgetHandler | None,
    random: SecureRandom | None,
    *,
    resume: bool,
) -> Collected:
    """Charge the account, then randomize and count all rows; or find the counts.

    Args:
        rows: The rows.
        terms: The public terms, checked.
        budget: The account.
        random: Where the noise comes from.
        resume: Whether a collection of the same terms that this account has paid for
            is taken, or made for its charge, instead of paying for another one.

    Raises:
        NoBudgetError: If there is no account.
        UnitError: If there are no rows, or a row has no unit id.
        InvalidParameterError: If the account can't pay for such a release at all, or
            the rows don't fit the schema.
        BudgetExhaustedError: If the account can't pay.
        PlanMismatchError: If its plan is for another release, or none can be made.
        LedgerError: If the ledger can't be used.

    Privacy:
        The event is pure epsilon under replacement of one unit's values; see
        `LDPTable`. Everything that can fail for public reasons fails before the
        charge, and the charge is durable before the first report is drawn. The counts
        are stored before they are returned (`budget.paid`). An error before that drops
        the reports that were drawn: nobody has seen them, and it did not look at them.
    """
    purchase = _purchase(terms, require_account(budget), random, resume=resume)
    checked_record(trial_record(terms, random))
    way_out = "release(resume=True) takes it"
    stored = taken_or_payable(purchase, "collection", way_out)
    if stored is not None and stored.is_complete:
        return _of_account(purchase, stored, terms, random)
    if rows is None or rows.is_spent:
        raise InvalidParameterError(
            "The rows came only once, and were read up to an error. Make a new table "
            "of them, best of a list, a frame or SQLRows."
        )
    if stored is None:
        _check(purchase, rows, terms, random)
    with purchase.bought() as paid:

        def once() -> Any:
            return paid.once(lambda: _counted(paid, rows, terms, random).to_dict())

        # Counts that could not be stored are in no traceback: there will be others for
        # the same charge.
        counts = without_frames(once)
    drawn = replace(paid.stored, values=(counts,))
    return _of_account(purchase, drawn, terms, random)


def _purchase(
    terms: LDPTerms,
    budget: PrivacyBudgetHandler,
    random: SecureRandom | None,
    *,
    resume: bool,
) -> Purchase:
    is_seeded = (random or current()).is_seeded
    header = {
        "record": trial_record(terms, random),
        "schema": terms.schema.describe(),
        "terms": {name: getattr(terms, name) for name in _KEPT},
    }
    return Purchase(
        budget,
        terms.charge(),
        f"{MECHANISM} {terms.fingerprint(is_secure=not is_seeded)}",
        unit_key=terms.unit_key,
        header=header,
        resumable=True,
        anew=not resume,
    )


def _of_account(
    purchase: Purchase, stored: Stored, terms: LDPTerms, random: SecureRandom | None
) -> Collected:
    """Return what stored counts say, with the state of the account that paid."""
    account = purchase.budget.public_state(stored)
    return _released(stored, terms, random, account)


def _check(
    purchase: Purchase, rows: Rows, terms: LDPTerms, random: SecureRandom | None
) -> None:
    """Check what can be checked before it is paid for."""
    expected = terms.row_epsilons(terms.paid(purchase.budget.quote(terms.charge())))
    _require_estimate(terms, expected)
    counts_for(terms)
    if not rows.come_once:
        _check_rows(rows, terms, Reporter(terms.schema, expected, random))


def stored_collection(stored: Stored, model: Any) -> Collected:
    """Return what a ledger holds of a collection; of the account nothing.

    Args:
        stored: The charge.
        model: The model of the distribution.

    Raises:
        LedgerError: If no collection has stored this.
    """
    header, terms = stored.header, None
    with suppress(InvalidParameterError, KeyError, TypeError):
        kept = {name: header["terms"][name] for name in _KEPT}
        chosen: Any = "joint" if model == "joint" else "label"
        terms = LDPTerms(TableSchema(**header["schema"]), model=chosen, **kept)
        terms.check()
    if terms is None:
        raise damaged()
    return _released(stored, terms, None, None)


def _counted(
    paid: Paid, rows: Rows, terms: LDPTerms, random: SecureRandom | None
) -> ReportCounts:
    """Randomize and count the rows, by the noise that the charge paid for."""
    counts, epsilons = counts_for(terms), terms.row_epsilons(terms.paid(paid.events))
    message = ""
    kind: type[DPError] = InvalidParameterError
    try:
        reporter = Reporter(terms.schema, epsilons, random)
        for block in map(Hidden, rows.reader(terms, reporter, random).blocks()):
            counts.add(_matrix(terms, reporter.randomize(block.value)))
        require_rows(counts.n)
    except DPError as error:
        message = str(error)
        # Somebody else's subclass may be made of other arguments.
        is_ours = type(error).__module__ == DPError.__module__
        kind = type(error) if isinstance(error, DPError) and is_ours else kind
    else:
        return counts
    raise kind(f"{message} {_unfinished(rows, paid)}")


def _released(
    stored: Stored,
    terms: LDPTerms,
    random: SecureRandom | None,
    account: dict[str, Any] | None,
) -> Collected:
    """Return what stored counts say. What they cost is the charge's to say."""
    counts = _counts_of(stored, terms)
    if counts is None or not terms.charge().fits(stored.events):
        raise damaged()
    epsilon = terms.paid(stored.events)
    payment = Spending(stored.events, epsilon, stored.charge, account)
    record = stored.header.get("record", {})
    made = {name: record.get(name) for name in ("created", "library")}
    found = Collected.of(replace(terms, epsilon=epsilon), counts, payment, random)
    return replace(found, record=checked_record({**found.record, **made}))


def _counts_of(stored: Stored, terms: LDPTerms) -> ReportCounts | None:
    """Return the stored counts of reports; None if they are of other columns."""
    with suppress(
        AttributeError, IndexError, TypeError, ValueError, InvalidParameterError
    ):
        counts = ReportCounts.from_dict(stored.values[0])
        wanted = (tuple(terms.sizes.values()), terms.label)
        if (counts.domain_sizes, counts.label) == wanted and counts.n:
            return counts
    return None


def _check_rows(rows: Rows, terms: LDPTerms, reporter: Reporter) -> None:
    """Read all rows once to check them."""
    # A rate this small keeps nobody's rows in memory.
    reader = rows.reader(terms, reporter, None, sampling_rate=np.finfo(np.float64).tiny)
    for _ in reader.blocks():
        pass
    require_rows(reader.n_rows)


def _require_estimate(terms: LDPTerms, epsilons: Mapping[str, float]) -> None:
    """Refuse budgets at which no number of reports could be made sense of."""
    trial = counts_for(terms)
    trial.add(np.zeros((1, len(epsilons)), dtype=np.int64))
    reconstructed(terms, epsilons, trial)
    share_errors(trial, list(epsilons.values()))


def counts_for(terms: LDPTerms) -> ReportCounts:
    """Return counts of no reports yet, for the terms' columns."""
    return ReportCounts(list(terms.sizes.values()), terms.label)


def _matrix(terms: LDPTerms, codes: Mapping[str, NDArray[np.int64]]) -> Any:
    return np.column_stack([codes[name] for name in terms.schema.names])


def _unfinished(rows: Rows, paid: Paid) -> str:
    text = (
        f"Charge {paid.charge} of account {paid.stored.account!r} was made "
        "before the reports were drawn; nothing was released. release(resume=True) on "
        "a table of good rows and the same terms collects for this charge."
    )
    if rows.come_once:
        text += (
            " Rows that come only once can't be checked before the charge: pass a "
            "list, a frame or SQLRows, and that is free."
        )
    return text
