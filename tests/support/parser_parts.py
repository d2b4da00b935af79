"""What the parser tests share."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
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

EMBEDDING = HashingEmbeddings()


ANSWERS = ["A dry cough."] * 83 + ["A skin rash."]


PARSERS: dict[str, Callable[..., DPOutputParser]] = {
    "vote": lambda **kwargs: VoteOutputParser(labels=["cough", "rash"], **kwargs),
    "esa": lambda **kwargs: ESAOutputParser(
        embedding=EMBEDDING, candidates=["A dry cough.", "A skin rash."], **kwargs
    ),
    "ptr": lambda **kwargs: KSAPTROutputParser(k=1, **kwargs),
    "ptr-range": lambda **kwargs: KSAPTROutputParser(k=(1, 3), **kwargs),
    "threshold": KSAThresholdOutputParser,
    "joint": lambda **kwargs: KSAJointOutputParser(
        k=1, domain=["cough", "rash", "nausea"], **kwargs
    ),
}


def paid(
    parser: DPOutputParser, z: float = 1e-3, epsilon: float = 1e3, delta0: float = 1e-9
) -> Any:
    """Return a charge with the events that the parser's mechanism takes."""
    values = {"gaussian": ("noise_multiplier", z), "failure": ("delta0", delta0)}
    events = []
    for part in parser.charge().parts:
        name, value = values.get(part.kind, ("epsilon", epsilon))
        events.append(part.model_copy(update={name: value}))
    return SimpleNamespace(events=tuple(events))


def release(parser: DPOutputParser, slots: list[Slot], **changes: Any) -> Any:
    """Release slots as a chain does, by default with next to no noise."""
    terms: dict[str, Any] = {
        "paid": paid(parser),
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
