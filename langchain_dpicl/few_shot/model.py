"""What a generator asks of a language model: the next token, as probabilities.

A `NextTokenModel` is asked two things, always for many prompts at once:

* which tokens are likely after *public* prompts (`top_tokens`): they become the public
  vocabulary of the step;
* how likely those tokens are after *private* prompts (`log_probabilities`).

Tokens are integers. Strings would not do: different tokens can look the same, and a
dictionary by string then loses probability without a word.

The functions below the class ask public prompts: no record takes part in their calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import DPError, InvalidParameterError, PublicCallError
from langchain_dpicl.mechanisms.next_token import token_distributions

Tokens = NDArray[np.int64]  # Token ids, each once, shape `(k,)`.
Floats = NDArray[np.float64]
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
        Whatever fails for one prompt is None in its place, and never an error.
        `likelihoods.NextTokenLLM` calls it for several slots at once, each on a thread
        of its own: what allows only one thread takes a lock. It runs
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

    def encode(self, text: str) -> list[int]:  # noqa: ARG002 - overridden
        """Return the tokens of a text, after the special ones that begin each text.

        A generator does not need it. `likelihoods.NextTokenLLM` cuts public
        continuations by it.
        """
        raise InvalidParameterError(
            f"{type(self).__name__} has no encode(text), which log-likelihoods of "
            "continuations need: give it one."
        )

    def require_room(self, prompts: Sequence[TokenPrompt]) -> None:  # noqa: B027 - overridden
        """Refuse *public* prompts that are too long; by default none is known to be.

        A generation asks before it is charged, with texts as long as they may get.

        Raises:
            DPError: If one is.
        """

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


@dataclass(frozen=True)
class Vocabulary:
    """The public tokens of one draft's step.

    Attributes:
        asked: The tokens that the model is asked for; None: all.
        size: How many these are.
        tokens: Those that the step chooses among, in public order.
        places: Where they stand in the model's answer.
    """

    asked: Tokens | None
    size: int
    tokens: Tokens
    places: NDArray[np.int64]


@contextmanager
def public_call(doing: str) -> Iterator[None]:
    """Raise whatever a model raises on public text as an error of ours."""
    failed = ""
    try:
        yield
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001 - a model of somebody else's
        failed = type(error).__name__
    if failed:
        raise PublicCallError(f"The model could not {doing}: {failed}.")


def check_model(model: Any, top_k_public: int | None) -> None:
    """Refuse what is no model, and all tokens of one that does not count them."""
    if not isinstance(model, NextTokenModel):
        raise InvalidParameterError(
            f"model must be a few_shot.NextTokenModel, not {type(model).__name__}: use "
            "OpenAICompatibleNextToken or TransformersNextToken, or subclass it."
        )
    if top_k_public is None and model.vocabulary_size is None:
        raise InvalidParameterError(
            "This model does not say how many tokens it has: give top_k_public=."
        )


def choices(model: NextTokenModel, top_k_public: int | None) -> int:
    """Return how many tokens a step chooses among, end tokens aside: all, at most."""
    sizes = (top_k_public, model.vocabulary_size)
    return min(size for size in sizes if size is not None)


def vocabularies(
    model: NextTokenModel, prompts: Sequence[TokenPrompt], top_k_public: int | None
) -> list[Vocabulary]:
    """Ask for the likeliest tokens after public prompts: what a step chooses among.

    An example may always end, whether an end is among the likeliest tokens or not; but
    not before its first token.
    """
    wanted, size = choices(model, top_k_public), model.vocabulary_size
    ends = np.array(sorted(model.end_tokens), np.int64)

    def vocabulary(
        prompt: TokenPrompt, asked: Tokens | None, tokens: Tokens
    ) -> Vocabulary:
        places = np.arange(len(tokens))
        if not prompt.generated:
            begins = ~np.isin(tokens, ends)
            places = places[begins] if begins.any() else places
        return Vocabulary(asked, len(tokens), tokens[places], places)

    if top_k_public is None:
        return [vocabulary(prompt, None, np.arange(wanted)) for prompt in prompts]
    with public_call("answer a prompt without records"):
        top = [np.asarray(likely) for likely in model.top_tokens(prompts, wanted)]
    if len(top) != len(prompts):
        raise PublicCallError("The model did not answer every public prompt.")
    result = []
    for prompt, likely in zip(prompts, top, strict=True):
        if likely.dtype.kind not in "iu" or len(set(likely.tolist())) != wanted:
            raise PublicCallError(
                "The model tells fewer different tokens than top_k_public: give a "
                "smaller one, or let the server tell more."
            )
        if likely.min() < 0 or (size is not None and likely.max() >= size):
            raise PublicCallError("The model names tokens that it does not have.")
        tokens = np.concatenate([likely.astype(np.int64), ends[~np.isin(ends, likely)]])
        result.append(vocabulary(prompt, tokens, tokens))
    return result


def ask_public(
    model: NextTokenModel,
    prompts: Sequence[TokenPrompt],
    chosen: Sequence[Vocabulary],
) -> list[Floats]:
    """Return the model's distributions over the public tokens after public prompts.

    No private prompt is in this call: what it says is the same bits with and without
    anybody's records.
    """
    with public_call("answer a prompt without records"):
        answers = model.log_probabilities(prompts, [each.asked for each in chosen])
    return public_distributions(answers, chosen)


def public_distributions(answers: Any, chosen: Sequence[Vocabulary]) -> list[Floats]:
    """Return what answers to public prompts say of the public tokens."""
    rows: list[Floats] = []
    with suppress(TypeError):
        for answer, vocabulary in zip(answers, chosen, strict=False):
            (row,) = token_distributions([answer], vocabulary.size, vocabulary.places)
            if row is None:
                break
            rows.append(row)
    if len(rows) < len(chosen):
        raise PublicCallError(
            "The model's answer to a prompt without records is no list of "
            "log-probabilities, one a token it was asked for: no token was released in "
            "this step. If it does not tell all tokens, give top_k_public=."
        )
    return rows
