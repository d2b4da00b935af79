"""Delta is compared with a declared number of people, when an account is opened."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl import InvalidParameterError, PrivacyBudgetHandler
from langchain_dpicl.ledger import Ledger, open_ledger


def opened(ledger: Ledger | str = ":memory:", **terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "queries": 2, "ledger": ledger, **terms}
    return PrivacyBudgetHandler(**given)


@pytest.mark.parametrize("one_in", [49, 1_000, 1_000_000])
def test_a_delta_too_large_for_the_declared_people_opens_nothing(one_in: int) -> None:
    ledger = open_ledger(":memory:")
    for people in (one_in, one_in + 1):
        said = f"too large for people_at_most={people}: "
        with pytest.raises(InvalidParameterError, match=said):
            opened(ledger, delta=1 / one_in, people_at_most=people)
    assert ledger.accounts() == []
    assert opened(ledger, delta=1 / one_in, people_at_most=one_in - 1)


@pytest.mark.parametrize("number", [0, -1, 1.5, "100", True])
def test_people_are_counted_in_whole_numbers(number: Any) -> None:
    with pytest.raises(InvalidParameterError, match="people_at_most must be"):
        opened(delta=1e-6, people_at_most=number)


def test_the_number_is_no_term_of_the_account() -> None:
    ledger = open_ledger(":memory:")
    for people in (10, 999_999, None):
        opened(ledger, delta=1e-6, people_at_most=people)
    assert ledger.accounts() == ["default"]


def test_without_it_a_large_delta_is_warned_of_once(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"delta 0\.001 means little to 1e\+03 peo"):
        budget = opened(f"sqlite:///{tmp_path}/ledger.db", delta=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(delta=1e-5)
        opened(delta=1e-3, people_at_most=999)
        # The same account in another process, and a rehearsal of it.
        pickle.loads(pickle.dumps(budget)).in_memory()
