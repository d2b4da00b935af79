"""What a generator asks of a language model: the next token, as probabilities.

A `NextTokenModel` is asked two things, always for many prompts at once:

* which tokens are likely after *public* prompts (`top_tokens`): they become the public
  vocabulary of the step;
* how likely those tokens are after *private* prompts (`log_probabilities`).

Tokens are integers. Strings would not do: different tokens can look the same, and a
dictionary by string then loses probability without a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]  # Token ids, each once, shape `(k,)`.
LogProbabilities = NDArray[np.float64]
"""Natural logarithms of probabilities, one a token, shape `(k,)`; never above 0."""


@dataclass(frozen=True, repr=False)
class TokenPrompt:
    """A prompt, and the tokens that were generated after it so far.

    Attributes:
        text: The prompt's text. Private where it holds a group's records, and so it is
            in no repr.
        generated: The tokens so far. They are kept as tokens: spelled out and cut up
            again they might become others.
    """

    text: str
    generated: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"TokenPrompt(<hidden>, generated={len(self.generated)} tokens)"


class NextTokenModel(ABC):
    """A language model that tells the probabilities of the next token.

    Implementations: `OpenAICompatibleNextToken` (a server of vLLM) and
    `TransformersNextToken` (in this process). A subclass implements what is abstract
    here. All of it blocks: `agenerate` runs it on a thread.

    Privacy:
        The generator calls `log_probabilities` inside the sealed region. An
        implementation must answer each prompt by itself: what it says of one must not
        depend on the others of the same call, or one unit changes more than one slot.
        Whatever fails for one prompt is None in its place, and never an error. It runs
        in a sealed context: threads and tasks of its own belong into copies of that
        context, and no private value is the result of an asyncio task, which asyncio's
        debug mode logs.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's public name, for the record; two that differ never share one."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int | None:
        """Number of tokens, ids 0 to n - 1; None where the provider does not say."""

    @property
    @abstractmethod
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text; they are not part of it."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell."""

    @abstractmethod
    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return k different likeliest tokens after each *public* prompt, ties by id.

        Raises:
            PublicCallError: If the model fails, tells no probabilities, fewer than k,
                or impossible ones.
            InvalidParameterError: If there are fewer than k tokens.
        """

    @abstractmethod
    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely given tokens are after each prompt.

        Args:
            prompts: The prompts; private ones among them.
            tokens: For each prompt the tokens asked for; None asks for the whole
                vocabulary, in order of the ids, which a server does not tell.

        Returns:
            For each prompt the log-probabilities of its tokens, as the model has them
            over its whole vocabulary (they need not add up to one), in the tokens'
            order. A token that the provider does not report has the largest
            probability that it can have: at most the least one reported, and at most
            the mass that is left. None where the model did not answer for a prompt, or
            said what can't be: not a number, above 0, or more than 1 in all.
        """
