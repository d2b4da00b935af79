"""When a release is charged, drawn and stored, and what becomes of interruptions."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
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


def failing(*_given: Any, **_named: Any) -> Any:
    """Stand in for a ledger's method."""
    raise LedgerError("the disk is full")


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


def test_the_oldest_release_that_was_paid_for_in_vain_is_made_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = account(queries=2)

    def table() -> GDPTable:
        return GDPTable(people(500), people_schema(), budget=budget)

    with monkeypatch.context() as patch:
        patch.setattr(budget.ledger, "store_step", failing)
        with pytest.raises(LedgerError, match="disk is full"):
            table().release()
    assert table().release().record()["charge"] == 2
    assert table().release(resume=True).record()["charge"] == 1
    # Now that none is left open, it is the newest that is taken again.
    assert table().release(resume=True).record()["charge"] == 2
    assert budget.spent().queries == 2


def test_the_noise_of_a_resumed_release_is_that_of_the_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = account(3.0)
    with monkeypatch.context() as patch:
        patch.setattr(budget.ledger, "store_step", failing)
        with pytest.raises(LedgerError):
            GDPTable(people(500), people_schema(), budget=budget).release()
    held = budget.ledger._releases[budget.account]
    header = {**json.loads(held[1].header), "epsilon_before_sampling": 1000.0}
    held[1] = replace(held[1], header=json.dumps(header))
    again = GDPTable(people(500), people_schema(), budget=budget)
    found = again.release(resume=True).statistics
    assert sum(found.epsilons) == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("damage", ["[]", "[1]", "nonsense", "[1.5]", f"[{10**30}]"])
def test_damaged_numbers_are_refused(damage: str) -> None:
    budget = account()
    table = GDPTable(people(500), people_schema(), budget=budget)
    table.release()
    held = budget.ledger._releases[budget.account]
    held[1] = replace(held[1], steps=(damage,))
    again = GDPTable(people(500), people_schema(), budget=budget)
    with pytest.raises(LedgerError, match="can't be read"):
        again.release(resume=True)


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
