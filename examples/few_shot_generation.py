"""Write examples like private tickets once, then use them at no further cost.

The old tickets hold names and order numbers. Instead of showing them to a model with
every new ticket, a few examples of each label are written from them with differential
privacy, saved, and used in an ordinary few-shot prompt: any model may see them, any
number of times.
"""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.few_shot import Clipped, DPFewShotGenerator
from langchain_dpicl.offline import OfflineChatModel, OfflineNextToken
from langchain_dpicl.released import ReleasedExamples, classification_chain

PROBLEMS = {
    "shipping": [
        "the courier left the parcel at the wrong door",
        "my parcel has been at the depot for {n} days",
        "the driver can't find the new address",
    ],
    "billing": [
        "you charged my card {n} times for one order",
        "the invoice is too high",
        "I still wait for my money back",
    ],
    "quality": [
        "the {item} broke after {n} days",
        "the {item} arrived with a crack and does not work",
        "my {item} makes a loud noise",
    ],
    "account": [
        "I can't log in with my password",
        "please change the email of my account",
        "the app closes when I log in",
    ],
}
ITEMS = "kettle", "lamp", "fan", "radio", "heater"
NAMES = "Ada", "Bruno", "Carmen", "Dario", "Edith", "Farid", "Greta", "Hugo"
WORDS = " ".join(
    said.format(item=item, n=9)
    for texts in PROBLEMS.values()
    for said in texts
    for item in ITEMS
).split()
INSTRUCTION = "Given a subject, write a customer's message on that subject."


def ticket(number: int, draws: random.Random) -> dict[str, str | int]:
    label = draws.choice(list(PROBLEMS))
    said = draws.choice(PROBLEMS[label]).format(
        item=draws.choice(ITEMS), n=draws.randint(2, 30)
    )
    signed = f"{draws.choice(NAMES)}, order {draws.randint(10_000, 99_999)}"
    return {"text": f"{said}. {signed}", "label": label, "customer": number}


def main() -> None:
    draws = random.Random(7)  # noqa: S311 - for the invented tickets
    tickets = [ticket(number, draws) for number in range(4200)]
    old, new = tickets[:4000], tickets[4000:]
    labels = list(PROBLEMS)

    budget = PrivacyBudgetHandler(
        epsilon=4, delta=1e-5, queries=1, ledger=":memory:", account="tickets"
    )
    generator = DPFewShotGenerator(
        OfflineNextToken(WORDS),
        INSTRUCTION,
        dict.fromkeys(labels, 1000),  # public guesses of their sizes
        max_tokens=12,
        top_k_public=None,
        decoder=Clipped(temperature=0.1),  # a stand-in is never sure
        unit_key="customer",
        budget=budget,
    )
    print(generator.forecast(per_label=3))
    examples = generator.generate(old, per_label=3)
    record = examples.record
    print(f"Written at epsilon {record['epsilon']:.2f}, delta {record['delta']:g}:")
    for example in examples:
        print(f"  {example['label']:10} {example['text']}")

    with TemporaryDirectory() as folder:
        file = Path(folder) / "examples.json"
        examples.save(file)
        # Another program, years later: the file says what it is and is checked.
        private = ReleasedExamples.load(file)

    chain = classification_chain(private, OfflineChatModel(), labels)
    answers = chain.batch([{"text": one["text"]} for one in new])
    right = sum(a == one["label"] for a, one in zip(answers, new, strict=True))
    print(f"Right with private examples: {right} of {len(new)} new tickets.")
    spent = budget.spent()
    print(f"Spent: epsilon {spent.epsilon:.2f}, whatever is asked from now on.")


if __name__ == "__main__":
    main()
