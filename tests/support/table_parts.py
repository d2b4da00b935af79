"""A small table with a public schema, and what a release of it really adds up."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.mechanisms.exact import DiscreteLaplace, RoundedGaussian
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    NumericColumn,
    TableSchema,
)
from langchain_dpicl.tabular.gdp import release

JOBS = ("clerk", "diver", "nurse")
CANARY = "xylophone-4711"


def people_schema(**changes: Any) -> TableSchema:
    """Return the schema of people with age, pay, job and health."""
    columns = {
        "age": NumericColumn(
            name="age", kind="integer", lower=20, upper=80, bins=[40, 60], unit="years"
        ),
        "pay": NumericColumn(name="pay", lower=-1.5, upper=8.5, bins=[0, 2.5]),
        "job": CategoricalColumn(name="job", values=JOBS),
        "ill": CategoricalColumn(
            name="ill", values=["0", "1"], texts={"0": "well", "1": "ill"}
        ),
    }
    columns.update(changes)
    return TableSchema(label="ill", columns=list(columns.values()))


def person(number: int) -> dict[str, Any]:
    """Return a row that follows from its number."""
    return {
        "age": 20 + 7 * number % 61,
        "pay": (number * 13 % 101) / 10 - 1.5,
        "job": JOBS[number % 3],
        "ill": str(number * number % 7 % 2),
    }


def people(count: int) -> list[dict[str, Any]]:
    return [person(number) for number in range(count)]


def account(epsilon: float = 4.0, **terms: Any) -> PrivacyBudgetHandler:
    """Return an account in memory; by default a plan of one release."""
    fields: dict[str, Any] = {
        "queries": 1,
        "delta": 1e-6,
        "ledger": ":memory:",
        **terms,
    }
    return PrivacyBudgetHandler(epsilon=epsilon, **fields)


@dataclass(frozen=True)
class Measured:
    """What a release gave its noise: private numbers, and each one's scale."""

    tallies: list[NDArray[np.int64]]
    scales: list[Fraction]

    def moved(self, other: Measured) -> list[NDArray[np.int64]]:
        """Return by how much each number differs between this table and a neighbor."""
        return [np.abs(a - b) for a, b in zip(self.tallies, other.tallies, strict=True)]

    def mu_beside(self, other: Measured) -> float:
        """Return the same for Gaussian noise: the L2 distance in standard deviations.

        Exact: a Gaussian release at distance mu has the loss curve of z = 1 / mu.
        """
        if self.scales != other.scales:
            return float("inf")
        squares = (
            float((moved.astype(float) ** 2).sum()) / float(scale) ** 2
            for moved, scale in zip(self.moved(other), self.scales, strict=True)
        )
        return sum(squares) ** 0.5

    def loss_beside(self, other: Measured) -> float:
        """Return the privacy loss bound between this table and a neighbor.

        Exact for discrete Laplace noise: the largest log ratio of the probabilities of
        any outcome is the sum over all numbers of |difference| / scale. Infinite where
        the outcomes do not even have the same shape, or the scales differ.
        """
        shapes = [tally.shape for tally in self.tallies]
        if shapes != [tally.shape for tally in other.tallies]:
            return float("inf")
        if self.scales != other.scales:
            return float("inf")
        loss = Fraction(0)
        for one, two, scale in zip(
            self.tallies, other.tallies, self.scales, strict=True
        ):
            moved = int(np.abs(one - two).sum())
            if moved and not scale:
                return float("inf")
            loss += Fraction(moved) / scale if moved else 0
        return float(loss)


def measured(
    data: Any, schema: TableSchema, budget: PrivacyBudgetHandler, **terms: Any
) -> tuple[Measured, GDPTable]:
    """Release a table while watching what noise is put on what."""
    seen: list[Measured] = []
    noises = {
        name: getattr(release, name) for name in ("noisy_tallies", "noisy_histograms")
    }
    calibrated = DiscreteLaplace.calibrated
    gaussian = RoundedGaussian.draw

    def watched(tallies: Any, paid: Any, *, noisy: Any, **given: Any) -> Any:
        scales: list[Fraction] = []

        def drawn(self: RoundedGaussian, *args: Any) -> Any:
            scales.append(Fraction(self.scale))
            return gaussian(self, *args)

        def scaled(sensitivity: int, epsilon: Any) -> DiscreteLaplace:
            noise = calibrated(sensitivity, epsilon)
            scales.append(noise.scale)
            return noise

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(DiscreteLaplace, "calibrated", scaled)
            inner.setattr(RoundedGaussian, "draw", drawn)
            found = noisy(tallies, paid, **given)
        seen.append(Measured([np.array(tally) for tally in tallies], scales))
        return found

    with pytest.MonkeyPatch.context() as patch:
        for name, noisy in noises.items():
            patch.setattr(release, name, partial(watched, noisy=noisy))
        table = GDPTable(data, schema, budget=budget, **terms)
        table.release()
    (one,) = seen
    return one, table
