"""What a unit moves in measured tables, in L1 and L2, and what it is charged.

The loss between a table and the same with a unit more is computed from what a release
hands to its noise, through all of the real code. Each twin breaks the release in one
place; the same computation must then pass what was charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_parts import JOBS, Measured, account, measured, people, people_schema

from langchain_dpicl.accounting import Gaussian, Pure
from langchain_dpicl.budget import charges
from langchain_dpicl.mechanisms import tables
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.gdp import release, tallies

EPSILON = 4.0
MEASURE = [("job", "ill"), ("age", "job"), "pay"]
ROWS = 3

Row = dict[str, Any]

rows = st.fixed_dictionaries(
    {
        "age": st.sampled_from([-(10**9), 20, 50, 10**12]),
        "pay": st.sampled_from([-np.inf, 1.0, np.inf]),
        "job": st.sampled_from(JOBS),
        "ill": st.sampled_from(["0", "1"]),
    }
)
SAME = [{"age": 30, "pay": 1.0, "job": "nurse", "ill": "1"}] * 5


def worlds(newcomer: Sequence[Row], **terms: Any) -> tuple[Measured, Measured, Any]:
    """Return what a release measures without and with a unit, and its charge."""
    before = [{**row, "who": f"p{n % 9}"} for n, row in enumerate(people(40))]
    after = [*before, *({**row, "who": "newcomer"} for row in newcomer)]
    found, budget = [], account(EPSILON)
    for table in (before, after):
        budget = account(EPSILON)
        one, _ = measured(
            table,
            people_schema(),
            budget,
            measure=MEASURE,
            unit_key="who",
            rows_per_unit=ROWS,
            random=SeededRandom(5),
            **terms,
        )
        found.append(one)
    (record,) = charges(budget.ledger, budget.account)
    (event,) = record.events
    return found[0], found[1], event


def excess(newcomer: Sequence[Row], noise: str) -> float:
    """Return the loss as a part of what was charged: at most 1 where it is private."""
    without, within, event = worlds(newcomer, noise=noise)
    if noise == "laplace":
        assert isinstance(event, Pure)
        return without.loss_beside(within) / event.epsilon
    assert isinstance(event, Gaussian)
    return without.mu_beside(within) * event.noise_multiplier


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@settings(max_examples=25, deadline=None)
@given(newcomer=st.lists(rows, min_size=1, max_size=5))
def test_no_unit_costs_more_than_it_is_charged(noise: str, newcomer: list[Row]) -> None:
    assert excess(newcomer, noise) <= 1 + 1e-9


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_bound_is_reached_by_equal_rows(noise: str) -> None:
    assert excess(SAME, noise) == pytest.approx(1, rel=1e-6)


def test_a_unit_moves_every_table_by_its_rows() -> None:
    without, within, _ = worlds(SAME, noise="gaussian")
    moved = without.moved(within)
    assert [int(one.sum()) for one in moved] == [ROWS] * len(MEASURE)
    together = math.sqrt(sum(float((one**2).sum()) for one in moved))
    assert together == pytest.approx(ROWS * math.sqrt(len(MEASURE)))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_twin_a_table_that_nobody_pays_for(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table's noise is that of all tables without it."""
    broken = {
        "noisy_tallies": lambda tallies, paid, bounds, shares, **given: [
            *real["noisy_tallies"](tallies[:-1], paid, bounds=bounds[:-1], **given),
            *real["noisy_tallies"](
                tallies[-1:],
                Pure(epsilon=EPSILON / (len(MEASURE) - 1)),
                bounds=bounds[-1:],
                **given,
            ),
        ],
        "noisy_histograms": lambda tallies, paid, **given: [
            *real["noisy_histograms"](tallies[:-1], paid, **given),
            *real["noisy_histograms"](tallies[-1:], paid, **given),
        ],
    }
    real = {name: getattr(release, name) for name in broken}
    for name, how in broken.items():
        monkeypatch.setattr(release, name, how)
    assert excess(SAME, noise) > 1.2


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_twin_a_unit_of_several_rows_counts_once(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("noisy_tallies", "noisy_histograms"):
        monkeypatch.setattr(release, name, once(getattr(release, name)))
    assert excess(SAME, noise) == pytest.approx(ROWS, rel=1e-6)


def once(noisy: Any) -> Any:
    return lambda *args, **given: noisy(*args, **{**given, "rows_per_unit": 1})


def test_twin_a_sensitivity_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tables.gaussian_noise
    monkeypatch.setattr(
        tables,
        "gaussian_noise",
        lambda paid, **terms: real(paid, **{**terms, "tables": 1}),
    )
    assert excess(SAME, "gaussian") == pytest.approx(math.sqrt(len(MEASURE)), rel=1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_twin_a_row_that_is_counted_twice(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where rows are counted for each of a unit's records."""
    counted = tallies.Tallies._counted
    monkeypatch.setattr(
        tallies.Tallies,
        "_counted",
        lambda self, *given: 2 * counted(self, *given),
    )
    assert excess(SAME, noise) == pytest.approx(2, rel=1e-6)
