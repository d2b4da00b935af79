"""Fixtures that several test files use."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from suite import WHOLE
from support.fakes import notes

from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.mechanisms.random import TESTING
from langchain_dpicl.offline import HashingEmbeddings

# Tests draw from seeds beside ledgers in files.
os.environ[TESTING] = "1"

# `make test` takes the same few examples each time; `make test-all` looks for others.
settings.register_profile("some", max_examples=15, derandomize=True, deadline=None)
settings.register_profile("whole", max_examples=500, deadline=None)
settings.load_profile("whole" if WHOLE else "some")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what runs in the whole suite only."""
    if WHOLE:
        return
    rest = [item for item in items if item.get_closest_marker("whole")]
    config.hook.pytest_deselected(items=rest)
    items[:] = [item for item in items if item not in set(rest)]


@pytest.fixture(scope="session")
def groups() -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(), HashingEmbeddings(), unit_key="patient", n_groups=60
    )


@pytest.fixture
def budget() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=20, ledger=":memory:")
