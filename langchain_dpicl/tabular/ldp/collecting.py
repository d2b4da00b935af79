"""From rows, or from reports, to counts: the one pass over private rows.

The account is charged before the first report is drawn. Rows that can be read twice
are checked before that, at no cost; rows that come only once can't be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.accounting import PureEvent
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.budget.demand import Grant
from langchain_dpicl.exceptions import (
    DPError,
    InvalidParameterError,
)
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.parameters import ParameterError
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.reporting import Reporter
from langchain_dpicl.tabular.ldp.result import (
    Collected,
    Payment,
    reconstructed,
    record_of,
    trial_record,
)
from langchain_dpicl.tabular.ldp.terms import SECURE, LDPTerms
from langchain_dpicl.tabular.released_table import require_account, require_rows
from langchain_dpicl.tabular.rows import RowReader, SQLRows, read_chunks
from langchain_dpicl.tabular.rows.frames import frame_library, is_lazy_frame
from langchain_dpicl.tabular.rows.wanted import ExtraColumns
from langchain_dpicl.validation import checked

Invalid = Literal["refuse", "drop"]

MAX_EPSILON = 1e300
"""Largest epsilon that a record can hold."""


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
        random: SecureRandom,
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


def collect(
    rows: Rows | None,
    terms: LDPTerms,
    budget: PrivacyBudgetHandler | None,
    random: SecureRandom,
) -> Collected:
    """Charge the account, then randomize and count all rows.

    Args:
        rows: The rows.
        terms: The public terms, checked.
        budget: The account.
        random: Where the noise comes from.

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
        charge, and the charge is durable before the first report is drawn. An error
        after it drops the reports that were drawn: nobody has seen them.
    """
    account = require_account(budget)
    if rows is None or rows.is_spent:
        raise InvalidParameterError(
            "The rows came only once, and were read up to an error. Make a new table "
            "of them, best of a list, a frame or SQLRows."
        )
    checked_record(trial_record(terms, random))
    demand = terms.demand()
    account.require_payable(demand)
    expected = terms.row_epsilons(_known(account.quote(demand)[0].epsilon))
    _require_estimate(terms, expected)
    counts = _counts(terms)
    n_units = None
    if not rows.come_once:
        n_units = _checked_rows(rows, terms, Reporter(terms.schema, expected, random))
    grant = account.admit(demand, unit_key=terms.unit_key, n_units=n_units)
    # What was charged decides, also where it isn't what was quoted.
    epsilon = _known(grant.epsilon)
    paid = replace(terms, epsilon=epsilon)
    message = ""
    kind: type[DPError] = InvalidParameterError
    try:
        reporter = Reporter(terms.schema, paid.row_epsilons(epsilon), random)
        for block in map(Hidden, rows.reader(terms, reporter, random).blocks()):
            counts.add(_matrix(terms, reporter.randomize(block.value)))
        require_rows(counts.n)
        payment = Payment(
            grant.events, epsilon, grant.sequence, account.public_state(grant)
        )
        return Collected.of(paid, counts, payment, random)
    except (DPError, ParameterError) as error:
        message = str(error)
        # Somebody else's subclass may be made of other arguments.
        is_ours = type(error).__module__ == DPError.__module__
        kind = type(error) if isinstance(error, DPError) and is_ours else kind
    raise kind(f"{message} {_lost(rows, grant)}")


def count_reports(
    reports: Iterable[Any],
    terms: LDPTerms,
    random: SecureRandom,
    *,
    invalid: Invalid,
    reports_per_unit: int,
    chunk_size: int,
    said: Mapping[str, Any] | None = None,
) -> Collected:
    """Count reports that clients made; post-processing, nothing is charged.

    Args:
        reports: What `LDPClient.report` returned, many of them.
        terms: The public terms of the clients: epsilon is what one report cost.
        random: Where rows are drawn with, later.
        invalid: What to do with a report that can't be read.
        reports_per_unit: Most reports of one person.
        chunk_size: How many reports are counted at once.
        said: The clients' own terms, which tell whether their noise was for tests.

    Raises:
        InvalidParameterError: If there are none, or one can't be read.

    Privacy:
        What goes in is what clients sent: each is epsilon-locally private for the one
        who sent it, and for somebody who sent m of them m epsilon. That m is at most
        `reports_per_unit` is the collector's word.
    """
    epsilon = _known(terms.epsilon)
    payment = _paid_by_clients(epsilon, reports_per_unit, said)
    # Before reports are read, which may come only once.
    checked_record(record_of(terms, payment, {}, random))
    reporter = Reporter(terms.schema, terms.row_epsilons(epsilon), random)
    counts = _counts(terms)
    dropped = 0
    for block in _read(_mappings(reports, terms), reporter, chunk_size):
        kept = []
        for place, codes in block:
            if not isinstance(codes, str):
                kept.append(codes)
            elif invalid == "drop":
                dropped += 1
            else:
                raise InvalidParameterError(
                    f"Report {place} (counted from 0) can't be read: {codes}. Give "
                    "invalid='drop' to count the others, if clients of other schemas "
                    "or strangers may send reports."
                )
        if kept:
            counts.add(np.array(kept, dtype=np.int64))
    if not counts.n:
        raise InvalidParameterError(
            f"There are no reports that can be read ({dropped} were dropped)."
        )
    return Collected.of(terms, counts, payment, random, dropped)


def _paid_by_clients(
    epsilon: float, reports_per_unit: int, said: Mapping[str, Any] | None
) -> Payment:
    """Return what clients have spent: on so many reports of one person each."""
    event = checked(PureEvent, epsilon, reports_per_unit)
    total = float(min(Fraction(epsilon) * reports_per_unit, Fraction(MAX_EPSILON)))
    if total >= MAX_EPSILON:
        raise InvalidParameterError(
            f"epsilon, reports_per_unit times, must be below {MAX_EPSILON:g}: beyond "
            "that no record of it can be written."
        )
    if Fraction(total) < Fraction(epsilon) * reports_per_unit:
        total = math.nextafter(total, math.inf)  # A claim is rounded up.
    return Payment(
        (event,),
        total,
        charge=None,
        account=None,
        by="clients",
        unit="one report"
        if reports_per_unit == 1
        else f"one person's reports, of which there are at most {reports_per_unit}",
        neighbors="the row behind every report of one unit replaced by any other; who "
        "reports, and how often, is public",
        random=None
        if said is None or said.get("random") == SECURE
        else "the clients' noise was for tests, not private",
    )


def _read(
    reports: Iterable[Any], reporter: Reporter, chunk_size: int
) -> Iterator[list[tuple[int, list[int] | str]]]:
    """Yield blocks of codes, or of what is wrong, with the reports' places."""
    numbered = enumerate(reports)
    while block := list(islice(numbered, chunk_size)):
        yield [(place, _codes_of(report, reporter)) for place, report in block]


def _mappings(reports: Any, terms: LDPTerms) -> Iterable[Any]:
    """Return reports one by one, also out of a frame or a database."""
    is_table = frame_library(reports) is not None or is_lazy_frame(reports)
    if not is_table and not isinstance(reports, SQLRows):
        if isinstance(reports, str | bytes | Mapping) or not isinstance(
            reports, Iterable
        ):
            raise InvalidParameterError(
                "reports must be an iterable of what LDPClient.report returned, a "
                f"frame or SQLRows, not {type(reports).__name__}."
            )
        return reports
    names = terms.schema.names
    return (
        dict(zip(names, values, strict=True))
        for chunk in read_chunks(reports, names)
        for values in zip(*(chunk.columns[name] for name in names), strict=True)
    )


def _codes_of(report: Any, reporter: Reporter) -> list[int] | str:
    try:
        return reporter.read(report)
    except InvalidParameterError as error:
        return str(error)


def _checked_rows(rows: Rows, terms: LDPTerms, reporter: Reporter) -> int:
    """Read all rows once to check them; return how many units there are."""
    # A rate this small keeps nobody's rows in memory.
    reader = rows.reader(
        terms, reporter, SecureRandom(), sampling_rate=np.finfo(np.float64).tiny
    )
    for _ in reader.blocks():
        pass
    require_rows(reader.n_rows)
    return reader.n_units


def _require_estimate(terms: LDPTerms, epsilons: Mapping[str, float]) -> None:
    """Refuse budgets at which no number of reports could be made sense of."""
    trial = _counts(terms)
    trial.add(np.zeros((1, len(epsilons)), dtype=np.int64))
    reconstructed(terms, epsilons, trial)


def _counts(terms: LDPTerms) -> ReportCounts:
    return checked(ReportCounts, list(terms.sizes.values()))


def _matrix(terms: LDPTerms, codes: Mapping[str, NDArray[np.int64]]) -> Any:
    return np.column_stack([codes[name] for name in terms.schema.names])


def _known(epsilon: float | None) -> float:
    if epsilon is None:
        # A demand of one pure part is always granted an epsilon.
        raise InvalidParameterError("The account granted no epsilon.")
    return epsilon


def _lost(rows: Rows, grant: Grant) -> str:
    text = (
        f"Charge {grant.sequence} of account {grant.account!r} was made before the "
        "reports were drawn and stays; nothing was released."
    )
    if rows.come_once:
        text += (
            " Rows that come only once can't be checked before the charge: pass a "
            "list, a frame or SQLRows, and that is free."
        )
    return text
