"""A table that is released once, and what is made of it for free.

Privacy:
    Rows are read and checked before the charge, so that a bad row costs nothing. The
    charge is durable before anything is drawn, what is drawn has the noise of the event
    that was paid, and it is stored before it is returned (`budget.buying`). Where a
    process stops between charge and storing, `resume=True` draws what is not stored
    under the same charge: what stopped it did not look at the draw.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar, cast

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable, RunnableLambda
from typing_extensions import Self

from langchain_dpicl.accounting import Charge, Event
from langchain_dpicl.budget import (
    Paid,
    PrivacyBudgetHandler,
    Purchase,
    Stored,
    require_account,
)
from langchain_dpicl.budget.buying import taken_or_payable
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError, UnitError
from langchain_dpicl.public import Frozen
from langchain_dpicl.released import ReleasedExamples, classification_chain
from langchain_dpicl.released.classifying import LabelOutputParser
from langchain_dpicl.released.examples import LABEL_KEY, TEXT_KEY
from langchain_dpicl.tabular.rows import UnitRows
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.terms import TableTerms
from langchain_dpicl.threads import on_question_thread

EXAMPLES = 8
"""How many examples a chain shows."""

T = TypeVar("T")


def drawn_once(
    purchase: Purchase, noun: str, read: Callable[[], T], draw: Callable[[Paid, T], Any]
) -> Stored:
    """Return a charge with what was drawn for it: the stored one, or a new one.

    `read` reads and checks what is private, before the charge; `draw` draws of it what
    is released, as JSON has it.
    """
    stored = taken_or_payable(purchase, noun, "resume=True takes it")
    if stored is not None and stored.is_complete:
        return stored
    found = Hidden(read())
    with purchase.bought() as paid:
        # A draw that could not be stored is shown to nobody, in no traceback either:
        # there may be another one for the same charge.
        drawn = without_frames(lambda: paid.once(lambda: draw(paid, found.value)))
    return replace(paid.stored, values=(drawn,))


def least_charge(
    account: PrivacyBudgetHandler,
    charges: Sequence[Charge],
    needed: Callable[[tuple[Event, ...]], T | None],
) -> tuple[T, Charge]:
    """Return how many people a release needs, at the least, and its charge. Public.

    `needed` says it of the events that the account would be charged; None: a charge is
    not worth it. Of equal ones the first charge is taken.

    Raises:
        PlanMismatchError: If the account's plan is for another release.
        InvalidParameterError: If the account can't pay for any.
    """
    quoted: list[tuple[T, Charge]] = []
    for charge in charges:
        with suppress(InvalidParameterError, PlanMismatchError):
            people = needed(account.quote(charge))
            if people is not None:
                quoted.append((people, charge))
    if not quoted:  # The account says why.
        account.quote(charges[0])
        raise InvalidParameterError("The account can't pay for such a release.")
    return min(quoted, key=lambda pair: cast("Any", pair[0]))


def row_text(schema: TableSchema, ignored: Collection[Any], row: Any) -> str:
    """Return a row's features as text, in the form that examples have.

    Ignored columns are left out, unless the schema has them.
    """
    if isinstance(row, Mapping):
        known = schema.names
        row = {n: cell for n, cell in row.items() if n in known or n not in ignored}
    return schema.text(row, binned=True)


Terms = TypeVar("Terms", bound=TableTerms)


class ReleasedTable(Frozen, ABC, Generic[Terms, T]):
    """Rows that can be drawn for free, once a release was paid for.

    Privacy:
        `sample` and all that is built on it are post-processing of one release; its
        unit, relation, events and epsilon are those of `record`. The rows that a chain
        is *asked about* are not protected: they go to the model.
    """

    def _prepare(self, terms: Terms, rows: Hidden[Any], budget: Any) -> None:
        """Set what a table has before it is released."""
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        self._terms, self._rows, self._budget = terms, rows, budget
        self._lock = threading.Lock()
        self._result: T | None = None

    def __repr__(self) -> str:
        kind, label = type(self).__name__, self.schema.label
        return f"{kind}(label={label!r}, released={self._result is not None})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"A {type(self).__name__} is not pickled: it may hold private rows. "
            "release(resume=True) takes what its account has paid for."
        )

    @property
    def schema(self) -> TableSchema:
        """The table's public schema."""
        return self._terms.table_schema

    def release(self, *, resume: bool = False) -> Self:
        """Read the rows, charge the account, and release, once; return this table.

        A second call does nothing. `sample`, `examples` and `classification_chain`
        call it where it was not called.

        Args:
            resume: If this account has paid for a release of the same terms, take that
                one, at no charge; the rows are not read again unless it was interrupted
                between its charge and its release.

        Raises:
            InvalidParameterError: If a row is not what the schema allows. Nothing is
                charged.
            UnitError: If there are no rows, or a row has no unit id.
            NoBudgetError: If there is no budget.
            BudgetExhaustedError: If the account can't pay.
            PlanMismatchError: If the account's plan is for another release, or it
                protects another kind of unit.
            LedgerError: If the ledger can't be used.
        """
        with self._lock:
            if self._result is None:
                self._result = self._release(self._account(), resume=resume)
                # Nothing reads the rows again.
                self._rows = Hidden(None)
        return self

    async def arelease(self, *, resume: bool = False) -> Self:
        """Release without blocking the event loop; see `release`."""
        return await on_question_thread(partial(self.release, resume=resume))

    @abstractmethod
    def _release(self, budget: PrivacyBudgetHandler, *, resume: bool) -> T:
        """Return what is released."""

    def _account(self) -> PrivacyBudgetHandler:
        return require_account(self._budget, "table")

    def _once_read(self) -> Any:
        """Return the rows, and of an iterator nothing the next time."""
        rows = self._rows.value
        if isinstance(rows, Iterator):
            self._rows = Hidden(_Spent())
        return rows

    @property
    def _released(self) -> T:
        if self._result is None:
            raise InvalidParameterError(
                "Nothing was released yet: call release(), which charges the account."
            )
        return self._result

    @abstractmethod
    def _record(self) -> dict[str, Any]: ...

    def record(self) -> dict[str, Any]:
        """Return a copy of the release's public record.

        Raises:
            InvalidParameterError: If nothing was released yet.
        """
        return copy.deepcopy(self._record())

    @abstractmethod
    def summary(self) -> str:
        """Return in words what was released, with the errors of the noise."""

    @abstractmethod
    def sample(self, k: int, *, balanced: bool = True) -> list[dict[str, Any]]:
        """Return k rows: a mapping from each column, the label too, to its value.

        Args:
            k: How many.
            balanced: Whether labels take turns, as far as the release knows them, the
                first row of each a typical one; otherwise every row is drawn.

        Raises:
            InvalidParameterError: If k is no count.
            UnitError: If the noise hides every label: too few rows for this epsilon.
        """

    def text(self, row: Mapping[str, Any]) -> str:
        """Return a row's features as text, in the form that the examples have.

        Args:
            row: A mapping from each feature to its value; a label is not looked at, nor
                the unit's key, nor columns that were not measured.

        Raises:
            InvalidParameterError: If it is none, or a value is refused; the column is
                named.
        """
        return self._texts()(row)

    def examples(self, k: int, *, balanced: bool = True) -> ReleasedExamples:
        """Return k rows as text and label, with the release's record.

        Args:
            k: How many.
            balanced: Whether labels take turns.

        Returns:
            Examples with `text` (the features, in the schema's words) and `label`.

        Raises:
            InvalidParameterError: If k is no count.
        """
        count = parameters.count(k, "k")
        text = self._texts()  # Before anything is charged: it may refuse.
        schema = self.schema
        examples = [
            {TEXT_KEY: text(row), LABEL_KEY: schema.label_text(row[schema.label])}
            for row in self.sample(count, balanced=balanced)
        ]
        return ReleasedExamples(examples, self.record())

    async def aexamples(self, k: int, *, balanced: bool = True) -> ReleasedExamples:
        """Return examples without blocking the event loop; see `examples`."""
        return await on_question_thread(partial(self.examples, k, balanced=balanced))

    def classification_chain(
        self,
        model: BaseLanguageModel[Any],
        k: int = EXAMPLES,
        *,
        instruction: str | None = None,
        unknown: str | None = None,
    ) -> Runnable[Any, str | None]:
        """Return a chain that gives any row its label, by k released examples.

        Few-shot prompt, model, label parser. The examples are drawn once, here.

        Args:
            model: A chat model or a completion model.
            k: How many examples it shows.
            instruction: What stands above the labels and the examples.
            unknown: What to return where the answer means no label.

        Returns:
            A Runnable from a row (a mapping from each feature to its value; a label in
            it is not looked at), to a label's text or `unknown`.

        Raises:
            InvalidParameterError: If k is no count, `model` no model, `unknown` a
                label, or answers could not tell the schema's labels apart. Nothing is
                charged then.
        """
        labels = self.schema.labels
        _require_classifier(model, labels, unknown)
        usual = (
            "Each text describes a row of a table. Tell its label "
            f"({self.schema.label_column.title}). Answer with one of the labels and "
            "nothing else."
        )
        instruction = usual if instruction is None else instruction
        chain = classification_chain(
            self.examples(k), model, labels, instruction=instruction, unknown=unknown
        )
        return RunnableLambda(self._texts(), name="row_text") | chain

    def _texts(self) -> Callable[[Any], str]:
        """Return what writes a row: it holds no row, and may go into a chain."""
        return partial(row_text, self.schema, {self._terms.unit_key})


class _Spent:
    """What is left of an iterator that was read in part: no table."""

    def __iter__(self) -> Iterator[Any]:
        raise InvalidParameterError(
            "The rows came from an iterator, and reading it failed before: what is "
            "left of it is not the table. Make a new table of all rows."
        )


def row_unit_of(rows: Any) -> str | None:
    """Return the unit of which each row was made; None where a row is just a row."""
    return rows.unit_key if isinstance(rows, UnitRows) else None


def require_rows(count: int) -> None:
    """Refuse a table without rows.

    Raises:
        UnitError: If there are none.
    """
    if not count:
        raise UnitError("There are no rows: look at where the data comes from.")


def _require_classifier(model: Any, labels: Sequence[str], unknown: Any) -> None:
    """Refuse, before anything is charged, what no chain can be made of."""
    if not isinstance(model, Runnable):
        raise InvalidParameterError(
            "model must be a chat model or a completion model of LangChain, not "
            f"{type(model).__name__}."
        )
    LabelOutputParser(labels=tuple(labels), unknown=unknown)
