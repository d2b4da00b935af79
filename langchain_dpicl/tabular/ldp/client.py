"""`LDPClient`: randomizes rows where they are, so that no true row is ever sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source, current
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular.ldp.reporting import Reporter
from langchain_dpicl.tabular.ldp.terms import SECURE, LDPTerms
from langchain_dpicl.tabular.rows import CHUNK_SIZE, read_chunks
from langchain_dpicl.tabular.rows.wanted import check_extra_columns
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split


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
        extra_columns: What to do with columns that the schema doesn't have: `refuse`
            the row, or `ignore` them.
        random: For tests: where the noise comes from.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a column of
            numbers has no bins; it is named.

    Privacy:
        Unit: one report. Neighbors: its row replaced by any other. Each column, the
        label too, is randomized by itself at epsilon_f, and sum epsilon_f <= epsilon:
        epsilon-local differential privacy against everybody, the collector included
        (Warner, 1965; Carey et al., *DP-TabICL*, 2024, Algorithm 1). Event: pure
        epsilon, once a report. That there is a report is not hidden, nor when it came
        and from which address: that is up to how it is sent.

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
        self,
        schema: TableSchema,
        *,
        epsilon: float,
        split: Split = "even",
        extra_columns: str = "refuse",
        random: SecureRandom | None = None,
    ) -> None:
        self._epsilon = parameters.epsilon(epsilon)
        self._terms = LDPTerms(schema, self._epsilon, split)
        self._terms.check()
        self._extra_columns = check_extra_columns(extra_columns)
        self._random = checked_source(random)
        self._reporter = Reporter(schema, self.epsilons, self._random)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(columns={len(self._terms.schema.names)}, "
            f"epsilon={self._epsilon:g}"
            f"{'' if self._random is None else f', random={self._random!r}'})"
        )

    @property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon."""
        return self._terms.row_epsilons(self._epsilon)

    @property
    def terms(self) -> dict[str, Any]:
        """What the collector must know to read reports; public, ready for JSON.

        The schema's fingerprint, epsilon, split and each column's epsilon. Send them
        once, beside the reports; `LDPTable.from_reports(terms=...)` compares them.
        """
        is_seeded = (self._random or current()).is_seeded
        return {
            **self._terms.described(),
            "random": "NOT SECURE, for tests only" if is_seeded else SECURE,
        }

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
        hidden = Hidden(row)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del row
        self._require_columns(hidden)
        codes = Hidden(self._reporter.encode_row(hidden))
        return self._reporter.written(self._reporter.randomize(codes.value))[0]

    def reports(
        self, data: Any, *, chunk_size: int = CHUNK_SIZE
    ) -> Iterator[dict[str, str]]:
        """Yield one report a row, for a place that holds the rows of many people.

        Args:
            data: Rows: a file, a frame, mappings; see `LDPTable`. They are read
                once, chunk by chunk, and reports come in the rows' order.
            chunk_size: How many rows are in memory at once.

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
        size = parameters.count(chunk_size, "chunk_size")
        hidden = Hidden(data)
        del data  # As in `report`.
        return self._reports(hidden, size)

    def _reports(self, data: Hidden[Any], chunk_size: int) -> Iterator[dict[str, str]]:
        chunks = read_chunks(
            data.value,
            self._terms.schema.names,
            categories=self._terms.schema.categories,
            extra_columns=self._extra_columns,
            chunk_size=chunk_size,
        )
        for chunk in chunks:
            codes = Hidden(self._reporter.encode(chunk))
            yield from self._reporter.written(self._reporter.randomize(codes.value))

    def _require_columns(self, row: Hidden[Mapping[str, Any]]) -> None:
        if not isinstance(row.value, Mapping):
            raise InvalidParameterError(
                "A row is a mapping from column to value, not "
                f"{type(row.value).__name__}."
            )
        names = self._terms.schema.names
        for name in names:
            if name not in row.value:
                raise InvalidParameterError(f"The row has no column {name!r}.")
        if self._extra_columns == "refuse" and len(row.value) > len(names):
            extra = next(name for name in row.value if name not in names)
            raise InvalidParameterError(
                f"The row has a column {extra!r:.80} that the schema does not: leave "
                "it out, or give extra_columns='ignore'."
            )
