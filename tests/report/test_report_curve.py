"""The figures of a report hold: the curve, the household, what is left."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from scipy.stats import norm
from support.ledgers import bought

from langchain_dpicl import PrivacyBudgetHandler, accounting, report
from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.ledger import AccountTerms, Book, Ledger, Plan
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.report.curve import (
    CurvePoint,
    certainty,
    curve,
    group_delta,
    households,
    svg,
)

TERMS = AccountTerms(name="notes", epsilon=8.0, delta=1e-6, queries=20)
NOISE = accounting.noise_multiplier(epsilon=8, delta=1e-6, uses=20)
EVENTS = (Gaussian(noise_multiplier=NOISE),)
PLAN = Plan(charge=Charge(name="vote", parts=EVENTS), events=EVENTS)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Balle and Wang's formula."""
    low, high = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    return float(low - math.exp(epsilon) * high)


def book(used: int = 5) -> Book:
    return replace(Ledger(":memory:").open(TERMS), used=used)


def test_a_plans_curve_is_the_accountants() -> None:
    points = curve(book(), PLAN)
    assert [p.delta for p in points] == sorted((p.delta for p in points), reverse=True)
    for point in points:
        for value, uses in ((point.promised, 20), (point.spent, 5)):
            assert value is not None
            mu = math.sqrt(uses) / NOISE
            assert gaussian_delta(mu, value) == pytest.approx(point.delta, rel=1e-6)
    at = next(p for p in points if p.delta == 1e-6)
    assert at.promised == pytest.approx(8, abs=1e-3)
    assert at.promised <= 8


def test_a_filters_curve_passes_its_promise_and_never_below() -> None:
    ledger = Ledger(":memory:")
    budget = PrivacyBudgetHandler(
        epsilon=8,
        delta=1e-6,
        queries=20,
        ledger=ledger,
        accounting="renyi",
    )
    for _ in range(4):
        bought(budget, voting.charge())
    found = report.of(ledger, "default")
    at = next(p for p in found.curve if p.delta == 1e-6)
    assert at.promised == pytest.approx(8, rel=1e-6)
    assert at.spent == pytest.approx(budget.spent().epsilon, rel=1e-6)
    promised = [p.promised for p in found.curve if p.promised is not None]
    assert promised == sorted(promised)


def test_a_household_loses_what_group_privacy_says() -> None:
    for one in households(TERMS):
        n = one.people
        assert one.epsilon == 8 * n
        exact = 1e-6 * math.expm1(8 * n) / math.expm1(8)
        assert one.delta == (pytest.approx(exact) if exact < 1 else None)


def test_the_formula_is_no_less_than_what_a_gaussian_loses() -> None:
    for one in households(TERMS):
        if one.delta is not None:
            mu = one.people * math.sqrt(20) / NOISE
            assert gaussian_delta(mu, one.epsilon) <= one.delta


def test_what_is_no_bound_is_not_told() -> None:
    assert group_delta(1e6, 1e-6, 3) is None
    assert certainty(0) == 0.5


def test_the_drawing_is_numbers_alone() -> None:
    drawn = svg(curve(book(), PLAN), 1e-6, 8.0)
    assert drawn.count("<polyline") == 2
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert svg([CurvePoint(1e-6, None, 1.0)], 1e-6, 8.0).count("<circle") == 1
    # A page may enlarge its labels where the drawing is small.
    assert re.findall('font-size="([^"]*)"', drawn)
    assert set(re.findall('font-size="([^"]*)"', drawn)) == {".75em"}
