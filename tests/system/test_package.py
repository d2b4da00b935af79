"""The package's face: what it exports, and what importing it costs others."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import langchain_dpicl
from langchain_dpicl import errors

NAMES = {
    *("DPChain", "DPRetriever", "PrivacyBudgetHandler", "Ledger", "RetrievedGroups"),
    *("SampledGroups", "GroupSource", "DPOutputParser", "VoteOutputParser"),
    *("ESAOutputParser", "KSAPTROutputParser", "KSAThresholdOutputParser"),
    *("KSAJointOutputParser", "create_dp_tool", "ReleasedExamples", "few_shot"),
    *("insights", "tabular", "__version__"),
    *("BudgetExhaustedError", "DPError", "GroupCallError", "InvalidParameterError"),
    *("LedgerError", "NoBudgetError", "PlanMismatchError", "PublicCallError"),
    *("UnitError", "UnsealableModelError", "UnsoundStoreError"),
}


def test_the_public_names_are_these() -> None:
    assert set(dir(langchain_dpicl)) == set(langchain_dpicl.__all__) == NAMES
    assert len(langchain_dpicl.__all__) == len(NAMES)
    everything: dict[str, object] = {}
    exec("from langchain_dpicl import *", everything)  # noqa: S102 - as users write it.
    assert everything.keys() >= NAMES
    assert langchain_dpicl.Relation.REPLACE  # Outside `__all__`, and there.
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


HEAVY = {"langchain_core", "scipy", "dp_accounting", "prv_accountant", "pandas"}


@pytest.mark.parametrize(
    ("statement", "other"),
    [
        ("import langchain_dpicl", "langchain_dpicl.accounting"),
        ("import langchain_dpicl.mechanisms", "langchain_dpicl.budget"),
        ("import langchain_dpicl.accounting", "langchain_dpicl.mechanisms"),
    ],
)
def test_the_numbers_need_neither_langchain_nor_what_uses_them(
    statement: str, other: str
) -> None:
    loaded = modules_after(statement)
    assert not loaded & HEAVY
    assert other not in loaded


PACKAGE = Path(langchain_dpicl.__file__).parent
BELOW = {
    "accounting": ("accounting", "common.parameters", "errors", "public"),
    # Of accounting: what a release is charged, and nothing that adds up charges.
    "mechanisms": (
        *("mechanisms", "common.parameters", "common.units", "errors"),
        "accounting.events",
    ),
}


def imported(file: Path) -> set[str]:
    """Return the modules of this package that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in (
            "langchain_dpicl",
            "langchain_dpicl.common",
        ):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return {name for name in found if name.startswith("langchain")}


@pytest.mark.parametrize("folder", BELOW)
def test_the_numbers_import_what_stands_below_them(folder: str) -> None:
    allowed = tuple(f"langchain_dpicl.{name}." for name in BELOW[folder])
    for file in (PACKAGE / folder).rglob("*.py"):
        for name in imported(file):
            assert f"{name}.".startswith(allowed), (file.name, name)


def test_a_release_loads_no_archived_package() -> None:
    loaded = modules_after("from langchain_dpicl import DPChain, RetrievedGroups")
    assert not loaded & {"langchain_community", "langchain_experimental", "langchain"}


def test_a_report_loads_neither_parsers_nor_models() -> None:
    loaded = modules_after("import langchain_dpicl.operate.report")
    assert "langchain_dpicl.operate.report" in loaded
    other = {f"langchain_dpicl.{name}" for name in ("parsers", "released", "sealed")}
    assert not loaded & {*other, "langchain_openai", "faiss", "scipy", "dp_accounting"}


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_ours_and_travels(name: str) -> None:
    error = getattr(errors, name)("what and the way out")
    assert isinstance(error, langchain_dpicl.DPError)
    vetoes = name != "InvalidParameterError"
    assert isinstance(error, ValueError) is not vetoes
    assert str(pickle.loads(pickle.dumps(error))) == "what and the way out"


def warn_as(module: str) -> None:
    code = "import warnings; warnings.warn('gone soon', DeprecationWarning)"
    exec(code, {"__name__": module})  # noqa: S102 - Python reads the module's name.


def test_warnings_are_errors_where_our_modules_cause_them() -> None:
    for ours in ("langchain_dpicl", "langchain_dpicl.chain.x", "support.x", "test_x"):
        with pytest.raises(DeprecationWarning, match="gone soon"):
            warn_as(ours)
    with warnings.catch_warnings(record=True) as shown:
        warn_as("transformers.models.x")
    assert [str(one.message) for one in shown] == ["gone soon"]
