"""What a model is asked in the open: prompts without any record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_dpicl.exceptions import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.lanes import Lanes
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.vocabulary import public_prompts
from langchain_dpicl.few_shot.writing import Writing
from langchain_dpicl.mechanisms import SecureRandom


@dataclass(frozen=True, repr=False)
class Asking:
    """The public side of a generation: what is asked of whom, step after step.

    Attributes:
        model: The model.
        writing: What is written.
        prompting: The prompts.
        random: Where noise and samples come from.
    """

    model: NextTokenModel
    writing: Writing
    prompting: FewShotPrompting
    random: SecureRandom

    def top(self, lanes: Lanes) -> list[Tokens] | None:
        """Return the active lanes' likeliest tokens, of the instruction alone."""
        prompts = public_prompts(self.prompting, lanes.active())
        if self.writing.top_k_public is None:
            return None
        top = self.model.top_tokens(prompts, self.writing.top_k_public)
        return self._checked(prompts, top)

    async def atop(self, lanes: Lanes) -> list[Tokens] | None:
        """Return the active lanes' likeliest tokens; see `top`."""
        prompts = public_prompts(self.prompting, lanes.active())
        if self.writing.top_k_public is None:
            return None
        top = await self.model.atop_tokens(prompts, self.writing.top_k_public)
        return self._checked(prompts, top)

    def probe(self, lanes: Lanes) -> list[Tokens] | None:
        """Ask the first public questions; refuse a model that can't answer them.

        Returns:
            The first step's public vocabulary.

        Raises:
            PublicCallError: If the model fails.
        """
        top = self.top(lanes)
        if top is None:
            # Where all tokens are wanted, nothing was asked yet.
            prompts = public_prompts(self.prompting, lanes.active())
            answers = self.model.log_probabilities(prompts, [None] * len(prompts))
            self._check_answers(prompts, answers)
        return top

    async def aprobe(self, lanes: Lanes) -> list[Tokens] | None:
        """Ask the first public questions; see `probe`."""
        top = await self.atop(lanes)
        if top is None:
            prompts = public_prompts(self.prompting, lanes.active())
            answers = await self.model.alog_probabilities(
                prompts, [None] * len(prompts)
            )
            self._check_answers(prompts, answers)
        return top

    @property
    def choices(self) -> int:
        """How many tokens a step chooses among, end tokens aside."""
        return self.writing.top_k_public or self.model.vocabulary_size or 0

    def check(self) -> None:
        """Refuse a model that can't be asked for all of its tokens.

        Raises:
            InvalidParameterError: If all tokens are wanted of a provider that does not
                say how many there are.
        """
        if not isinstance(self.model, NextTokenModel):
            raise InvalidParameterError(
                f"model must be a NextTokenModel, not {type(self.model).__name__}: a "
                "model that tells the next token's probabilities. See "
                "few_shot.OpenAICompatibleNextToken, few_shot.TransformersNextToken "
                "and offline.OfflineNextTokenModel."
            )
        size = self.model.vocabulary_size
        wanted = self.writing.top_k_public
        if wanted is None and size is None:
            raise InvalidParameterError(
                "This model does not say how many tokens it has: give top_k_public=."
            )
        if wanted is not None and size is not None and wanted > size:
            raise InvalidParameterError(
                f"top_k_public is {wanted} and the model has {size} tokens."
            )

    def _check_answers(
        self,
        prompts: list[TokenPrompt],
        answers: Sequence[LogProbabilities | None],
    ) -> None:
        if len(answers) != len(prompts) or any(
            answer is None or len(answer) != self.model.vocabulary_size
            for answer in answers
        ):
            raise PublicCallError(
                "The model does not tell the probabilities of all of its tokens: give "
                "top_k_public=."
            )

    def _checked(self, prompts: list[TokenPrompt], top: list[Tokens]) -> list[Tokens]:
        for tokens in top:
            if len(tokens) != self.writing.top_k_public or len(tokens) != len(
                set(tokens.tolist())
            ):
                raise PublicCallError(
                    "The model tells fewer different tokens than top_k_public asks for."
                )
        if len(top) != len(prompts):
            raise PublicCallError("The model did not answer every public prompt.")
        return top
