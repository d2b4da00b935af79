"""Utility of few-shot examples that are written with differential privacy.

Labeled texts are the private records (unit: the text). `DPFewShotGenerator` writes a
few examples of each label from them, once, at epsilon 1, 2, 4 or 8; a classifier then
shows all of them in its prompt and labels the test texts. Beside them stand

* no examples (zero-shot);
* examples at epsilon 0: `ZeroShotGenerator` with the same decoder, and with its own;
* what the same generation writes with next to no noise: what noise costs;
* private records as examples: what generation costs. These two are *not private*.

    python benchmarks/utility_few_shot.py --data DIR [--quick] [--plot FILE.png]

A run that is repeated with `--keep FOLDER` goes on where it was interrupted: generated
examples, noise multipliers and accuracies are kept, and no record is. `--audit` asks
instead whether the examples tell who was among the records
(`utility_few_shot_audit.py`).

What is generated draws on the operating system's randomness: nothing can seed it. A
run's number chooses the private examples; the test texts are the same for all runs.
"""

from __future__ import annotations

import gzip
import json
import random
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from utility_few_shot_audit import audit
from utility_few_shot_report import (
    DP,
    PRIVATE,
    SAME,
    ZERO_SHOT,
    Outcome,
    accuracy_table,
    draw,
    example_table,
)
from utility_measures import arguments, caveat, write_json

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.few_shot import DPFewShotGenerator, Sampling, ZeroShotGenerator
from langchain_dpicl.offline import OfflineNextTokenModel
from langchain_dpicl.released import classification_chain
from langchain_dpicl.released.classifying import INSTRUCTION, LabelOutputParser

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 5e-5
"""Below 1/n for each of the data sets."""

N_GROUPS = 80
DECODER = Sampling(temperature=1.0, floor=2.0)
FULL = 4.0
"""Epsilon at which the full vocabulary is tried."""

FAINT = 0.01
"""A noise multiplier that hides nobody, and hardly disturbs a token."""

Example = dict[str, str]


@dataclass(frozen=True)
class Settings:
    """What is fixed for a data set, after smaller trials with other settings.

    Attributes:
        instruction: What the next-token model is told.
        per_group: Records N in a group, on average.
        tokens: Most tokens T of an example.
        per_label: Examples of each label.
        full: Whether all tokens are tried too, beside the 100 likeliest.
    """

    instruction: str
    per_group: int
    tokens: int
    per_label: int
    full: bool = False


SETTINGS = {
    "trec": Settings("Given an answer type, write a question of that type.", 1, 15, 4),
    "agnews": Settings("Given a topic, write a news item.", 2, 20, 2, full=True),
    "dbpedia": Settings(
        "Given a category, write a description of something in it.", 2, 20, 1
    ),
}


@dataclass(frozen=True)
class Task:
    """A data set: private records, labels, and test texts with their labels."""

    name: str
    settings: Settings
    labels: tuple[str, ...]
    records: list[Example]
    questions: list[Example]

    def private(self, run: int) -> list[Example]:
        """Return private records as examples, as many of each label as are written."""
        chosen = random.Random(f"{self.name} {run}")
        return [
            record
            for label in self.labels
            for record in chosen.sample(
                [record for record in self.records if record["label"] == label],
                self.settings.per_label,
            )
        ]


def load_task(name: str, data: Path, most: int) -> Task:
    """Read a data set; of its test texts at most so many, always the same."""
    train, test = (
        _records(data / name / f"{part}.jsonl.gz") for part in ("train", "test")
    )
    if len(test) > most:
        test = random.Random(name).sample(test, most)
    labels = tuple(sorted({record["label"] for record in train}))
    return Task(name, SETTINGS[name], labels, train, test)


def _records(path: Path) -> list[Example]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = map(json.loads, lines)
        return [{"text": one["text"], "label": one["label_text"]} for one in found]


@cache
def next_token_model() -> OfflineNextTokenModel:
    return OfflineNextTokenModel()


class Bench:
    """Writes examples for a task and tries them out."""

    def __init__(self, task: Task, chat: Any) -> None:
        self.task = task
        self._chat = chat
        self._next = next_token_model()

    def rows(self) -> Iterator[tuple[str, float | None, Callable[[int], Any]]]:
        """Yield each row's name, its epsilon, and what makes a run's examples."""
        yield ZERO_SHOT, None, lambda _: []
        yield SAME, None, lambda _: self._without_records(decoder=DECODER)
        own = "ε = 0 examples, its own decoder"
        yield own, None, lambda _: self._without_records()
        for epsilon in EPSILONS:
            yield DP, epsilon, lambda _, e=epsilon: self.written(e)
        yield "written, next to no noise *", None, lambda _: self.written(None)
        yield PRIVATE, None, self.task.private
        if self.task.settings.full:
            yield (
                "ε = 0 examples, all tokens",
                None,
                lambda _: self._without_records(decoder=DECODER, top_k_public=None),
            )
            yield (
                "DP examples, all tokens",
                FULL,
                lambda _: self.written(FULL, top_k_public=None),
            )

    def outcome(
        self, what: str, epsilon: float | None, run: int, examples: Any
    ) -> Outcome:
        """Classify the test texts by these examples."""
        noise: list[float] = []
        shown: list[Example] = []
        if what not in {ZERO_SHOT, PRIVATE}:
            record = examples.record
            noise = sorted(record["parameters"].get("noise_multipliers", {}).values())
            shown = [dict(example) for example in examples]
        return Outcome(
            self.task.name, what, epsilon, run, self._accuracy(examples), noise, shown
        )

    def _without_records(self, **terms: Any) -> Any:
        task = self.task
        generator = ZeroShotGenerator(
            self._next,
            task.settings.instruction,
            task.labels,
            max_tokens=task.settings.tokens,
            **terms,
        )
        return generator.generate(per_label=task.settings.per_label, progress=False)

    def written(self, epsilon: float | None, **terms: Any) -> Any:
        """Return DP examples; those of epsilon None have next to no noise."""
        task, settings = self.task, self.task.settings
        if epsilon is None:
            terms["noise_multiplier"] = FAINT
            budget = PrivacyBudgetHandler(
                epsilon=1e7, delta=DELTA, accounting="renyi", ledger=":memory:"
            )
        else:
            budget = PrivacyBudgetHandler(
                epsilon=epsilon, delta=DELTA, queries=1, ledger=":memory:"
            )
        generator = DPFewShotGenerator(
            self._next,
            settings.instruction,
            task.labels,
            records_per_group=settings.per_group,
            max_tokens=settings.tokens,
            decoder=DECODER,
            budget=budget,
            **{"n_groups": N_GROUPS, **terms},
        )
        return generator.generate(
            task.records, per_label=settings.per_label, progress=False
        )

    def _accuracy(self, examples: Any) -> float:
        classify = self._classifier(examples)
        hits = [
            classify(question["text"]) == question["label"]
            for question in self.task.questions
        ]
        return sum(hits) / len(hits)

    def _classifier(self, examples: Any) -> Callable[[str], str | None]:
        labels = self.task.labels
        if hasattr(examples, "record"):
            return classification_chain(examples, self._chat, labels).invoke
        # The same prompt: the chain takes released examples only, and at least one.
        answer = self._chat | LabelOutputParser(labels=labels)
        listed = "\n".join(f"- {label}" for label in labels)
        shown = "".join(
            f"Text: {one['text']}\nLabel: {one['label']}\n\n" for one in examples
        )
        head = f"{INSTRUCTION}\n\nLabels:\n{listed}\n\n{shown}"
        return lambda text: answer.invoke(f"{head}Text: {text}\nLabel:")


def measure(bench: Bench, runs: int, kept: Path | None) -> list[Outcome]:
    """Return all outcomes of a task; those that are kept are not measured again."""
    found: dict[tuple[str, float | None, int], Outcome] = {}
    if kept is not None and kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            outcome = Outcome(**json.loads(line))
            found[outcome.what, outcome.epsilon, outcome.run] = outcome
    wanted = [
        (what, epsilon, run, make)
        for run in range(runs)
        for what, epsilon, make in bench.rows()
        # Nothing of it is drawn at random.
        if not (what == ZERO_SHOT and run)
    ]
    outcomes = []
    for what, epsilon, run, make in track(wanted, f"{bench.task.name:8}"):
        if (what, epsilon, run) not in found:
            outcome = bench.outcome(what, epsilon, run, make(run))
            found[what, epsilon, run] = outcome
            if kept is not None:
                with kept.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(outcome)) + "\n")
        outcomes.append(found[what, epsilon, run])
    return outcomes


def options_of(description: str | None) -> Namespace:
    parser = arguments(description)
    parser.add_argument(
        "--datasets", nargs="+", choices=SETTINGS, default=list(SETTINGS)
    )
    parser.add_argument("--keep", type=Path, help="folder of finished runs")
    parser.add_argument(
        "--audit", action="store_true", help="can members be told from others?"
    )
    return parser.parse_args()


def main() -> None:
    options = options_of(__doc__)
    console = Console(width=140)
    runs = options.runs or (1 if options.quick else 5)
    most = 100 if options.quick else 1000
    tasks = [load_task(name, options.data, most) for name in options.datasets]
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.audit:
        show_audit(console, tasks, options.runs or (3 if options.quick else 20))
        return
    chat = load_model(options.model)
    results: dict[str, Sequence[Outcome]] = {}
    for task in tasks:
        kept = None
        if options.keep:
            model = options.model.replace(":", "-").replace("/", "-")
            kept = options.keep / f"{task.name}-{most}-{model}.jsonl"
        results[task.name] = measure(Bench(task, chat), runs, kept)
    console.print(
        f"delta {DELTA:g}; {N_GROUPS} groups; {runs} runs: mean ± deviation. The "
        "difference to ε = 0 examples of the same decoder has 95 % confidence. "
        f"{caveat(options.model)}\n* not private",
        soft_wrap=True,
    )
    for task in tasks:
        console.print(accuracy_table(title(task), results[task.name]))
    for task in tasks:
        console.print(example_table(task.name, results[task.name]))
    if options.json:
        write_json(
            options.json,
            {
                "delta": DELTA,
                "runs": runs,
                "caveat": caveat(options.model),
                "outcomes": {
                    name: [asdict(one) for one in found]
                    for name, found in results.items()
                },
            },
        )
    if options.plot and not draw(
        options.plot,
        {task.name: f"{task.name}, {len(task.labels)} labels" for task in tasks},
        results,
        EPSILONS,
    ):
        console.print("matplotlib is not installed: no picture.")


def show_audit(console: Console, tasks: Sequence[Task], trials: int) -> None:
    """Show what membership inference finds, on each data set."""

    def write(task: Task, epsilon: float | None, n_groups: int | None) -> Any:
        return Bench(task, None).written(epsilon, n_groups=n_groups or N_GROUPS)

    for task in tasks:
        console.print(audit(task, write, trials))
    console.print("* not private", caveat("offline"), soft_wrap=True)


def title(task: Task) -> str:
    settings = task.settings
    count = settings.per_label
    return (
        f"{task.name}: {len(task.records):,} records, {len(task.labels)} labels, "
        f"{count} example{'s' if count > 1 else ''} each of at most {settings.tokens} "
        f"tokens, {settings.per_group} records a group; {len(task.questions)} test "
        "texts"
    )


if __name__ == "__main__":
    main()
