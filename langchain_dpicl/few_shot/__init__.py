"""Differentially private few-shot generation: pay once, answer without end.

| name | what it does |
|---|---|
| `DPFewShotGenerator` | private records in, synthetic examples out, one charge |
| `Clipped`, `Greedy`, `Sampling`, `NoisyMax` | how distributions become a token |
| `ClippedForecast`, `GenerationForecast` | what a generation costs, and can do |
| `NextTokenModel` | what a model must tell: the next token's probabilities |
| `OpenAICompatibleNextToken` | of a server of vLLM |
| `TransformersNextToken` | of a model in this process (extra `hf`) |

The adapter for vLLM is imported when it is used: it needs `langchain-openai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_dpicl.few_shot.clipped import ClippedForecast
from langchain_dpicl.few_shot.decoding import Clipped, Greedy, NoisyMax, Sampling
from langchain_dpicl.few_shot.generator import DPFewShotGenerator
from langchain_dpicl.few_shot.model import NextTokenModel, TokenPrompt
from langchain_dpicl.few_shot.terms import GenerationForecast, MostlyNoiseWarning
from langchain_dpicl.few_shot.transformers import TransformersNextToken

if TYPE_CHECKING:
    from langchain_dpicl.few_shot.vllm import OpenAICompatibleNextToken

__all__ = [
    "Clipped",
    "ClippedForecast",
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


def __getattr__(name: str) -> Any:
    if name == "OpenAICompatibleNextToken":
        from langchain_dpicl.few_shot.vllm import OpenAICompatibleNextToken

        return OpenAICompatibleNextToken
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
