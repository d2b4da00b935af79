"""From a released table to examples, and a chain that classifies rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable, RunnableLambda
from typing_extensions import Self

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.public import Frozen
from langchain_dpicl.released import (
    ReleasedExamples,
    classification_chain,
)
from langchain_dpicl.released.classifying import LabelOutputParser
from langchain_dpicl.released.examples import LABEL_KEY, TEXT_KEY
from langchain_dpicl.tabular.row_text import RowText
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.threads import on_question_thread

EXAMPLES = 8
"""How many examples a chain shows."""


class ReleasedTable(Frozen, ABC):
    """Rows that can be drawn for free, once a release was paid for.

    Privacy:
        `sample` and all that is built on it are post-processing of one release; its
        unit, relation, events and epsilon are those of `record`. The rows that a chain
        is *asked about* are not protected: they go to the model.
    """

    _schema: TableSchema
    _binned: bool
    _unit_key: str | None = None

    @property
    def schema(self) -> TableSchema:
        """The table's public schema."""
        return self._schema

    @property
    def binned(self) -> bool:
        """Whether numbers are shown by their bins."""
        return self._binned

    @abstractmethod
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
            PlanMismatchError: If the account's plan is for another release.
            LedgerError: If the ledger can't be used.
        """

    async def arelease(self, *, resume: bool = False) -> Self:
        """Release without blocking the event loop; see `release`."""
        return await on_question_thread(partial(self.release, resume=resume))

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

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return the release's public record.

        Raises:
            InvalidParameterError: If nothing was released yet.
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
        rows = self.sample(count, balanced=balanced)
        schema = self.schema
        return ReleasedExamples(
            [
                {
                    TEXT_KEY: text(row),
                    LABEL_KEY: schema.label_text(row[schema.label]),
                }
                for row in rows
            ],
            self.record(),
        )

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
        schema = self.schema
        _require_classifier(model, schema.labels, unknown)
        chain = classification_chain(
            self.examples(k),
            model,
            schema.labels,
            instruction=_question(schema) if instruction is None else instruction,
            unknown=unknown,
        )
        return RunnableLambda(self._texts(), name="row_text") | chain

    def _texts(self) -> RowText:
        return RowText(self.schema, self.binned, self._unit_key)


def _require_classifier(model: Any, labels: Sequence[str], unknown: Any) -> None:
    """Refuse, before anything is charged, what no chain can be made of."""
    if not isinstance(model, Runnable):
        raise InvalidParameterError(
            "model must be a chat model or a completion model of LangChain, not "
            f"{type(model).__name__}."
        )
    LabelOutputParser(labels=tuple(labels), unknown=unknown)


def _question(schema: TableSchema) -> str:
    asked = schema.label_column.title
    return (
        f"Each text describes a row of a table. Tell its label ({asked}). Answer with "
        "one of the labels and nothing else."
    )


def not_released() -> InvalidParameterError:
    """Return the error for what a release would have to be made for."""
    return InvalidParameterError(
        "Nothing was released yet: call release(), which charges the account."
    )


def require_rows(count: int) -> None:
    """Refuse a table without rows.

    Raises:
        UnitError: If there are none.
    """
    if not count:
        raise UnitError("There are no rows: look at where the data comes from.")
