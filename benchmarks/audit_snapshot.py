"""What 100 people lose by the demo's questions, and how many calls it takes to know.

    python benchmarks/audit_snapshot.py [--quick] [--groups 100] [--model offline]

The people are the patients whom a question names, and others chosen by chance. Each
parser has an account of its own for the demo's twenty questions.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.audit import snapshot
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.demo import clinic, questions
from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.offline import HashingEmbeddings

PEOPLE, QUICK_PEOPLE, QUICK_QUESTIONS = 100, 10, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--model", default="offline", help="or provider:name")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()

    embedding = HashingEmbeddings()
    documents = clinic()
    asked = questions()[: QUICK_QUESTIONS if options.quick else None]
    patients = list(dict.fromkeys(d.metadata["patient_id"] for d in documents))
    named = [one.patient_id for one in asked if one.patient_id is not None]
    picked = SeededRandom(7).sample(len(patients), PEOPLE)
    people = list(dict.fromkeys([*named, *(patients[place] for place in picked)]))
    people = people[: QUICK_PEOPLE if options.quick else PEOPLE]
    parsers = {
        "vote, drafted": VoteOutputParser(labels="draft"),
        "vote, drafted, q = 1/4": VoteOutputParser(labels="draft"),
        "ksa-ptr": KSAPTROutputParser(k=1),
        "ksa-threshold": KSAThresholdOutputParser(),
    }
    title = f"{len(people)} people, {len(asked)} questions, {options.groups} groups"
    table = Table("parser", title=title)
    for heading in (
        "charged epsilon",
        "largest",
        "median",
        "people with a loss",
        "group calls",
        "extra calls",
        "sound",
        "seconds",
    ):
        table.add_column(heading, justify="right")
    for name, own in parsers.items():
        groups = RetrievedGroups.from_documents(
            documents,
            embedding,
            unit_key="patient_id",
            n_groups=options.groups,
            docs_per_group=8,
            sampling_rate=0.25 if "1/4" in name else 1.0,
        )
        budget = PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=len(asked), ledger=":memory:"
        )
        chain = DPChain(
            groups=groups, model=load_model(options.model), parser=own, budget=budget
        )
        started = time.perf_counter()
        report = snapshot(chain, people, [one.text for one in asked])
        seconds = time.perf_counter() - started
        table.add_row(
            name,
            f"{report.claimed['epsilon']:.2f}",
            f"{report.measured['epsilon']:.2f}",
            f"{report.measured['epsilon of the median person']:.2f}",
            str(sum(float(row[3] or 0) > 0 for row in report.rows)),
            f"{report.parameters['group_calls']:,}",
            f"{report.parameters['extra_calls']:,}",
            "yes" if report.is_sound else "NO",
            f"{seconds:.0f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
