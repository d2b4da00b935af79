"""`GDPTable`: a table that somebody is trusted with, and its noisy statistics."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from typing_extensions import Self, override

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source, current
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular.gdp.drawing import draw_rows
from langchain_dpicl.tabular.gdp.facts import UNTOLD, FactWriter, check_words
from langchain_dpicl.tabular.gdp.forecast import TableForecast, forecast
from langchain_dpicl.tabular.gdp.measuring import (
    Measure,
    read_group_by,
    read_measure,
)
from langchain_dpicl.tabular.gdp.mergeable import Tally, merge
from langchain_dpicl.tabular.gdp.release import Release
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.terms import GDPTerms, Noise, Numeric
from langchain_dpicl.tabular.released_table import (
    ReleasedTable,
    not_released,
    require_account,
)
from langchain_dpicl.tabular.row_text import RowText
from langchain_dpicl.tabular.rows.chunks import NamedRows
from langchain_dpicl.tabular.rows.wanted import ExtraColumns, check_extra_columns
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split

_SMALL = ("leave_out", "keep")


class GDPTable(ReleasedTable):
    """Examples out of a table's noisy statistics: paid for once, then free.

    The rows are cut into groups by public predicates, by default one for each label.
    For each group the most frequent values and the means are released with noise, and
    from these come rows that look like the group's.

    With `measure` the counts that one wants to ask for are released instead, by name:
    `statistics.table(...)` and `statistics.counts(...)`.

    Args:
        data: The private rows: `CSVRows`, `JSONRows`, `SQLRows`, `ArrowRows`,
            mappings, or a pandas or polars frame whose cells were read one by one
            (`InferredTypeWarning`).
            They are read once, in bounded memory.
        schema: The public columns, domains and bounds.
        budget: The account that pays: one charge a release.
        group_by: Columns whose declared values (or bins) make the groups; None: the
            label; `[]`: one group. All combinations are groups, also empty ones.
        measure: Which tables are counted instead of groups: columns, and pairs of
            columns, `[("condition", "drug"), "age"]`; numbers by their bins. Each is
            noisy, and they are made to agree. Rows that are drawn have these columns
            alone: the label first, and by it what was measured with it.
            Of a measured column that is open (`CategoricalColumn(open=True)`) also what
            enough rows name outside its list is released: `statistics.open_values`.
            That costs part of delta.
        numeric: `mean`: a number is released as its group's mean; `bins`: as the shares
            of its public bins, so that examples differ.
        sampling_rate: Takes a Poisson sample of the units, and tells of the sample. At
            the same cost it is less exact than all of them, which are read and checked
            anyway; with `unit_key` it saves memory. Not with `measure`.
        unit_key: The column that says whose a row is; it may stand outside the schema.
            None: each row is a unit, which the account and the record call by the
            `unit_key` of `TextRows`.
        rows_per_unit: Most rows of a unit that take part, chosen at random. The noise
            grows with it.
        split: How epsilon is shared: `even`, or a mapping from each released column
            (and `(rows)`, where there are means) to its epsilon; they sum to epsilon.
            With `measure`, from each column and each pair.
        noise: With `measure`: `laplace`, `gaussian`, or `auto`, the one with the least
            standard deviation for what the account pays. Gaussian noise suits many
            tables or a small epsilon; a release of it costs part of delta.
        epsilon: Of the counts, before sampling; None leaves it to the budget. What is
            left goes to the names in open columns.
        small_groups: What to do about groups that the noise can't tell from empty ones:
            `leave_out` of the examples, or `keep`.
        extra_columns: Whether columns that the schema does not name are refused, or
            ignored.
        progress: Whether to show a bar while reading; None: where somebody looks.
        random: For tests: where noise and samples come from.

    Raises:
        InvalidParameterError: If an argument is out of its range; it is named.

    Privacy:
        Unit: all rows with one value of `unit_key`, or one row. Neighbors: all rows of
        one unit more or less. Sensitivity, noise and event:
        `mechanisms.tables`, pure epsilon or a Gaussian, which sampling
        amplifies; what a row adds to each quantity: `tabular.gdp.terms`; names outside
        the lists: `mechanisms.keyword_threshold`, with `tabular.gdp.names`. Public: the
        schema, the groups or tables, all parameters, and that there was a release. The
        operator sees the rows and is trusted.

    Example:
        >>> from langchain_dpicl import PrivacyBudgetHandler
        >>> from langchain_dpicl.tabular import (
        ...     CategoricalColumn, GDPTable, NumericColumn, TableSchema
        ... )
        >>> schema = TableSchema(
        ...     label="ill",
        ...     columns=[
        ...         NumericColumn(kind="integer", name="age", lower=0, upper=100),
        ...         CategoricalColumn(name="ill", values=["no", "yes"]),
        ...     ],
        ... )
        >>> rows = [{"age": 30, "ill": "no"}, {"age": 70, "ill": "yes"}] * 5000
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=1, delta=1e-6, queries=1, ledger=":memory:"
        ... )
        >>> table = GDPTable(rows, schema, budget=budget)
        >>> sorted(row["ill"] for row in table.sample(2))
        ['no', 'yes']
    """  # fmt: skip

    def __init__(  # noqa: PLR0913 - a release's public terms, one by one
        self,
        data: Any,
        schema: TableSchema,
        *,
        budget: PrivacyBudgetHandler | None = None,
        group_by: str | Sequence[str] | None = None,
        measure: Measure | None = None,
        numeric: Numeric = "mean",
        sampling_rate: float = 1.0,
        unit_key: str | None = None,
        rows_per_unit: int = 1,
        split: Split | Mapping[str | tuple[str, ...], float] = "even",
        noise: Noise = "auto",
        epsilon: float | None = None,
        small_groups: str = "leave_out",
        extra_columns: ExtraColumns = "refuse",
        progress: bool | None = None,
        random: SecureRandom | None = None,
    ) -> None:
        self._data = Hidden(data)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del data
        if not isinstance(schema, TableSchema):
            raise InvalidParameterError(
                f"schema must be a TableSchema, not {type(schema).__name__}: it says "
                "which values and bounds are public."
            )
        if measure is not None and group_by is not None:
            raise InvalidParameterError(
                "measure= counts all rows, and group_by= cuts them into groups: give "
                "one of them. A pair of measure= counts by groups too."
            )
        row_unit = None
        if isinstance(self._data.value, NamedRows):
            row_unit = self._data.value.unit_key
            if unit_key not in (None, row_unit):
                raise InvalidParameterError(
                    f"unit_key must be left out, or be {row_unit!r}: each of these "
                    "rows was read from all records of one unit."
                )
            unit_key = None
        self._terms = GDPTerms(
            schema=schema,
            group_by=() if measure is not None else read_group_by(group_by, schema),
            measure=None if measure is None else read_measure(measure, schema),
            noise=noise,
            sampling_rate=sampling_rate,
            unit_key=unit_key,
            rows_per_unit=rows_per_unit,
            split=cast("Split", split),  # Pairs are called by one name there.
            numeric=numeric,
            epsilon=epsilon,
            row_unit=row_unit,
        )
        self._terms.check()
        if not isinstance(small_groups, str) or small_groups not in _SMALL:
            raise InvalidParameterError("small_groups must be 'leave_out' or 'keep'.")
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        self._schema = schema
        self._binned = self._terms.numeric == "bins"
        self._budget = budget
        self._keeps_small = small_groups == "keep"
        self._extra_columns = check_extra_columns(extra_columns)
        self._unit_key = unit_key
        self._progress = progress
        self._random = checked_source(random)
        self._lock = threading.Lock()
        self._is_spent = False
        self._released: tuple[NoisyStatistics, dict[str, Any]] | None = None

    @classmethod
    def from_tallies(
        cls, tallies: Iterable[Tally], schema: TableSchema, **terms: Any
    ) -> Self:
        """Return a table of what workers have tallied; nothing is charged yet.

        Args:
            tallies: Of all parts of the rows, made by `tally` with one key.
            schema: The public columns.
            **terms: As for the class: `budget`, `split`, `noise`, `epsilon` and so on.
                What is measured, and of whom, is what the tallies say.

        Returns:
            A table whose release is, bit for bit, that of the same rows in one place.

        Raises:
            InvalidParameterError: If they are of another schema, other terms or several
                keys, or one is there twice.
            UnitError: If a unit is in two of them.
        """
        found = Hidden(merge(tallies))
        table = cls(found.value, schema, **{**found.value.terms, **terms})
        found.value.counted_for(table._terms)
        return table

    def __repr__(self) -> str:
        terms = self._terms
        measured = (
            f"group_by={list(terms.group_by)}, n_groups={terms.n_groups}, "
            f"numeric={terms.numeric!r}"
            if terms.measure is None
            else f"measure={list(terms.measure)}, noise={terms.noise!r}"
        )
        return (
            f"{type(self).__name__}(label={self.schema.label!r}, "
            f"{measured}, released={self._released is not None}"
            f"{'' if self._random is None else f', random={self._random!r}'})"
        )

    @override
    def release(self, *, resume: bool = False) -> Self:
        """Read the rows, charge the account, and release the statistics, once.

        A second call does nothing. `sample`, `examples` and `classification_chain`
        call it where nothing was released yet.

        Args:
            resume: If this account has a release of the same terms, take that one, at
                no charge; the rows are not read again unless it was interrupted
                between its charge and its release.

        Returns:
            This table: `statistics`, `summary()` and `record()` are public now.

        Raises:
            InvalidParameterError: If a row is not what the schema allows. Nothing is
                charged.
            UnitError: If there are no rows, or a row has no unit id.
            NoBudgetError: If there is no budget.
            BudgetExhaustedError: If the account can't pay.
            PlanMismatchError: If the account's plan is for another release.
            LedgerError: If the ledger can't be used.
        """
        with self._lock:
            if self._released is None:
                release = self._release()
                try:
                    self._released = release.run(self._rows(), resume=resume)
                finally:
                    self._is_spent = self._is_spent or release.has_read
                # Nothing reads the rows again.
                self._data = Hidden(None)
            return self

    def forecast(self, n_rows: int) -> TableForecast:
        """Return what a release could tell of so many rows; nothing is charged.

        Args:
            n_rows: A public guess of the number of rows.

        Raises:
            NoBudgetError: If there is no budget.
            InvalidParameterError: If `n_rows` is no count.
            PlanMismatchError: If the account's plan is for another release, or none
                can be made.
        """
        return forecast(self._terms, require_account(self._budget), n_rows)

    @property
    def statistics(self) -> NoisyStatistics:
        """The released statistics; public.

        Raises:
            InvalidParameterError: If nothing was released yet.
        """
        return self._found()[0]

    @override
    def summary(self) -> str:
        """Return the statistics in words, group by group, with their errors."""
        return self.statistics.summary()

    @override
    def record(self) -> dict[str, Any]:
        """Return a copy of the release's public record."""
        record: dict[str, Any] = json.loads(json.dumps(self._found()[1]))
        return record

    @override
    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        """Return k rows out of the released statistics.

        The first row of each group is its most frequent values and means; further ones
        are drawn, column by column, from the group's noisy shares. With `measure` all
        rows are drawn: the label first, and by it what was measured with it.

        Args:
            k: How many.
            balanced: Whether labels take turns, each with its groups in turn, larger
                ones first (groups alone, where labels don't make them); otherwise every
                row is drawn, groups by their noisy sizes.

        Raises:
            InvalidParameterError: If k is no count.
            UnitError: If the noise hides every group: too few rows for this epsilon.
        """
        number = parameters.count(k, "k")
        return draw_rows(
            self.release().statistics,
            number,
            self._random or current(),
            balanced=balanced,
            keeps_small=self._keeps_small,
        )

    @override
    def _texts(self) -> RowText:
        if self._terms.measure is None:
            return super()._texts()
        # What was not measured stands in no example: it is left out of a query too.
        shown = self._terms.shown_schema()
        return RowText(shown, self._binned, self._unit_key, "ignore")

    def documents(
        self,
        *,
        people: str = "people",
        phrases: Mapping[str, str] | None = None,
        untold: Collection[str] = UNTOLD,
    ) -> ReleasedCorpus:
        """Return what was released as documents, for any RAG chain to ask.

        One document for each measured column, and one for each value of a measured
        pair's columns, both ways round: "Most frequent side effect of patients on
        lisinopril: dry cough (about 14 ± 4), then dizziness (about 8 ± 4), of about 29
        ± 15 patients." Values are ranked only where noise allows it. Each margin, taken
        by itself, holds in 99 % of releases, and of two equal counts one is said to
        lead in at most 5 %. Of all values that a document might tell and nobody has,
        any is told in at most 1 %.

        Args:
            people: What the units are called. Sentences say "rows" instead where a unit
                may be several rows (`rows_per_unit`) or the table does not know whose a
                row is (no `unit_key`, and rows that are not `TextRows`).
            phrases: How a column's value is said of them: `{"drug": "on {value}"}`;
                by default "whose drug is lisinopril".
            untold: Values that are counted and not ranked, in place of those that say
                that nothing is known ("unknown", "not mentioned", "n/a"). "none" is
                ranked like other values; `["none", "unknown"]` leaves both aside.

        Raises:
            InvalidParameterError: If nothing was measured by name (`measure=`), or an
                argument can't be used; nothing is charged then. As for `release`, too.
        """
        if self._terms.measure is None:
            raise InvalidParameterError(
                "Documents tell of counts by name: GDPTable(..., measure=[...])."
            )
        said = {} if phrases is None else phrases
        aside = check_words(self._terms.measured_names, people, said, untold)
        release = self.release()
        # With these words the sentences can be made again, of what the ledger stored.
        has_units = self._terms.charged_unit is not None
        who = people if has_units and self._terms.rows_per_unit == 1 else "rows"
        words = {"people": who, "phrases": dict(said), "untold": sorted(aside)}
        writer = FactWriter(release.statistics, who, dict(said), aside)
        return ReleasedCorpus(writer.documents(), {**self.record(), "wording": words})

    def _release(self) -> Release:
        return Release(
            self._terms,
            require_account(self._budget),
            self._random,
            self._extra_columns,
            self._progress,
        )

    def _rows(self) -> Hidden[Any]:
        """Return the rows, unless they are an iterator that was read in part."""
        if self._is_spent and isinstance(self._data.value, Iterator):
            raise InvalidParameterError(
                "The rows came from an iterator, and reading it failed before: what is "
                "left of it is not the table. Make a new GDPTable with a new iterator, "
                "or with data that can be read again."
            )
        return self._data

    def _found(self) -> tuple[NoisyStatistics, dict[str, Any]]:
        if self._released is None:
            raise not_released()
        return self._released
