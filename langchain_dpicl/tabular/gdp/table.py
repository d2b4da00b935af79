"""`GDPTable`: a table that somebody is trusted with, and its noisy statistics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from langchain_core.documents import Document
from typing_extensions import Self, override

from langchain_dpicl.accounting import Pure, compose
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular.columns import NumericColumn
from langchain_dpicl.tabular.gdp.drawing import draw_rows
from langchain_dpicl.tabular.gdp.facts import UNTOLD, FactWriter, Words
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.release import Released, released
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.tallies import Tally, count_rows, merge
from langchain_dpicl.tabular.gdp.terms import (
    GDPTerms,
    Measure,
    Noise,
    TableEvent,
    read_measure,
)
from langchain_dpicl.tabular.released_table import (
    ReleasedTable,
    row_text,
    row_unit_of,
)
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.terms import require_schema

WRONG = 0.05
"""How often a margin misses, or a lead comes out the wrong way round, or even."""


@dataclass(frozen=True)
class TableForecast:
    """What one release costs, and what it can tell.

    Attributes:
        epsilon: What it is charged, at the account's delta where noise is Gaussian.
        noise: Which noise it has.
        n_rows: The rows that it was asked for.
        margin: What a count is off by at most, in 95 % of releases.
        lead: Rows that one value must have more than another one for its noisy count to
            be larger in 95 % of releases.
        means: By summed column, the standard error of the mean of all these rows, of
            a part of 1/n of them n times as large.
    """

    epsilon: float
    noise: str
    n_rows: int
    margin: int
    lead: int
    means: dict[str, float]

    def __str__(self) -> str:
        means = (
            f" The mean {name} of {self.n_rows} rows is known to +- {error:.2g}."
            for name, error in self.means.items()
        )
        return (
            f"One charge of epsilon {self.epsilon:.4g}, {self.noise} noise; no model "
            f"calls. Each count is known to +- {self.margin}, and of two values the "
            f"one with {self.lead} rows more has the larger count, each in 95 % of "
            f"releases.{''.join(means)}"
        )


class GDPTable(ReleasedTable[GDPTerms, Released]):
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
        ...     CategoricalColumn,
        ...     GDPTable,
        ...     NumericColumn,
        ...     TableSchema,
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
    """

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
    ) -> None:
        hidden = Hidden(rows)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del rows
        row_unit = row_unit_of(hidden.value)
        if row_unit is not None and unit_key not in (None, row_unit):
            raise InvalidParameterError(
                f"unit_key must be left out, or be {row_unit!r}: each of these rows "
                "was read from all records of one unit."
            )
        terms = GDPTerms(
            table_schema=require_schema(schema),
            measure=read_measure(measure, schema),
            unit_key=None if row_unit is not None else unit_key,
            rows_per_unit=rows_per_unit,
            noise=noise,
            epsilon=epsilon,
            row_unit=row_unit,
        )
        self._progress = progress
        self._prepare(terms, hidden, budget)

    @classmethod
    def from_tallies(
        cls,
        tallies: Iterable[Tally],
        schema: TableSchema,
        *,
        budget: PrivacyBudgetHandler | None = None,
        noise: Noise | None = None,
        epsilon: float | None = None,
    ) -> Self:
        """Return a table of what workers have tallied; nothing is charged yet.

        The tallies are of all parts of the rows, made by `tally` with one key. What is
        measured, and of whom, is what they say; other terms are those of the class. The
        release is, bit for bit, that of the same rows in one place.

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
        )

    @override
    def _release(self, budget: PrivacyBudgetHandler, *, resume: bool) -> Released:
        return released(self._terms, budget, self._count, resume=resume)

    def _count(self) -> Tally:
        rows = Hidden(self._once_read())
        if isinstance(rows.value, Tally):
            return rows.value
        return count_rows(rows.value, self._terms, progress=self._progress)

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
        rows, account = parameters.count(n_rows, "n_rows"), self._account()
        terms = self._terms.settled(account)
        paid = cast("TableEvent", account.quote(terms.charge())[0])
        means: dict[str, float] = {}
        counted = None
        for table, law in zip(terms.tables, terms.noises(paid), strict=True):
            column = terms.table_schema.column(table.summed) if table.summed else None
            if isinstance(column, NumericColumn):
                noise = SummedNoise(law, table.size).standard_deviation
                means[column.name] = noise / table.bound * column.half / rows
            else:
                counted = counted or law
        assert counted is not None  # noqa: S101 - a sum has a count beside it
        cost = paid.epsilon if isinstance(paid, Pure) else None
        return TableForecast(
            epsilon=cost or compose([paid], account.delta),
            noise=terms.noise or "",
            n_rows=rows,
            margin=SummedNoise(counted, 1).margin(WRONG),
            # The law of two draws' difference is that of their sum: both are even.
            lead=SummedNoise(counted, 2).threshold(WRONG, 1),
            means=means,
        )

    @property
    def statistics(self) -> NoisyStatistics:
        """The released statistics; public.

        Raises:
            InvalidParameterError: If nothing was released yet.
        """
        return self._released[0]

    @override
    def _record(self) -> dict[str, Any]:
        return self._released[1]

    @override
    def summary(self) -> str:
        return "\n".join(one.page_content for one in self._facts(Words(people="rows")))

    @override
    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        number = parameters.count(k, "k")
        return draw_rows(self.release().statistics, number, balanced=balanced)

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
        terms = self._terms
        given = {"people": people, "phrases": phrases or {}, "untold": untold}
        words = Words.model_validate(given).fit(terms)
        if terms.charged_unit is None or terms.rows_per_unit > 1:
            words = words.model_copy(update={"people": "rows"})
        documents = self.release()._facts(words)  # noqa: SLF001 - of this object
        # With these words the sentences can be made again, of what the ledger stored.
        wording = words.model_dump(mode="json")
        return ReleasedCorpus(documents, {**self.record(), "wording": wording})

    def _facts(self, words: Words) -> Iterator[Document]:
        return FactWriter(self.statistics, words).documents()

    @override
    def _texts(self) -> Callable[[Any], str]:
        names, schema = self._terms.names, self.schema
        if names == schema.names:
            return super()._texts()
        if schema.label not in names or len(names) < 2:  # noqa: PLR2004 - and a feature
            raise InvalidParameterError(
                "An example shows the label and a feature, and measure= names "
                f"{', '.join(map(repr, names)):.200}: measure the label "
                f"{schema.label!r} with a feature too."
            )
        # What was not measured stands in no example: it is left out of a query too.
        columns = tuple(map(schema.column, names))
        shown = schema.model_copy(update={"columns": columns})
        return partial(row_text, shown, {self._terms.unit_key, *schema.names})
