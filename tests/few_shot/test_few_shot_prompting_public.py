"""The public questions before the charge: a model that can't answer costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.few_shot_fakes import WordModel, budget_of, generator_of, records_of

from langchain_dpicl.errors import PublicCallError

TOP = 6


def doubled(found: Any) -> Any:
    return [np.append(each[:-1], each[0]) for each in found]


def nothing(found: Any) -> Any:
    return []


def first_alone(found: Any) -> Any:
    return found[:1]


def shorter(found: Any) -> Any:
    return [each[:-1] for each in found]


def one_missing(found: Any) -> Any:
    return [*found[:-1], None]


@pytest.mark.parametrize("way", ["generate", "agenerate"])
@pytest.mark.parametrize(
    ("top", "answer"),
    [
        (TOP, doubled),
        (TOP, nothing),
        (TOP, first_alone),
        (TOP, shorter),
        (None, nothing),
        (None, first_alone),
        (None, shorter),
        (None, one_missing),
    ],
)
async def test_it_is_refused_before_the_charge(
    top: int | None, answer: Any, way: str
) -> None:
    class Wrong(WordModel):
        def top_tokens(self, prompts: Any, k: int) -> Any:
            return answer(super().top_tokens(prompts, k))

        def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
            found = super().log_probabilities(prompts, tokens)
            return found if top else answer(found)

    budget = budget_of(accounting="zcdp", epsilon=50)
    made = generator_of(Wrong(), budget=budget, top_k_public=top)
    with pytest.raises(PublicCallError, match=r"top_k_public|every public prompt"):
        if way == "generate":
            made.generate(records_of())
        else:
            await made.agenerate(records_of())
    assert budget.spent().epsilon == 0
    assert made.released() == []
