"""A next-token model of words with figures that can be told by hand; its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.few_shot import (
    DPFewShotGenerator,
    NextTokenModel,
    TokenPrompt,
    step,
)

WORDS = ("<end>", "red", "green", "blue", "one", "two", "three", "four", "tall", "wide")
END = 0
LIKELY = 0.7
"""Probability of the likeliest token."""

LABELS = ("color", "number")
INSTRUCTION = "Given a kind, write a list."

Tamper = Callable[[TokenPrompt, np.ndarray], np.ndarray | None]


class WordModel(NextTokenModel):
    """Likes the words that its prompt holds; keeps what it was asked of groups.

    After an example of two words it likes the end. Each word of the vocabulary that
    the prompt holds weighs 10 more than those it does not hold.

    Args:
        tamper: Changes one answer, or takes it away; it may raise.
        words: The vocabulary.
        ending: After how many tokens it likes the end; None: never.
    """

    def __init__(
        self,
        tamper: Tamper | None = None,
        words: Sequence[str] = WORDS,
        ending: int | None = 2,
    ) -> None:
        self.words = tuple(words)
        self.tamper = tamper
        self.ending = ending
        self.top_calls: list[list[TokenPrompt]] = []
        self.calls: list[list[TokenPrompt]] = []

    @property
    def name(self) -> str:
        return f"words of {len(self.words)}"

    @property
    def vocabulary_size(self) -> int | None:
        return len(self.words)

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset({END})

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(f" {self.words[token]}" for token in tokens)

    def probabilities(self, prompt: TokenPrompt) -> np.ndarray:
        held = prompt.text.split()
        weights = np.array([1.0 + 10 * held.count(word) for word in self.words])
        for token in prompt.generated:
            weights[token] = 0.1
        is_over = self.ending is not None and len(prompt.generated) >= self.ending
        weights[END] = weights.sum() * LIKELY / (1 - LIKELY) if is_over else 0.01
        return weights / weights.sum()

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[np.ndarray]:
        self.top_calls.append(list(prompts))
        return [
            np.argsort(-self.probabilities(prompt), kind="stable")[:k].astype(np.int64)
            for prompt in prompts
        ]

    def is_probe(self, prompts: Any) -> bool:
        """Whether it is asked about the public prompts alone, as before a charge."""
        return bool(self.top_calls) and list(prompts) == self.top_calls[-1]

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        if not self.is_probe(prompts):
            self.calls.append(list(prompts))
        answers: list[np.ndarray | None] = []
        for prompt, wanted in zip(prompts, tokens, strict=True):
            found: np.ndarray | None = np.log(self.probabilities(prompt))
            if wanted is not None:
                found = found[wanted]
            answers.append(found if self.tamper is None else self.tamper(prompt, found))
        return answers


def records_of(each: int = 60) -> list[dict[str, str]]:
    """Return records of two labels, each a person of its own."""
    colors = ["red green", "green blue", "blue red"]
    numbers = ["one two", "two three", "three one"]
    return [
        {"text": texts[i % 3], "label": label}
        for label, texts in zip(LABELS, (colors, numbers), strict=True)
        for i in range(each)
    ]


def budget_of(**changes: Any) -> PrivacyBudgetHandler:
    """Return an account that pays for one generation."""
    terms: dict[str, Any] = {
        "epsilon": 8.0,
        "delta": 1e-5,
        "queries": 1,
        "ledger": ":memory:",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


def generator_of(model: NextTokenModel | None = None, **changes: Any) -> Any:
    """Return a generator of both labels."""
    terms: dict[str, Any] = {
        "labels": LABELS,
        "n_groups": 20,
        "records_per_group": 2,
        "max_tokens": 4,
        "top_k_public": 6,
        "budget": budget_of() if "budget" not in changes else None,
    }
    arguments = {"prompt": INSTRUCTION, **terms, **changes}
    return DPFewShotGenerator(model or WordModel(), **arguments)


def watched_noise(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Keep the noise multiplier of each noisy sum from now on: one a draft and step."""
    return _watched(monkeypatch, lambda rows, paid: paid.noise_multiplier)


def watched_heights(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep how many slots each noisy sum adds up from now on."""
    return _watched(monkeypatch, lambda rows, paid: len(rows))


def _watched(monkeypatch: pytest.MonkeyPatch, kept: Callable[..., Any]) -> list[Any]:
    seen: list[Any] = []
    real = step.noisy_next_token

    def watched(rows: Any, paid: Any, relation: Any) -> Any:
        seen.append(kept(rows, paid))
        return real(rows, paid, relation)

    monkeypatch.setattr(step, "noisy_next_token", watched)
    return seen
