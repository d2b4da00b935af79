"""The examples in the making: which have ended, and what their tokens spell.

Everything here is a function of released tokens and public terms, so that a
generation can be followed again from the stored tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.few_shot.models.contract import NextTokenModel
from langchain_dpicl.few_shot.public_calls import public_call
from langchain_dpicl.few_shot.terms import GenerationTerms


@dataclass
class Draft:
    """One example in the making.

    An end token is not among its `tokens`; its `text` goes up to a stop text.
    """

    label: str
    tokens: tuple[int, ...] = ()
    text: str = ""
    steps: int = 0
    ended: bool = False


class Drafts:
    """All examples of a generation, by label, taking one step together."""

    def __init__(
        self, model: NextTokenModel, terms: GenerationTerms, per_label: int
    ) -> None:
        self._model, self._terms = model, terms
        self.drafts = [Draft(label) for label in terms.labels for _ in range(per_label)]

    def active(self) -> list[Draft]:
        """Return the examples that take the next step, in their order."""
        return [draft for draft in self.drafts if not draft.ended]

    def take(self, tokens: Sequence[int]) -> int:
        """Add one token to each active example, in their order; return how many.

        Raises:
            LedgerError: If there are not as many tokens as active examples.
            PublicCallError: If the model can't spell them.
        """
        active = self.active()
        if len(tokens) != len(active):
            raise LedgerError("A stored step makes no sense: it has other examples.")
        for draft, token in zip(active, tokens, strict=True):
            self._add(draft, token)
        return len(tokens)

    @property
    def steps(self) -> int:
        """How many steps all examples have taken together."""
        return sum(draft.steps for draft in self.drafts)

    @property
    def most_steps(self) -> int:
        """How many they may take together."""
        return len(self.drafts) * self._terms.max_tokens

    def examples(self) -> list[dict[str, str]]:
        """Return each complete example, blank ones not."""
        return [
            {"text": draft.text.strip(), "label": draft.label}
            for draft in self.drafts
            if draft.ended and draft.text.strip()
        ]

    def _add(self, draft: Draft, token: int) -> None:
        draft.steps += 1
        if token in self._model.end_tokens:
            draft.ended = True
            return
        draft.tokens += (token,)
        with public_call("spell its own tokens"):
            text = str(self._model.decode(draft.tokens))
        draft.text, stopped = _up_to(text, self._terms.mechanism.stop)
        draft.ended = stopped or draft.steps >= self._terms.max_tokens


def _up_to(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Return a text up to the first stop text that does not come before it."""
    start = len(text) - len(text.lstrip())
    found = [place for end in stop if (place := text.find(end, start)) >= 0]
    return (text[: min(found)], True) if found else (text, False)
