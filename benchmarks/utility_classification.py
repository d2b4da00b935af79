"""Utility per unit of privacy: private in-context classification over epsilon.

Labeled texts are the private records (unit: the text). For every question ten groups
of four exemplars on average are sampled afresh, the model labels the question once per
group, and a private vote releases one label. One account pays for all questions of a
run, at epsilon 1, 3 and 8; every run draws fresh questions from the test split and
fresh noise from the operating system.

    python benchmarks/utility_classification.py --data DIR [--quick] [--plot FILE.png]

Beside it stand, on the same questions: zero-shot, one call with four exemplars, and the
plurality of the same ten groups without noise.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate, format_document
from rich import box
from rich.console import Console
from rich.table import Table
from utility_measures import (
    Grader,
    Seen,
    arguments,
    caveat,
    figure_canvas,
    percent,
    spread,
    watched,
    write_json,
)

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.mechanisms.sensitivity import vote_l2

DATA_SETS = ("trec", "sst2")
EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-5
N_GROUPS, SHOTS = 10, 4
PROMPT = ChatPromptTemplate.from_template(
    "Label the last text with one of the labels, in the manner of the examples.\n"
    "Labels: {labels}\n\n{context}\n\nText: {question}\nLabel:"
)
EXEMPLAR = PromptTemplate.from_template("Text: {page_content}\nLabel: {label}")
SEPARATOR = "\n\n"


@dataclass(frozen=True)
class Task:
    """A data set: its labels, exemplars and test questions with their labels."""

    name: str
    labels: tuple[str, ...]
    exemplars: list[Document]
    questions: list[tuple[str, str]]

    @property
    def rate(self) -> float:
        """The sampling rate that fills the groups, from the public size."""
        return SampledGroups.rate_for(
            len(self.exemplars), n_groups=N_GROUPS, records_per_group=SHOTS
        )


@dataclass(frozen=True)
class Line:
    """Accuracies of one way to answer, one per run."""

    data: str
    what: str
    epsilon: float | None
    sigma: float | None
    accuracies: list[float]


def load_task(name: str, data: Path) -> Task:
    train, test = (_records(data / name / f"{part}.jsonl.gz") for part in _SPLITS)
    return Task(
        name,
        tuple(sorted({record["label_text"] for record in train})),
        [
            Document(
                record["text"], metadata={"id": record["id"], "label": label_of(record)}
            )
            for record in train
        ],
        [(record["text"], label_of(record)) for record in test],
    )


_SPLITS = ("train", "test")


def label_of(record: dict[str, Any]) -> str:
    return str(record["label_text"])


def _records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def measure(task: Task, model: Any, runs: int, n_questions: int) -> list[Line]:
    groups = SampledGroups.from_documents(
        task.exemplars, unit_key="id", n_groups=N_GROUPS, sampling_rate=task.rate
    )
    seen: list[Seen] = []
    chain = DPChain(
        groups=groups,
        model=model,
        parser=watched(VoteOutputParser, seen, labels=list(task.labels)),
        prompt=PROMPT,
        document_prompt=EXEMPLAR,
        document_separator=SEPARATOR,
    )
    # What votes without noise has nothing to do with epsilon: all runs' groups count.
    private: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    sigmas: dict[float, float] = {}
    zero, few, plain = ([] for _ in range(3))
    for _ in range(runs):
        asked = random.sample(task.questions, n_questions)
        zero.append(
            _accuracy(asked, [_ask(task, model, text, []) for text, _ in asked])
        )
        shots = [random.sample(task.exemplars, SHOTS) for _ in asked]
        said = [
            _ask(task, model, text, exemplars)
            for (text, _), exemplars in zip(asked, shots, strict=True)
        ]
        few.append(_accuracy(asked, said))
        unnoised: list[str | None] = []
        for epsilon in EPSILONS:
            budget = PrivacyBudgetHandler(
                epsilon=epsilon, delta=DELTA, queries=n_questions, ledger=":memory:"
            )
            seen.clear()
            answers = [
                str(chain.invoke(_input(task, text), {"callbacks": [budget]}).text)
                for text, _ in asked
            ]
            private[epsilon].append(_accuracy(asked, answers))
            multiplier = seen[0].paid.noise.noise_multiplier
            sigmas[epsilon] = multiplier * vote_l2(groups.relation)
            grader = Grader(task.labels)
            unnoised.extend(grader.plurality(one.answers) for one in seen)
        plain.append(_accuracy(asked * len(EPSILONS), unnoised))
    lines = [
        Line(task.name, "private vote", epsilon, sigmas[epsilon], private[epsilon])
        for epsilon in EPSILONS
    ]
    return [
        *lines,
        Line(task.name, f"vote of {N_GROUPS} groups, no noise", None, None, plain),
        Line(task.name, f"plain {SHOTS}-shot", None, None, few),
        Line(task.name, "zero-shot", None, None, zero),
    ]


def _input(task: Task, text: str) -> dict[str, str]:
    return {"question": text, "labels": ", ".join(task.labels)}


def _ask(
    task: Task, model: Any, text: str, exemplars: Sequence[Document]
) -> str | None:
    context = SEPARATOR.join(format_document(one, EXEMPLAR) for one in exemplars)
    answer = (PROMPT | model).invoke({**_input(task, text), "context": context})
    return Grader(task.labels).option(str(answer.text))


def _accuracy(asked: Sequence[tuple[str, str]], answers: Sequence[str | None]) -> float:
    hits = [said == label for (_, label), said in zip(asked, answers, strict=True)]
    return sum(hits) / len(hits)


def show(console: Console, tasks: Sequence[Task], lines: Sequence[Line]) -> None:
    for task in tasks:
        mine = [line for line in lines if line.data == task.name]
        free = next(line for line in mine if line.what.endswith("no noise"))
        table = Table(
            "method",
            "epsilon",
            "noise on a count",
            "accuracy, %",
            "lost to privacy",
            box=box.MARKDOWN,
            title=f"{task.name}: {len(task.exemplars):,} exemplars, "
            f"{len(task.labels)} labels, sampling rate {task.rate:.4f}",
        )
        for line in mine:
            lost = spread(free.accuracies)[0] - spread(line.accuracies)[0]
            table.add_row(
                line.what,
                "" if line.epsilon is None else f"{line.epsilon:g}",
                "" if line.sigma is None else f"{line.sigma:.2f}",
                percent(line.accuracies),
                "" if line.epsilon is None else f"{100 * lost:.0f}",
            )
        console.print(table)


def draw(
    path: Path, tasks: Sequence[Task], lines: Sequence[Line], about: str, model: str
) -> bool:
    canvas = figure_canvas(len(tasks), 5.4 * len(tasks), 4.6)
    if canvas is None:
        return False
    figure, axes = canvas
    styles = {"zero-shot": ":", f"plain {SHOTS}-shot": "--"}
    for axis, task in zip(axes, tasks, strict=True):
        mine = [line for line in lines if line.data == task.name]
        curve = [line for line in mine if line.epsilon is not None]
        means, deviations = zip(
            *(spread(line.accuracies) for line in curve), strict=True
        )
        axis.errorbar(
            [line.epsilon for line in curve],
            means,
            yerr=deviations,
            marker="o",
            capsize=3,
            label="private vote",
        )
        flat = [line for line in mine if line.epsilon is None]
        for place, line in enumerate(flat, start=1):
            axis.axhline(
                spread(line.accuracies)[0],
                color=f"C{place}",
                ls=styles.get(line.what, "-."),
                label=line.what,
            )
        axis.set_xscale("log")
        axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axis.minorticks_off()
        axis.set(
            xlabel=f"ε for all questions (δ = {DELTA:g})",
            ylabel="accuracy",
            title=f"{task.name}, {len(task.labels)} labels",
            ylim=(0, 1),
        )
        axis.legend(frameon=False, fontsize=8)
    name = "offline stand-in, not a language model" * (model == "offline") or model
    figure.suptitle(f"{about}; {name}")
    figure.savefig(path, dpi=130)
    return True


def main() -> None:
    options = arguments(__doc__).parse_args()
    runs = options.runs or (2 if options.quick else 10)
    n_questions = 30 if options.quick else 100
    console = Console(width=140)
    model = load_model(options.model)
    tasks = [load_task(name, options.data) for name in DATA_SETS]
    lines = [line for task in tasks for line in measure(task, model, runs, n_questions)]
    about = (
        f"{n_questions} questions, one account; {N_GROUPS} groups of {SHOTS} exemplars"
    )
    console.print(
        f"{about}; delta {DELTA:g}; mean ± deviation over {runs} runs. "
        f"{caveat(options.model)}\n",
        soft_wrap=True,
    )
    show(console, tasks, lines)
    if options.json:
        figures = {
            "delta": DELTA,
            "runs": runs,
            "questions": n_questions,
            "groups": N_GROUPS,
            "shots": SHOTS,
            "caveat": caveat(options.model),
            "lines": [vars(line) for line in lines],
        }
        write_json(options.json, figures)
    if options.plot and not draw(options.plot, tasks, lines, about, options.model):
        console.print("matplotlib is not installed: no picture.")


if __name__ == "__main__":
    main()
