"""Columns that hold sets, and values that nobody listed: what a person moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from faces import counts, planned, table_of, tabular
from hypothesis import given
from hypothesis import strategies as st

MOST = 2
DRUGS = ["iron", "zinc", "aspirin", "none"]
SCHEMA = tabular.TableSchema(
    label="sex",
    columns=[
        tabular.CategoricalColumn(name="drug", values=DRUGS, max_items=MOST),
        tabular.CategoricalColumn(name="sex", values=["f", "m"]),
    ],
)
OTHERS = [{"drug": DRUGS[n % 3 : n % 3 + n % 3], "sex": "fm"[n % 2]} for n in range(12)]

Row = dict[str, Any]


def released(rows: list[Row], seed: int = 5, budget: Any = None) -> Any:
    """Return how many rows have each drug; without noise unless there is a budget."""
    terms: dict[str, Any] = {"measure": ["drug"], "noise": "laplace", "seed": seed}
    terms |= {"budget": budget, "epsilon": 1e5}
    table = table_of("GDPTable", rows, SCHEMA, **terms).release()
    return Counter({drug: int(n) for (drug,), n in counts(table, "drug").items()})


BEFORE = cache(lambda release: release(OTHERS))


def check_moved(newcomer: Row, release: Callable[[list[Row]], Counter[str]]) -> None:
    """Check that a person adds 1 to so many of the own values, and to no other."""
    before, after = BEFORE(release), release([*OTHERS, newcomer])
    moved = {drug: after[drug] - before[drug] for drug in DRUGS if after[drug]}
    own = {drug for drug, by in moved.items() if by}
    assert all(by in (0, 1) for by in moved.values())
    assert len(own) == min(MOST, len(set(newcomer["drug"])))
    assert own <= set(newcomer["drug"])


@pytest.mark.promise("set-columns")
@given(st.lists(st.sampled_from(DRUGS), max_size=4))
def test_a_person_counts_for_so_many_values_of_a_set(drugs: list[str]) -> None:
    check_moved({"drug": drugs, "sex": "f"}, released)


@pytest.mark.promise("set-columns", twin=True)
def test_twin_that_counts_all_values_of_a_set() -> None:
    def all_values(rows: list[Row]) -> Counter[str]:
        return Counter(drug for row in rows for drug in set(row["drug"]))

    with pytest.raises(AssertionError):
        check_moved({"drug": DRUGS, "sex": "f"}, all_values)


def noise_of(release: Callable[[int], Counter[str]]) -> float:
    """Return the mean square of the noise on counts of nobody."""
    releases = [release(seed) for seed in range(60)]
    drawn = [found[drug] for found in releases for drug in DRUGS]
    return float(np.mean(np.square(drawn)))


def check_noise(mean_square: float) -> None:
    """Check for Laplace noise of a person who moves `MOST` counts, at epsilon 1."""
    # Twice the square of the scale, for discrete noise a little less.
    assert 0.6 * 2 * MOST**2 < mean_square < 1.6 * 2 * MOST**2


@pytest.mark.promise("set-noise")
def test_the_noise_is_for_all_values_that_a_person_counts_for() -> None:
    nobody, budget = [{"drug": [], "sex": "f"}], planned(60.0, queries=60)
    check_noise(noise_of(lambda seed: released(nobody, seed, budget)))


@pytest.mark.promise("set-noise", twin=True)
def test_twin_whose_set_counts_once() -> None:
    source = np.random.default_rng(1)

    def once(_: int) -> Counter[str]:
        noise = np.rint(source.laplace(scale=1.0, size=len(DRUGS))).astype(int)
        return Counter(dict(zip(DRUGS, noise.tolist(), strict=True)))

    with pytest.raises(AssertionError):
        check_noise(noise_of(once))


def found(rows: list[Row], **terms: Any) -> tuple[str, ...]:
    """Return the values that come out."""
    given = {"budget": planned(8.0), "unit_key": "who", **terms}
    return tuple(tabular.discover(rows, "drug", **given).values)


def check_rare(discover: Callable[[list[Row]], tuple[str, ...]]) -> None:
    """Check that what one person says, however often, does not come out."""
    common = [{"drug": "iron", "who": n} for n in range(40)]
    rare = [{"drug": "unobtainium", "who": "one"}] * 90
    values = discover([*common, *rare])
    assert "iron" in values
    assert "unobtainium" not in values


@pytest.mark.promise("discovered-shared")
def test_a_value_of_one_person_does_not_come_out() -> None:
    check_rare(found)


@pytest.mark.promise("discovered-shared", twin=True)
def test_twin_that_counts_rows() -> None:
    with pytest.raises(AssertionError):
        check_rare(lambda rows: found(rows, unit_key=None))


@pytest.mark.promise("discovered-capped")
def test_a_person_counts_for_the_own_most_frequent_values() -> None:
    rows = [
        {"drug": drug, "who": who}
        for who in range(60)
        for drug in ("iron", "iron", "zinc")
    ]
    assert found(rows) == ("iron",)
    assert set(found(rows, max_values=2)) == {"iron", "zinc"}
