"""A whole few-shot generation through a completions server, over real HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.few_shot_fakes import budget_of, generator_of, records_of
from support.servers.scripted_tokens import TokenServer

from langchain_dpicl.errors import InvalidParameterError, PublicCallError

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]
TERMS: dict[str, Any] = {
    "n_groups": 8,
    "records_per_group": 1,
    "max_tokens": 3,
    "top_k_public": 10,
}


@pytest.mark.parametrize("way", ["generate", "agenerate"])
async def test_it_writes_by_the_figures_of_a_server(next_token: Make, way: str) -> None:
    model, proxy = next_token(TokenServer())
    budget = budget_of(epsilon=50)
    made = getattr(generator_of(model, budget=budget, **TERMS), way)
    examples = made(records_of(30))
    if way == "agenerate":
        examples = await examples
    assert examples.record["charge"] == 1
    assert examples.record["model"] == model.name
    asked = [e for e in proxy.exchanges if e.path.endswith("/completions")]
    assert {len(exchange.prompts) for exchange in asked} == {1}


async def test_a_server_that_is_gone_stops_it_and_it_goes_on(next_token: Make) -> None:
    model, _ = next_token(TokenServer())
    budget = budget_of(epsilon=50)
    generator = generator_of(model, budget=budget, **TERMS)
    real, calls = model.log_probabilities, []

    def dying(prompts: Any, tokens: Any) -> Any:
        calls.append(len(prompts))
        return [None] * len(prompts) if len(calls) > 2 else real(prompts, tokens)

    model.log_probabilities = dying
    with pytest.raises(PublicCallError, match="resume=True"):
        generator.generate(records_of(30))
    del model.log_probabilities
    examples = generator.generate(records_of(30), resume=True)
    assert examples.record["charge"] == 1
    assert budget.spent().queries == 1


async def test_a_server_is_not_asked_for_all_tokens(next_token: Make) -> None:
    model, proxy = next_token(TokenServer())
    budget = budget_of(epsilon=50)
    terms = {**TERMS, "n_groups": 28, "budget": budget, "top_k_public": None}
    with pytest.raises(InvalidParameterError, match="top_k_public"):
        generator_of(model, **terms).generate(records_of(30))
    assert budget.spent().queries == 0
    # What it can do is asked with two public texts; no group is asked.
    assert all(len(exchange.prompts) <= 2 for exchange in proxy.exchanges)
