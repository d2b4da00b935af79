"""Models that tell how likely given answers are, for `read="likelihood"`.

| name | what it is |
|---|---|
| `LikelihoodModel` | what a chain asks of its model |
| `NextTokenLLM` | a next-token model: transformers in this process, or vLLM |
| `LetteredOptions` | makes a chat model that tells `top_logprobs` into such a model |
| `DecisionsLLM` | OpenAI's Decisions, of `langchain-openai` |

A chat or completion model of your own needs the one method of `LikelihoodModel`.

Privacy:
    A chain calls `log_likelihoods` behind its wall, with one prompt a call. What it
    returns for a prompt must follow from this prompt and the continuations alone. These
    may share a pass or a request, since they are public; two prompts never do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Any, Protocol, runtime_checkable

import numpy as np
from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field, SkipValidation
from typing_extensions import override

from langchain_dpicl.common.prompts import LETTER_INSTRUCTIONS
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.model import NextTokenModel, TokenPrompt

ALTERNATIVES = 20
"""Likeliest tokens that are asked for: no OpenAI-compatible server refuses so many."""

_LEAST_MASS = 1e-6


@runtime_checkable
class LikelihoodModel(Protocol):
    """What `read="likelihood"` asks of a chat or completion model, beside its texts."""

    def log_likelihoods(
        self, prompts: Sequence[str], continuations: Sequence[str]
    ) -> Sequence[Sequence[float]]:
        """Return log p(continuation | prompt): a row for each prompt.

        Args:
            prompts: What a user would write. A chain passes one.
            continuations: The possible answers, as plain as `labels` has them: a
                completion model puts a space before each by itself.

        Returns:
            Natural logarithms, shape `(len(prompts), len(continuations))`. One that is
            not known is at most the least known, or `-inf`.
        """


class NextTokenLLM(LLM):
    """A next-token model as a completion model that weighs given answers.

    A continuation's log-likelihood is the sum over its tokens. As a text it takes the
    likeliest token each time.

    Privacy:
        A prompt is asked alone, as the next-token model promises.

    Example:
        ```python
        tokens = TransformersNextToken(model, tokenizer)
        NextTokenLLM(model=tokens, max_tokens=20)
        ```
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: SkipValidation[NextTokenModel] = Field(exclude=True, repr=False)
    """`few_shot.TransformersNextToken`, `few_shot.OpenAICompatibleNextToken`, or one of
    your own that has `encode`."""

    template: SkipValidation[Callable[[str], str]] = Field(
        default=str, exclude=True, repr=False
    )
    """From a prompt to what the model goes on with, for a model that was trained to
    chat: its tokenizer's `apply_chat_template`."""

    max_tokens: int = Field(default=64, ge=1)
    """Most tokens of a text."""

    @property
    def model_name(self) -> str:
        """The next-token model's public name."""
        return self.model.name

    @property
    @override
    def _llm_type(self) -> str:
        return "next-token"

    @override
    def _call(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> str:
        written, tokens, text = self.template(prompt), list[int](), ""
        for _ in range(self.max_tokens):
            asked = TokenPrompt(written, tuple(tokens))
            token = int(self.model.top_tokens([asked], ALTERNATIVES)[0][0])
            if token in self.model.end_tokens:
                break
            tokens.append(token)
            text = self.model.decode(tokens)
            if ends := [text.index(end) for end in stop or () if end in text]:
                return text[: min(ends)]
        return text

    def log_likelihoods(
        self, prompts: Sequence[str], continuations: Sequence[str]
    ) -> list[list[float]]:
        """Return log p(continuation | prompt); see `LikelihoodModel`.

        Raises:
            PublicCallError: If a prompt is too long, or the model does not answer.
            InvalidParameterError: If a continuation has no token.
        """
        return [self._row(self.template(prompt), continuations) for prompt in prompts]

    def _row(self, written: str, continuations: Sequence[str]) -> list[float]:
        is_apart = written[-1:].isspace()
        parts = [self._tokens(each, is_apart=is_apart) for each in continuations]
        # Continuations that begin alike share a step.
        wanted: dict[tuple[int, ...], set[int]] = {}
        for part in parts:
            for place, token in enumerate(part):
                wanted.setdefault(part[:place], set()).add(token)
        steps = {before: sorted(tokens) for before, tokens in wanted.items()}
        told = self.model.log_probabilities(
            [TokenPrompt(written, before) for before in steps],
            [np.array(tokens, np.int64) for tokens in steps.values()],
        )
        figures: dict[tuple[int, ...], float] = {}
        for (before, tokens), row in zip(steps.items(), told, strict=True):
            if row is None:
                raise PublicCallError("The next-token model does not answer a prompt.")
            for token, figure in zip(tokens, row, strict=True):
                key = (*before, token)
                figures[key] = float(figure)
        return [
            math.fsum(figures[part[: place + 1]] for place in range(len(part)))
            for part in parts
        ]

    def _tokens(self, continuation: str, *, is_apart: bool) -> tuple[int, ...]:
        """Return a continuation's tokens, as they are behind a public text."""
        before, space = ("\n", "") if is_apart else (":", " ")
        whole = self.model.encode(f"{before}{space}{continuation}")
        tokens = tuple(whole[len(self.model.encode(before)) :])
        if not tokens:
            raise InvalidParameterError(f"The model has no token of {continuation!r}.")
        return tokens


class LetteredOptions(BaseChatModel):
    """Base of a chat model that is asked for the letter of an option.

    It stands before a class whose calls take `logprobs=` and `top_logprobs=` and return
    them as OpenAI does, such as `ChatOpenAI` for OpenAI's models and most servers. The
    prompt lists the options by letters, and one request tells all their figures. A
    letter that is not among the 20 likeliest tokens is at most as likely as the least
    of them, and as the mass that is left.

    Example:
        >>> from langchain_openai import ChatOpenAI
        >>> class Lettered(LetteredOptions, ChatOpenAI):
        ...     '''ChatOpenAI, with log_likelihoods.'''
        >>> model = Lettered(model="gpt-4o-mini", api_key="key", temperature=0)
        >>> isinstance(model, LikelihoodModel)
        True
    """

    def log_likelihoods(
        self, prompts: Sequence[str], continuations: Sequence[str], **kwargs: Any
    ) -> list[list[float]]:
        """Return log p(continuation | prompt); see `LikelihoodModel`.

        Args:
            prompts: The prompts.
            continuations: The options, 20 at most.
            **kwargs: What is bound to the model.

        Raises:
            InvalidParameterError: If there are too many options.
            PublicCallError: If the model tells no `top_logprobs`.
        """
        if len(continuations) > ALTERNATIVES:
            raise InvalidParameterError(
                f"There are {len(continuations)} options, and {ALTERNATIVES} fit: a "
                "model tells no more of its likeliest tokens."
            )
        letters = ascii_uppercase[: len(continuations)]
        lines = [f"{a}. {text}" for a, text in zip(letters, continuations, strict=True)]
        ending = LETTER_INSTRUCTIONS.format(options="\n".join(lines))
        given = {"logprobs": True, "top_logprobs": ALTERNATIVES, "max_tokens": 1}
        rows = []
        for prompt in prompts:
            message = HumanMessage(f"{prompt}\n\n{ending}")
            reply = self._generate([message], **{**kwargs, **given}).generations[0]
            rows.append(_first_letters(reply, letters))
        return rows


class DecisionsLLM(LLM):
    """OpenAI's Decisions as a model that weighs given answers. It says no texts.

    Example:
        ```python
        from langchain_openai.decisions import OpenAIDecisions

        DecisionsLLM(decisions=OpenAIDecisions(model="gpt-6-luna"))
        ```
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    decisions: SkipValidation[Runnable[Any, Any]] = Field(exclude=True, repr=False)
    """An `OpenAIDecisions`."""

    @property
    def model_name(self) -> str:
        """The model's name."""
        return str(getattr(self.decisions, "model", ""))

    @property
    @override
    def _llm_type(self) -> str:
        return "decisions"

    @override
    def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        raise NotImplementedError

    def log_likelihoods(
        self, prompts: Sequence[str], continuations: Sequence[str]
    ) -> list[list[float]]:
        """Return log p(continuation | prompt); see `LikelihoodModel`."""
        from langchain_openai.decisions import Choice

        choice = Choice(
            instructions="Which option answers the question?",
            choices=dict.fromkeys(continuations),
        )
        rows = []
        for prompt in prompts:
            asked = {"input": prompt, "questions": {"answer": choice}}
            told = self.decisions.invoke(asked).choices["answer"].probabilities
            shares = (told.get(each, 0) for each in continuations)
            rows.append([math.log(p) if p > 0 else -math.inf for p in shares])
        return rows


def _first_letters(reply: Any, letters: str) -> list[float]:
    """Return the figures of letters as a reply's first token, however it is spaced."""
    given = reply.message.response_metadata | (reply.generation_info or {})
    try:
        told = given["logprobs"]["content"][0]["top_logprobs"]
        masses = [(str(e["token"]).strip(), math.exp(e["logprob"])) for e in told]
        least = min(mass for _, mass in masses)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        masses, least = [], 0.0
    if not masses:
        raise PublicCallError(
            "The model tells no top_logprobs of its first token: choose one that does "
            "(reasoning models do not), or use NextTokenLLM."
        )
    left = max(1 - math.fsum(mass for _, mass in masses), _LEAST_MASS)
    known = (
        math.fsum(mass for token, mass in masses if token == letter)
        for letter in letters
    )
    return [math.log(mass or min(least, left) or _LEAST_MASS) for mass in known]
