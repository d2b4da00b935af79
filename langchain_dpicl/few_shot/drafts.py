"""The examples in the making: which have ended, and what their tokens spell.

Everything here is a function of released tokens and public terms, so that a
generation can be followed again from the tokens alone (`release/store.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from langchain_dpicl.exceptions import DPError, PublicCallError
from langchain_dpicl.few_shot.models.contract import NextTokenModel, TokenPrompt


@dataclass
class Lane:
    """One example in the making.

    Attributes:
        label: What it is an example of.
        number: Which of the label's examples it is, from 0.
        tokens: Its tokens so far, an end token not among them.
        text: What they spell, up to a stop text.
        steps: How many token steps it has taken.
        ended: Whether it is complete.
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
class Lanes:
    """All examples of a generation, taking one step together.

    Args:
        model: Spells tokens, and says which of them end a text.
        labels: The labels.
        per_label: Examples of each.
        max_tokens: Most steps of an example.
        stop: Texts that end an example.
        spend_rest: Whether a label's steps that early ends left over go into further
            examples of it, as long as they suffice for a whole one.
    """

    model: NextTokenModel
    labels: Sequence[str]
    per_label: int
    max_tokens: int
    stop: Sequence[str]
    spend_rest: bool = False
    lanes: list[Lane] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes = [
            Lane(label, number)
            for label in self.labels
            for number in range(self.per_label)
        ]

    def active(self) -> list[Lane]:
        """Return the examples that take the next step, in their order."""
        return [lane for lane in self.lanes if not lane.ended]

    def take(self, tokens: Sequence[int]) -> None:
        """Add one token to each active example, in their order."""
        for lane, token in zip(self.active(), tokens, strict=True):
            self._add(lane, token)
        if self.spend_rest:
            self._refill()

    @property
    def steps(self) -> int:
        """How many steps all examples have taken together."""
        return sum(lane.steps for lane in self.lanes)

    @property
    def most_steps(self) -> int:
        """How many they may take together."""
        return len(self.labels) * self.per_label * self.max_tokens

    def examples(self) -> list[tuple[str, str]]:
        """Return label and text of each complete example, by label, blank ones not."""
        ordered = sorted(
            self.lanes, key=lambda lane: (self.labels.index(lane.label), lane.number)
        )
        return [
            (lane.label, lane.text.strip())
            for lane in ordered
            if lane.ended and lane.text.strip()
        ]

    def _add(self, lane: Lane, token: int) -> None:
        lane.steps += 1
        if token in self.model.end_tokens:
            lane.ended = True
            return
        lane.tokens += (token,)
        lane.text, stopped = _up_to(self._spelled(lane.tokens), self.stop)
        lane.ended = stopped or lane.steps >= self.max_tokens

    def _spelled(self, tokens: tuple[int, ...]) -> str:
        failed = ""
        try:
            return str(self.model.decode(tokens))
        except DPError:
            raise
        except Exception as error:  # noqa: BLE001 - a model of somebody else's
            failed = type(error).__name__
        raise PublicCallError(f"The model could not spell its own tokens: {failed}.")

    def _refill(self) -> None:
        for label in self.labels:
            lanes = [lane for lane in self.lanes if lane.label == label]
            if any(not lane.ended for lane in lanes):
                continue
            left = self.per_label * self.max_tokens - sum(lane.steps for lane in lanes)
            if left >= self.max_tokens:
                self.lanes.append(Lane(label, len(lanes)))


def _up_to(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Return a text up to the first stop text that does not come before it."""
    start = len(text) - len(text.lstrip())
    found = [place for end in stop if (place := text.find(end, start)) >= 0]
    return (text[: min(found)], True) if found else (text, False)
