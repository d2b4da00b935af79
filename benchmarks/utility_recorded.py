"""How often each parser says what is right, on recorded answers of a language model.

A folder holds one JSON file per question, with the answers of disjoint groups of people
in four manners (see `recorded_answers.py`). No model is asked here: each run draws the
mechanism's noise anew on the same answers, with the noise that a plan for all questions
leaves. What is released counts as

* right: it names the option that is true of the whole corpus, and no other;
* wrong: anything else that is released, words that name no option among them;
* none: nothing is released.

    python benchmarks/utility_recorded.py --answers FOLDER [--runs 200] [--plot FILE]

Limits of such a recording: one model; the answers were written about 15 per context, so
that they are less independent than separate calls; "chatty" wording and the deviations
in choices were asked for, so that their rates measure no model.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from recorded_answers import (
    GROUPS,
    MANNERS,
    Recording,
    drafting,
    load_recordings,
    wordings,
)
from rich import box
from rich.console import Console
from rich.table import Table
from utility_measures import figure_canvas, write_json
from utility_service import KnownEmbeddings

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.prompts import (
    DOCUMENT_PROMPT,
    DOCUMENT_SEPARATOR,
    SENTENCE_INSTRUCTIONS,
)
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import answered
from langchain_dpicl.parsers import (
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PublicInput,
    VoteOutputParser,
)
from langchain_dpicl.parsers.base import DPOutputParser
from langchain_dpicl.parsers.reading import keywords
from langchain_dpicl.parsers.reading.choice import read_choice
from langchain_dpicl.parsers.words import tokenize

DELTA = 1e-6
EPSILONS = (1.0, 3.0, 8.0)
QUERIES = (20, 100)
NOISELESS = 10_000.0
"""epsilon of one question, at which the noise is a small part of a group."""


class _Vote(VoteOutputParser):
    def _choice(self, text: str, labels: tuple[str, ...]) -> Any:
        return _read_once(text, labels)


@cache
def _read_once(text: str, labels: tuple[str, ...]) -> Any:
    """Read a reply once, and not in every run: the rule looks at nothing else."""
    return read_choice(text, labels)


class _Counted:
    """A keyword parser that counts the same answers once, and not in every run."""

    def _counts(self, slots: Any, dropped: Any, *items: Any) -> Counter[str]:
        key = (self.tokenizer, tuple(slot.text for slot in slots), dropped, items)
        if key not in _COUNTED:
            _COUNTED[key] = super()._counts(slots, dropped, *items)
        return _COUNTED[key]


_COUNTED: dict[Any, Counter[str]] = {}


class _PTR(_Counted, KSAPTROutputParser):
    pass


class _Threshold(_Counted, KSAThresholdOutputParser):
    pass


@cache
def _lemmas(text: str) -> tuple[str, ...]:
    return tuple(map(keywords.lemma, tokenize(text)))


_EMBEDDING = KnownEmbeddings()


class _PlainWords(_PTR):
    """Counts as an earlier version: written words, without those of a public answer."""

    def get_format_instructions(self) -> str:
        return SENTENCE_INSTRUCTIONS


def _plain_words(one: Recording, k: int | tuple[int, int]) -> _PTR:
    dropped = {*keywords.STOP_WORDS, *_STOPPED.split(), *tokenize(one.zero_shot[0])}
    return _PlainWords(k=k, tokenizer=tokenize, stop_words=dropped)


_STOPPED = (
    "above after again against all before below between both can't cannot couldn't "
    "didn't doesn't don't down during few further in isn't it's more most neither nor "
    "not now off often on once only out over several that's there's under until up "
    "wasn't weren't without won't wouldn't"
)


PARSERS: dict[str, Callable[[Recording], DPOutputParser[Any]]] = {
    "vote, given options": lambda one: _Vote(labels=one.options),
    "vote, drafted options": lambda _: _Vote(labels="draft"),
    "KSA-threshold, 1 item": lambda _: _Threshold(items_per_answer=1),
    "KSA-threshold, 2 items": lambda _: _Threshold(items_per_answer=2),
    "KSA-PTR, k = 1": lambda _: _PTR(k=1),
    "KSA-joint, k = 1, options": lambda one: KSAJointOutputParser(
        k=1, domain=one.options, tokenizer=_lemmas
    ),
    "ESA, cosine": lambda one: ESAOutputParser(
        embedding=_EMBEDDING, candidates=one.candidates
    ),
    "ESA, vote": lambda one: ESAOutputParser(
        embedding=_EMBEDDING, candidates=one.candidates, select="vote"
    ),
    "KSA-PTR, k = 1, plain words": lambda one: _plain_words(one, 1),
    "KSA-PTR, k = 3 to 8, plain words": lambda one: _plain_words(one, (3, 8)),
}


@dataclass(frozen=True)
class Line:
    """Shares of the runs, in percent; epsilon is None without noise."""

    question: str
    parser: str
    manner: str
    epsilon: float | None
    queries: int
    right: float
    wrong: float
    none: float


def measure(recordings: list[Recording], runs: int) -> list[Line]:
    """Run every parser on every manner of every question."""
    plans = [(e, q) for e in EPSILONS for q in QUERIES]
    return [
        _line(one, name, manner, *plan, runs)
        for name in PARSERS
        for one in recordings
        for manner in MANNERS
        for plan in [(None, 1), *plans]
    ]


def _line(
    one: Recording,
    name: str,
    manner: str,
    epsilon: float | None,
    queries: int,
    runs: int,
) -> Line:
    parser = PARSERS[name](one)
    prepared = _prepared(parser, one)
    slots = [answered(answer) for answer in one.answers[manner]]
    paid = PrivacyBudgetHandler(
        epsilon=epsilon or NOISELESS, delta=DELTA, queries=queries, ledger=":memory:"
    ).charge(parser.event_template())
    found: Counter[str] = Counter()
    for _ in range(runs):
        outcome = (None if epsilon else _noiseless(parser, slots, prepared)) or (
            parser.release(
                slots,
                paid=paid,
                relation=Relation.REPLACE,
                slot_count=len(slots),
                prepared=prepared,
            )
        )
        found[graded(outcome, one)] += 1
    shares = [
        100 * found[grade] / found.total() for grade in ("right", "wrong", "none")
    ]
    return Line(one.name, name, manner, epsilon, queries, *shares)


def _prepared(parser: DPOutputParser[Any], one: Recording) -> Any:
    prompting = Prompting(None, None, DOCUMENT_PROMPT, DOCUMENT_SEPARATOR)
    asked = Question(one.question, instructions=parser.get_format_instructions())
    public = PublicInput(
        one.question, prompting.fixed_text(asked), one.zero_shot, one.draft
    )
    return parser.prepare(public)


def _noiseless(parser: Any, slots: Any, prepared: Any) -> Outcome | None:
    """Return the most frequent item, where a threshold has nothing to do."""
    if not isinstance(parser, KSAThresholdOutputParser):
        return None
    counts = parser._counts(slots, prepared, parser.items_per_answer)  # noqa: SLF001
    ((top, _),) = counts.most_common(1)
    return Outcome(Status.RELEASED, keywords=(top,))


def graded(outcome: Outcome, one: Recording) -> str:
    """Return "right", "wrong" or "none"."""
    if outcome.status is not Status.RELEASED:
        return "none"
    said = (outcome.text,) if outcome.text else outcome.keywords
    named = {_read_once(text, one.options) for text in said}
    options = {one.options[place] for place in named if isinstance(place, int)}
    return "right" if options and options <= set(one.right) else "wrong"


def tables(lines: list[Line]) -> list[Table]:
    """Show each question: right / wrong / none by parser, manner and budget."""
    found = []
    for question in dict.fromkeys(line.question for line in lines):
        shown = Table("", title=question, box=box.MARKDOWN)
        mine = [line for line in lines if line.question == question]
        plans = list(dict.fromkeys((line.epsilon, line.queries) for line in mine))
        shown.add_column("answers")
        for epsilon, queries in plans:
            title = f"ε = {epsilon:g}, {queries}" if epsilon else "no noise"
            shown.add_column(title, justify="right")
        for name, manner in dict.fromkeys((line.parser, line.manner) for line in mine):
            cells = {
                (line.epsilon, line.queries): _cell(line)
                for line in mine
                if (line.parser, line.manner) == (name, manner)
            }
            shown.add_row(name, manner, *(cells[plan] for plan in plans))
        found.append(shown)
    return found


def _cell(line: Line) -> str:
    return f"{line.right:.0f} / {line.wrong:.0f} / {line.none:.0f}"


def draw(path: Path, lines: list[Line], runs: int) -> bool:
    """Draw bars of right and wrong, by parser and manner, at the largest budget."""
    questions = list(dict.fromkeys(line.question for line in lines))
    canvas = figure_canvas(len(questions), 5.2 * len(questions), 9.5)
    if canvas is None:
        return False
    figure, axes = canvas
    colors = {"right": "#4c956c", "wrong": "#c8553d", "none": "#dddddd"}
    for axis, question in zip(axes, questions, strict=True):
        mine = [
            line
            for line in lines
            if line.question == question
            and (line.epsilon, line.queries) == (max(EPSILONS), min(QUERIES))
        ]
        places = [
            -place - 0.8 * (place // len(MANNERS)) for place, _ in enumerate(mine)
        ]
        left = [0.0] * len(mine)
        for grade, color in colors.items():
            widths = [getattr(line, grade) for line in mine]
            axis.barh(places, widths, left=left, color=color, label=grade)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        first = axis is axes[0]
        names = [
            f"{line.parser}: {line.manner}"
            if place % len(MANNERS) == 0
            else line.manner
            for place, line in enumerate(mine)
        ]
        axis.set_yticks(places, names if first else [], fontsize=8)
        axis.set(xlim=(0, 100), title=question, xlabel="% of runs")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.suptitle(
        f"recorded answers of one language model, {GROUPS} groups; ε = "
        f"{max(EPSILONS):g}, δ = {DELTA:g} for {min(QUERIES)} questions; {runs} runs"
    )
    figure.savefig(path, dpi=110)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--answers",
        type=Path,
        default=os.environ.get("RECORDED_ANSWERS"),
        help="folder of the recording; default: the variable RECORDED_ANSWERS",
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--plot", type=Path, help="file for the picture")
    options = parser.parse_args()
    if options.answers is None:
        parser.error("give the folder of the recording: --answers FOLDER")
    console = Console(width=160)
    lines = measure(load_recordings(options.answers), options.runs)
    console.print(f"{options.runs} runs; right / wrong / none in %; delta {DELTA:g}")
    for table in tables(lines):
        console.print(table)
    drafts = Path(options.answers) / "drafts.jsonl"
    if drafts.exists():
        for table in (drafting(drafts), wordings(drafts)):
            console.print(table)
    if options.json:
        write_json(options.json, [asdict(line) for line in lines])
    if options.plot and not draw(options.plot, lines, options.runs):
        console.print("matplotlib is not installed: no picture.")


if __name__ == "__main__":
    main()
