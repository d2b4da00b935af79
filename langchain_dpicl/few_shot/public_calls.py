"""What a model is asked in the open: prompts without any record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from langchain_dpicl.exceptions import (
    DPError,
    InvalidParameterError,
    PublicCallError,
)
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.models.contract import (
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.output import OutputSpec
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.vocabulary import (
    public_distributions,
    public_prompts,
    vocabularies,
)
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.release.flow import Do, Flow


@dataclass(frozen=True, repr=False)
class PublicCalls:
    """The public side of a generation: what is asked of whom, step after step.

    Attributes:
        model: The model.
        writing: What is written.
        prompting: The prompts.
        random: Where noise and samples come from.
    """

    model: NextTokenModel
    writing: OutputSpec
    prompting: FewShotPrompting
    random: SecureRandom

    def top(self, drafts: Drafts) -> Flow[list[Tokens] | None]:
        """Return the active drafts' likeliest tokens, of the instruction alone.

        Raises:
            PublicCallError: If the model fails, or names what can't be tokens.
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
        """Ask the first public questions; refuse a model that can't answer them.

        Returns:
            The first step's public vocabulary.

        Raises:
            PublicCallError: If the model fails, or tells what no probabilities are.
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
        """Refuse a model that can't be asked for all of its tokens.

        Raises:
            InvalidParameterError: If all tokens are wanted of a provider that does not
                say how many there are.
        """
        if not isinstance(self.model, NextTokenModel):
            raise InvalidParameterError(
                f"model must be a NextTokenModel, not {type(self.model).__name__}: a "
                "model that tells the next token's probabilities. Use "
                "few_shot.OpenAICompatibleNextToken, few_shot.TransformersNextToken or "
                "offline.OfflineNextTokenModel; a model of your own subclasses "
                "few_shot.NextTokenModel."
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
