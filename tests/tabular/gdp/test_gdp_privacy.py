"""No unit costs more than was charged, and the defects of other code would be noticed.

The loss between a table and its neighbor is computed exactly from what a release hands
to its noise and from the noise's scales (`table_parts.Measured`), through all of the
real code: reading, capping, clipping, counting, noise by the charge. Each twin puts a
known defect back in; the same computation must then pass what was charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.table_parts import (
    JOBS,
    Measured,
    account,
    measured,
    people,
    people_schema,
)

from langchain_dpicl.accounting import Gaussian, Pure
from langchain_dpicl.budget import charges
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.tabular import CategoricalColumn, NumericColumn
from langchain_dpicl.tabular.gdp import release, tallies

ROWS = 3
NOISES = ["laplace", "gaussian"]
SKILLS = ("driving", "first aid", "welding")
AGES = (-(10**9), 20, 50, 80, 10**12)
PAYS = (-np.inf, -1e300, -1.5, 3.5, 8.5, 1e300, np.inf)

Row = dict[str, Any]

rows = st.fixed_dictionaries(
    {
        "age": st.sampled_from(AGES),
        "pay": st.sampled_from(PAYS),
        "job": st.sampled_from(JOBS),
        "ill": st.sampled_from(["0", "1"]),
        "skills": st.lists(st.sampled_from(SKILLS), max_size=4),
    }
)


# Pay is summed, skills are a set of at most two.
SCHEMA = people_schema(
    pay=NumericColumn(name="pay", lower=-1.5, upper=8.5),
    skills=CategoricalColumn(name="skills", values=SKILLS, max_items=2),
)
MEASURE = [("job", "skills"), ("age", "job"), ("pay", "ill"), "ill", "skills"]
WORST: list[Row] = [
    {
        "age": 10**12,
        "pay": np.inf,
        "job": "nurse",
        "ill": "1",
        "skills": [*SKILLS[:2], SKILLS[0]],
    },
    {
        "age": -(10**9),
        "pay": -np.inf,
        "job": "diver",
        "ill": "0",
        "skills": {*SKILLS[1:]},
    },
]


def excess(
    newcomer: Sequence[Row],
    noise: str = "laplace",
    *,
    measure: Any = MEASURE,
) -> float:
    """Return the loss as a part of what was charged: at most 1 where it is private."""
    before = [
        {**row, "skills": [SKILLS[0]], "who": f"p{n % 9}"}
        for n, row in enumerate(people(20))
    ]
    after = [*before, *({**row, "who": "newcomer"} for row in newcomer)]
    found: list[Measured] = []
    event: Any = None
    for world in (before, after):
        budget = account(4.0)
        # The same coins for everybody else in both worlds; noise does not matter here.
        terms = {"measure": measure, "unit_key": "who", "rows_per_unit": ROWS}
        with seeded(5):
            one, _ = measured(world, SCHEMA, budget, noise=noise, **terms)
        found.append(one)
        ((event,),) = (charge.events for charge in charges(budget.ledger, "default"))
    if isinstance(event, Pure):
        return found[0].loss_beside(found[1]) / float(event.epsilon or 0)
    assert isinstance(event, Gaussian)
    return found[0].mu_beside(found[1]) * float(event.noise_multiplier or 0)


def worst(noise: str, **terms: Any) -> float:
    return max(excess([row] * 5, noise, **terms) for row in WORST)


@pytest.mark.parametrize("noise", NOISES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(newcomer=st.lists(rows, min_size=1, max_size=5))
def test_no_unit_costs_more_than_it_is_charged(noise: str, newcomer: list[Row]) -> None:
    assert excess(newcomer, noise) <= 1 + 1e-9


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("measure", [MEASURE, None, ["age"], [("skills", "job")]])
def test_the_bound_is_reached_by_equal_rows(noise: str, measure: Any) -> None:
    """Else a much worse release than needed would pass as a private one."""
    assert worst(noise, measure=measure) == pytest.approx(1, rel=1e-4)


Twin = Callable[[pytest.MonkeyPatch], Any]


def hand_on(**wrong: Any) -> Twin:
    """Hand other terms to the noise than the release means to."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        for name in ("noisy_tallies", "noisy_histograms"):
            real = getattr(release, name)
            patch.setattr(
                release,
                name,
                lambda found, paid, real=real, **terms: real(
                    found, paid, **{**terms, **wrong}
                ),
            )

    return broken


def unshifted(patch: pytest.MonkeyPatch) -> None:
    grid = NumericColumn.grid
    patch.setattr(NumericColumn, "grid", lambda self, cells: grid(self, cells) + 2**19)


def unclipped(patch: pytest.MonkeyPatch) -> None:
    def grid(self: NumericColumn, values: Any) -> Any:
        return np.full(len(values), 3 * self.bound, dtype=np.int64)

    patch.setattr(NumericColumn, "grid", grid)


def counted_twice(patch: pytest.MonkeyPatch) -> None:
    counted = tallies._counted
    patch.setattr(tallies, "_counted", lambda *given: 2 * counted(*given))


CELLS = [2, 1, 1, 1, 2]
TWINS: dict[str, tuple[Twin, float]] = {
    "a unit of several rows that counts once": (hand_on(rows_per_unit=1), ROWS),
    "a set that counts once": (hand_on(cells=[1] * 5), 7 / 5),
    "a table that nobody pays for": (hand_on(cells=[*CELLS[:4], 1]), 7 / 6),
    "a sum that moves by one": (hand_on(bounds=[1] * 5), 1000),
    "a row counted twice": (counted_twice, 2),
    "sums that are not centered": (unshifted, 15 / 14),
    "no clipping": (unclipped, 9 / 7),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", TWINS)
def test_twin_passes_what_was_charged(
    name: str, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, least = TWINS[name]
    broken(monkeypatch)
    bound = least if noise == "laplace" or least > 2 else least**0.5
    assert worst(noise) >= bound * (1 - 1e-4) > 1
