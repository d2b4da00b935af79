"""`LDPTable`: a table that nobody sees but through randomized response."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NoReturn

import numpy as np
from typing_extensions import Self

from langchain_dpicl.budget import PrivacyBudgetHandler, require_account
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.distribution import Distribution
from langchain_dpicl.tabular.ldp.client import SECURE
from langchain_dpicl.tabular.ldp.model import Model, draw_rows, share_errors
from langchain_dpicl.tabular.ldp.release import Collected, collect, count_reports
from langchain_dpicl.tabular.ldp.terms import LDPTerms, require_participation
from langchain_dpicl.tabular.released_table import (
    ReleasedTable,
    not_released,
)
from langchain_dpicl.tabular.rows import UnitRows
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split

_SHOWN = 5
"""Shares of each column in a summary."""

_REACH = 1.96
"""Standard errors within which 95 % of estimates are."""


class LDPTable(ReleasedTable):
    """Rows like those of a private table, out of locally randomized reports.

    Every row is randomized, column by column, before anything is counted. What the
    rows are like is reconstructed from the reports, and rows are drawn from that, for
    any number of prompts. One charge pays for all of it.

    Either you hold the rows: `LDPTable(data, schema, budget=...)`. Or each person
    randomizes with an `LDPClient`, and you hold reports: `LDPTable.from_reports`.

    Args:
        data: The private rows: mappings, such as `csv_rows(path)`, or anything with an
            Arrow C stream, whose cells were read one by one (see `tabular.rows`). They
            are read once, and checked before the charge.
        schema: The columns with their public values; numbers need bins.
        epsilon: What the reports about one unit cost; None leaves it to the budget.
        budget: The account that pays.
        split: How a row's epsilon is divided among its columns: evenly, or as a
            mapping says.
        model: What rows are drawn from: the `label` first, and each other column by
            it; or the `joint` table of all columns, which few columns allow.
        unit_key: The column that says whose a row is; None: each row is a person's of
            its own.
        rows_per_unit: Most rows of a unit that are reported; each costs its share of
            `epsilon`, which pays for all of them.
        participation: `public`: that a report was made is not protected. This or
            `invited` is stated.
        invited: How many units are on a public list of invitations. Each counts with
            `rows_per_unit` reports, uniform ones where nobody answered, so shares are
            of invitations: those without an answer count as spread evenly over the
            values.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a column of
            numbers has no bins; it is named. Nothing is read here.

    Privacy:
        Unit: one row, or all rows of one `unit_key`, of which `rows_per_unit` at most
        are reported, chosen by a secret key and the unit's own rows. Neighbors: by
        `participation="public"` the unit's values replaced by any others, and how many
        rows are reported is public; by `invited` all rows of one unit more or less.
        Why, and what an account may hold besides: `tabular.ldp.terms`. Noise and
        event: `mechanisms.responses`, pure epsilon, on every column, the label too, at
        epsilon_f, with sum epsilon_f <= epsilon / rows_per_unit. All after the reports
        is post-processing.

        The account is charged, durably, before the first report is drawn. Then the
        rows are let go, and only counts of reports are held; the ledger has them.
        Public: the schema, all parameters, the number of reports, and that there was a
        row at all.

    Example:
        >>> from langchain_dpicl import PrivacyBudgetHandler
        >>> from langchain_dpicl.tabular import CategoricalColumn, TableSchema
        >>> schema = TableSchema(
        ...     label="smokes",
        ...     columns=[
        ...         CategoricalColumn(name="job", values=["clerk", "nurse"]),
        ...         CategoricalColumn(name="smokes", values=["no", "yes"]),
        ...     ],
        ... )
        >>> rows = [{"job": "clerk", "smokes": "no"}, {"job": "nurse", "smokes": "yes"}]
        >>> table = LDPTable(
        ...     rows * 400,
        ...     schema,
        ...     epsilon=4,
        ...     participation="public",
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=4, delta=1e-5, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> examples = table.examples(2)
        >>> sorted(example["label"] for example in examples)
        ['no', 'yes']
        >>> table.n_reports, examples.record["epsilon"]
        (800, 4.0)
    """

    _binned = True

    def __init__(  # noqa: PLR0913  # The terms, one by one.
        self,
        data: Any,
        schema: TableSchema,
        *,
        epsilon: float | None = None,
        budget: PrivacyBudgetHandler | None = None,
        split: Split = "even",
        model: Model = "label",
        unit_key: str | None = None,
        rows_per_unit: int = 1,
        participation: Literal["public"] | None = None,
        invited: int | None = None,
    ) -> None:
        hidden = Hidden(data)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del data
        require_participation(participation, invited)
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        # Each row of `UnitRows` was made of all records of one unit.
        is_read = isinstance(hidden.value, UnitRows)
        row_unit = hidden.value.unit_key if is_read else None
        terms = LDPTerms(
            schema, epsilon, split, model, unit_key, rows_per_unit, invited, row_unit
        )
        self._prepare(terms, hidden, budget)

    def _prepare(
        self,
        terms: LDPTerms,
        rows: Hidden[Any] | None,
        budget: PrivacyBudgetHandler | None,
        collected: Collected | None = None,
    ) -> None:
        self._schema, self._unit_key = terms.schema, terms.unit_key
        self._terms, self._rows, self._budget = terms, rows, budget
        self._collected = collected
        self._has_read = False
        self._lock = threading.Lock()

    @classmethod
    def from_reports(  # noqa: PLR0913  # The clients' terms, one by one.
        cls,
        reports: Iterable[Mapping[str, str]],
        schema: TableSchema,
        *,
        epsilon: float,
        split: Split = "even",
        model: Model = "label",
        invalid: Literal["refuse", "drop"] = "refuse",
        reports_per_unit: int = 1,
        invited: int | None = None,
        terms: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a table of what clients reported; nothing is charged.

        Args:
            reports: What `LDPClient.report` returned; they are read once.
            schema: The clients' schema.
            epsilon: The clients' epsilon: what one report cost.
            split: The clients' split.
            model: As for the class.
            invalid: What to do with a report that is no client's of this schema:
                `refuse` all of them, or `drop` it and count how many were dropped.
            reports_per_unit: Most reports that one person sends. The record claims
                that many times epsilon.
            invited: How many invitations were sent, where each has `reports_per_unit`
                reports, null ones where nobody answered (`LDPClient.null_report`).
                Without it who reports is public, as it is for who receives reports.
            terms: `LDPClient.terms` as the clients gave them, to compare with these.

        Raises:
            InvalidParameterError: If an argument is out of its range, there are no
                reports, or one can't be read; the column is named.

        Privacy:
            Post-processing: the reports are private already, each at epsilon for the
            one who sent it. The record says that clients randomized, and names no
            charge. That they did, at this epsilon, and how often each reported, is
            taken on their word: nothing in a report shows it.
        """
        clients = LDPTerms(
            schema, parameters.epsilon(epsilon), split, model, invited=invited
        )
        if terms is not None:
            clients.require_same(terms)
        if invalid not in ("refuse", "drop"):
            raise InvalidParameterError("invalid must be 'refuse' or 'drop'.")
        most = parameters.count(reports_per_unit, "reports_per_unit")
        collected = count_reports(reports, clients, most, drops=invalid == "drop")
        if terms is not None and terms.get("random") != SECURE:
            collected.facts["random"] = "the clients' noise was for tests, not private"
        table = cls.__new__(cls)
        table._prepare(clients, None, None, collected)  # noqa: SLF001 - of this class
        return table

    def __repr__(self) -> str:
        collected = self._collected
        epsilon = (
            self._terms.epsilon if collected is None else collected.record["epsilon"]
        )
        return (
            f"{type(self).__name__}(columns={len(self._terms.schema.names)}, "
            f"epsilon={epsilon}, released={collected is not None})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An LDPTable is not pickled: it may hold private rows. "
            "release(resume=True) takes what its account has paid for."
        )

    def release(self, *, resume: bool = False) -> Self:
        """Charge the account, randomize all rows and count the reports; once.

        A second call does nothing. `sample` and `examples` call it where it was not.

        Args:
            resume: If this account has paid for a collection of the same terms, take
                its counts, at no charge; the rows are read only where it was
                interrupted between its charge and its counts.

        Raises:
            NoBudgetError: If there is no budget.
            InvalidParameterError: If the rows don't fit the schema; the column is
                named, and nothing is charged.
            UnitError: If there are no rows, or a row has no usable unit id.
            BudgetExhaustedError: If the account can't pay.
            PlanMismatchError: If the account protects another kind of unit, its plan is
                for another release, or none can be made.
            LedgerError: If the ledger can't be used.
        """
        with self._lock:
            if self._collected is None:
                budget = require_account(self._budget, "table")
                self._collected = collect(
                    self._once_read, self._terms, budget, resume=resume
                )
                # Nothing needs the true rows any more.
                self._rows = None
        return self

    def forecast(self, n_rows: int) -> dict[str, float]:
        """Return the standard error of each column's shares; nothing is charged.

        It is that of a value of average share, one over the number of values. An error
        as large as the share says that the column would be noise.

        Args:
            n_rows: How many rows would be reported; a public guess will do.

        Raises:
            InvalidParameterError: If `n_rows` is out of range.
            NoBudgetError: If neither epsilon nor a budget was given.
            PlanMismatchError: If the account's plan is for another release, or none
                can be made.
        """
        rows, terms = parameters.count(n_rows, "n_rows"), self._terms
        epsilon = terms.epsilon
        if epsilon is None:
            account = require_account(self._budget, "table")
            epsilon = terms.paid(account.quote(terms.charge()))
        parts = terms.epsilons(epsilon).items()
        return {
            name: float(share_errors(np.full(size, 1 / size), part, rows)[0])
            for (name, part), size in zip(parts, terms.sizes, strict=True)
        }

    @property
    def distribution(self) -> Distribution:
        """The rows' distribution as reconstructed; public."""
        return self._released().distribution

    @property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon for one row."""
        return self._released().epsilons

    @property
    def n_reports(self) -> int:
        """How many reports there are; public."""
        return self._released().counts.n

    def standard_errors(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return each column's estimated shares and their standard errors.

        They are by column, then by value (of numbers, a bin's text). Each share is the
        unbiased one of its column's reports and may be below 0; the true share is
        within 1.96 standard errors in 95 % of collections, each taken by itself. The
        distribution's shares are not: nothing in it is below 0, which moves them all.
        """
        return self._released().shares

    def summary(self) -> str:
        """Return the largest shares of each column, with their margins, in words."""
        collected = self._released()
        dropped = collected.record["parameters"].get("n_dropped")
        more = f", {dropped} dropped" if dropped else ""
        epsilon = collected.record["epsilon"]
        lines = [f"{collected.counts.n} report(s) at epsilon {epsilon:g}{more}:"]
        for name, shares in collected.shares.items():
            largest = sorted(shares.items(), key=lambda item: -item[1][0])[:_SHOWN]
            words = ", ".join(
                f"{value} {share:.1%} +- {_REACH * error:.1%}"
                for value, (share, error) in largest
            )
            lines.append(f"  {name}: {words}{', ...' * (len(shares) > _SHOWN)}")
        lines.append("Each +- holds in 95 % of collections, taken by itself.")
        return "\n".join(lines)

    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        """Return rows drawn from the reconstructed distribution; release if need be.

        Args:
            k: How many rows.
            balanced: Whether every label comes equally often, as far as `k` allows.
                A label that the reports give no weight is left out.

        Returns:
            Mappings from every column to its value (of numbers, a bin's text).

        Privacy:
            Post-processing of reports: draw as many rows as you like, it is free once
            the table is released.
        """
        count = parameters.count(k, "k")
        self.release()
        collected = self._released()
        epsilons = [*collected.epsilons.values()]
        rows = draw_rows(
            collected.distribution, collected.counts, epsilons, count, balanced=balanced
        )
        columns = self._schema.columns
        return [
            {
                column.name: column.code_value(code)
                for column, code in zip(columns, row, strict=True)
            }
            for row in rows.tolist()
        ]

    def record(self) -> dict[str, Any]:
        """Return a copy of the public record."""
        record: dict[str, Any] = json.loads(json.dumps(self._released().record))
        return record

    def _once_read(self) -> Any:
        """Return the rows, refusing what is left of an iterator."""
        rows = self._rows.value if self._rows else ()
        if self._has_read and isinstance(rows, Iterator):
            raise InvalidParameterError(
                "The rows were an iterator that has been read up to an error: what is "
                "left of it is not the table. Make a new LDPTable of all rows."
            )
        self._has_read = True
        return rows

    def _released(self) -> Collected:
        if self._collected is None:
            raise not_released()
        return self._collected
