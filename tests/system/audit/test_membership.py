"""Membership inference on the examples that `DPFewShotGenerator` writes.

*Measured here.* Invented records of which each holds three names that no other holds,
and a model that repeats the records it is shown, word by word: what a language model
does at its worst. At epsilon 8 and 1 the examples say what many records say, and no
attack tells members from others better than chance, not even one that knows model and
prompts. Without noise, and with records as examples, the same attacks find the members.

*Not measured here.* An AUC is an average over members; it bounds no epsilon. The attack
of `test_audit_next_token.py`, on one record in the worst place, does that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from support.audit.membership import ATTACKS, Record, auc, interval, trial, wording

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.few_shot import (
    DPFewShotGenerator,
    NextTokenModel,
    TokenPrompt,
    step,
)
from langchain_dpicl.few_shot.forecast import MostlyNoiseWarning
from langchain_dpicl.mechanisms import SeededRandom

WORDING = {
    "parcel": (("lost", "found"), ("near", "behind")),
    "invoice": (("paid", "owes"), ("to", "from")),
}
SAID = {word for pairs in WORDING.values() for pair in pairs for word in pair}
NAMES = [f"{''.join(parts)}a" for parts in itertools.product("bdgklmnprtvz", "aeiou")]
NAMES = [a + b for a, b in itertools.product(NAMES, NAMES[:36])]
WORDS = ("<end>", *sorted(SAID), *NAMES)
PLACES = {word: place for place, word in enumerate(WORDS)}
LENGTH = 5
SURE = 0.95
DOUBT = 1e-6

MANY = {"n_groups": 60, "per_label": 3}
"""Of 180 members a label: names drown in the noise, what is common stands out."""
FEW = {"n_groups": 12, "per_label": 8}
"""Of 24 members a label: without noise each token is the word of one of them."""

Examples = Callable[[list[dict[str, str]], int], Sequence[Record]]
"""From the members and the trial's number to examples."""


class Copyist(NextTokenModel):
    """Goes on as the records in its prompt do, word by word."""

    name = "copyist"
    vocabulary_size = len(WORDS)
    end_tokens = frozenset({0})

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(f" {WORDS[token]}" for token in tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[np.ndarray]:
        return [np.arange(k) for _ in prompts]

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        rows = [np.log(self._probabilities(prompt)) for prompt in prompts]
        return [
            row if wanted is None else row[wanted]
            for row, wanted in zip(rows, tokens, strict=True)
        ]

    def _probabilities(self, prompt: TokenPrompt) -> np.ndarray:
        at = len(prompt.generated)
        lines = prompt.text.split("\n")
        records = [line.split()[1:] for line in lines if line.startswith("Text: ")]
        row = np.full(len(WORDS), (1 - SURE) / len(WORDS))
        row[0] /= 10  # A text does not end unless the records do.
        for words in records:
            place = PLACES[words[at]] if at < len(words) else 0
            row[place] += SURE / len(records)
        return row / row.sum()


def people(number: int, each: int) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return members and as many others; each trial deals the names afresh."""
    dealt = Random(number)
    names = iter(dealt.sample(NAMES, len(NAMES)))

    def record(label: str) -> dict[str, str]:
        verb, place = map(dealt.choice, WORDING[label])
        words = (next(names), verb, next(names), place, next(names))
        return {"text": " ".join(words), "label": label}

    found = [record(label) for label in WORDING for _ in range(2 * each)]
    return found[::2], found[1::2]


def written(epsilon: float, z: float, n_groups: int, per_label: int) -> Examples:
    """Return what writes examples; the account refuses a z that costs more."""

    def write(members: list[dict[str, str]], number: int) -> Sequence[Record]:
        budget = PrivacyBudgetHandler(
            epsilon=epsilon, delta=1e-3, accounting="renyi", ledger=":memory:"
        )
        return DPFewShotGenerator(
            Copyist(),
            "Given a subject, write a message.",
            list(WORDING),
            n_groups=n_groups,
            records_per_group=1,
            max_tokens=LENGTH,
            top_k_public=None,
            noise_multiplier=z,
            random=SeededRandom(number),
            budget=budget,
        ).generate(members, per_label)

    return write


def likelihood(records: Sequence[Record], examples: Sequence[Record]) -> list[float]:
    """Return how many names of its label's examples a record has at the same place.

    This model's likelihood ratio of the examples, with the record shown and without,
    grows with it: who knows model and prompts has no better score from one record.
    """

    def score(record: Record) -> float:
        own = record["text"].split()
        return sum(
            ours == said and said not in SAID
            for one in examples
            if one["label"] == record["label"]
            for ours, said in zip(own, one["text"].casefold().split(), strict=False)
        )

    return [score(record) for record in records]


ALL_ATTACKS = {**ATTACKS, "likelihood": likelihood}


def measured(
    examples: Examples, each: int, trials: int
) -> dict[str, tuple[float, float]]:
    """Return each attack's mean AUC over the trials, and half its interval."""
    found = []
    for number in range(trials):
        members, others = people(number, each)
        shown = examples(members, number)
        found.append(trial(members, others, shown, ALL_ATTACKS))
    return {name: interval([one[name] for one in found], DOUBT) for name in ALL_ATTACKS}


def is_chance(result: tuple[float, float]) -> bool:
    mean, half = result
    return abs(mean - 0.5) < half < 0.1


def is_found(result: tuple[float, float]) -> bool:
    mean, half = result
    return mean - half > 0.5


def plain_sum(rows: np.ndarray, **_: Any) -> np.ndarray:
    return rows.sum(axis=0)


@pytest.mark.parametrize(("epsilon", "z"), [(8, 1.1), (1, 4.5)])
def test_members_are_not_found_by_useful_examples(epsilon: float, z: float) -> None:
    said: list[str] = []
    write = written(epsilon, z, **MANY)

    def noted(members: list[dict[str, str]], number: int) -> Sequence[Record]:
        examples = write(members, number)
        said.extend(word for one in examples for word in one["text"].split()[1::2])
        return examples

    results = measured(noted, each=180, trials=10)

    assert all(map(is_chance, results.values())), results
    # Eight words of 2,000 are common to many records; chance would hardly say one.
    assert sum(word in SAID for word in said) > 0.4 * len(said)


def test_members_are_not_found_where_records_are_few() -> None:
    with pytest.warns(MostlyNoiseWarning):
        results = measured(written(8, 2.0, **FEW), each=24, trials=20)

    assert all(map(is_chance, results.values())), results


def test_without_noise_members_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "noisy_next_token", plain_sum)

    with pytest.warns(MostlyNoiseWarning):
        results = measured(written(8, 2.0, **FEW), each=24, trials=20)

    assert all(map(is_found, results.values())), results


def test_records_as_examples_are_found() -> None:
    found = []
    for number in range(8):
        members, others = people(number, 24)
        found.append(trial(members[::8], others, members[::8], ALL_ATTACKS))
    for name in ALL_ATTACKS:
        assert is_found(interval([one[name] for one in found], DOUBT)), name


def test_the_area_counts_ties_half() -> None:
    assert auc([0.9, 0.5], [0.5, 0.1]) == 0.875
    assert auc([1.0], [0.0, 0.0]) == 1.0


def test_wording_is_that_of_one_example() -> None:
    examples = [{"text": "a red door", "label": "x"}, {"text": "blue", "label": "x"}]
    same = {"text": "A red door!", "label": "x"}
    half = {"text": "red blue", "label": "x"}
    assert wording([same, half], examples) == [1.0, pytest.approx(1 / 3)]
