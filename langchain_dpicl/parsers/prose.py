"""Answers in sentences, drawn token by token from what the groups' prompts go on with.

The draw is `mechanisms.clipped_token`. Each group's context stays the same for all
tokens: one search, and a prompt that goes on with the tokens that were drawn so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, cast

import numpy as np
from langchain_core.prompt_values import PromptValue
from pydantic import Field
from typing_extensions import override

from langchain_dpicl.accounting import Charge, Exponential
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.common.prompts import plain_text
from langchain_dpicl.common.replies import FAILED, Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.few_shot.model import (
    Floats,
    NextTokenModel,
    TokenPrompt,
    Vocabulary,
    ask_public,
    check_model,
    vocabularies,
)
from langchain_dpicl.likelihoods import NextTokenLLM
from langchain_dpicl.mechanisms import clipped_token
from langchain_dpicl.mechanisms.next_token import token_distributions
from langchain_dpicl.parsers.base import Count, DPOutputParser, PublicInput
from langchain_dpicl.parsers.reading import declines
from langchain_dpicl.release.record import Outcome, Status
from langchain_dpicl.sealed import SealedModel, attempt

NOT_TOLD = "the records do not tell"
"""The reason where the text that was drawn says so."""


@dataclass(frozen=True)
class Beginning:
    """What is public about a question before its first token.

    Attributes:
        model: The model, with its threads.
        written: What it goes on with where there are no records.
        vocabulary: The tokens that the first one is chosen among.
        figures: Their probabilities without records, shape `(K,)`.
    """

    model: SealedModel
    written: str
    vocabulary: Vocabulary = field(repr=False)
    figures: Floats = field(repr=False)

    @property
    def tokens(self) -> NextTokenModel:
        """The next-token model."""
        return cast("NextTokenLLM", self.model.model).model


class ProseOutputParser(DPOutputParser):
    """Release an answer in sentences, each token drawn from all groups together.

    For models that you host (`likelihoods.NextTokenLLM`): each token takes a pass of
    every group's prompt. It is by far the dearest parser: an answer of T tokens costs T
    draws, whatever its length. Take it for a few short answers over many groups.

    A text that ends before, by the model's end of text or by `stop`, is not cheaper. A
    text that says that the records do not tell ("I don't know.") is no answer: then
    nothing is released. If the model fails without records, the text ends there, and
    its record says `is_cut`. No other rule stops a text: whether groups agree is
    private.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.clipped_token`, `max_tokens` uses of Exponential(epsilon), charged
        before the first call. A slot's figures are a function of its own prompt and of
        the tokens that were released, and what is public is asked for in calls of its
        own. The number of calls follows from the released tokens: each takes a call for
        each of the public number of groups.

    Raises:
        InvalidParameterError: If a parameter is out of range, or units are sampled.

    Example:
        ```python
        model = NextTokenLLM(model=TransformersNextToken(model, tokenizer))
        parser = ProseOutputParser(max_tokens=40)
        DPChain(groups=groups, model=model, parser=parser, budget=budget)
        ```
    """

    max_tokens: Count = 60
    """Most tokens of an answer: so many are charged."""

    stop: Annotated[str, Field(min_length=1)] | None = "\n"
    """A public text that ends the answer, behind its first word."""

    top_k_public: Count | None = 100
    """How many tokens each is chosen among: the likeliest without records. None: the
    whole vocabulary, which a server does not tell."""

    temperature: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] = 1.0
    """Public. At a lower one likelier tokens are drawn, and differences between groups
    and the public model are clipped earlier by as much."""

    epsilon: float | None = None
    """The bounded range of one token; None leaves it to the budget's plan."""

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one answer costs: `max_tokens` tokens."""
        if sampling_rate != 1:
            raise InvalidParameterError(
                "ProseOutputParser takes groups of all units: its tokens share one "
                "sample, and are not charged as samples. Leave sampling_rate= out."
            )
        return clipped_token.charge(
            epsilon=self.epsilon, count=self.max_tokens, name="prose/clipped"
        )

    @property
    @override
    def reads_figures(self) -> bool:
        """The model is asked for the next token's probabilities."""
        return True

    @property
    @override
    def calls_per_group(self) -> int:
        """One a token, at most."""
        return self.max_tokens

    @override
    def check_model(self, model: SealedModel) -> None:
        """Refuse a model that is no `NextTokenLLM`."""
        if not isinstance(model.model, NextTokenLLM):
            raise InvalidParameterError(
                "ProseOutputParser asks for the next token's probabilities: pass "
                "likelihoods.NextTokenLLM(model=...) over a few_shot.NextTokenModel, "
                f"not {type(model.model).__name__}."
            )
        check_model(model.model.model, self.top_k_public)

    @override
    def prepare(self, public: PublicInput) -> None:
        """Refuse to be used alone: texts have no figures."""
        if not public.question:
            raise InvalidParameterError(
                "ProseOutputParser asks the model for each token, and takes no texts: "
                "use it in a DPChain."
            )

    @override
    def ask_alone(
        self, model: SealedModel, prompt: PromptValue, prepared: Any
    ) -> Beginning:
        """Ask for the first token without records."""
        base = cast("NextTokenLLM", model.model)
        written = _written(base, prompt)
        first = partial(self._step, base.model, TokenPrompt(written))
        return Beginning(model, written, *model.in_turn(first))

    def _step(
        self, model: NextTokenModel, public: TokenPrompt
    ) -> tuple[Vocabulary, Floats]:
        """Return the tokens that one is chosen among, and their public figures."""
        chosen = vocabularies(model, [public], self.top_k_public)
        return chosen[0], ask_public(model, [public], chosen)[0]

    @override
    def ask(
        self,
        model: SealedModel,
        prompts: Sequence[Sequence[PromptValue]],
        prepared: Any,
        done: Advance = no_progress,
    ) -> list[Slot]:
        """Return what the model goes on with for each group; `release` asks it."""
        base = cast("NextTokenLLM", model.model)
        texts = [attempt(partial(_written, base, prompt)) for prompt, *_ in prompts]
        done(len(texts))
        return [Slot(text) if text else FAILED for text in texts]

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: Beginning,
    ) -> Outcome:
        """Draw an answer, token by token."""
        event = cast("Exponential", paid.events[0])
        model, written = prepared.tokens, prepared.written
        texts = [slot.text for slot in slots if slot.text is not None]
        tokens, text, is_cut = list[int](), "", False
        vocabulary, public = prepared.vocabulary, prepared.figures
        for _ in range(self.max_tokens):
            before = tuple(tokens)
            if before:
                try:
                    vocabulary, public = prepared.model.in_turn(
                        partial(self._step, model, TokenPrompt(written, before))
                    )
                except DPError:
                    is_cut = True  # What was drawn is paid for, and not lost.
                    break
            # Those without records are asked too: the calls tell nothing of them.
            padded = [*texts, *[written] * (slot_count - len(texts))]
            asked = [TokenPrompt(each, before) for each in padded]
            told = prepared.model.each(
                [partial(_figures, model, each, vocabulary) for each in asked]
            )
            place = clipped_token.clipped_token(
                _rows(told[: len(texts)], vocabulary),
                public,
                event,
                relation,
                slots=slot_count,
                temperature=self.temperature,
            )
            token = int(vocabulary.tokens[place])
            tokens.append(token)
            if token in model.end_tokens:
                break
            text = model.decode(tokens).lstrip()
            if self.stop is not None and self.stop in text:
                text = text[: text.index(self.stop)]
                break
        # Two public calls a token, but for one that was made before the charge.
        calls = len(tokens) * (slot_count + 2) - 1 + is_cut
        details: dict[str, Any] = {"tokens": len(tokens), "calls": calls}
        details |= {"is_cut": True} if is_cut else {}
        if not text.strip() or declines(text):
            details["reason"] = NOT_TOLD
            return Outcome(Status.FALLBACK, details=details)
        return Outcome(Status.RELEASED, text.strip(), details=details)

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return how a text is drawn."""
        names = ("max_tokens", "stop", "top_k_public", "temperature")
        return {name: getattr(self, name) for name in names}


def _rows(told: Sequence[Floats | None], among: Vocabulary) -> Floats:
    """Return the distributions of those groups that say one, shape `(m, K)`."""
    found = token_distributions(told, among.size, among.places)
    rows = [row for row in found if row is not None]
    return np.stack(rows) if rows else np.zeros((0, among.places.size))


def _written(model: NextTokenLLM, prompt: PromptValue) -> str:
    """Return what a model goes on with."""
    return model.template(plain_text(prompt))


def _figures(model: NextTokenModel, prompt: TokenPrompt, among: Vocabulary) -> Floats:
    """Return what a model says of one group's next token, in numbers."""
    (row,) = model.log_probabilities([prompt], [among.asked])
    return np.asarray(row, np.float64)
