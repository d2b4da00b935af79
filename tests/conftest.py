"""Fixtures that several test files use."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from support.fakes import notes

from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.offline import HashingEmbeddings

# On a build machine the same examples every time; elsewhere new ones are looked for.
settings.register_profile("build", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("build")


@pytest.fixture(scope="session")
def groups() -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(), HashingEmbeddings(), unit_key="patient", n_groups=60
    )


@pytest.fixture
def budget() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=20, ledger=":memory:")
