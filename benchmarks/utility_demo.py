"""How often the demo's questions are answered, beside what the plan predicts.

The groups' answers are the same in every run (the offline model is deterministic), so
they are asked for once; each run then draws the noise anew on a fresh account, exactly
as `dpicl demo` does. The prediction is the exact pass rate of the test at the true gap.

    python benchmarks/utility_demo.py [--runs 200] [--groups 100]
"""

from __future__ import annotations

import argparse
from collections import Counter

from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.common.prompts import (
    DOCUMENT_PROMPT,
    DOCUMENT_SEPARATOR,
    PUBLIC_PROMPT,
)
from langchain_dpicl.demo import clinic, questions
from langchain_dpicl.mechanisms import ptr_pass_rate
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import KSAPTROutputParser, PublicInput
from langchain_dpicl.parsers.words import keyword_counts
from langchain_dpicl.sealed import SealedModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--model", default="offline", help="or provider:name")
    options = parser.parse_args()

    groups = RetrievedGroups.from_documents(
        clinic(),
        HashingEmbeddings(),
        unit_key="patient_id",
        n_groups=options.groups,
        docs_per_group=8,
    )
    model = load_model(options.model)
    ptr = KSAPTROutputParser(k=1)
    prompting = Prompting(None, None, DOCUMENT_PROMPT, DOCUMENT_SEPARATOR)
    asked = questions()
    slots, prepared = {}, {}
    for question in asked:
        public = Question(question.text)
        prompts = [prompting.group(public, slot) for slot in groups.draw(question.text)]
        slots[question] = SealedModel(model).answer(prompts)
        zero_shot = str(model.invoke(PUBLIC_PROMPT.format(question=question.text)).text)
        prepared[question] = ptr.prepare(
            PublicInput(question.text, prompting.fixed_text(public), (zero_shot,))
        )

    released: Counter[str] = Counter()
    right: Counter[str] = Counter()
    paid = None
    for _ in range(options.runs):
        budget = PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=len(asked), ledger=":memory:"
        )
        for question in asked:
            paid = budget.charge(ptr.event_template())
            outcome = ptr.release(
                slots[question],
                paid=paid,
                relation=groups.relation,
                slot_count=options.groups,
                prepared=prepared[question],
            )
            released[question.text] += bool(outcome.keywords)
            right[question.text] += question.answered_by(" ".join(outcome.keywords))
    assert paid is not None

    table = Table("question", title=f"{options.runs} runs, {options.groups} groups")
    for heading in ("gap", "predicted", "released", "right"):
        table.add_column(heading, justify="right")
    rates = {"population": [0, 0], "person": [0, 0]}
    for question in asked:
        counts = keyword_counts(
            (slot.text for slot in slots[question] if slot.text),
            dropped=prepared[question],
        )
        top = [count for _, count in counts.most_common(2)] + [0, 0]
        rate = ptr_pass_rate(
            top[0] - top[1],
            noise_multiplier=paid.noise.noise_multiplier,
            delta0=paid.noise.delta0,
            relation=groups.relation,
        )
        table.add_row(
            question.text,
            str(top[0] - top[1]),
            f"{rate:.1%}",
            f"{released[question.text] / options.runs:.1%}",
            f"{right[question.text] / options.runs:.1%}"
            if question.kind == "population"
            else "",
        )
        rates[question.kind][0] += released[question.text]
        rates[question.kind][1] += options.runs
    console = Console()
    console.print(table)
    for kind, (count, total) in rates.items():
        console.print(f"{kind} questions: released in {count / total:.2%} of runs")


if __name__ == "__main__":
    main()
