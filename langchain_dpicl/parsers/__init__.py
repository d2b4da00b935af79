"""Output parsers that turn many groups' answers into one private answer.

| parser | releases |
|---|---|
| `VoteOutputParser` | one of your labels |
| `ESAOutputParser` | one of several public candidate answers |
| `KSAPTROutputParser` | words that nearly all groups used, or nothing |
| `KSAThresholdOutputParser` | the words of short answers that enough groups used |
| `KSAJointOutputParser` | the k most used words of a public domain, ranked |
| `ProseOutputParser` | a sentence, token by token, of a model that you host |

The last one is imported when it is used: it needs next-token models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_dpicl.parsers.base import DPOutputParser, PublicInput
from langchain_dpicl.parsers.esa import ESAOutputParser
from langchain_dpicl.parsers.keywords import (
    KSAPTROutputParser,
    KSAThresholdOutputParser,
)
from langchain_dpicl.parsers.ksa_joint import KSAJointOutputParser
from langchain_dpicl.parsers.vote import VoteOutputParser

if TYPE_CHECKING:
    from langchain_dpicl.parsers.prose import ProseOutputParser

__all__ = [
    "DPOutputParser",
    "ESAOutputParser",
    "KSAJointOutputParser",
    "KSAPTROutputParser",
    "KSAThresholdOutputParser",
    "ProseOutputParser",
    "PublicInput",
    "VoteOutputParser",
]


def __getattr__(name: str) -> Any:
    if name == "ProseOutputParser":
        from langchain_dpicl.parsers.prose import ProseOutputParser

        return ProseOutputParser
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
