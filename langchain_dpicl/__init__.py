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

from langchain_dpicl import errors
from langchain_dpicl._version import __version__ as __version__
from langchain_dpicl.errors import *  # noqa: F403

if TYPE_CHECKING:
    from langchain_dpicl import few_shot as few_shot
    from langchain_dpicl import insights as insights
    from langchain_dpicl import tabular as tabular
    from langchain_dpicl.budget import PrivacyBudgetHandler as PrivacyBudgetHandler
    from langchain_dpicl.chain import DPChain as DPChain
    from langchain_dpicl.common.units import Relation as Relation
    from langchain_dpicl.groups import GroupSource as GroupSource
    from langchain_dpicl.groups import RetrievedGroups as RetrievedGroups
    from langchain_dpicl.groups import SampledGroups as SampledGroups
    from langchain_dpicl.ledger import Ledger as Ledger
    from langchain_dpicl.parsers import DPOutputParser as DPOutputParser
    from langchain_dpicl.parsers import ESAOutputParser as ESAOutputParser
    from langchain_dpicl.parsers import KSAJointOutputParser as KSAJointOutputParser
    from langchain_dpicl.parsers import KSAPTROutputParser as KSAPTROutputParser
    from langchain_dpicl.parsers import (
        KSAThresholdOutputParser as KSAThresholdOutputParser,
    )
    from langchain_dpicl.parsers import VoteOutputParser as VoteOutputParser
    from langchain_dpicl.released import ReleasedExamples as ReleasedExamples
    from langchain_dpicl.retriever import DPRetriever as DPRetriever
    from langchain_dpicl.tools import create_dp_tool as create_dp_tool

# The module of each public name.
_HOMES = {
    "__version__": "_version",
    "DPChain": "chain",
    "DPOutputParser": "parsers",
    "DPRetriever": "retriever",
    "ESAOutputParser": "parsers",
    "GroupSource": "groups",
    "KSAJointOutputParser": "parsers",
    "KSAPTROutputParser": "parsers",
    "KSAThresholdOutputParser": "parsers",
    "Ledger": "ledger",
    "PrivacyBudgetHandler": "budget",
    "ReleasedExamples": "released",
    "RetrievedGroups": "groups",
    "SampledGroups": "groups",
    "VoteOutputParser": "parsers",
    "create_dp_tool": "tools",
    "few_shot": "few_shot",
    "insights": "insights",
    "tabular": "tabular",
}

if not TYPE_CHECKING:  # Tools that check types read the imports above.
    __all__ = list(_HOMES)
    __all__ += errors.__all__

    def __dir__() -> list[str]:
        return sorted(__all__)


def __getattr__(name: str) -> Any:
    # `Relation` is for those who use the mechanisms without a chain.
    home = "common.units" if name == "Relation" else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{home}")
    value = module if home == name else getattr(module, name)
    globals()[name] = value
    return value
