"""Write examples like private tickets once, then use them at no further cost.

The old tickets hold names and order numbers. Instead of showing them to a model with
every new ticket, a few examples of each label are written from them with differential
privacy, saved, and used in an ordinary few-shot prompt: any model may see them, any
number of times.
"""

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.few_shot import (
    Clipped,
    DPFewShotGenerator,
    NextTokenModel,
    TokenPrompt,
)
from langchain_dpicl.few_shot.model import LogProbabilities, Tokens
from langchain_dpicl.offline import OfflineChatModel
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
INSTRUCTION = "Given a subject, write a customer's message on that subject."


class NextWords(NextTokenModel):
    """A stand-in for a language model: after a word comes what has followed it.

    `words` is its vocabulary, which is public. It learns from the records in the prompt
    alone, so it knows nothing without them.
    """

    name: str = "next words"
    end_tokens: frozenset[int] = frozenset({0})
    vocabulary_size: int | None = None

    def __init__(self, words: Iterable[str]) -> None:
        self.words = ["", *sorted(set(words))]
        self.ids = {word: number for number, word in enumerate(self.words)}
        self.vocabulary_size = len(self.words)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the words of tokens."""
        return " ".join(self.words[token] for token in tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the likeliest words."""
        return [np.argsort(-self._said(one), kind="stable")[:k] for one in prompts]

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely words are."""
        said = [self._said(prompt) for prompt in prompts]
        return [
            one if t is None else one[t] for one, t in zip(said, tokens, strict=True)
        ]

    def _said(self, prompt: TokenPrompt) -> LogProbabilities:
        counts = np.full(len(self.words), 0.01)
        last = prompt.generated[-1] if prompt.generated else 0
        for text in re.findall(r"^Text: ([^.\n]+)", prompt.text, re.MULTILINE):
            ids = [self.ids[word] for word in text.split() if word in self.ids]
            for one, following in zip([0, *ids], [*ids, 0], strict=True):
                counts[following] += one == last
        return np.asarray(np.log(counts / counts.sum()), np.float64)


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
        NextWords(" ".join(sum(PROBLEMS.values(), [*ITEMS])).split()),
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
