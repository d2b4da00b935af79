"""Right answers over two tables written as text, by parser, epsilon and account.

Each row of a heart table (734 people) and of a census (39,073) becomes a short text
about one person. Questions such as "Which workclass is most common among people whose
occupation is sales?" are drawn by a public seed from all that enough people are in;
their true answers are counted. Printed are

* ten questions within one epsilon: right (and wrong) answers of each parser, beside
  zero-shot and what the same groups say without noise;
* a service on the census at a total of epsilon 10: accounts that charge the people a
  question finds (per unit), beside those that charge everybody.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate

from benchmarks.common import Grader, Options, account, lines_of, percent, table
from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.offline import HashingEmbeddings

DELTA, EPSILONS, TOTAL = 1e-6, (1.0, 3.0, 8.0), 10.0
COLUMNS = {
    "heart": "Sex ChestPainType RestingECG ExerciseAngina ST_Slope FastingBS label",
    "adult": "sex race education marital_status workclass occupation label",
}
CODES = {"N": "absent", "Y": "present", "0": "absent", "1": "present", "?": "unknown"}
LABELS = {
    "heart": ("heart disease", ("absent", "present")),
    "adult": ("income", ("low", "high")),
}
N_GROUPS, ROWS_EACH = {"heart": 80, "adult": 150}, 12
PUBLIC = ChatPromptTemplate.from_template(
    "Answer the question with one of the options.\n"
    "Options: {options}\n\nQuestion: {question}\nAnswer:"
)


@dataclass(frozen=True)
class Question:
    """A question, the public list of what may be answered, and the true answer."""

    text: str
    options: list[str]
    truth: str


class People:
    """A table's rows as texts, and questions about them."""

    def __init__(self, name: str, data: Path, most: int | None) -> None:
        read = lines_of(data / f"tab_{name}" / "train.csv.gz")[:most]
        wanted = COLUMNS[name].split()
        self.name = name
        label, codes = LABELS[name]
        self.rows = [
            {shown(c): word(row[c]) for c in wanted[:-1]}
            | {label: codes[int(row["label"])]}
            for row in read
        ]
        self.documents = [
            Document(
                " ".join(
                    f"{name.capitalize()}: {value}." for name, value in row.items()
                ),
                metadata={"row": number},
            )
            for number, row in enumerate(self.rows)
        ]

    def questions(self, share: float, count: int, seed: int) -> list[Question]:
        """Draw questions about such a share of all people at least."""
        names = list(self.rows[0])
        values = {name: sorted({row[name] for row in self.rows}) for name in names}
        found = []
        for given in names:
            for value in values[given]:
                people = [row for row in self.rows if row[given] == value]
                if value == "unknown" or len(people) < share * len(self.rows):
                    continue
                for about in names:
                    if about != given:
                        text = (
                            f"Which {about} is most common among people whose {given} "
                            f"is {value}?"
                        )
                        top = Counter(row[about] for row in people).most_common(1)
                        found.append(Question(text, values[about], top[0][0]))
        return random.Random(seed).sample(found, min(count, len(found)))


def shown(column: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", column).lower()


def word(value: str) -> str:
    """Return a value as one word, so that a released keyword is the whole answer."""
    return CODES.get(value, re.sub(r"\W", "", value).lower())


def esa(options: list[str]) -> ESAOutputParser:
    said = [f"The most common one is {option}." for option in options]
    return ESAOutputParser(embedding=HashingEmbeddings(), candidates=said)


PARSERS: dict[str, Any] = {
    "KSA-PTR, k = 1": lambda _: KSAPTROutputParser(k=1),
    "KSA-joint, k = 1": lambda options: KSAJointOutputParser(k=1, domain=options),
    "vote": lambda options: VoteOutputParser(labels=options),
    "ESA": esa,
}


def graded(chain: DPChain, question: Question, budget: Any) -> str:
    """Ask; return right, wrong, none (nothing comes out) or refused."""
    try:
        answer: Any = chain.invoke(question.text, {"callbacks": [budget]})
    except BudgetExhaustedError:
        return "refused"
    record = answer.response_metadata["privacy"]
    if record["status"] not in {"released", "cached"}:
        return "none"
    said = Grader(question.options).option(" ".join(record["keywords"]) or answer.text)
    return "right" if said == question.truth else "wrong"


def groups_of(people: People) -> SampledGroups:
    """Deal all rows of a small table, or a secret sample of a large one, to groups."""
    count = len(people.documents)
    n_groups = N_GROUPS[people.name]
    rate = SampledGroups.rate_for(
        count, n_groups=n_groups, people_per_group=min(ROWS_EACH, count // n_groups)
    )
    return SampledGroups.from_documents(
        people.documents,
        unit_key="row",
        n_groups=n_groups,
        sampling_rate=min(rate, 1.0),
    )


def by_parser(people: People, model: Any, runs: int) -> None:
    """Show the answers of each parser, at each epsilon for all questions."""
    questions = people.questions(0.15 if people.name == "heart" else 0.04, 10, seed=1)
    groups = groups_of(people)
    rows = []
    for name, make in PARSERS.items():
        cells = []
        for epsilon in (1e5, *EPSILONS):
            right, wrong = [], []
            for _ in range(runs):
                budget = account(epsilon, DELTA, queries=len(questions))
                found = Counter(
                    graded(
                        DPChain(
                            groups=groups,
                            model=model,
                            parser=make(q.options),
                            cache=False,
                        ),
                        *(q, budget),
                    )
                    for q in questions
                )
                right.append(found["right"] / len(questions))
                wrong.append(100 * found["wrong"] / len(questions))
            cells.append(f"{percent(right)} ({sum(wrong) / runs:.0f})")
        rows.append([name, *cells])
    options = [{"question": q.text, "options": ", ".join(q.options)} for q in questions]
    said = [str((PUBLIC | model).invoke(given).text) for given in options]
    zero = sum(
        Grader(q.options).option(text) == q.truth
        for q, text in zip(questions, said, strict=True)
    )
    title = (
        f"{people.name}: {len(questions)} questions, {groups.n_groups} groups, rate "
        f"{groups.sampling_rate:.3g}; right (wrong) in %, {runs} runs; zero-shot, "
        f"given the options: {100 * zero / len(questions):.0f}"
    )
    heads = ("no noise", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    table(title, ("parser", *heads), rows)


def service(people: People, model: Any, count: int) -> Iterator[list[str]]:
    """Yield, for each kind of account, how many of a service's questions it answers."""
    questions = people.questions(0.01, count, seed=2)
    groups = RetrievedGroups.from_documents(
        people.documents,
        HashingEmbeddings(),
        unit_key="row",
        n_groups=50,
        docs_per_group=10,
        score_threshold=0.3,
    )
    kinds = [("corpus", n) for n in (count // 4, count)]
    kinds += [("unit", n) for n in (count // 10, count // 4, count)]
    for scope, planned in kinds:
        budget = account(TOTAL, DELTA, queries=planned, scope=scope)
        found = Counter(
            graded(
                DPChain(
                    groups=groups,
                    model=model,
                    parser=VoteOutputParser(labels=q.options),
                    cache=False,
                ),
                *(q, budget),
            )
            for q in questions
        )
        whom = "everybody" if scope == "corpus" else "each person found"
        grades = ("right", "wrong", "none", "refused")
        yield [f"{whom}, {planned} answers", *(str(found[grade]) for grade in grades)]


def run(options: Options) -> None:
    """Print all tables."""
    assert options.data is not None
    model = options.chat()
    runs, most, count = (1, 3_000, 20) if options.quick else (3, None, 200)
    for name in COLUMNS:
        by_parser(People(name, options.data, most), model, runs)
    people = People("adult", options.data, most)
    title = (
        f"{count} questions to {len(people.rows):,} people at a total of ε = {TOTAL:g}"
    )
    heads = ("who is charged, planned for", "right", "wrong", "none", "refused")
    table(title, heads, list(service(people, model, count)))
