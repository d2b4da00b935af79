"""The examples in the making: which have ended, and what their tokens spell.

Everything here is a function of released tokens and public terms, so that a
generation can be followed again from the tokens alone (`budget.paid`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from langchain_dpicl.errors import DPError, PublicCallError
from langchain_dpicl.few_shot.models.contract import NextTokenModel, TokenPrompt


@dataclass
class Draft:
    """One example in the making, the `number`th of its label, from 0.

    An end token is not among its `tokens`; its `text` goes up to a stop text.
    """

    label: str
    number: int
    tokens: tuple[int, ...] = ()
    text: str = ""
    steps: int = 0
    ended: bool = False

    def prompt(self, text: str) -> TokenPrompt:
        """Return a prompt that goes on with this example."""
        return TokenPrompt(text, self.tokens)


@dataclass
class Drafts:
    """All examples of a generation, taking one step together."""

    model: NextTokenModel
    labels: Sequence[str]
    per_label: int
    max_tokens: int
    stop: Sequence[str]
    drafts: list[Draft] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drafts = [
            Draft(label, number)
            for label in self.labels
            for number in range(self.per_label)
        ]

    def active(self) -> list[Draft]:
        """Return the examples that take the next step, in their order."""
        return [draft for draft in self.drafts if not draft.ended]

    def take(self, tokens: Sequence[int]) -> None:
        """Add one token to each active example, in their order."""
        for draft, token in zip(self.active(), tokens, strict=True):
            self._add(draft, token)

    @property
    def steps(self) -> int:
        """How many steps all examples have taken together."""
        return sum(draft.steps for draft in self.drafts)

    @property
    def most_steps(self) -> int:
        """How many they may take together."""
        return len(self.labels) * self.per_label * self.max_tokens

    def examples(self) -> list[tuple[str, str]]:
        """Return label and text of each complete example, by label, blank ones not."""
        ordered = sorted(
            self.drafts,
            key=lambda draft: (self.labels.index(draft.label), draft.number),
        )
        return [
            (draft.label, draft.text.strip())
            for draft in ordered
            if draft.ended and draft.text.strip()
        ]

    def _add(self, draft: Draft, token: int) -> None:
        draft.steps += 1
        if token in self.model.end_tokens:
            draft.ended = True
            return
        draft.tokens += (token,)
        draft.text, stopped = _up_to(self._spelled(draft.tokens), self.stop)
        draft.ended = stopped or draft.steps >= self.max_tokens

    def _spelled(self, tokens: tuple[int, ...]) -> str:
        failed = ""
        try:
            return str(self.model.decode(tokens))
        except DPError:
            raise
        except Exception as error:  # noqa: BLE001 - a model of somebody else's
            failed = type(error).__name__
        raise PublicCallError(f"The model could not spell its own tokens: {failed}.")


def _up_to(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Return a text up to the first stop text that does not come before it."""
    start = len(text) - len(text.lstrip())
    found = [place for end in stop if (place := text.find(end, start)) >= 0]
    return (text[: min(found)], True) if found else (text, False)
