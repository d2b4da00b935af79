"""Differentially private few-shot generation: pay once, answer without end.

| name | what it does |
|---|---|
| `DPFewShotGenerator` | private records in, synthetic examples out, one charge |
| `calibrate` | from (epsilon, delta), sizes and lengths to a token step's noise |
| `Greedy`, `Sampling` | how a token is taken of a step's noisy probabilities |
| `NextTokenModel` | what a model must tell: the next token's probabilities |
| `OpenAICompatibleNextToken` | of a server: vLLM, or any that speaks its protocol |
| `TransformersNextToken` | of a model in this process (extra `hf`) |

Names are imported when they are first used: a generator does not need every adapter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dpicl.few_shot.calibration import calibrate
    from langchain_dpicl.few_shot.decoding import Decoder, Greedy, Sampling
    from langchain_dpicl.few_shot.forecast import (
        GenerationForecast,
        LabelForecast,
        MostlyNoiseWarning,
    )
    from langchain_dpicl.few_shot.generator import DPFewShotGenerator
    from langchain_dpicl.few_shot.models.contract import NextTokenModel, TokenPrompt
    from langchain_dpicl.few_shot.models.huggingface.model import TransformersNextToken
    from langchain_dpicl.few_shot.models.openai.compatible import (
        OpenAICompatibleNextToken,
    )

__all__ = [
    "DPFewShotGenerator",
    "Decoder",
    "GenerationForecast",
    "Greedy",
    "LabelForecast",
    "MostlyNoiseWarning",
    "NextTokenModel",
    "OpenAICompatibleNextToken",
    "Sampling",
    "TokenPrompt",
    "TransformersNextToken",
    "calibrate",
]

_BY_HOME = {
    "calibration": ("calibrate",),
    "decoding": ("Decoder", "Greedy", "Sampling"),
    "forecast": ("GenerationForecast", "LabelForecast", "MostlyNoiseWarning"),
    "generator": ("DPFewShotGenerator",),
    "models.contract": ("NextTokenModel", "TokenPrompt"),
    "models.huggingface.model": ("TransformersNextToken",),
    "models.openai.compatible": ("OpenAICompatibleNextToken",),
}
_HOMES = {name: home for home, names in _BY_HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
