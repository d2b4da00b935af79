"""Classify by examples out of a private table, in two ways that give nobody away.

Which patients will be back within a month? A hospital knows the past ones. Either the
hospital is trusted: it releases noisy statistics of its table, once. Or nobody is: each
patient's own device randomizes the row, and only reports are ever seen. Both give
examples for an ordinary few-shot prompt, for any number of questions and any model.
"""

import random
from typing import Any

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPClient,
    LDPTable,
    NumericColumn,
    TableSchema,
)

WARDS = "cardiology", "medicine", "surgery"

# All of this is known without the table: nobody is admitted below 18, and the wards are
# painted on the doors.
SCHEMA = TableSchema(
    label="outlook",
    columns=[
        NumericColumn(
            kind="integer", name="age", lower=18, upper=100, bins=[50, 70], unit="years"
        ),
        CategoricalColumn(name="ward", values=WARDS),
        NumericColumn(
            kind="integer", name="stay", lower=0, upper=30, bins=[4, 10], unit="days"
        ),
        CategoricalColumn(
            name="home",
            values=["alone", "shared", "unknown"],
            missing="unknown",
            wording="The home is {{ value }}.",
        ),
        CategoricalColumn(
            name="outlook",
            values=[0, 1],
            texts={0: "stays at home", 1: "comes back"},
        ),
    ],
)


def patient(draws: random.Random) -> dict[str, Any]:
    """Return an invented patient: who comes back is older, and stayed longer."""
    back = draws.choices([True, False], (35, 65))[0]
    homes = ["alone", "shared", None]
    return {
        "age": round(draws.gauss(72 if back else 52, 13)),
        "ward": draws.choices(WARDS, (5, 3, 2) if back else (2, 3, 5))[0],
        "stay": round(draws.expovariate(1 / 11 if back else 1 / 4)),
        "home": draws.choices(homes, (6, 4, 1) if back else (3, 7, 1))[0],
        "outlook": int(back),
    }


def main() -> None:
    draws = random.Random(7)  # noqa: S311 - for the invented patients
    patients = [patient(draws) for _ in range(6200)]
    past, new = patients[:6000], patients[6000:]
    model = OfflineChatModel()

    print("1. The hospital is trusted.")
    budget = PrivacyBudgetHandler(
        epsilon=1, delta=1e-5, queries=1, ledger=":memory:", account="patients"
    )
    trusted = GDPTable(past, SCHEMA, budget=budget)
    print(trusted.forecast(6000))
    print(trusted.release().summary())
    for example in trusted.examples(2):
        print(f"  {example['text']} -> {example['label']}")

    print("\n2. Nobody is.")
    # On each patient's own device, which needs the schema and nothing else.
    client = LDPClient(SCHEMA, epsilon=6)
    reports = [client.report(row) for row in past]
    print(f"A true row:   {past[0]}")
    print(f"Its report:   {reports[0]}")
    untrusted = LDPTable.from_reports(reports, SCHEMA, epsilon=6, terms=client.terms)
    print(untrusted.summary())
    # The most telling row of each label; further ones would be drawn.
    for example in untrusted.examples(2):
        print(f"  {example['text']} -> {example['label']}")

    print(f"\nRight, of {len(new)} new patients:")
    chains = {
        "noisy statistics, epsilon 1": trusted.classification_chain(model, k=8),
        "randomized reports, epsilon 6": untrusted.classification_chain(model, k=2),
    }
    truth = [SCHEMA.label_text(row["outlook"]) for row in new]
    print(f"  {'who always says the same':31} {max(map(truth.count, truth))}")
    for name, chain in chains.items():
        answers = chain.batch(new)
        right = sum(one == other for one, other in zip(answers, truth, strict=True))
        print(f"  {name:31} {right}")
    print(
        f"Spent: epsilon {budget.spent().epsilon:.2f} by the hospital, epsilon "
        f"{untrusted.record()['epsilon']:.2f} by each patient who reported. The new "
        "patients' rows went to the model as they are."
    )


if __name__ == "__main__":
    main()
