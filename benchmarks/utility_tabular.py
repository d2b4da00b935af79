"""Utility of private examples of tables: accuracy over epsilon, globally and locally.

The rows of eight public tables are taken for private (unit: the row). `GDPTable` is
trusted with them and releases noisy statistics; `LDPTable` sees randomized reports
only. Either gives k examples, once, and an in-context classifier shows them in its
prompt and labels the test rows. Beside them stand

* no examples (zero-shot), and k private rows as examples, which is *not private*;
* the most frequent label, and models that are trained on all rows: *not private*;
* diffprivlib's logistic regression and naive Bayes on all rows, at the same epsilon;
* scikit-learn's on rows drawn from the `LDPTable`, at no further cost.

    python benchmarks/utility_tabular.py --data DIR [--quick] [--plot FILE.png]

The examples take turns by label, so that k below the number of labels leaves some
unshown. Schemas are public (`utility_tabular_schemas.py`): the local ones are small.
Noise is the operating system's: nothing can seed it. A run's number chooses the private
rows that are shown; the test rows are the same for all runs.
"""

from __future__ import annotations

import csv
import gzip
import math
import multiprocessing
import os
import random
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from utility_measures import arguments, caveat, write_json
from utility_tabular_baselines import (
    Baseline,
    missing_libraries,
    private,
    reconstructed,
)
from utility_tabular_report import (
    BINS,
    DRAWN,
    EPSILONS,
    GLOBAL,
    LOCAL,
    MAJORITY,
    REAL,
    SHOTS,
    ZERO_SHOT,
    Outcome,
    accuracy_table,
    draw,
    summary_table,
)
from utility_tabular_schemas import DATASETS, LABEL

from langchain_dpicl import PrivacyBudgetHandler, ReleasedExamples
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.errors import UnitError
from langchain_dpicl.released import classification_chain
from langchain_dpicl.released.classifying import INSTRUCTION, LabelOutputParser
from langchain_dpicl.tabular import GDPTable, LDPTable, TableSchema

DELTA = 1e-6
"""Of the accounts; every release here is pure, and spends nothing of it."""

NO_NOISE = 1e6
"""Stands for an infinite epsilon: noise and false answers are as good as gone."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table's rows under one schema.

    Attributes:
        name: The table.
        schema: Its public schema.
        train: The private rows.
        test: The rows to label.
    """

    name: str
    schema: TableSchema
    train: list[Row]
    test: list[Row]

    @classmethod
    def load(cls, name: str, schema: TableSchema, data: Path, most: int) -> Table:
        """Read a table; of its test rows at most so many, always the same."""
        train, test = (
            list(_rows(data / f"tab_{name}" / f"{part}.csv.gz", schema))
            for part in ("train", "test")
        )
        if len(test) > most:
            test = random.Random(name).sample(test, most)
        return cls(name, schema, train, test)

    @cached_property
    def answers(self) -> list[str]:
        """The test rows' labels, as they are shown."""
        return [self.schema.label_text(row[LABEL]) for row in self.test]

    def texts(self, *, binned: bool) -> list[str]:
        """Return the test rows as text."""
        return [self.schema.text(row, binned=binned) for row in self.test]

    def rows_of(self, count: int, run: int) -> list[Row]:
        """Return private rows, whose labels take turns."""
        chosen = random.Random(f"{self.name} {run}")
        order = list(self.schema.label_column.values)
        chosen.shuffle(order)
        found: list[Row] = []
        while len(found) < count:
            label = order[len(found) % len(order)]
            row = chosen.choice([row for row in self.train if row[LABEL] == label])
            if row not in found:
                found.append(row)
        return found


def _rows(path: Path, schema: TableSchema) -> Iterator[Row]:
    numeric = {column.name for column in schema.columns if column.kind != "categorical"}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield {
                name: float(row[name]) if name in numeric else row[name]
                for name in schema.names
            }


def _account(epsilon: float) -> PrivacyBudgetHandler:
    cost = NO_NOISE if math.isinf(epsilon) else epsilon
    return PrivacyBudgetHandler(epsilon=cost, delta=DELTA, queries=1, ledger=":memory:")


def drawn_examples(table: LDPTable, k: int) -> ReleasedExamples:
    """Return examples whose labels take turns, without the telling rows."""
    table.release()
    schema, found = table.schema, table.distribution
    weights = found.marginal(found.label).tolist()
    labels = [code for code, weight in enumerate(weights) if weight > 0]
    rows = []
    for turn in range(k):
        (codes,) = found.sample(1, label=labels[turn % len(labels)]).tolist()
        rows.append(
            {
                column.name: column.code_value(code)
                for column, code in zip(schema.columns, codes, strict=True)
            }
        )
    return ReleasedExamples.of(
        [
            {
                "text": schema.text(row, binned=True),
                "label": schema.label_text(row[schema.label]),
            }
            for row in rows
        ],
        table.record(),
    )


class Bench:
    """Tries everything on one table, in one run."""

    def __init__(self, options: Namespace, name: str, run: int) -> None:
        dataset = DATASETS[name]()
        most = 60 if options.quick else 300
        self.name, self.run = name, run
        self._model = load_model(options.model)
        self.whole = Table.load(name, dataset.schema(), options.data, most)
        self.local = Table.load(name, dataset.local_schema(), options.data, most)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield all outcomes of the run."""
        if self.run == 0:
            # Nothing of these is drawn at random.
            yield self._outcome(ZERO_SHOT, None, None, self._prompted([]))
            yield self._outcome(MAJORITY, None, None, self._majority())
        for k in SHOTS:
            shown = self._prompted(self.whole.rows_of(k, self.run))
            yield self._outcome(REAL, k, None, shown)
        yield from self._trained(private(self.whole, self.run))
        for epsilon in EPSILONS:
            yield from self._global(GLOBAL, "mean", epsilon)
            yield from self._global(BINS, "bins", epsilon)
            yield from self._local(epsilon)

    def _global(self, what: str, numeric: Any, epsilon: float) -> Iterator[Outcome]:
        data = self.whole
        table = GDPTable(
            data.train,
            data.schema,
            budget=_account(epsilon),
            numeric=numeric,
            progress=False,
        )
        yield from self._shown(what, table, data, epsilon, table.examples)

    def _local(self, epsilon: float) -> Iterator[Outcome]:
        data = self.local
        table = LDPTable(
            data.train, data.schema, budget=_account(epsilon), progress=False
        )
        yield from self._shown(LOCAL, table, data, epsilon, table.examples)

        def drawn(k: int) -> ReleasedExamples:
            return drawn_examples(table, k)

        yield from self._shown(DRAWN, table, data, epsilon, drawn)
        yield from self._trained(reconstructed(data, table, epsilon, self.run))

    def _shown(
        self,
        what: str,
        table: GDPTable | LDPTable,
        data: Table,
        epsilon: float,
        examples_of: Callable[[int], ReleasedExamples],
    ) -> Iterator[Outcome]:
        for k in SHOTS:
            try:
                examples = examples_of(k)
            except UnitError:
                # The noise hides every group: what is left is to show none.
                answers, hidden = self._prompted([]), True
            else:
                chain = classification_chain(examples, self._model, data.schema.labels)
                texts = data.texts(binned=table.binned)
                answers, hidden = [chain.invoke(text) for text in texts], False
            yield self._outcome(what, k, epsilon, answers, hidden=hidden)

    def _trained(
        self, found: Iterator[tuple[Baseline, list[str]]]
    ) -> Iterator[Outcome]:
        for baseline, answers in found:
            yield self._outcome(baseline.what, None, baseline.epsilon, answers)

    def _majority(self) -> list[str]:
        labels = [row[LABEL] for row in self.whole.train]
        most = max(self.whole.schema.label_column.values, key=labels.count)
        return [self.whole.schema.label_text(most)] * len(self.whole.test)

    def _prompted(self, rows: Sequence[Row]) -> list[str | None]:
        """Label the test rows as the chain does, which takes no private rows."""
        schema = self.whole.schema
        answer = self._model | LabelOutputParser(labels=schema.labels)
        listed = "\n".join(f"- {label}" for label in schema.labels)
        shown = "".join(
            f"Text: {schema.text(row)}\nLabel: {schema.label_text(row[LABEL])}\n\n"
            for row in rows
        )
        head = f"{INSTRUCTION}\n\nLabels:\n{listed}\n\n{shown}"
        return [
            answer.invoke(f"{head}Text: {text}\nLabel:")
            for text in self.whole.texts(binned=False)
        ]

    def _outcome(
        self,
        what: str,
        k: int | None,
        epsilon: float | None,
        answers: Sequence[str | None],
        *,
        hidden: bool = False,
    ) -> Outcome:
        pairs = list(zip(answers, self.whole.answers, strict=True))
        recalls = []
        for label in set(self.whole.answers):
            hits = [given == label for given, right in pairs if right == label]
            recalls.append(sum(hits) / len(hits))
        accuracy = sum(given == right for given, right in pairs) / len(pairs)
        return Outcome(
            self.name,
            what,
            k,
            epsilon,
            self.run,
            accuracy,
            sum(recalls) / len(recalls),
            hidden,
        )


def measure(options: Namespace, name: str, run: int) -> list[Outcome]:
    """Return all outcomes of one table and run: the work of one process."""
    return list(Bench(options, name, run).outcomes())


def measured(options: Namespace, runs: int) -> list[Outcome]:
    """Return all outcomes, in the order of tables and runs."""
    # The long ones first.
    wanted = [(name, run) for run in range(runs) for name in options.tables]
    # One thread a process: the linear algebra of the baselines would take all.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    found: dict[tuple[str, int], list[Outcome]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        jobs = {pool.submit(measure, options, *job): job for job in wanted}
        for done in track(as_completed(jobs), "tables", total=len(jobs)):
            found[jobs[done]] = done.result()
    return [
        one
        for name in options.tables
        for run in range(runs)
        for one in found[name, run]
    ]


def options_of(description: str | None) -> Namespace:
    parser = arguments(description)
    parser.add_argument("--tables", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    options = options_of(__doc__)
    console = Console(width=140)
    runs = options.runs or (1 if options.quick else 5)
    outcomes = measured(options, runs)
    lacking = missing_libraries()
    console.print(
        f"Accuracy in %, {runs} runs: mean ± deviation. One account pays epsilon once, "
        f"for all examples and all questions. {caveat(options.model)}\n* not private",
        soft_wrap=True,
    )
    for text in lacking:
        console.print(text, soft_wrap=True)
    for name in options.tables:
        about = DATASETS[name]().about
        found = [one for one in outcomes if one.table == name]
        console.print(accuracy_table(f"{name}: {about}", found))
    console.print(summary_table(outcomes))
    if options.json:
        write_json(
            options.json,
            {
                "runs": runs,
                "caveat": caveat(options.model),
                "missing": lacking,
                "outcomes": [asdict(one) for one in outcomes],
            },
        )
    if options.plot and not draw(options.plot, options.tables, outcomes):
        console.print("matplotlib is not installed: no picture.")


if __name__ == "__main__":
    main()
