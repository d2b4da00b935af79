"""Nobody sees anything private of what runs without a chain.

A parser alone, few-shot generation, text that is read into rows, and tables; each with
the troubles that it may meet, in sight of both crowds. The twins are those of a chain:
the same observers look on; an open wall shows each of these ways, too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from faces import (
    BudgetExhaustedError,
    InvalidParameterError,
    KSAPTROutputParser,
    few_shot,
    open_for_tests,
    tabular,
)
from langchain_core.runnables import RunnableLambda
from unit_tests.wall.leaky import (
    KEY,
    PEOPLE,
    documents,
    quoting,
    tell,
    tell_runnables,
)
from unit_tests.wall.marks import STEMS, is_private, mark
from unit_tests.wall.observers import Run
from unit_tests.wall.ways import (
    LABELS,
    MODELS,
    QUESTION,
    Seen,
    account,
    esa,
    observe,
    picky,
)

WORDS = ("<end>", "red", "green", "blue", "tall", "wide")
RECORDS = [
    {
        "text": f"red green {mark('record', n)}",
        "label": "color",
        KEY: mark("unit", n),
        "ward": mark("metadata", n),
    }
    for n in range(PEOPLE)
]
SCHEMA = tabular.TableSchema(
    label="effect",
    columns=[
        tabular.CategoricalColumn(name="effect", values=list(LABELS)),
        tabular.CategoricalColumn(name="drug", values=["lisinopril", "losartan"]),
    ],
)
OPEN_SCHEMA = tabular.TableSchema(
    label="effect",
    columns=[
        SCHEMA.columns[0],
        tabular.CategoricalColumn(name="drug", values=["losartan", "?"], other="?"),
    ],
)
TABLE_ERRORS: dict[str, Any] = {
    "spent": BudgetExhaustedError,
    "undeclared": InvalidParameterError,
    "no row": InvalidParameterError,
}
ROWS = [{"effect": "cough", "drug": mark("record", n), KEY: n} for n in range(PEOPLE)]


class LeakyWords(few_shot.NextTokenModel):
    """A next-token model that tells all, and fails with a private prompt if it is to.

    Its vocabulary can't spell a mark.
    """

    name = "words"
    vocabulary_size = len(WORDS)
    end_tokens = frozenset({0})

    def __init__(self, error: Callable[[str], BaseException] | None) -> None:
        self.error = error

    def decode(self, tokens: Any) -> str:
        return "".join(f" {WORDS[token]}" for token in tokens)

    def top_tokens(self, prompts: Any, k: int) -> Any:
        return [np.arange(k, dtype=np.int64) for _ in prompts]

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        for text in {p.text for p in prompts if is_private(p.text)}:
            tell(text)
            tell_runnables(text)
            if self.error:
                raise self.error(text)
        told = -float(STEMS["usage"])
        return [np.array([told, 0.0] + [told] * (len(t) - 2)) for t in tokens]


def by_parser(run: Run, stack: ExitStack, error: Any, *, awaits: bool) -> None:
    """Merge private candidates: by their embeddings, or by words that can't be cut."""
    answers = [f"cough {mark('answer', n)} {mark('record', n)}" for n in range(8)]
    budget = stack.enter_context(account(run, "corpus"))
    parser = KSAPTROutputParser(k=1, tokenizer=picky) if error else esa()
    run.callbacks.append(budget)
    run.things.append(parser)
    if awaits:
        run.outputs.append(asyncio.run(parser.ainvoke(answers, run.config)))
    else:
        run.outputs.append(parser.invoke(answers, run.config))


def by_few_shot(run: Run, stack: ExitStack, error: Any, *, awaits: bool) -> None:
    """Write an example out of private records."""
    generator = few_shot.DPFewShotGenerator(
        LeakyWords(error),
        "Given a kind, write a list.",
        ["color"],
        n_groups=4,
        records_per_group=PEOPLE / 4,
        max_tokens=2,
        top_k_public=4,
        unit_key=KEY,
        budget=stack.enter_context(account(run, "corpus")),
    )
    run.things.append(generator)
    made = inside(
        run,
        lambda: generator.generate(RECORDS, progress=True),
        (lambda: generator.agenerate(RECORDS, progress=True)) if awaits else None,
    )
    run.outputs += [made, made.record]


def by_rows(
    run: Run, stack: ExitStack, error: Any, *, awaits: bool, crowd: str
) -> None:
    """Read texts into rows, and release a table of them."""

    def script(prompt: str) -> Any:
        return error(prompt) if error and is_private(prompt) else None

    model = MODELS[crowd](script=script, **run.fields)
    rows = tabular.TextRows(documents(), SCHEMA, model, unit_key=KEY, progress=True)
    run.things.append(rows)
    inside(run, rows.read, rows.aread if awaits else None)
    budget = stack.enter_context(account(run, "corpus"))
    released = tabular.GDPTable(rows, rows.schema, budget=budget).release()
    run.things.append(released)
    run.outputs += [released.summary(), released.record()]


def inside(run: Run, call: Any, acall: Any = None) -> Any:
    """Call within an application that is a runnable, whose callbacks it inherits."""

    async def awaiting(_question: str) -> None:
        made.append(await acall())

    made: list[Any] = []
    if acall is None:
        app = RunnableLambda(lambda _question: made.append(call()))
        app.invoke(QUESTION, run.config)
    else:
        asyncio.run(RunnableLambda(awaiting).ainvoke(QUESTION, run.config))
    return made[0]


ERRORS: dict[str, Any] = {
    "fine": None,
    "failing": quoting,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "panic": functools.partial(quoting, kind=BaseException),
}
PROCESSES: dict[str, Any] = {
    "parser": by_parser,
    "few shot": by_few_shot,
    "rows": by_rows,
}


def watch(process: str, crowd: str, error: Any, *, awaits: bool) -> Seen:
    more = {"crowd": crowd} if process == "rows" else {}

    def act(run: Run, stack: ExitStack) -> None:
        PROCESSES[process](run, stack, error, awaits=awaits, **more)

    return observe(crowd, act)


def cases() -> Iterator[Any]:
    for process in PROCESSES:
        for n, error in enumerate([*ERRORS][: 2 if process == "parser" else None]):
            for crowd in MODELS:
                yield process, error, crowd, (crowd == "config") == bool(n % 2)


@pytest.mark.promise("nobody-sees-a-record-without-a-chain")
@pytest.mark.parametrize(("process", "error", "crowd", "awaits"), list(cases()))
def test_nobody_sees_anything_private(
    process: str, error: str, crowd: str, awaits: bool
) -> None:
    seen = watch(process, crowd, ERRORS[error], awaits=awaits)
    assert seen.marks == {}
    assert isinstance(
        seen.error, KeyboardInterrupt if error == "interrupt" else type(None)
    )


@pytest.mark.promise("nobody-sees-a-record-without-a-chain", twin=True)
@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("crowd", MODELS)
def test_an_open_wall_shows_it(process: str, crowd: str) -> None:
    with open_for_tests(), pytest.raises(AssertionError):
        assert watch(process, crowd, None, awaits=False).marks == {}
    with open_for_tests():
        assert "raised" in watch(process, crowd, quoting, awaits=False).marks


@pytest.mark.promise("nobody-sees-a-row")
@pytest.mark.parametrize("crowd", MODELS)
@pytest.mark.parametrize("kind", ["gdp", "ldp", "spent", "undeclared", "no row"])
def test_nobody_sees_a_row_of_a_table(kind: str, crowd: str) -> None:
    """Nor a cell that the schema does not declare, and so refuses."""
    schema = SCHEMA if kind == "undeclared" else OPEN_SCHEMA
    invited = {"invited": 99} if kind == "ldp" else {}
    made = tabular.LDPTable if kind == "ldp" else tabular.GDPTable

    def act(run: Run, stack: ExitStack) -> None:
        budget = stack.enter_context(account(run, "corpus"))
        for _ in range(2 if kind == "spent" else 1):
            run.things.append(
                made(
                    [*ROWS, mark("record", 0)] if kind == "no row" else ROWS,
                    schema,
                    budget=budget,
                    unit_key=KEY,
                    **invited,
                )
            )
            released = run.things[-1].release()
            run.outputs += [released.summary(), released.record()]

    seen = observe(crowd, act)
    assert seen.marks == {}
    assert isinstance(seen.error, TABLE_ERRORS.get(kind, type(None)))
