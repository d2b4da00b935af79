"""What releases cost together is never less than it is, and hardly more.

`figures.csv` holds bounds by others: closed forms and exact sums in mpmath, the
interval of prv-accountant, dp-accounting's loss distributions. What mixes kinds is held
by inequalities.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faces import (
    Exponential,
    Failure,
    Gaussian,
    InvalidParameterError,
    Parallel,
    PrivacyBudgetHandler,
    Pure,
    accounting,
)
from hypothesis import given
from hypothesis import strategies as st

DELTA = 1e-6
GRID = 4e-3
SLACK = {"Gaussian": 1 + GRID, "Pure": 1.02, "Exponential": 1.0}
"""How far above another bound ours may be."""


def event(kind: str, noise: float, rate: float, count: int) -> Any:
    if kind == "Gaussian":
        return Gaussian(noise, sampling_rate=rate, count=count)
    return {"Pure": Pure, "Exponential": Exponential}[kind](noise, count=count)


FIGURES = list(
    csv.DictReader(Path(__file__).with_name("figures.csv").read_text().splitlines())
)
IDS = [f"{row['source'].split(',')[0]}-{row['events']}" for row in FIGURES]


def check(row: dict[str, str], epsilon: float) -> None:
    spec = json.loads(row["events"])
    low, high = float(row["at_least"]), float(row["at_most"])
    assert low * (1 - 1e-8) <= epsilon, "less than it costs"
    assert epsilon <= high * max(SLACK[kind] for kind, *_ in spec) + 1e-6


def priced(row: dict[str, str], uses: float = 1.0) -> float:
    events = [
        event(kind, noise, rate, max(1, round(count * uses)))
        for kind, noise, rate, count in json.loads(row["events"])
    ]
    return float(accounting.compose(events, float(row["delta"])))


@pytest.mark.promise("composition-bounds", "uses-composed")
@pytest.mark.parametrize("row", FIGURES, ids=IDS)
def test_a_price_is_what_others_say(row: dict[str, str]) -> None:
    check(row, priced(row))


@pytest.mark.promise("composition-bounds", "uses-composed", twin=True)
@pytest.mark.parametrize("row", FIGURES, ids=IDS)
def test_a_price_of_fewer_uses_is_too_small(row: dict[str, str]) -> None:
    if all(count < 4 for *_, count in json.loads(row["events"])):
        row = {**row, "at_least": str(float(row["at_least"]) * 1.5)}
    with pytest.raises(AssertionError):
        check(row, priced(row, 0.5))


def one_direction(z: float, q: float, epsilon: float, *, removed: bool) -> float:
    """Delta of one sampled Gaussian, integrated on a fine grid, in one direction."""
    x = np.linspace(-12 * z, 12 * z + 1, 200_001)
    plain = np.exp(-(x**2) / (2 * z * z))
    mixed = (1 - q) * plain + q * np.exp(-((x - 1) ** 2) / (2 * z * z))
    p, r = (mixed, plain) if removed else (plain, mixed)
    total = float(np.maximum(p - math.exp(epsilon) * r, 0).sum() * (x[1] - x[0]))
    return total / (z * math.sqrt(2 * math.pi))


@pytest.mark.promise("both-directions")
@pytest.mark.parametrize(("z", "q"), [(0.8, 0.1), (1.0, 0.5), (3.0, 0.02)])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_one_sampled_release_costs_its_worse_direction(
    z: float, q: float, delta: float
) -> None:
    epsilon = accounting.epsilon(z, delta, uses=1, sampling_rate=q)
    lost = [one_direction(z, q, epsilon, removed=way) for way in (True, False)]
    assert max(lost) <= delta * (1 + 1e-6)
    nearly = max(
        one_direction(z, q, epsilon * 0.985 - 1e-4, removed=way)
        for way in (True, False)
    )
    assert nearly > delta or epsilon < 1e-3, "far more than it costs"


@pytest.mark.promise("both-directions", twin=True)
def test_the_cheaper_direction_alone_is_too_small() -> None:
    z, q, delta = 1.0, 0.1, 1e-4
    low, high = 0.0, 10.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        lost = one_direction(z, q, middle, removed=False)
        low, high = (middle, high) if lost > delta else (low, middle)
    assert one_direction(z, q, high, removed=True) > delta * 2


@pytest.mark.promise("sampled-pure")
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("rate", [1e-4, 0.3, 1.0])
def test_a_sample_amplifies_a_pure_loss(epsilon: float, rate: float) -> None:
    exact = math.log1p(rate * math.expm1(epsilon))
    assert accounting.sampled_epsilon(epsilon, rate) == pytest.approx(exact, rel=1e-12)
    assert accounting.sampled_epsilon(epsilon, rate) >= exact * (1 - 1e-15)


KINDS = st.one_of(
    st.builds(
        Gaussian,
        st.floats(0.3, 300),
        sampling_rate=st.sampled_from([0.01, 0.3, 1.0]),
        count=st.integers(1, 10_000),
    ),
    st.builds(Pure, st.floats(1e-4, 4.0), count=st.integers(1, 100)),
    st.builds(Exponential, st.floats(1e-4, 4.0), count=st.integers(1, 100)),
)
LISTS = st.lists(KINDS, min_size=1, max_size=3)


@pytest.mark.promise("composition-grows")
@given(LISTS, KINDS)
def test_one_more_event_never_costs_less(events: list[Any], more: Any) -> None:
    less, both = (accounting.compose(e, DELTA) for e in (events, [*events, more]))
    assert 0 <= less <= both * (1 + 2e-3)


@pytest.mark.promise("composition-grows")
@given(LISTS)
def test_an_order_and_a_split_of_uses_change_nothing(events: list[Any]) -> None:
    price = accounting.compose(events, DELTA)
    split = [one for event in events for one in (event, event)]
    doubled = [type(e)(**{**vars(e), "count": 2 * e.count}) for e in events]
    assert accounting.compose(events[::-1], DELTA) == price
    assert accounting.compose(split, DELTA) == accounting.compose(doubled, DELTA)


@pytest.mark.promise("composition-grows")
@given(LISTS)
def test_no_list_costs_more_than_its_pure_losses_or_an_unsampled_one(
    events: list[Any],
) -> None:
    price = accounting.compose(events, DELTA)
    if not any(isinstance(e, Gaussian) for e in events):
        assert price <= sum(e.epsilon * e.count for e in events) * (1 + 1e-9)
    plain = [
        Gaussian(e.noise_multiplier, count=e.count) if isinstance(e, Gaussian) else e
        for e in events
    ]
    # Of two figures on grids of their own each may be rounded up.
    assert price <= accounting.compose(plain, DELTA) * (1 + GRID)


@pytest.mark.promise("failures-add-up")
@pytest.mark.parametrize("uses", [1, 20, 1000])
def test_failures_of_all_uses_are_taken_off_delta(uses: int) -> None:
    share = DELTA / 2 / uses
    with_failures = [Gaussian(40.0, count=uses), Failure(share, count=uses)]
    rest = accounting.compose([Gaussian(40.0, count=uses)], DELTA / 2)
    assert accounting.compose(with_failures, DELTA) == pytest.approx(rest, rel=1e-9)
    too_many = [Gaussian(40.0, count=uses), Failure(2.5 * share, count=uses)]
    assert math.isinf(accounting.compose(too_many, DELTA))


@pytest.mark.promise("failures-add-up", twin=True)
def test_failures_counted_once_would_be_too_cheap() -> None:
    events = [Gaussian(40.0, count=20), Failure(DELTA / 40, count=20)]
    once = accounting.compose([Gaussian(40.0, count=20)], DELTA - DELTA / 40)
    assert accounting.compose(events, DELTA) > once * (1 + 1e-3)


@pytest.mark.promise("parallel-classes")
def test_classes_that_share_nobody_cost_what_the_dearest_costs() -> None:
    branches = ((Gaussian(2.0, count=5),), (Gaussian(3.0, count=50),))
    alone = [accounting.compose(branch, DELTA) for branch in branches]
    both = accounting.compose([Parallel(branches)], DELTA)
    assert max(alone) * (1 - 1e-9) <= both <= max(alone) * 1.02
    assert accounting.compose([e for b in branches for e in b], DELTA) > both * 1.05


@pytest.mark.promise("no-overflow")
@pytest.mark.parametrize(
    "events",
    [
        [Gaussian(1e-3)],
        [Gaussian(0.5, count=10**9)],
        [Gaussian(0.5, sampling_rate=0.5, count=10**9)],
        [Pure(50.0, count=10**6)],
        [Exponential(30.0, count=10**9)],
        [Gaussian(1e-3), Pure(1e3)],
    ],
)
def test_huge_losses_are_never_reported_as_small(events: list[Any]) -> None:
    check_huge(accounting.compose(events, DELTA))


def check_huge(epsilon: float) -> None:
    """A price of something that protects nobody."""
    assert epsilon > 100


@pytest.mark.promise("no-overflow", twin=True)
def test_moments_that_overflow_would_be_reported_as_nothing() -> None:
    # E[exp((a - 1) L)] of a Gaussian at z = 0.001, in doubles: infinite at each order,
    # and left out of the minimum, as a naive accountant leaves it.
    with np.errstate(over="ignore", invalid="ignore"):
        moments = [np.exp(np.float64(a * (a - 1) / 2e-6)) for a in (2, 8, 64)]
        found = [np.log(m) - np.log(m) + 0.0 for m in moments]
    with pytest.raises(AssertionError):
        check_huge(float(np.nan_to_num(found).min()))


@pytest.mark.promise("least-noise")
@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize(("epsilon", "uses"), [(0.5, 1), (8.0, 20), (3.0, 500)])
def test_the_noise_of_a_plan_is_enough_and_a_little_less_is_not(
    epsilon: float, uses: int, rate: float
) -> None:
    z = accounting.noise_multiplier(epsilon, DELTA, uses=uses, sampling_rate=rate)
    terms = {"uses": uses, "sampling_rate": rate}
    assert accounting.epsilon(z, DELTA, **terms) <= epsilon
    assert accounting.epsilon(z * 0.995, DELTA, **terms) > epsilon


@pytest.mark.promise("delta-against-a-declared-size")
def test_delta_is_compared_with_what_was_declared_alone() -> None:
    terms = {"epsilon": 1.0, "queries": 1, "ledger": ":memory:", "people_at_most": 1000}
    PrivacyBudgetHandler(delta=0.99e-3, **terms)
    with pytest.raises(InvalidParameterError, match="people_at_most"):
        PrivacyBudgetHandler(delta=1e-3, **terms)


@pytest.mark.promise("unknown-events")
@pytest.mark.parametrize(
    "call",
    [
        lambda: accounting.compose(["Gaussian"], DELTA),
        lambda: accounting.compose([None], DELTA),
        lambda: accounting.compose([Gaussian(1.0)], 0.0),
        lambda: accounting.compose([Gaussian(1.0)], 1.0),
        lambda: accounting.epsilon(-1.0, DELTA, uses=1),
        lambda: accounting.epsilon(1.0, DELTA, uses=0),
        lambda: accounting.epsilon(1.0, DELTA, uses=1, sampling_rate=1.5),
        lambda: accounting.noise_multiplier(0.0, DELTA, uses=1),
        lambda: Gaussian(0.0),
        lambda: Gaussian(math.nan),
        lambda: Gaussian(1.0, count=0),
        lambda: Pure(-1.0),
        lambda: Failure(2.0),
        lambda: Parallel(()),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(call: Any) -> None:
    with pytest.raises(InvalidParameterError):
        call()
