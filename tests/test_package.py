"""The package's face: what it exports, and what importing it costs others."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import langchain_dpicl
from langchain_dpicl import exceptions

NAMES = [
    "BudgetExhaustedError",
    "DPChain",
    "DPError",
    "DPOutputParser",
    "DPRetriever",
    "ESAOutputParser",
    "GroupCallError",
    "GroupSource",
    "ImmutableError",
    "InvalidParameterError",
    "KSAJointOutputParser",
    "KSAPTROutputParser",
    "KSAThresholdOutputParser",
    "Ledger",
    "LedgerError",
    "NoBudgetError",
    "NoisyThreshold",
    "Outcome",
    "PlanMismatchError",
    "PrivacyBudgetHandler",
    "PublicCallError",
    "PublicFirstGate",
    "Relation",
    "ReleaseError",
    "ReleasedExampleSelector",
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
    "agents",
    "create_dp_tool",
    "create_question_condenser",
    "few_shot",
    "mechanisms",
    "offline",
    "released",
    "tabular",
]


def test_the_public_names_are_these() -> None:
    assert langchain_dpicl.__all__ == NAMES
    for name in NAMES:
        assert getattr(langchain_dpicl, name) is not None
    assert dir(langchain_dpicl) == NAMES
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = langchain_dpicl.nothing_of_the_kind


def modules_after(statement: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import langchain_dpicl",
        "import langchain_dpicl.mechanisms",
        "import langchain_dpicl.accounting",
    ],
)
def test_the_numbers_need_neither_langchain_nor_each_other(statement: str) -> None:
    loaded = modules_after(statement)
    heavy = {"langchain_core", "scipy", "dp_accounting", "prv_accountant", "pandas"}
    assert not loaded & heavy
    pair = {"langchain_dpicl.mechanisms", "langchain_dpicl.accounting"}
    assert not pair <= loaded


def test_a_release_loads_no_archived_package() -> None:
    loaded = modules_after("from langchain_dpicl import DPChain, RetrievedGroups")
    assert not loaded & {"langchain_community", "langchain_experimental", "langchain"}


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_error_is_ours_and_travels(name: str) -> None:
    error = getattr(exceptions, name)("what and the way out")
    assert isinstance(error, langchain_dpicl.DPError)
    vetoes = name != "InvalidParameterError"
    assert isinstance(error, ValueError) is not vetoes
    assert str(pickle.loads(pickle.dumps(error))) == "what and the way out"
