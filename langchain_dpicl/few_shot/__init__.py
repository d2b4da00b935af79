"""Differentially private few-shot generation: pay once, answer without end.

| name | what it does |
|---|---|
| `DPFewShotGenerator` | private records in, synthetic examples out, one charge |
| `Greedy`, `Sampling`, `NoisyMax` | how a step's distributions become a token |
| `GenerationForecast` | what a generation costs, and what it can do |
| `NextTokenModel` | what a model must tell: the next token's probabilities |
| `OpenAICompatibleNextToken` | of a server of vLLM |
| `TransformersNextToken` | of a model in this process (extra `hf`) |

Names are imported when they are first used: a generator does not need every adapter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dpicl.few_shot.decoding import Greedy, NoisyMax, Sampling
    from langchain_dpicl.few_shot.forecast import (
        GenerationForecast,
        MostlyNoiseWarning,
    )
    from langchain_dpicl.few_shot.generator import DPFewShotGenerator
    from langchain_dpicl.few_shot.models.contract import NextTokenModel, TokenPrompt
    from langchain_dpicl.few_shot.models.transformers import TransformersNextToken
    from langchain_dpicl.few_shot.models.vllm import OpenAICompatibleNextToken

__all__ = [
    "DPFewShotGenerator",
    "GenerationForecast",
    "Greedy",
    "MostlyNoiseWarning",
    "NextTokenModel",
    "NoisyMax",
    "OpenAICompatibleNextToken",
    "Sampling",
    "TokenPrompt",
    "TransformersNextToken",
]

_HOMES = {
    "DPFewShotGenerator": "generator",
    "GenerationForecast": "forecast",
    "Greedy": "decoding",
    "MostlyNoiseWarning": "forecast",
    "NextTokenModel": "models.contract",
    "NoisyMax": "decoding",
    "OpenAICompatibleNextToken": "models.vllm",
    "Sampling": "decoding",
    "TokenPrompt": "models.contract",
    "TransformersNextToken": "models.transformers",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
