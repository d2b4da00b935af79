"""How often each parser says what is right, on recorded answers of a language model.

A folder (`--answers`) holds a JSON file for each question, with the answers of 60
disjoint groups of people in four manners: `choice` (one of the options), `terse` (three
words at most), `sentence`, `chatty` (with hedges, markup and counts). No model is asked
here: whole chains ask a stand-in that says what was recorded, and each run draws fresh
noise, with the noise that a plan for 20 questions leaves. A released answer is

* right: it names the option that is true of the whole corpus, and no other;
* wrong: anything else that is released;
* none: nothing is released. Where the records do not tell, this is what should come.

Limits, to be told with the figures: it is one model; about 15 answers were written in
one context, so that they are less independent than separate calls; "chatty" wording and
the deviations in choices were asked for; parsers were made with these answers in sight.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.common import (
    Grader,
    Options,
    Relation,
    Scripted,
    Slots,
    account,
    table,
)
from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)
from langchain_dpicl.accounting import Failure, Gaussian
from langchain_dpicl.mechanisms.keyword_ptr import pass_rate, ptr_top_k
from langchain_dpicl.offline import HashingEmbeddings

DELTA, QUERIES = 1e-6, 20
EPSILONS = (1e5, 1.0, 3.0, 8.0)
"""The first leaves next to no noise: the non-private aggregate. (A threshold without
noise lets every word through, and so names several options.)"""


@dataclass(frozen=True)
class Recording:
    """One question, with the answers of its groups by manner."""

    question: str
    options: list[str]
    right: list[str]
    zero_shot: list[str]
    groups: list[dict[str, Any]]


def model_of(one: Recording, manner: str) -> Scripted:
    """Return a model that says what was recorded: of a group, of the question alone."""

    def said(prompt: str) -> str:
        if group := re.search(r"group (\d+)", prompt):
            return str(one.groups[int(group[1])][manner])
        if "ossible answers" in prompt:
            return "\n".join(f"{n}. {text}" for n, text in enumerate(one.options, 1))
        if words := re.search(r"suggestions[^:]*: (.*)", prompt):
            return f"The answer is {words[1]}."
        return one.zero_shot[0]

    return Scripted(said=said)


def esa(one: Recording) -> Any:
    """Return a parser whose candidates are public: one sentence for each option."""
    said = [f"The answer is: {option}." for option in one.options]
    return ESAOutputParser(embedding=HashingEmbeddings(), candidates=said)


CHOICE, TERSE, SENTENCE = ("choice", "chatty"), ("terse",), ("sentence", "chatty")
PARSERS: dict[str, tuple[tuple[str, ...], Callable[[Recording], Any]]] = {
    # What it asks its groups for, then what they may say instead; how it is made.
    "vote, given options": (CHOICE, lambda one: VoteOutputParser(labels=one.options)),
    "vote, drafted options": (CHOICE, lambda _: VoteOutputParser(labels="draft")),
    "KSA-threshold": (TERSE, lambda _: KSAThresholdOutputParser(items_per_answer=1)),
    "KSA-PTR, k = 1": (TERSE, lambda _: KSAPTROutputParser(k=1)),
    "KSA-joint, k = 1": (
        TERSE,
        lambda one: KSAJointOutputParser(k=1, domain=one.options),
    ),
    "ESA": (SENTENCE, esa),
}


def shares(
    one: Recording, parser: Any, manner: str, epsilon: float, runs: int
) -> dict[str, float]:
    """Return the shares of right, wrong and no answers."""
    chain = DPChain(
        groups=Slots(len(one.groups), Relation.REPLACE),
        model=model_of(one, manner),
        parser=parser,
        max_concurrency=1,  # It answers at once.
        cache=False,
    )
    grader, found = Grader(one.options), Counter[str]()
    for run in range(runs):
        if run % QUERIES == 0:
            budget = account(epsilon, DELTA, queries=QUERIES)
        answer: Any = chain.invoke(one.question, {"callbacks": [budget]})
        record = answer.response_metadata["privacy"]
        if record["status"] != "released":
            found["none"] += 1
            continue
        said = record["keywords"] or [answer.text]
        named = {grader.option(text) for text in said} - {None}
        found["right" if named and named <= {*one.right} else "wrong"] += 1
    return {grade: found[grade] / runs for grade in ("right", "wrong", "none")}


def pass_rates(draws: int) -> Iterator[list[str]]:
    """Yield how often the test passes at a gap, and how often it should."""
    paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-7)
    relation = Relation.REPLACE
    for gap in (20, 23, 26, 29, 32):
        counts = {"asked": gap + 5, "other": 5}
        drawn = (ptr_top_k(counts, 1, paid, relation) for _ in range(draws))
        passed = sum(words is not None for words in drawn)
        said = pass_rate(gap, paid, relation)
        difference = 100 * (passed / draws - said)
        shown = f"{100 * said:.1f}", f"{100 * passed / draws:.1f}"
        yield [str(gap), *shown, f"{difference:+.1f}"]


def run(options: Options) -> None:
    """Print a table for each question."""
    assert options.answers is not None
    runs = 4 if options.quick else 40
    print(
        f"Right / wrong / none in % of {runs} runs; delta {DELTA:g} for {QUERIES} "
        "questions. Recorded answers of one language model; see the limits above."
    )
    for path in sorted(options.answers.glob("*.json")):
        one = Recording(**json.loads(path.read_text("utf-8")))
        plain = Grader(one.options)
        rows = []
        for name, (manners, make) in PARSERS.items():
            for manner in manners:
                cells = []
                for epsilon in EPSILONS:
                    found = shares(one, make(one), manner, epsilon, runs).values()
                    cells.append(" / ".join(f"{100 * share:.0f}" for share in found))
                rows.append([name, manner, *cells])
        said = plain.plurality([group["choice"] for group in one.groups])
        title = (
            f"{one.question} Right: {', '.join(one.right) or 'no answer'}; zero-shot: "
            f"{plain.option(one.zero_shot[0]) or 'no option'}; most choices: {said}."
        )
        heads = ("no noise", *(f"ε = {epsilon:g}" for epsilon in EPSILONS[1:]))
        table(title, ("parser", "answers", *heads), rows)
    heads = ("gap", "computed, %", "passed, %", "difference (within 5)")
    title = "Passes of KSA-PTR by gap, at noise multiplier 2 and delta0 1e-7"
    table(title, heads, list(pass_rates(300 if options.quick else 3_000)))
