"""The public side of a generation: prompts without any record, and what they allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import DPError, InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.contract import NextTokenModel, TokenPrompt, Tokens
from langchain_dpicl.mechanisms.next_token import token_distribution

Floats = NDArray[np.float64]


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
            f"model must be a NextTokenModel, not {type(model).__name__}: a model that "
            "tells the next token's probabilities. Use "
            "few_shot.OpenAICompatibleNextToken or few_shot.TransformersNextToken; a "
            "model of your own subclasses few_shot.NextTokenModel."
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
    model: NextTokenModel,
    prompts: Sequence[TokenPrompt],
    top_k_public: int | None,
) -> list[Vocabulary]:
    """Ask for the likeliest tokens after public prompts: what a step chooses among.

    An example may always end, whether an end is among the likeliest tokens or not; but
    not before its first token.

    Raises:
        PublicCallError: If the model fails, or names what can't be tokens.
    """
    wanted = choices(model, top_k_public)
    if top_k_public is None:
        everything = np.arange(wanted)
        return [_vocabulary(model, prompt, None, everything) for prompt in prompts]
    with public_call("answer a prompt without records"):
        top = [np.asarray(one) for one in model.top_tokens(prompts, wanted)]
    if len(top) != len(prompts):
        raise PublicCallError("The model did not answer every public prompt.")
    size = model.vocabulary_size
    ends = np.array(sorted(model.end_tokens), np.int64)
    result = []
    for prompt, likely in zip(prompts, top, strict=True):
        if likely.dtype.kind not in "iu" or len(set(likely.tolist())) != wanted:
            raise PublicCallError(
                "The model tells fewer different tokens than top_k_public asks for: "
                "give a smaller one, or let the server tell more."
            )
        if likely.min() < 0 or (size is not None and likely.max() >= size):
            raise PublicCallError("The model names tokens that it does not have.")
        tokens = np.concatenate([likely.astype(np.int64), ends[~np.isin(ends, likely)]])
        result.append(_vocabulary(model, prompt, tokens, tokens))
    return result


def _vocabulary(
    model: NextTokenModel, prompt: TokenPrompt, asked: Tokens | None, tokens: Tokens
) -> Vocabulary:
    places = np.arange(len(tokens))
    if not prompt.generated:
        goes_on = ~np.isin(tokens, sorted(model.end_tokens))
        places = places[goes_on] if goes_on.any() else places
    return Vocabulary(asked, len(tokens), tokens[places], places)


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
    """Return what answers to public prompts say of the public tokens.

    Raises:
        PublicCallError: If they are anything but an answer to each that can be.
    """
    rows: list[Floats] = []
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
