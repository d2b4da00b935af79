"""`LDPTable`: a table that nobody sees but through randomized response."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn

import numpy as np
from typing_extensions import Self

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular.distribution import Distribution
from langchain_dpicl.tabular.ldp.client_reports import count_reports
from langchain_dpicl.tabular.ldp.collecting import Rows, collect_reports
from langchain_dpicl.tabular.ldp.drawing import draw_rows
from langchain_dpicl.tabular.ldp.fitting import Model
from langchain_dpicl.tabular.ldp.reconstruction import standard_errors
from langchain_dpicl.tabular.ldp.result import Collected, Errors
from langchain_dpicl.tabular.ldp.terms import LDPTerms, require_same_terms
from langchain_dpicl.tabular.released_table import (
    ReleasedTable,
    not_released,
    require_account,
)
from langchain_dpicl.tabular.rows import CHUNK_SIZE
from langchain_dpicl.tabular.rows.wanted import check_extra_columns
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split


class LDPTable(ReleasedTable):
    """Rows like those of a private table, out of locally randomized reports.

    Every row is randomized, column by column, before anything is counted. What the
    rows are like is reconstructed from the reports, and rows are drawn from that, for
    any number of prompts. One charge pays for all of it.

    Either you hold the rows: `LDPTable(data, schema, budget=...)`. Or each person
    randomizes with an `LDPClient`, and you hold reports: `LDPTable.from_reports`.

    Args:
        data: The private rows: `CSVRows`, `JSONRows`, `SQLRows`, `ArrowRows`,
            mappings, or a pandas or polars frame whose cells were read one by one
            (`InferredTypeWarning`).
            Those that can be read twice are checked before the charge.
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
        extra_columns: What to do with columns that the schema doesn't have: `refuse`
            the table, or `ignore` them.
        chunk_size: How many rows are in memory at once.
        progress: Whether to show a bar on standard error; None: at a terminal.
        random: For tests: where noise and drawn rows come from.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a column of
            numbers has no bins; it is named. Nothing is read here.

    Privacy:
        Unit: one row, or all rows of one `unit_key`, of which `rows_per_unit` at most
        are reported, chosen by a secret key and the unit's own rows. Neighbors: the
        unit's values replaced by any others; how many rows of a unit are reported is
        public. (Where that is private, leave `rows_per_unit` at 1: all units report
        once.) Noise and event: `mechanisms.responses`, pure epsilon, on every
        column, the label too, at epsilon_f, with sum epsilon_f <= epsilon /
        rows_per_unit (Carey et al., 2024, Algorithm 1). All after the reports is
        post-processing.

        Adding or removing a unit is not claimed: the number of reports is exact. Yet
        the account may hold other releases, which promise that. Take as neighbor the
        table in which the unit's rows are null records, whose reports say uniformly
        random values: a report's chance changes by exp(epsilon_f) at most for each
        column, so the cost is epsilon again, and all charges of the account add up for
        the unit, but for the fact that it takes part.

        The account is charged, durably, before the first report is drawn. Then the
        rows are let go, and only counts of reports are held; the ledger has them.
        Public: the schema, all parameters, the number of reports.

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
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=4, delta=1e-4, queries=1, ledger=":memory:"
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
        extra_columns: str = "refuse",
        chunk_size: int = CHUNK_SIZE,
        progress: bool | None = None,
        random: SecureRandom | None = None,
    ) -> None:
        hidden = Hidden(data)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del data
        if epsilon is not None:
            epsilon = parameters.epsilon(epsilon)
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        self._schema = schema
        self._terms = LDPTerms(schema, epsilon, split, model, unit_key, rows_per_unit)
        self._terms.check()
        self._random = checked_source(random)
        self._budget = budget
        self._lock = threading.Lock()
        self._collected: Collected | None = None
        self._rows: Rows | None = None
        extra = self._extra_columns = check_extra_columns(extra_columns)
        self._unit_key = unit_key
        size = parameters.count(chunk_size, "chunk_size")
        if isinstance(hidden.value, Collected):
            # From `from_reports`: there are no rows to read.
            self._collected = hidden.value
        else:
            self._rows = Rows(hidden, extra, size, progress)

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
        terms: Mapping[str, Any] | None = None,
        chunk_size: int = CHUNK_SIZE,
        random: SecureRandom | None = None,
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
            terms: `LDPClient.terms` as the clients gave them, to compare with these.
            chunk_size: How many reports are counted at once.
            random: For tests: where drawn rows come from.

        Raises:
            InvalidParameterError: If an argument is out of its range, there are no
                reports, or one can't be read; the column is named.

        Privacy:
            Post-processing: the reports are private already, each at epsilon for the
            one who sent it. The record says that clients randomized, and names no
            charge. That they did, at this epsilon, and how often each reported, is
            taken on their word: nothing in a report shows it.
        """
        cost = parameters.epsilon(epsilon)
        own = LDPTerms(schema, cost, split, model)
        own.check()
        require_same_terms(own, terms)
        found = count_reports(
            reports,
            own,
            checked_source(random),
            invalid=invalid,
            reports_per_unit=parameters.count(reports_per_unit, "reports_per_unit"),
            chunk_size=parameters.count(chunk_size, "chunk_size"),
            said=terms,
        )
        return cls(found, schema, epsilon=cost, split=split, model=model, random=random)

    def __repr__(self) -> str:
        found = self._collected
        epsilon = self._terms.epsilon if found is None else found.record["epsilon"]
        return (
            f"{type(self).__name__}(columns={len(self._terms.schema.names)}, "
            f"epsilon={epsilon}, released={found is not None}"
            f"{'' if self._random is None else f', random={self._random!r}'})"
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
                named. Rows that can be read twice were checked before the charge;
                else the message says what was charged.
            UnitError: If there are no rows, or a row has no usable unit id.
            BudgetExhaustedError: If the account can't pay.
            PlanMismatchError: If its plan is for another release, or none can be made.
            LedgerError: If the ledger can't be used.
        """
        self._result(resume=resume)
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
            account = require_account(self._budget)
            epsilon = terms.paid(account.quote(terms.charge()))
        own = terms.row_epsilons(epsilon)
        return {
            name: float(standard_errors(np.ones(size), [own[name]], rows)[0])
            for name, size in terms.sizes.items()
        }

    @property
    def distribution(self) -> Distribution:
        """The rows' distribution as reconstructed; public."""
        return self._found().distribution

    @property
    def epsilons(self) -> dict[str, float]:
        """Each column's epsilon for one row."""
        return dict(self._found().epsilons)

    @property
    def n_reports(self) -> int:
        """How many reports there are; public."""
        return self._found().counts.n

    def standard_errors(self) -> Errors:
        """Return each column's estimated shares and their standard errors.

        They are by column, then by value (of numbers, a bin's text). Each share is the
        unbiased one of its column's reports and may be below 0; the true share is
        within 1.96 standard errors in 95 % of collections, each taken by itself.
        """
        return self._found().standard_errors()

    def summary(self) -> str:
        """Return the largest shares of each column, with their margins, in words."""
        return self._found().summary()

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
        found = self._result()
        return draw_rows(
            found, parameters.count(k, "k"), self._random, balanced=balanced
        )

    def record(self) -> dict[str, Any]:
        """Return a copy of the public record."""
        record: dict[str, Any] = json.loads(json.dumps(self._found().record))
        return record

    def _result(self, *, resume: bool = False) -> Collected:
        with self._lock:
            if self._collected is None:
                self._collected = collect_reports(
                    self._rows, self._terms, self._budget, self._random, resume=resume
                )
                # Nothing needs the true rows any more.
                self._rows = None
            return self._collected

    def _found(self) -> Collected:
        found = self._collected
        if found is None:
            raise not_released()
        return found
