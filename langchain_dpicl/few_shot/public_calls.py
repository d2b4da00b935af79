"""The public side of a generation: prompts without any record, and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import (
    DPError,
    InvalidParameterError,
    PublicCallError,
)
from langchain_dpicl.few_shot.drafts import Draft, Drafts
from langchain_dpicl.few_shot.models.contract import (
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.spec import GenerationSpec
from langchain_dpicl.mechanisms.next_token import token_distribution
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.release.flow import Do, Flow


@dataclass(frozen=True, repr=False)
class PublicCalls:
    """The public side of a generation: what is asked of whom, step after step."""

    model: NextTokenModel
    writing: GenerationSpec
    prompting: FewShotPrompting
    random: SecureRandom | None

    def top(self, drafts: Drafts) -> Flow[list[Tokens] | None]:
        """Return the active drafts' likeliest tokens, of the instruction alone.

        A model that fails, or names what can't be tokens, is a `PublicCallError`.
        """
        prompts = public_prompts(self.prompting, drafts.active())
        if self.writing.top_k_public is None:
            return None
        asked = prompts, self.choices
        with _public_call():
            top = yield Do(
                partial(self.model.top_tokens, *asked),
                partial(self.model.atop_tokens, *asked),
            )
        return self._checked(prompts, top)

    def probe(self, drafts: Drafts) -> Flow[list[Tokens] | None]:
        """Ask the first public questions; return the first step's public vocabulary.

        A model that fails, or tells what no probabilities are, is a `PublicCallError`.
        """
        top = yield from self.top(drafts)
        active = drafts.active()
        chosen = vocabularies(self.model, active, top)
        asked = (
            public_prompts(self.prompting, active),
            [each.asked for each in chosen],
        )
        with _public_call():
            answers = yield Do(
                partial(self.model.log_probabilities, *asked),
                partial(self.model.alog_probabilities, *asked),
            )
        public_distributions(answers, chosen)
        return top

    @property
    def choices(self) -> int:
        """How many tokens a step chooses among, end tokens aside: all, at most."""
        wanted, size = self.writing.top_k_public, self.model.vocabulary_size
        return min(each for each in (wanted, size) if each is not None)

    def check(self) -> None:
        """Refuse what is no model, and all tokens of one that does not count them."""
        if not isinstance(self.model, NextTokenModel):
            raise InvalidParameterError(
                f"model must be a NextTokenModel, not {type(self.model).__name__}: a "
                "model that tells the next token's probabilities. Use "
                "few_shot.OpenAICompatibleNextToken or few_shot.TransformersNextToken; "
                "a model of your own subclasses few_shot.NextTokenModel."
            )
        if self.writing.top_k_public is None and self.model.vocabulary_size is None:
            raise InvalidParameterError(
                "This model does not say how many tokens it has: give top_k_public=."
            )

    def _checked(self, prompts: list[TokenPrompt], top: Any) -> list[Tokens]:
        size = self.model.vocabulary_size
        found = [np.asarray(tokens) for tokens in top]
        if len(found) != len(prompts):
            raise PublicCallError("The model did not answer every public prompt.")
        for tokens in found:
            if tokens.dtype.kind not in "iu" or len(set(tokens.tolist())) != (
                self.choices
            ):
                raise PublicCallError(
                    "The model tells fewer different tokens than top_k_public asks "
                    "for: give a smaller one, or let the server tell more."
                )
            if tokens.min() < 0 or (size is not None and tokens.max() >= size):
                raise PublicCallError("The model names tokens that it does not have.")
        return [tokens.astype(np.int64) for tokens in found]


@contextmanager
def _public_call() -> Iterator[None]:
    """Raise whatever a model raises on public prompts as an error of ours."""
    failed = ""
    try:
        yield
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001 - a model of somebody else's
        failed = type(error).__name__
    if failed:
        raise PublicCallError(
            f"The model failed on a prompt without records: {failed}."
        )


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


def public_prompts(
    prompting: FewShotPrompting, drafts: Sequence[Draft]
) -> list[TokenPrompt]:
    """Return the drafts' prompts without records."""
    return [draft.prompt(prompting.public(draft.label)) for draft in drafts]


def vocabularies(
    model: NextTokenModel, drafts: Sequence[Draft], top: Sequence[Tokens] | None
) -> list[Vocabulary]:
    """Return each draft's public tokens.

    An example may always end, whether an end is among the likeliest tokens (`top`, None
    for all tokens) or not; but not before its first token.
    """
    ends = np.array(sorted(model.end_tokens), np.int64)
    found = []
    for place, draft in enumerate(drafts):
        if top is None:
            asked, tokens = None, np.arange(model.vocabulary_size or 0)
        else:
            tokens = np.concatenate([top[place], ends[~np.isin(ends, top[place])]])
            asked = tokens
        size = len(tokens)
        places = np.arange(size)
        if not draft.tokens:
            may = ~np.isin(tokens, ends)
            if may.any():
                tokens, places = tokens[may], places[may]
        found.append(Vocabulary(asked, size, tokens, places))
    return found


def public_distributions(
    answers: Any, chosen: Sequence[Vocabulary]
) -> list[NDArray[np.float64]]:
    """Return what a model says of the public tokens after the public prompts.

    Anything but an answer to each that can be is a `PublicCallError`.
    """
    rows: list[NDArray[np.float64]] = []
    with suppress(TypeError):
        for answer, vocabulary in zip(answers, chosen, strict=False):
            if answer is None or len(answer) != vocabulary.size:
                break
            row = token_distribution(answer, vocabulary.places)
            if row is None:
                break
            rows.append(row)
    if len(rows) < len(chosen):
        wants_all = any(vocabulary.asked is None for vocabulary in chosen)
        raise PublicCallError(
            "The model did not answer a prompt without records, or what it said are no "
            "log-probabilities of the tokens it was asked for: numbers up to 0, one a "
            "token. No token was released in this step."
            + (" If it does not tell all tokens, give top_k_public=." * wants_all)
        )
    return rows
