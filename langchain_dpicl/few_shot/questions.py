"""Asking a step's prompts, so that one that breaks a model's adapter costs one slot.

By its contract an adapter answers None where a prompt fails, and never raises. One that
does raise, for whatever one record says, would fail the step for all groups, and do so
whenever that record is in the sample: the model would be asked again until it is not.
So the prompts are then asked one by one.

Whatever an adapter raises stays here, errors of ours among it: their words would pass
the seal, and the adapter has seen private prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_dpicl.few_shot.models.contract import LogProbabilities, NextTokenModel
from langchain_dpicl.few_shot.step import StepPrompts
from langchain_dpicl.sealed import aattempt, attempt

Answers = Sequence[LogProbabilities | None]

_AT_ONCE = 32


def answered(model: NextTokenModel, asked: StepPrompts) -> Answers:
    """Return what a model says of each prompt; an empty list if it is not there.

    It is taken for being there where it answers the prompts without records.
    """
    found = attempt(partial(model.log_probabilities, asked.prompts, asked.wanted))
    if _is_whole(found, asked):
        return list(found or [])

    def alone(place: int) -> LogProbabilities | None:
        prompt, wanted = asked.prompts[place], asked.wanted[place]
        return _only(attempt(partial(model.log_probabilities, [prompt], [wanted])))

    public = [alone(place) for place in range(asked.private, len(asked.prompts))]
    if any(answer is None for answer in public):
        return []
    return [*map(alone, range(asked.private)), *public]


async def aanswered(model: NextTokenModel, asked: StepPrompts) -> Answers:
    """Return what a model says of each prompt; see `answered`."""
    found = await aattempt(
        partial(model.alog_probabilities, asked.prompts, asked.wanted)
    )
    if _is_whole(found, asked):
        return list(found or [])
    limit = asyncio.Semaphore(_AT_ONCE)

    async def alone(place: int) -> LogProbabilities | None:
        prompt, wanted = asked.prompts[place], asked.wanted[place]
        async with limit:
            return _only(
                await aattempt(partial(model.alog_probabilities, [prompt], [wanted]))
            )

    public = [await alone(place) for place in range(asked.private, len(asked.prompts))]
    if any(answer is None for answer in public):
        return []
    return [*await asyncio.gather(*map(alone, range(asked.private))), *public]


def _is_whole(found: Any, asked: StepPrompts) -> bool:
    return isinstance(found, Sequence) and len(found) == len(asked.prompts)


def _only(found: Any) -> LogProbabilities | None:
    if isinstance(found, Sequence) and len(found) == 1:
        answer: LogProbabilities | None = found[0]
        return answer
    return None
