"""`LDPClient`: randomizes rows where they are, so that no true row is ever sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden, hiding, without_frames
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.public import Frozen
from langchain_dpicl.tabular.ldp.reports import Codes, null_rows, randomized, written
from langchain_dpicl.tabular.ldp.terms import LDPTerms, Split
from langchain_dpicl.tabular.rows import read_chunks
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.terms import require_schema

SECURE = "secure"
"""What a client says of randomness that comes from the operating system."""


class LDPClient(Frozen):
    """Turns a person's row into a report that may be sent to anybody.

    It runs where the row is: in the person's app, at the clinic, in the branch office.
    It needs the public schema and an epsilon, no account, no ledger and no network.
    The collector makes a table of the reports with `LDPTable.from_reports`.

    Args:
        schema: The columns with their public values; numbers need bins.
        epsilon: What one report costs, all columns together.
        split: How epsilon is divided among the columns: evenly, or as a
            mapping says.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a column of
            numbers has no bins; it is named.

    Privacy:
        Unit: one report. Neighbors: its row replaced by any other. Each column, the
        label too, is randomized by itself at epsilon_f, and sum epsilon_f <= epsilon:
        epsilon-local differential privacy against everybody, the collector included.
        Proof: `mechanisms.responses`. That there is a report is not hidden, nor when
        it came and from which address: that is up to how it is sent.

        A person who reports twice pays twice, the same row or another one. So report
        once, keep the report, and send *that report* again where it was lost: repeating
        it costs nothing. Nobody counts here what a person has paid.

    Example:
        >>> from langchain_dpicl.tabular import CategoricalColumn, TableSchema
        >>> schema = TableSchema(
        ...     label="smokes",
        ...     columns=[
        ...         CategoricalColumn(name="job", values=["clerk", "nurse", "smith"]),
        ...         CategoricalColumn(name="smokes", values=["no", "yes"]),
        ...     ],
        ... )
        >>> client = LDPClient(schema, epsilon=2)
        >>> report = client.report({"job": "nurse", "smokes": "no"})
        >>> sorted(report), report["smokes"] in ("no", "yes")
        (['job', 'smokes'], True)
        >>> client.epsilons
        {'job': 1.0, 'smokes': 1.0}
    """

    def __init__(
        self, schema: TableSchema, *, epsilon: float, split: Split = "even"
    ) -> None:
        self._epsilon = parameters.epsilon(epsilon)
        self._terms = LDPTerms(
            table_schema=require_schema(schema), epsilon=epsilon, split=split
        )

    def __repr__(self) -> str:
        columns = len(self._terms.sizes)
        return f"{type(self).__name__}(columns={columns}, epsilon={self._epsilon:g})"

    @property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon."""
        return self._terms.column_epsilons(self._epsilon)

    @property
    def terms(self) -> dict[str, Any]:
        """What the collector must know to read reports; public, ready for JSON.

        The schema's fingerprint, epsilon, split and each column's epsilon. Send them
        once, beside the reports; `LDPTable.from_reports(terms=...)` compares them.
        """
        random = "NOT SECURE, for tests only" if current().is_seeded else SECURE
        return {**self._terms.parameters(), "random": random}

    @hiding
    def report(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return a report of one row, ready for JSON.

        Args:
            row: A mapping from column to value.

        Returns:
            For each column, a value of the schema (of numbers, a bin's text).

        Raises:
            InvalidParameterError: If the row lacks a column, has one that the schema
                doesn't, or a value outside the domain where that is refused. The
                column is named and nothing was reported.

        Privacy:
            Each call is a new report and costs epsilon again; see the class.
        """
        if not isinstance(row, Mapping):
            raise InvalidParameterError(
                f"A row is a mapping from column to value, not {type(row).__name__}."
            )
        return next(self._reports(Hidden([row])))

    def null_report(self) -> dict[str, str]:
        """Return a report of an invitation that nobody answered: uniform values.

        With `LDPTable.from_reports(invited=N)` there is one report for each of N
        invitations. Make each null report once and keep it.
        """
        (report,) = null_rows(1, self._terms.sizes).tolist()
        return written(self._terms.table_schema, report)

    def reports(self, data: Any) -> Iterator[dict[str, str]]:
        """Yield one report a row, for a place that holds the rows of many people.

        Args:
            data: Rows, as for `LDPTable`. They are read once, chunk by chunk, and
                reports come in the rows' order.

        Yields:
            Reports as of `report`.

        Raises:
            InvalidParameterError: As `report`; reports of the chunks before are out.

        Privacy:
            As `report`, for each row. A second call makes new reports of the same
            rows, and who is in them pays again, unless nobody saw the first ones. So
            after an error, send none of them, or go on behind the rows that are done.
            The order of rows is that of the data: shuffle the reports, or collect
            them through `LDPTable`, where it says something.
        """
        hidden = Hidden(data)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del data
        return self._reports(hidden)

    def _reports(self, data: Hidden[Any]) -> Iterator[dict[str, str]]:
        schema, sizes = self._terms.table_schema, self._terms.sizes
        epsilons = [*self.epsilons.values()]
        chunks = Hidden(read_chunks(data.value, schema.names))

        def made() -> Codes | None:
            cells, _ = next(chunks.value, (None, 0))
            if cells is None:
                return None
            rows = {column.name: column.codes(cells[column.name]) for column in columns}
            return randomized(rows, sizes, epsilons)

        columns = schema.columns
        while (reports := without_frames(made)) is not None:
            for report in reports.tolist():
                yield written(schema, report)
