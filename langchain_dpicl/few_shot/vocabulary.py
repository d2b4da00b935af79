"""The public side of a step: the prompts without records, and what tokens there are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.exceptions import PublicCallError
from langchain_dpicl.few_shot.drafts import Draft
from langchain_dpicl.few_shot.models.contract import NextTokenModel, TokenPrompt, Tokens
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.mechanisms import token_distribution


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

    Args:
        model: Says which tokens end a text.
        drafts: The drafts.
        top: The likeliest tokens after each public prompt; None for all tokens.

    An example may always end, whether an end is among the likeliest tokens or not; but
    not before its first token.
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

    Raises:
        PublicCallError: If it does not answer them all, or says what can't be.
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
