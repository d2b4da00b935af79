"""One reading of text rows that everybody watches, and what each of them has seen.

The rows are read, and then released by a table: from the records to the ledger.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.sealed import calls
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    TableSchema,
    TextRows,
)
from support.leaks import few_shot, langsmith, output, runs
from support.leaks.breaks import unsealed
from support.leaks.canaries import PUBLIC
from support.leaks.collector import Collector
from support.leaks.observer import Stage
from support.leaks.parts import corpus
from support.leaks.runs import Finding, _ask, _finding, _made, _new_ledger

SCHEMA = TableSchema(
    label="effect",
    columns=[
        CategoricalColumn(name="effect", values=["cough", "rash"], shown=PUBLIC),
        CategoricalColumn(name="drug", values=["lisinopril", "losartan"]),
    ],
)
COMPANIES = {
    name: company for name, company in runs.COMPANIES.items() if name != runs.ALONE
}
WAYS = ["read", "aread"]
RAISED = {"none": "", "model": "", "interrupt": "KeyboardInterrupt"}


def kinds_of(company: str) -> list[type[Any]]:
    return [*few_shot.ALWAYS, *COMPANIES[company][1]]


def watch(
    company: str,
    way: str,
    *,
    collector: Collector,
    failure: str = "none",
    breaking: Callable[[], Any] | None = None,
) -> dict[str, Finding]:
    """Read and release once, in sight of a company; see `runs.watch`."""
    observers = [_made(kind, collector) for kind in kinds_of(company)]
    observers = [each for each in observers if way == "aread" or not each.only_async]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as attached:
        stage = Stage(Path(folder))
        attached.enter_context(langsmith.no_tracing())
        if breaking is not None:
            attached.enter_context(breaking())
        with ExitStack() as watching:
            for each in observers:
                watching.enter_context(each.attach(stage))
            rows = _rows(stage, COMPANIES[company][0], failure)
            _ask(stage, rows, _read if way == "read" else _aread)
        found = {each.name: _finding(each, stage) for each in observers}
        stage.parts["ledger"].dispose()
    return found


def _rows(stage: Stage, model_class: Callable[..., Any], failure: str) -> TextRows:
    model = model_class(failing=failure, **stage.model_fields)
    if stage.model_config:
        model = model.with_config(**stage.model_config)
    shutil.copy(_new_ledger(), stage.folder / "ledger.db")
    ledger = SQLLedger(f"sqlite:///{stage.folder}/ledger.db")
    file = stage.folder / "private-readings.jsonl"
    rows = TextRows(
        corpus(), SCHEMA, model, unit_key="patient", progress=True, file=file
    )
    budget = PrivacyBudgetHandler(epsilon=9, delta=1e-6, queries=1, ledger=ledger)
    table = GDPTable(rows, rows.schema, budget=budget)
    stage.parts |= {"rows": rows, "table": table, "budget": budget, "ledger": ledger}
    return rows


def _release(stage: Stage) -> int:
    table = stage.parts["table"].release()
    stage.outputs += [table.summary(), table.record(), *table.sample(2)]
    return len(stage.outputs)


def _read(stage: Stage, rows: Any, question: str) -> None:
    # The application is a runnable: what runs inside it inherits its callbacks.
    def application(_question: str) -> int:
        stage.outputs.append(repr(rows.read()))
        return _release(stage)

    stage.wrapped(RunnableLambda(application)).invoke(question, stage.config)


def _aread(stage: Stage, rows: Any, question: str) -> None:
    async def application(_question: str) -> int:
        stage.outputs.append(repr(await rows.aread()))
        return _release(stage)

    async def run() -> None:
        output.note_loop_errors(stage)
        runnable = stage.wrapped(RunnableLambda(application))
        await runnable.ainvoke(question, stage.config)

    asyncio.run(run())


@contextmanager
def loud() -> Iterator[None]:
    """A call that fails ends the reading, with the client's own error."""

    async def aattempt(step: Any) -> Any:
        return await step()

    with unsealed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "attempt", lambda step: step())
        patch.setattr(calls, "aattempt", aattempt)
        yield


@contextmanager
def shown_rows() -> Iterator[None]:
    """Rows whose repr and pickle show their records."""
    with unsealed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextRows, "__repr__", lambda self: repr(_texts(self)))
        patch.setattr(TextRows, "__reduce__", lambda self: (list, (_texts(self),)))
        yield


def _texts(rows: TextRows) -> list[str]:
    return [part.text for unit in rows._units.value for part in unit]
