"""The one door from the tests to the package.

Tests of `unit_tests` and `integration_tests` import the package's names from here, and
from nowhere else. A redesign of the package changes this file and no test: each section
says what the tests of one room need, in the names of the public surface.

Sections: names, laws, accounting, ledger, question, wall, reading, tables, few shot,
user.
"""

from __future__ import annotations

from typing import Any

# ---- names ---------------------------------------------------------------------------
# The public names, as a user imports them.
from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPError,
    DPRetriever,
    ESAOutputParser,
    GroupCallError,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    Ledger,
    LedgerError,
    NoBudgetError,
    PlanMismatchError,
    PrivacyBudgetHandler,
    PublicCallError,
    Relation,
    ReleasedCorpus,
    ReleasedExamples,
    RetrievedGroups,
    SampledGroups,
    UnitError,
    UnsealableModelError,
    UnsoundStoreError,
    VoteOutputParser,
    accounting,
    create_dp_tool,
    few_shot,
    mechanisms,
    offline,
    tabular,
)
from langchain_dpicl.accounting import Exponential, Failure, Gaussian, Parallel, Pure

# ---- laws (60 lines) -----------------------------------------------------------------
# Draw a release at a given event, with the system's coins or seeded ones.


# ---- accounting (25 lines) -----------------------------------------------------------
# Price events; least noise of a plan; what a filter still pays for.


# ---- ledger (75 lines) ---------------------------------------------------------------
# Open an account; charge, collect, draw, read, verify; copy and damage a file.


# ---- question (45 lines) -------------------------------------------------------------
# Ask a chain; read its record; the slots of a draw.


def record(answer: Any) -> dict[str, Any]:
    """Return the public record of an answer."""
    return dict(answer.response_metadata["privacy"])


# ---- wall (25 lines) -----------------------------------------------------------------
# What looks at a question from outside.


# ---- reading (20 lines) --------------------------------------------------------------
# What a parser reads in one reply.


# ---- tables (35 lines) ---------------------------------------------------------------
# Rows, schemas, releases and margins.


# ---- few shot (25 lines) -------------------------------------------------------------
# Generators, next-token models, resume.


# ---- user (10 lines) -----------------------------------------------------------------
# The command line, the installed distribution.
