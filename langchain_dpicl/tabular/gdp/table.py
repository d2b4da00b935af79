"""`GDPTable`: a table that somebody is trusted with, and its noisy statistics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.exceptions import (
    InvalidParameterError,
    NoBudgetError,
    UnitError,
)
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.mechanisms.source import checked_source
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular.gdp.forecast import TableForecast, forecast
from langchain_dpicl.tabular.gdp.release import Release
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics
from langchain_dpicl.tabular.gdp.terms import GDPTerms, Numeric, read_group_by
from langchain_dpicl.tabular.released_table import ReleasedTable
from langchain_dpicl.tabular.rows.wanted import ExtraColumns
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split
from langchain_dpicl.validation import checked

_WORD = 2.0**-64


class GDPTable(ReleasedTable):
    """Examples out of a table's noisy statistics: paid once, drawn for ever.

    The rows are cut into groups by public predicates, by default one for each label.
    For each group the most frequent values and the means are released with noise, and
    from these come rows that look like the group's.

    Args:
        data: The private rows: a pandas or polars frame, mappings, an iterable of
            frames, or `SQLRows`. They are read once, in bounded memory.
        schema: The public columns, domains and bounds.
        budget: The account that pays: one charge a release.
        group_by: Columns whose declared values (or bins) make the groups; None: the
            label; `[]`: one group. All combinations are groups, also empty ones.
        numeric: `mean`: a number is released as its group's mean; `bins`: as the shares
            of its public bins, so that examples differ.
        sampling_rate: Takes a Poisson sample of the units. At the same epsilon this
            costs accuracy; it is for tables that must not be read in whole.
        unit_key: The column that says whose a row is; it may stand outside the schema.
            None: each row is a unit.
        rows_per_unit: Most rows of a unit that take part, chosen at random. The noise
            grows with it.
        split: How epsilon is shared: `even`, or a mapping from each released column
            (and `(rows)`, where there are means) to its epsilon; they sum to epsilon.
        epsilon: Of the release, before sampling; None leaves it to the budget.
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
        one unit more or less. Sensitivity, noise and event: see `tabular.gdp.terms`:
        L1 `rows_per_unit` for each histogram and the number of rows, times the bound
        for each sum of clipped values around the middle of their bounds; discrete
        Laplace noise; pure epsilon, on a sample log(1 + q (e^epsilon - 1)). Source:
        Carey et al., *DP-TabICL: In-Context Learning with Differentially Private
        Tabular Data*, 2024, Algorithm 2; Dwork et al. 2006 (Laplace mechanism); Ghosh
        et al. 2009 (on the integers). Public: the schema, the groups, all parameters,
        and that there was a release. Whoever runs this sees the rows and is trusted.

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
        numeric: Numeric = "mean",
        sampling_rate: float = 1.0,
        unit_key: str | None = None,
        rows_per_unit: int = 1,
        split: Split = "even",
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
                "which values and bounds are public. TableSchema.draft(...) starts one "
                "from a table's names and types."
            )
        self._terms = GDPTerms(
            schema=schema,
            group_by=read_group_by(group_by, schema),
            sampling_rate=sampling_rate,
            unit_key=unit_key,
            rows_per_unit=rows_per_unit,
            split=split,
            numeric=numeric,
            epsilon=epsilon,
        )
        self._terms.check()
        if small_groups not in ("leave_out", "keep"):
            raise InvalidParameterError("small_groups must be 'leave_out' or 'keep'.")
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        self.schema = schema
        self.binned = numeric == "bins"
        self._budget = budget
        self._keeps_small = small_groups == "keep"
        self._extra_columns: ExtraColumns = extra_columns
        self._progress = progress
        self._random = checked(checked_source, random)
        self._lock = threading.Lock()
        self._is_spent = False
        self._released: tuple[NoisyStatistics, dict[str, Any]] | None = None

    def __repr__(self) -> str:
        terms = self._terms
        return (
            f"{type(self).__name__}(label={self.schema.label!r}, "
            f"group_by={list(terms.group_by)}, n_groups={terms.n_groups}, "
            f"numeric={terms.numeric!r}, released={self._released is not None}"
            f"{'' if self._random.secure else f', random={self._random!r}'})"
        )

    def release(self, *, resume: bool = False) -> NoisyStatistics:
        """Read the rows, charge the account, and release the statistics, once.

        Later calls return what was released. `sample`, `examples` and
        `classification_chain` call it where nothing was released yet.

        Args:
            resume: If this account has a release of the same terms, take that one, at
                no charge; the rows are not read again unless it was interrupted
                between its charge and its release.

        Returns:
            The public statistics; `print(statistics.summary())` shows them with their
            errors.

        Raises:
            InvalidParameterError: If a row is not what the schema allows, or delta is
                too large for so many units. Nothing is charged.
            UnitError: If there are no rows, or a row has no unit id.
            NoBudgetError: If there is no budget.
            BudgetExhaustedError: If the account can't pay.
            PlanMismatchError: If the account's plan is for another release.
            LedgerError: If the ledger can't be used.
        """
        with self._lock:
            if self._released is None:
                release = Release(
                    self._terms,
                    self._account(),
                    self._random,
                    self._extra_columns,
                    self._progress,
                )
                try:
                    self._released = release.made(self._rows(), resume=resume)
                finally:
                    self._is_spent = release.has_read
                # Nothing reads the rows again.
                self._data = Hidden(None)
            return self._released[0]

    async def arelease(self, *, resume: bool = False) -> NoisyStatistics:
        """Release without blocking the event loop; see `release`."""
        return await asyncio.to_thread(self.release, resume=resume)

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
        return forecast(self._terms, self._account(), n_rows)

    def record(self) -> dict[str, Any]:
        """Return the release's public record; it is made where there is none yet."""
        self.release()
        released = self._released
        assert released is not None  # noqa: S101  # `release` has set it.
        return dict(released[1])

    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        """Return k rows out of the released statistics.

        The first row of each group is its most frequent values and means; further ones
        are drawn, column by column, from the group's noisy shares.

        Args:
            k: How many.
            balanced: Whether groups take turns, label by label and larger ones first;
                otherwise every row is drawn, groups by their noisy sizes.

        Raises:
            UnitError: If the noise hides every group: too few rows for this epsilon.
        """
        statistics = self.release()
        groups = self._groups(statistics)
        if not balanced:
            sizes = [max(statistics.sizes[group].value, 1e-9) for group in groups]
            chosen = [_pick(groups, sizes, self._uniforms(1)[0]) for _ in range(k)]
            return [self._drawn(statistics, group) for group in chosen]
        rows = [statistics.typical(group) for group in groups[:k]]
        while len(rows) < k:
            rows.append(self._drawn(statistics, groups[len(rows) % len(groups)]))
        return rows

    def _drawn(self, statistics: NoisyStatistics, group: int) -> dict[str, Any]:
        return statistics.drawn(group, self._uniforms(len(self._terms.quantities)))

    def _uniforms(self, count: int) -> list[float]:
        # Rows are drawn of what is public: any generator would do.
        return [float(word) * _WORD for word in self._random.words(count)]

    def _groups(self, statistics: NoisyStatistics) -> list[int]:
        """Return the groups that examples come from: labels in turn, larger first."""
        found = [
            group
            for group in range(self._terms.n_groups)
            if self._keeps_small or statistics.seen[group]
        ]
        if not found:
            raise UnitError(
                "The noise hides how many rows any group has: there are too few rows "
                "for this epsilon and this many columns and groups. Use a larger "
                "epsilon, fewer columns or groups, or small_groups='keep' to see what "
                "is mostly noise."
            )
        by_size = sorted(found, key=lambda group: -statistics.sizes[group].value)
        label = self.schema.label
        if label not in self._terms.group_by:
            return by_size
        place = self._terms.group_by.index(label)
        codes = self._terms.groups()
        seen: dict[int, int] = {}
        turns = []
        for group in by_size:
            seen[codes[group][place]] = seen.get(codes[group][place], -1) + 1
            turns.append((seen[codes[group][place]], group))
        # Sorting is stable: within a turn the larger group comes first.
        return [group for _, group in sorted(turns, key=lambda turn: turn[0])]

    def _rows(self) -> Hidden[Any]:
        """Return the rows, unless they are an iterator that was read in part."""
        if self._is_spent and isinstance(self._data.value, Iterator):
            raise InvalidParameterError(
                "The rows came from an iterator, and reading it failed before: what is "
                "left of it is not the table. Make a new GDPTable with a new iterator, "
                "or with data that can be read again."
            )
        return self._data

    def _account(self) -> PrivacyBudgetHandler:
        if self._budget is None:
            raise NoBudgetError(
                "No privacy budget: nothing was read and nothing was released. Give "
                "the table budget=PrivacyBudgetHandler(...)."
            )
        return self._budget


def _pick(groups: Sequence[int], sizes: Sequence[float], uniform: float) -> int:
    left = uniform * sum(sizes)
    for group, size in zip(groups, sizes, strict=True):
        left -= size
        if left < 0:
            return group
    return groups[-1]
