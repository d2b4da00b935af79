"""`GDPTable`: a table that somebody is trusted with, and its noisy statistics."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import Self, override

from langchain_dpicl.budget import PrivacyBudgetHandler, require_account
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source, current
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular.gdp.drawing import draw_rows
from langchain_dpicl.tabular.gdp.facts import (
    UNTOLD,
    FactWriter,
    check_words,
    counted_names,
)
from langchain_dpicl.tabular.gdp.forecast import TableForecast, forecast
from langchain_dpicl.tabular.gdp.release import Released, released
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tally, count_rows, merge
from langchain_dpicl.tabular.gdp.terms import GDPTerms, Measure, Noise, read_measure
from langchain_dpicl.tabular.released_table import (
    ReleasedTable,
    not_released,
)
from langchain_dpicl.tabular.row_text import RowText
from langchain_dpicl.tabular.rows import UnitRows
from langchain_dpicl.tabular.schema.table import TableSchema


class GDPTable(ReleasedTable):
    """Noisy counts of a table, paid for once: tables, sentences, examples are free.

    Rows are counted by columns and pairs of columns; numbers without bins are summed
    beside the counts. The counts are released together, in one charge. From them come
    tables by name (`statistics`), documents for any RAG chain, and rows that look like
    the table's as few-shot examples.

    Args:
        rows: The private rows: mappings, such as `csv_rows(path)`, or anything with an
            Arrow C stream, whose cells were read one by one (see `tabular.rows`). They
            are read once.
        schema: The public columns, domains and bounds.
        measure: What is counted: columns, and pairs of columns, `[("condition",
            "drug"), "age"]`. A numeric column is counted by its bins; without bins it
            is summed, by the column beside it, which makes means. None: the label with
            each feature. The noise grows with the number of tables.
        budget: The account that pays: one charge a release.
        unit_key: The column that says whose a row is; it may stand outside the schema.
            None: each row is a unit, which the account and the record call by the
            `unit_key` of `TextRows`.
        rows_per_unit: Most rows of a unit that take part, chosen at random. The noise
            grows with it.
        noise: `laplace` or `gaussian`; None: the one that is smaller for what the
            account pays. Gaussian noise suits many tables or a small epsilon; a release
            of it costs part of delta.
        epsilon: Of a release with Laplace noise; None leaves it to the account.
        progress: Whether to show a bar while reading; None: where somebody looks.
        random: For tests: where noise comes from.

    Raises:
        InvalidParameterError: If an argument is out of its range; it is named.

    Privacy:
        Unit: all rows with one value of `unit_key`, or one row. Neighbors: all rows of
        one unit more or less. Sensitivity, noise and event: `mechanisms.tables`, pure
        epsilon or a Gaussian; what a row adds to each table: `tabular.gdp.terms`.
        Public: the schema, all parameters, and that there was a release. The operator
        sees the rows and is trusted.

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
        >>> table = GDPTable(rows, schema, budget=budget).release()
        >>> sorted(row["ill"] for row in table.sample(2))
        ['no', 'yes']
        >>> round(table.statistics.mean("age", {"ill": "yes"}).value)
        70
    """  # fmt: skip

    def __init__(  # noqa: PLR0913 - a release's public terms, one by one
        self,
        rows: Any,
        schema: TableSchema,
        *,
        measure: Measure | None = None,
        budget: PrivacyBudgetHandler | None = None,
        unit_key: str | None = None,
        rows_per_unit: int = 1,
        noise: Noise | None = None,
        epsilon: float | None = None,
        progress: bool | None = None,
        random: SecureRandom | None = None,
    ) -> None:
        self._data = Hidden(rows)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del rows
        if not isinstance(schema, TableSchema):
            raise InvalidParameterError(
                f"schema must be a TableSchema, not {type(schema).__name__}: it says "
                "which values and bounds are public."
            )
        row_unit = None
        if isinstance(self._data.value, UnitRows):
            row_unit = self._data.value.unit_key
            if unit_key not in (None, row_unit):
                raise InvalidParameterError(
                    f"unit_key must be left out, or be {row_unit!r}: each of these "
                    "rows was read from all records of one unit."
                )
            unit_key = None
        self._terms = GDPTerms(
            table_schema=schema,
            measure=read_measure(measure, schema),
            unit_key=unit_key,
            rows_per_unit=parameters.count(rows_per_unit, "rows_per_unit"),
            noise=noise,
            epsilon=None if epsilon is None else parameters.epsilon(epsilon),
            row_unit=row_unit,
        )
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        self._schema, self._unit_key = schema, unit_key
        self._binned, self._budget = True, budget
        self._progress, self._random = progress, checked_source(random)
        self._lock = threading.Lock()
        self._released: Released | None = None

    @classmethod
    def from_tallies(
        cls,
        tallies: Iterable[Tally],
        schema: TableSchema,
        *,
        budget: PrivacyBudgetHandler | None = None,
        noise: Noise | None = None,
        epsilon: float | None = None,
        random: SecureRandom | None = None,
    ) -> Self:
        """Return a table of what workers have tallied; nothing is charged yet.

        Args:
            tallies: Of all parts of the rows, made by `tally` with one key. What is
                measured, and of whom, is what they say.
            schema: The public columns.
            budget: As for the class.
            noise: As for the class.
            epsilon: As for the class.
            random: As for the class.

        Returns:
            A table whose release is, bit for bit, that of the same rows in one place.

        Raises:
            InvalidParameterError: If they are of another schema or several keys, or one
                is there twice.
            UnitError: If a unit is in two of them.
        """
        whole = Hidden(merge(tallies))
        terms = whole.value.terms
        if terms.table_schema != schema:
            raise InvalidParameterError(
                "The tallies are of another schema: release them with the one that "
                "tally() was given."
            )
        return cls(
            whole.value,
            schema,
            measure=[*terms.measure],
            budget=budget,
            unit_key=terms.unit_key,
            rows_per_unit=terms.rows_per_unit,
            noise=noise,
            epsilon=epsilon,
            random=random,
        )

    def __repr__(self) -> str:
        terms = self._terms
        return (
            f"{type(self).__name__}(label={self.schema.label!r}, "
            f"measure={list(terms.measure)}, noise={terms.noise!r}, "
            f"released={self._released is not None}"
            f"{'' if self._random is None else f', random={self._random!r}'})"
        )

    @override
    def release(self, *, resume: bool = False) -> Self:
        with self._lock:
            if self._released is None:
                self._released = released(
                    self._terms,
                    require_account(self._budget, "table"),
                    self._count,
                    random=self._random,
                    resume=resume,
                )
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
        return forecast(self._terms, require_account(self._budget, "table"), n_rows)

    @property
    def statistics(self) -> NoisyStatistics:
        """The released statistics; public.

        Raises:
            InvalidParameterError: If nothing was released yet.
        """
        return self._found()[0]

    @override
    def summary(self) -> str:
        return self.statistics.summary()

    @override
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(json.dumps(self._found()[1]))
        return record

    @override
    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        number = parameters.count(k, "k")
        source = self._random or current()
        return draw_rows(self.release().statistics, number, source, balanced=balanced)

    def documents(
        self,
        *,
        people: str = "people",
        phrases: Mapping[str, str] | None = None,
        untold: Collection[str] = UNTOLD,
    ) -> ReleasedCorpus:
        """Return what was released as documents, for any RAG chain to ask.

        One document for each counted column, and one for each value of a pair's
        columns, both ways round: "Most frequent side effect of patients on lisinopril:
        dry cough (about 14 ± 4), then dizziness (about 8 ± 4), of about 29 ± 15
        patients." Values are ranked only where noise allows it. Each margin, taken by
        itself, holds in 99 % of releases, and of two equal counts one is said to lead
        in at most 5 %. Of all values that a document might tell and nobody has, any is
        told in at most 1 %.

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
            InvalidParameterError: If an argument can't be used; nothing is charged
                then. As for `release`, too.
        """
        said = dict(phrases) if isinstance(phrases, Mapping) else phrases or {}
        aside = check_words(counted_names(self._terms), people, said, untold)
        statistics = self.release().statistics
        # With these words the sentences can be made again, of what the ledger stored.
        has_units = self._terms.charged_unit is not None
        who = people if has_units and self._terms.rows_per_unit == 1 else "rows"
        words = {"people": who, "phrases": said, "untold": sorted(aside)}
        writer = FactWriter(statistics, who, said, aside)
        return ReleasedCorpus(writer.documents(), {**self.record(), "wording": words})

    @override
    def _texts(self) -> RowText:
        names = self._terms.names
        if names == self.schema.names:
            return super()._texts()
        if self.schema.label not in names or len(names) < 2:  # noqa: PLR2004 - the label and a feature
            raise InvalidParameterError(
                "An example shows the label and a feature, and measure= names "
                f"{', '.join(map(repr, names)):.200}: measure the label "
                f"{self.schema.label!r} with a feature too."
            )
        # What was not measured stands in no example: it is left out of a query too.
        columns = tuple(map(self.schema.column, names))
        shown = self.schema.model_copy(update={"columns": columns})
        return RowText(shown, True, self._unit_key, ignores_others=True)

    def _count(self) -> Tally:
        """Count the rows; of an iterator, once."""
        data = self._data
        if isinstance(data.value, Tally):
            return data.value
        if isinstance(data.value, Iterator):
            self._data = Hidden(_Spent())
        return count_rows(
            data.value,
            self._terms,
            progress=self._progress,
            random=self._random,
        )

    def _found(self) -> Released:
        if self._released is None:
            raise not_released()
        return self._released


class _Spent:
    """What is left of an iterator that was read in part: no table."""

    def __iter__(self) -> Iterator[Any]:
        raise InvalidParameterError(
            "The rows came from an iterator, and reading it failed before: what is "
            "left of it is not the table. Make a new GDPTable with a new iterator, or "
            "with data that can be read again."
        )
