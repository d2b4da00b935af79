"""Everything of the package that can't be changed once it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import Runnable
from langchain_core.tools import StructuredTool

from langchain_dpicl import (
    DPChain,
    DPRetriever,
    KSAThresholdOutputParser,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.released.classifying import LabelOutputParser
from langchain_dpicl.tabular import GDPTable, LDPClient, LDPTable
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, rich
from support.fakes import ScriptedModel, notes
from support.few_shot_fakes import generator_of
from support.ldp_parts import SCHEMA
from support.table_parts import people, people_schema


def reply(text: str) -> str:
    found = [word for word in ("cough", "rash") if f"gave a {word}" in text]
    return found[0] if found else "I don't know."


def groups_of(effect: str) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(300, f"Lisinopril gave a {effect}."),
        EMBEDDING,
        unit_key="patient",
        n_groups=30,
    )


COUGHS, RASHES = groups_of("cough"), groups_of("rash")


def chain_of(**parts: Any) -> DPChain:
    given: dict[str, Any] = {
        "groups": COUGHS,
        "model": ScriptedModel(reply=reply),
        "parser": VoteOutputParser(labels=["cough", "rash"]),
        "budget": rich(),
        "cache": False,
    }
    return DPChain(**{**given, **parts})


ASK: dict[str, Callable[[Runnable[Any, Any]], Any]] = {
    "invoke": lambda chain: chain.invoke(QUESTION),
    "ainvoke": lambda chain: asyncio.run(chain.ainvoke(QUESTION)),
    "stream": lambda chain: list(chain.stream(QUESTION))[-1],
}
WAYS = pytest.mark.parametrize("ask", ASK.values(), ids=ASK)


def retriever() -> DPRetriever:
    return DPRetriever(chain=chain_of(parser=PARSERS["esa"]()))


def tool() -> StructuredTool:
    return create_dp_tool(chain_of(), name="ask", description="Notes of a clinic.")


def gdp_table() -> GDPTable:
    return GDPTable(people(50), people_schema(), budget=rich())


def ldp_table() -> LDPTable:
    return LDPTable([], SCHEMA, epsilon=2, budget=rich(), invited=9)


MODELS: dict[str, Callable[[], Any]] = {
    "DPChain": chain_of,
    "VoteOutputParser": PARSERS["vote"],
    "ESAOutputParser": PARSERS["esa"],
    "KSAPTROutputParser": PARSERS["ptr"],
    "KSAJointOutputParser": PARSERS["joint"],
    "KSAThresholdOutputParser": KSAThresholdOutputParser,
    "LabelOutputParser": lambda: LabelOutputParser(labels=("cough", "rash")),
    "DPRetriever": retriever,
    "DPTool": tool,
}
OTHERS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "PrivacyBudgetHandler": (
        rich,
        [
            *("epsilon", "delta", "ledger", "account", "queries", "accounting"),
            *("scope", "delta0_share", "order", "buy", "spent", "raise_error"),
        ],
    ),
    "DPFewShotGenerator": (
        generator_of,
        ["labels", "budget", "model", "n_groups", "max_tokens", "mechanism"],
    ),
    "GDPTable": (gdp_table, ["schema", "binned", "budget", "measure", "noise"]),
    "LDPTable": (ldp_table, ["schema", "binned", "budget", "epsilon", "unit_key"]),
    "LDPClient": (lambda: LDPClient(SCHEMA, epsilon=2), ["schema", "epsilon", "terms"]),
    "RetrievedGroups": (lambda: COUGHS, ["n_groups", "unit_key", "docs_per_group"]),
    "SampledGroups": (
        lambda: SampledGroups.from_documents(
            notes(300), unit_key="patient", n_groups=30, sampling_rate=0.5
        ),
        ["n_groups", "unit_key", "sampling_rate"],
    ),
}
