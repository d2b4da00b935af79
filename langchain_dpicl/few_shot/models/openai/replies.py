"""What a completions server's log-probabilities say, and what they leave open.

A provider reports some tokens only: the K likeliest ones, or those that were asked for.
A token that it does not report is not impossible. It is at most as likely as the least
likely of the K, and as the mass that they leave: that is the figure it gets.

Figures are read as floats of 32 bits with their rounding: K of them may add up to a
little more than 1, and what they leave is not known better than to a millionth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from langchain_dpicl.errors import PublicCallError
from langchain_dpicl.few_shot.models.contract import LogProbabilities, Tokens
from langchain_dpicl.few_shot.models.openai.wire import Failure, Reply

MASS_TOLERANCE = 1e-3  # By how much probabilities may add up to more than 1.
# Least mass that is known to be left, and by how much a logarithm may be above 0.
ROUNDING = 1e-6
KEY_REFUSED = (401, 403)  # Statuses of a server that does not take the key.

ID_MARK = "token_id:"  # What vLLM writes before a token's id.


@dataclass(frozen=True, repr=False)
class Choice:
    """What a server said after one prompt.

    `top` are the reported tokens' log-probabilities, by what the server calls them;
    `prompt_ids` are None where it does not tell them; `tokens` counts those that it
    drew.
    """

    top: Mapping[str, float]
    ended: bool
    prompt_ids: list[int] | None
    tokens: int


def choices(reply: Reply, expected: int) -> list[Choice | None] | None:
    """Read the answers to a list of prompts, out of a reply of any shape.

    A choice is None where it tells no log-probabilities. All is None if the answers
    can't be matched to the prompts: one choice a prompt, numbered exactly as the
    prompts are. A single prompt's single choice needs no number.
    """
    given = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(given, list) or len(given) != expected:
        return None
    if not all(isinstance(one, dict) for one in given):
        return None
    if expected == 1:
        return [_choice(given[0])]
    numbers = [one.get("index") for one in given]
    # A place is no number: a server may leave out one prompt's choice, or mix them.
    if any(type(number) is not int for number in numbers):
        return None
    if sorted(numbers) != list(range(expected)):
        return None
    return [_choice(one) for _, one in sorted(zip(numbers, given, strict=True))]


def figures(choice: Choice | None) -> dict[str, float] | None:
    """Return the reported log-probabilities, or None if they are impossible.

    Impossible: not a number, above 0, or more than 1 in all.
    """
    values = list(choice.top.values()) if choice else []
    # A bool is an int to everybody else.
    if choice is None or not set(map(type, values)) <= {int, float}:
        return None
    try:
        read = np.array(values, np.float64)
    except OverflowError:
        return None
    if not (read <= ROUNDING).all() or np.exp(read).sum() > 1 + MASS_TOLERANCE:
        return None
    return dict(zip(choice.top, np.minimum(read, 0.0).tolist(), strict=True))


def by_id(read: Mapping[str, float]) -> dict[int, float] | None:
    """Return the figures by token id, or None if the server did not tell ids."""
    mark = len(ID_MARK)
    try:
        named = {int(key[mark:]): p for key, p in read.items() if key[:mark] == ID_MARK}
    except ValueError:
        return None
    return named if len(named) == len(read) else None


def likeliest(reported: Mapping[int, float], k: int) -> dict[int, float]:
    """Return the k likeliest tokens, likeliest first, ties by id.

    A server adds the token that it drew to the k likeliest ones. That one is left out:
    it is chance, and as the least of the report it would be no bound for the others.

    Example:
        >>> likeliest({7: -9.0, 4: -1.0, 2: -1.0}, 2)
        {2: -1.0, 4: -1.0}
    """
    ordered = sorted(reported.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:k])


def bound(top: Mapping[int, float]) -> float:
    """Return the largest log-probability of a token outside of the likeliest ones.

    Example:
        >>> import math
        >>> math.exp(bound({1: math.log(0.5), 2: math.log(0.25)}))
        0.25
    """
    left = max(1.0 - math.fsum(map(math.exp, top.values())), ROUNDING)
    return min([*top.values(), math.log(left)])


def filled(
    top: Mapping[int, float], tokens: Tokens, missing: float
) -> LogProbabilities:
    """Return the figures of some tokens, and a bound for those that have none.

    Example:
        >>> filled({3: -1.0}, np.array([8, 3]), missing=-2.0)
        array([-2., -1.])
    """
    return np.array([top.get(token, missing) for token in tokens.tolist()], np.float64)


def is_possible(found: LogProbabilities) -> bool:
    """Whether these can be log-probabilities of different tokens."""
    return bool(np.exp(found).sum() <= 1 + MASS_TOLERANCE)


def succeeded(reply: Reply) -> bool:
    """Whether a call was answered at all."""
    return not isinstance(reply, Failure)


def refuse(failure: Reply, doing: str) -> NoReturn:
    """Raise what a failed public call means; `doing` is what was asked."""
    if not isinstance(failure, Failure):
        raise PublicCallError(f"The server's answer could not be read: {doing}.")
    if failure.status in KEY_REFUSED:
        raise PublicCallError(
            f"The server refused the key ({failure}): set api_key= of the model."
        )
    raise PublicCallError(
        f"The server did not answer ({failure}): {doing}. Check that it runs, and "
        "base_url= and timeout= of the model."
    )


def _choice(one: dict[str, Any]) -> Choice | None:
    told = one.get("logprobs")
    if not isinstance(told, dict):
        return None
    tops, said = told.get("top_logprobs"), told.get("tokens")
    if not (isinstance(tops, list) and tops and isinstance(tops[0], dict)):
        return None
    ids = one.get("prompt_token_ids")
    return Choice(
        top=tops[0],
        ended=one.get("finish_reason") == "stop",
        prompt_ids=ids if isinstance(ids, list) else None,
        tokens=len(said) if isinstance(said, list) else 0,
    )
