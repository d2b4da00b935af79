"""A plan gets the least noise whose bound was computed and is within the budget."""

from __future__ import annotations

from typing import Any

import pytest
from true_losses import E, G, P

from langchain_dpicl.accounting import (
    Charge,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    calibrate,
    compose,
    merge,
)
from langchain_dpicl.errors import InvalidParameterError

DELTA = 1e-6


def charge(kinds: str, q: float = 1.0, n: int = 1, **terms: Any) -> Charge:
    """Return a charge of open parts: G, E, P, F."""
    holes: dict[str, Any] = {
        "G": (Gaussian, "noise_multiplier"),
        "E": (Exponential, "epsilon"),
        "P": (Pure, "epsilon"),
        "F": (Failure, "delta0"),
    }
    parts = [
        kind(**{name: None}, sampling_rate=q, count=n)
        for kind, name in map(holes.__getitem__, kinds)
    ]
    return Charge(name=kinds, parts=parts, **terms)


PLANS = [
    (charge("GF", 0.25), 20, 4.0),
    (charge("EGF", shares=(0.1, 0.9, 1.0)), 5, 3.0),
    (charge("E", 0.1), 50, 1.0),
    (charge("P"), 3, 1.0),
    (charge("G", 0.05, 15), 4, 2.0),
]


@pytest.mark.parametrize(("asked", "uses", "budget"), PLANS)
def test_the_scale_is_within_the_budget_and_nearly_the_least(
    asked: Charge, uses: int, budget: float
) -> None:
    found: Any = calibrate(asked, uses, budget, DELTA)
    assert asked.fits(found)
    assert compose(merge(found, uses), DELTA) <= budget
    part, share = found[0], (asked.shares or (1.0,))[0]
    scale = {
        "gaussian": lambda: part.noise_multiplier * share**0.5,
        "exponential": lambda: 2 * share**0.5 / part.epsilon,
        "pure": lambda: share**0.5 / part.epsilon,
    }[part.kind]()
    delta0 = next((e.delta0 for e in found if isinstance(e, Failure)), 0.0)
    assert compose(merge(asked.at(scale * 0.999, delta0), uses), DELTA) > budget


def test_a_share_decides_how_loud_each_part_is() -> None:
    equal, uneven = charge("EGF"), charge("EGF", shares=(0.1, 0.9, 1.0))
    found: Any = [calibrate(x, 5, 3.0, DELTA) for x in (equal, uneven)]
    (a, b, _), (c, d, _) = found
    assert c.epsilon < a.epsilon / 1.5
    assert d.noise_multiplier < b.noise_multiplier
    # The twin, shares ignored, would give both the first part's noise.
    assert c.epsilon * d.noise_multiplier == pytest.approx(2 * (0.1 / 0.9) ** 0.5)


def test_open_failures_get_half_of_delta() -> None:
    failure: Any = calibrate(charge("GF", 0.25), 20, 3.0, DELTA)[1]
    assert failure.delta0 * 0.25 * 20 == pytest.approx(DELTA / 2)
    parts = (*charge("GF").parts, Failure(delta0=2e-8))
    failure = calibrate(Charge(name="x", parts=parts), 10, 3.0, DELTA)[1]
    assert failure.delta0 * 10 == pytest.approx((DELTA - 2e-7) / 2)


def test_one_pure_release_gets_all_of_epsilon() -> None:
    for budget in (0.1, 0.3, 1.0, 4.0, 7.0):
        event: Any = calibrate(charge("P"), 1, budget, 1e-9)[0]
        assert budget * (1 - 1e-15) <= event.epsilon <= budget
    assert calibrate(charge("P"), 3, 1.0, 1e-9) == (P(1 / 3),)


def test_each_class_gets_the_least_noise_by_itself() -> None:
    small, large = charge("G", 0.1, 15), charge("GF", 0.9, 15)
    classes = Parallel(branches=(small.parts, large.parts, small.parts))
    together = Charge(name="few-shot", parts=(classes,))
    found: Any = calibrate(together, 2, 4.0, 1e-5)[0]
    alone = [calibrate(c, 2, 4.0, 1e-5) for c in (small, large, small)]
    assert found.branches == tuple(alone)
    assert compose(merge([found], 2), 1e-5) <= 4.0


def test_a_failure_too_small_to_draw_with_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="too small to draw with"):
        calibrate(charge("GF"), 1000, 8.0, 1e-298)


@pytest.mark.parametrize(
    ("asked", "uses", "budget", "reason"),
    [
        (Charge(name="x", parts=(G(2.0),)), 20, 1.0, "epsilon"),
        (Charge(name="x", parts=(G(99.0), Failure(delta0=1e-7))), 20, 1.0, "add up"),
        (charge("G"), 10**9, 1e-3, "No noise"),
        (charge("G"), 0, 1.0, "uses"),
        (charge("G"), 1, 0.0, "epsilon"),
    ],
)
def test_a_plan_beyond_its_budget_is_refused(
    asked: Charge, uses: int, budget: float, reason: str
) -> None:
    with pytest.raises(InvalidParameterError, match=reason):
        calibrate(asked, uses, budget, DELTA)


def test_what_is_fixed_is_only_checked() -> None:
    fixed = Charge(name="x", parts=(E(0.1), G(30.0), Failure(delta0=1e-9)))
    assert calibrate(fixed, 20, 1.9, DELTA) == fixed.parts
    loud = Charge(name="x", parts=(P(9.0),))
    assert calibrate(loud, 1, 9.0, DELTA) == loud.parts
