"""What the parser tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_dpicl.accounting import GaussianEvent
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.budget.demand import Grant
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import (
    DPOutputParser,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PublicInput,
    VoteOutputParser,
)
from langchain_dpicl.relation import Relation
from langchain_dpicl.slots import Slot

EMBEDDING = HashingEmbeddings()


ANSWERS = ["A dry cough."] * 83 + ["A skin rash."]


PARSERS: dict[str, Callable[..., DPOutputParser]] = {
    "vote": lambda **kwargs: VoteOutputParser(labels=["cough", "rash"], **kwargs),
    "flip": lambda **kwargs: VoteOutputParser(
        labels=["cough", "rash"], mechanism="permute_and_flip", **kwargs
    ),
    "esa": lambda **kwargs: ESAOutputParser(
        embedding=EMBEDDING, candidates=["A dry cough.", "A skin rash."], **kwargs
    ),
    "esa-vote": lambda **kwargs: ESAOutputParser(
        embedding=EMBEDDING,
        candidates=["A dry cough.", "A skin rash."],
        select="vote",
        **kwargs,
    ),
    "ptr": lambda **kwargs: KSAPTROutputParser(k=2, **kwargs),
    "ptr-range": lambda **kwargs: KSAPTROutputParser(k=(1, 3), **kwargs),
    "threshold": KSAThresholdOutputParser,
    "joint": lambda **kwargs: KSAJointOutputParser(
        k=1, domain=["cough", "rash", "nausea"], **kwargs
    ),
}


def grant(
    z: float | None = 1e-3, epsilon: float | None = 1e3, delta0: float = 1e-9
) -> Grant:
    return Grant(z, epsilon, delta0, (GaussianEvent(1.0),), "notes", 1)


def release(parser: DPOutputParser, slots: list[Slot], **changes: Any) -> Any:
    terms: dict[str, Any] = {
        "grant": grant(),
        "relation": Relation.REPLACE,
        "slot_count": len(slots),
    }
    if "prepared" not in changes:
        terms["prepared"] = parser.prepare(PublicInput())
    return parser.release(slots, **{**terms, **changes})


def rich(queries: int = 3) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=50, delta=1e-6, queries=queries, ledger=":memory:"
    )
