"""A whole generation on a causal language model of this process, made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.few_shot_fakes import budget_of, generator_of, records_of
from support.tiny_models import tiny_model, tiny_tokenizer

from langchain_dpicl.errors import PublicCallError
from langchain_dpicl.few_shot import TransformersNextToken
from langchain_dpicl.released import ReleasedExamples


def asked_model() -> TransformersNextToken:
    model = tiny_model("llama", max_position_embeddings=512)
    return TransformersNextToken(model, tiny_tokenizer())


TERMS: dict[str, Any] = {
    "n_groups": 12,
    "records_per_group": 1,
    "max_tokens": 3,
    "top_k_public": 20,
    "noise_multiplier": 1.5,
}


@pytest.mark.parametrize("top", [20, None])
async def test_a_language_model_writes_examples(
    top: int | None, tmp_path: Path
) -> None:
    model = asked_model()
    terms = {**TERMS, "top_k_public": top}
    for way in ("generate", "agenerate"):
        budget = budget_of(epsilon=50)
        made = getattr(generator_of(model, budget=budget, **terms), way)
        examples = made(records_of(30), 2)
        if way == "agenerate":
            examples = await examples
        assert [example["label"] for example in examples] == sorted(
            example["label"] for example in examples
        )
        assert 1 <= len(examples) <= 4, "a blank text is no example"
        assert examples.record["model"] == model.name
        assert examples.record["parameters"]["tokens_released"] <= 12
        assert budget.spent().queries == 1
    examples.save(tmp_path / "examples.json")
    assert ReleasedExamples.load(tmp_path / "examples.json") == examples


def test_one_that_dies_goes_on_where_it_stopped() -> None:
    budget = budget_of(epsilon=50)
    model = asked_model()
    real = TransformersNextToken.log_probabilities
    calls: list[int] = []

    def dying(self: Any, prompts: Any, tokens: Any) -> Any:
        calls.append(len(prompts))
        if len(calls) > 2:
            return [None] * len(prompts)
        return real(self, prompts, tokens)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersNextToken, "log_probabilities", dying)
        with pytest.raises(PublicCallError, match="stands at 2 tokens"):
            generator_of(model, budget=budget, **TERMS).generate(records_of(30))
    examples = generator_of(asked_model(), budget=budget, **TERMS).generate(
        records_of(30), resume=True
    )
    assert examples.record["charge"] == 1
    assert budget.spent().queries == 1
