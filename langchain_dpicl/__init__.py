"""Differentially private answers over sensitive records, for LangChain.

```python
from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
)

groups = RetrievedGroups.from_documents(
    documents, embedding, unit_key="patient_id", n_groups=100
)
budget = PrivacyBudgetHandler(
    epsilon=8, delta=1e-6, queries=20, ledger="sqlite:///clinic.db", account="notes"
)
chain = DPChain(groups=groups, model=model, parser=KSAPTROutputParser(k=(1, 4)))
answer = chain.invoke(
    "Which side effect is reported most?", config={"callbacks": [budget]}
)
```

Names are imported when they are first used, so that `import langchain_dpicl` and its
numbers (`langchain_dpicl.mechanisms`, `langchain_dpicl.accounting`) load quickly and
without LangChain.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_dpicl._version import __version__

if TYPE_CHECKING:
    from langchain_dpicl import (
        accounting,
        few_shot,
        mechanisms,
        offline,
        released,
        tabular,
    )
    from langchain_dpicl.budget import PrivacyBudgetHandler
    from langchain_dpicl.chain import (
        DPChain,
    )
    from langchain_dpicl.common.outcome import Outcome, Status
    from langchain_dpicl.common.relation import Relation
    from langchain_dpicl.erasure import ErasureCertificate, erase
    from langchain_dpicl.errors import (
        BudgetExhaustedError,
        DPError,
        GroupCallError,
        InvalidParameterError,
        LedgerError,
        NoBudgetError,
        PlanMismatchError,
        PublicCallError,
        UnitError,
        UnsealableModelError,
        UnsoundStoreError,
    )
    from langchain_dpicl.groups import (
        GroupSource,
        RetrievedGroups,
        SampledGroups,
    )
    from langchain_dpicl.ledger import Ledger
    from langchain_dpicl.mcp import create_mcp_server
    from langchain_dpicl.parsers import (
        DPOutputParser,
        ESAOutputParser,
        KSAJointOutputParser,
        KSAPTROutputParser,
        KSAThresholdOutputParser,
        VoteOutputParser,
    )
    from langchain_dpicl.released import (
        ReleasedCorpus,
        ReleasedExamples,
    )
    from langchain_dpicl.retriever import DPRetriever
    from langchain_dpicl.tools import create_dp_tool

__all__ = [
    "BudgetExhaustedError",
    "DPChain",
    "DPError",
    "DPOutputParser",
    "DPRetriever",
    "ESAOutputParser",
    "ErasureCertificate",
    "GroupCallError",
    "GroupSource",
    "InvalidParameterError",
    "KSAJointOutputParser",
    "KSAPTROutputParser",
    "KSAThresholdOutputParser",
    "Ledger",
    "LedgerError",
    "NoBudgetError",
    "Outcome",
    "PlanMismatchError",
    "PrivacyBudgetHandler",
    "PublicCallError",
    "Relation",
    "ReleasedCorpus",
    "ReleasedExamples",
    "RetrievedGroups",
    "SampledGroups",
    "Status",
    "UnitError",
    "UnsealableModelError",
    "UnsoundStoreError",
    "VoteOutputParser",
    "__version__",
    "accounting",
    "create_dp_tool",
    "create_mcp_server",
    "erase",
    "few_shot",
    "mechanisms",
    "offline",
    "released",
    "tabular",
]

_HOMES = {
    "DPChain": "chain",
    "DPOutputParser": "parsers",
    "DPRetriever": "retriever",
    "ESAOutputParser": "parsers",
    "ErasureCertificate": "erasure",
    "GroupSource": "groups",
    "KSAJointOutputParser": "parsers",
    "KSAPTROutputParser": "parsers",
    "KSAThresholdOutputParser": "parsers",
    "Ledger": "ledger",
    "Outcome": "common.outcome",
    "PrivacyBudgetHandler": "budget",
    "Relation": "common.relation",
    "ReleasedCorpus": "released",
    "ReleasedExamples": "released",
    "RetrievedGroups": "groups",
    "SampledGroups": "groups",
    "Status": "common.outcome",
    "VoteOutputParser": "parsers",
    "create_dp_tool": "tools",
    "create_mcp_server": "mcp",
    "erase": "erasure",
}
_SUBPACKAGES = {
    "accounting",
    "few_shot",
    "mechanisms",
    "offline",
    "released",
    "tabular",
}


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        home = _HOMES.get(name, "errors")
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
