"""When a release is charged, drawn and stored, and what becomes of interruptions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.draws import before_draws, full
from support.table_parts import account, people, people_schema

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    LedgerError,
)
from langchain_dpicl.tabular import (
    GDPTable,
    NoisyStatistics,
)
from langchain_dpicl.tabular.gdp import release


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that was drawn by any release."""
    seen: list[Any] = []
    noisy = release.noisy_tallies

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(noisy(*given, **named))
        return seen[-1]

    monkeypatch.setattr(release, "noisy_tallies", watched)
    return seen


def test_a_release_that_was_paid_for_in_vain_is_made_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = account(queries=2)

    def table() -> GDPTable:
        return GDPTable(people(500), people_schema(), budget=budget)

    with monkeypatch.context() as patch:
        before_draws(patch, full)
        with pytest.raises(LedgerError, match="disk is full"):
            table().release()
    assert table().release(resume=True).record()["charge"] == 1
    assert table().release().record()["charge"] == 2
    # Now that none is left open, it is the newest that is taken again.
    assert table().release(resume=True).record()["charge"] == 2
    assert budget.spent().queries == 2


def test_of_several_at_once_one_pays_and_draws_and_the_others_take_its_release(
    tmp_path: Path, drawn: list[Any]
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    started = threading.Barrier(4)

    def rows() -> Any:
        # All of them have looked for a stored release by now, and found none.
        started.wait(timeout=60)
        yield from people(500)

    def released(_: int) -> NoisyStatistics:
        table = GDPTable(rows(), people_schema(), budget=account(ledger=url))
        return table.release(resume=True).statistics

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(released, range(4)))
    for other in found[1:]:
        for one, two in zip(found[0].tallies, other.tallies, strict=True):
            assert (one == two).all()
    assert account(ledger=url).spent().queries == 1
    assert len(drawn) == 1


def test_where_the_account_is_used_up_the_stored_release_is_named() -> None:
    budget = account()
    GDPTable(people(500), people_schema(), budget=budget).release()
    again = GDPTable(people(500), people_schema(), budget=budget)
    with pytest.raises(BudgetExhaustedError, match=r"release\(resume=True\)"):
        again.sample(2)
    other = GDPTable(people(500), people_schema(), budget=budget, group_by=[])
    with pytest.raises(BudgetExhaustedError) as caught:
        other.release()
    assert "resume" not in str(caught.value)
