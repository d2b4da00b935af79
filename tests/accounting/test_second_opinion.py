"""The second library confirms, contradicts, or says plainly that it can't judge."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from true_losses import E, G

from langchain_dpicl.accounting import Event, Failure, Parallel, check

PLAN = [G(2.36, 0.1, 20)]


def module() -> Any:
    return sys.modules["langchain_dpicl.accounting.check"]


@pytest.mark.parametrize(
    "events",
    [
        PLAN,
        [G(0.9, 0.01, 20), Failure(delta0=1e-8, count=20)],
        [G(3.0, 0.1, 50), G(10.0, n=10), E(0.1)],
        [Parallel(branches=((G(1.4, 0.1, 15),), (G(3.0, 0.9, 15),)))],
        [G(4.0, n=20)],
        [E(1.0)],
        [],
    ],
)
def test_figures_are_confirmed(
    events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module(), "SECONDS", 60.0)  # A busy machine confirms, too.
    result = check(events, 1e-6)
    assert result.agrees is True
    assert result.lower <= result.epsilon <= result.upper * 1.02
    assert not result.reason


@pytest.mark.parametrize(
    ("factor", "reason"), [(0.9, "below"), (1.1, "above"), (0.5, "below")]
)
def test_a_wrong_figure_is_contradicted(
    monkeypatch: pytest.MonkeyPatch, factor: float, reason: str
) -> None:
    right = module().bound
    monkeypatch.setattr(module(), "bound", lambda *a: right(*a) * factor)
    result = check(PLAN, 1e-6)
    assert result.agrees is False
    assert reason in result.reason


@pytest.mark.parametrize(
    ("events", "delta", "reason"),
    [
        ([G(2.0, 0.1)], 1e-11, "delta"),
        ([G(0.1, 0.5)], 1e-6, "noise multipliers"),
        ([G(2.0, 1e-9)], 1e-6, "sampling rate"),
        ([G(2.0, 0.1, 10**7)], 1e-6, "epsilon"),
        ([G(9.0, 1e-4, 10**7)], 1e-6, "sampled uses"),
        ([G(9.0 + i, 0.1) for i in range(9)], 1e-6, "different events"),
    ],
)
def test_what_it_cannot_judge_is_no_disagreement(
    events: list[Event], delta: float, reason: str
) -> None:
    result = check(events, delta)
    assert result.agrees is None
    assert reason in result.reason
    assert result.reason.startswith("prv-accountant needs")


def test_its_own_failure_is_no_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    import prv_accountant

    def failing(*args: object, **terms: object) -> None:
        raise AssertionError("secret of somebody else's")

    monkeypatch.setattr(prv_accountant, "PRVAccountant", failing)
    result = check(PLAN, 1e-6)
    assert result.agrees is None
    assert result.reason == "prv-accountant can't compute it (AssertionError)"


def test_an_interval_without_an_end_still_contradicts_a_smaller_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inf = float("inf")
    for lower, agrees in ((3.0, False), (0.5, None)):
        monkeypatch.setattr(module(), "_interval", lambda *a, low=lower: (low, inf))
        assert check(PLAN, 1e-6).agrees is agrees


def test_a_failure_that_uses_delta_up_is_a_disagreement() -> None:
    assert check([*PLAN, Failure(delta0=1e-6)], 1e-6).agrees is False


def test_many_classes_are_compared_as_far_as_the_time_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    classes = tuple((G(2.0 + i / 100, 0.1, 20),) for i in range(3))
    monkeypatch.setattr(module(), "SECONDS", 0.0)
    result = check([Parallel(branches=classes)], 1e-6)
    assert result.agrees is None
    assert "time" in result.reason
    assert result.epsilon > 0
