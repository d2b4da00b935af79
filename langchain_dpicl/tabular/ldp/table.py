"""`LDPTable`: a table that nobody sees but through randomized response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import Self, override

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.ldp.client import SECURE
from langchain_dpicl.tabular.ldp.model import Model, draw_rows, share_errors
from langchain_dpicl.tabular.ldp.release import Collection, collect, count_reports
from langchain_dpicl.tabular.ldp.reports import MAX_CELLS, written
from langchain_dpicl.tabular.ldp.terms import LDPTerms, Split, require_participation
from langchain_dpicl.tabular.released_table import ReleasedTable, row_unit_of
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.terms import require_schema

_REACH = 1.96
"""Standard errors within which 95 % of estimates are."""


class LDPTable(ReleasedTable[LDPTerms, Collection]):
    """Rows like those of a private table, out of locally randomized reports.

    Every row is randomized, column by column, before anything is counted. What the
    rows are like is reconstructed from the reports, and rows are drawn from that, for
    any number of prompts. One charge pays for all of it.

    Either you hold the rows: `LDPTable(data, schema, budget=...)`. Or each person
    randomizes with an `LDPClient`, and you hold reports: `LDPTable.from_reports`.

    Args:
        data: The private rows, as for `GDPTable`. They are read once, and checked
            before the charge.
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
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=4, delta=1e-5, queries=1, ledger=":memory:"
        ... )
        >>> table = LDPTable(
        ...     rows * 400, schema, epsilon=4, participation="public", budget=budget
        ... )
        >>> examples = table.examples(2)
        >>> sorted(example["label"] for example in examples)
        ['no', 'yes']
        >>> table.n_reports, examples.record["epsilon"]
        (800, 4.0)
    """

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
        terms = LDPTerms(
            table_schema=require_schema(schema),
            epsilon=epsilon,
            split=split,
            unit_key=unit_key,
            rows_per_unit=rows_per_unit,
            invited=invited,
            row_unit=row_unit_of(hidden.value),
        )
        self._model = _checked_model(model, terms)
        self._prepare(terms, hidden, budget)

    @classmethod
    def from_reports(  # The clients' terms, one by one.
        cls,
        reports: Iterable[Mapping[str, str]],
        schema: TableSchema,
        *,
        epsilon: float,
        split: Split = "even",
        model: Model = "label",
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
            table_schema=require_schema(schema),
            epsilon=parameters.epsilon(epsilon),
            split=split,
            invited=invited,
        )
        model = _checked_model(model, clients)
        if terms is not None:
            clients.require_same(terms)
        most = parameters.count(reports_per_unit, "reports_per_unit")
        found = count_reports(reports, clients, model, most)
        if terms is not None and terms.get("random") != SECURE:
            found.facts["random"] = "the clients' noise was for tests, not private"
        table = cls.__new__(cls)
        table._prepare(clients, Hidden(None), None)  # noqa: SLF001 - of this class
        table._result = found  # noqa: SLF001
        return table

    @override
    def _release(self, budget: PrivacyBudgetHandler, *, resume: bool) -> Collection:
        read = self._once_read
        return collect(read, self._terms, self._model, budget, resume=resume)

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
        if terms.epsilon is None:
            terms = terms.paid_by(self._account().quote(terms.charge()))
        parts = terms.column_epsilons(terms.epsilon or 0).items()
        return {
            name: float(share_errors(np.full(size, 1 / size), part, rows)[0])
            for (name, part), size in zip(parts, terms.sizes, strict=True)
        }

    @property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon for one row."""
        return self._released.epsilons

    @property
    def n_reports(self) -> int:
        """How many reports there are; public."""
        return self._released.counts.n

    def standard_errors(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return each column's estimated shares and their standard errors.

        They are by column, then by value (of numbers, a bin's text). Each share is the
        unbiased one of its column's reports and may be below 0; the true share is
        within 1.96 standard errors in 95 % of collections, each taken by itself. The
        distribution's shares are not: nothing in it is below 0, which moves them all.
        """
        return self._released.shares

    @override
    def summary(self) -> str:
        found = self._released
        lines = [f"{found.counts.n} report(s). Each +- holds in 95 % of collections."]
        for name, shares in found.shares.items():
            words = (
                f"{value} {share:.1%} +- {_REACH * error:.1%}"
                for value, (share, error) in shares.items()
            )
            lines.append(f"{name}: {', '.join(words)}")
        return "\n".join(lines)

    @override
    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        count = parameters.count(k, "k")
        found = self.release()._released  # noqa: SLF001 - of this object
        epsilons = [*found.epsilons.values()]
        rows = draw_rows(
            found.distribution, found.counts, epsilons, count, balanced=balanced
        )
        return [dict(written(self.schema, row)) for row in rows.tolist()]

    @override
    def _record(self) -> dict[str, Any]:
        return self._released.record


def _checked_model(model: Any, terms: LDPTerms) -> Model:
    if model not in ("label", "joint"):
        raise InvalidParameterError('model must be "label" or "joint".')
    if model == "joint" and terms.no_reports().joint is None:
        raise InvalidParameterError(
            f"The joint table of these columns has more than {MAX_CELLS} cells: it is "
            'too large. Use model="label", or fewer columns.'
        )
    return "joint" if model == "joint" else "label"
