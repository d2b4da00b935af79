"""What was paid for a collection is not lost, and is collected once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.draws import before_draws, full
from support.ldp_parts import MIXED, ROW, budget_of, joint_of, table_of

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
)
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.ldp import collecting

ROWS = MIXED * 50


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every block of reports that was drawn."""
    seen: list[Any] = []
    randomize = collecting.Reporter.randomize

    def noting(self: Any, codes: Any) -> Any:
        seen.append(randomize(self, codes))
        return seen[-1]

    monkeypatch.setattr(collecting.Reporter, "randomize", noting)
    return seen


def same(one: Any, two: Any) -> bool:
    return bool((joint_of(one) == joint_of(two)).all()) and (
        one.record() == two.record()
    )


def test_without_resume_another_collection_is_paid_for(drawn: list[Any]) -> None:
    budget = budget_of()
    table_of(ROWS, budget=budget).release()
    with pytest.raises(BudgetExhaustedError, match=r"release\(resume=True\) takes it"):
        table_of(ROWS, budget=budget).release()


def test_rows_that_fail_after_the_charge_can_be_mended() -> None:
    budget = budget_of()
    with pytest.raises(InvalidParameterError, match=r"release\(resume=True\)"):
        table_of(iter([ROW, {**ROW, "job": object()}]), budget=budget).release()
    mended = table_of(ROWS, budget=budget).release(resume=True)
    assert mended.n_reports == len(ROWS)
    assert budget.spent().queries == 1


def test_of_several_at_once_one_pays_and_draws_and_the_others_take_its_counts(
    tmp_path: Path, drawn: list[Any]
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    budget_of(url)
    begun = threading.Barrier(3)

    class Rows(list[Any]):
        waits = True

        def __iter__(self) -> Any:
            if self.waits:
                # All have looked for stored counts by now, and found none.
                self.waits = False
                begun.wait(timeout=60)
            return super().__iter__()

    def released(_: int) -> Any:
        return table_of(Rows(ROWS), budget=budget_of(url)).release(resume=True)

    with ThreadPoolExecutor(3) as pool:
        one, *others = pool.map(released, range(3))
    assert all(same(one, other) for other in others)
    assert budget_of(url).spent().queries == 1
    assert sum(len(block["job"]) for block in drawn) == len(ROWS)


def test_other_terms_are_another_collection() -> None:
    budget = budget_of(queries=3, epsilon=20)
    table_of(ROWS, budget=budget).release()
    table_of(ROWS, budget=budget, random=SeededRandom(1)).release(resume=True)
    assert budget.spent().queries == 2


def test_the_noise_of_resumed_counts_is_that_of_the_charge(
    drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = budget_of()
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_counted", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table_of(ROWS, budget=budget).release()
    table = table_of([ROW] * 4000, budget=budget).release(resume=True)
    kept = np.mean(np.concatenate([block["job"] for block in drawn]) == 1)
    epsilon = table.epsilons["job"]
    assert abs(kept - np.exp(epsilon) / (np.exp(epsilon) + 2)) < 0.05


def locals_of(error: BaseException) -> list[Any]:
    """Return what a traceback with its locals shows, the test's own frames aside."""
    shown: list[Any] = []
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename != __file__:
            shown.extend(frame.tb_frame.f_locals.values())
        frame = frame.tb_next
    return shown


def test_counts_that_could_not_be_stored_are_in_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, drawn = budget_of(), list[Any]()
    before_draws(monkeypatch, lambda _, value: full(drawn.append(value)))
    with pytest.raises(LedgerError, match="full") as caught:
        table_of(ROWS, budget=budget).release()
    shown = locals_of(caught.value)
    assert shown, "frames are looked at"
    assert not any(isinstance(value, collecting.ReportCounts) for value in shown)
    assert repr(drawn[0])[1:-1] not in repr(shown)
