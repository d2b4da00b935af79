"""Output parsers that turn many groups' answers into one private answer.

| parser | releases |
|---|---|
| `VoteOutputParser` | one of your labels |
| `ESAOutputParser` | one of several public candidate answers |
| `KSAPTROutputParser` | words that nearly all groups used, or nothing |
| `KSAThresholdOutputParser` | the words of short answers that enough groups used |
| `KSAJointOutputParser` | the k most used words of a public domain, ranked |
"""

from langchain_dpicl.parsers.base import DPOutputParser, PublicInput
from langchain_dpicl.parsers.esa import ESAOutputParser
from langchain_dpicl.parsers.keywords import (
    KSAPTROutputParser,
    KSAThresholdOutputParser,
)
from langchain_dpicl.parsers.ksa_joint import KSAJointOutputParser
from langchain_dpicl.parsers.vote import VoteOutputParser

__all__ = [
    "DPOutputParser",
    "ESAOutputParser",
    "KSAJointOutputParser",
    "KSAPTROutputParser",
    "KSAThresholdOutputParser",
    "PublicInput",
    "VoteOutputParser",
]
