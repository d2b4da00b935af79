"""The forecast's lead against simulation: it is a bound, and not a loose one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from langchain_dpicl.accounting import Pure
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.few_shot.forecast import (
    PASS_RATE,
    GenerationForecast,
    LabelForecast,
    required_lead,
)
from langchain_dpicl.mechanisms.next_token import noisy_max_next_token
from langchain_dpicl.mechanisms.random import seeded

DRAWS = 40_000
# 4.9 deviations: a probability of 1e-6 on both sides together.
MARGIN = 4.9 * math.sqrt(PASS_RATE * (1 - PASS_RATE) / DRAWS)


def wins(noise: float, *, groups: int, choices: int, lead: float) -> float:
    """Return how often the leading token has the largest noisy mean."""
    random = np.random.default_rng(11)
    won = done = 0
    while done < DRAWS:
        size = min(4000, DRAWS - done)
        means = random.normal(scale=noise * math.sqrt(2) / groups, size=(size, choices))
        means[:, 0] += lead
        won += int((means.argmax(axis=1) == 0).sum())
        done += size
    return won / DRAWS


CELLS = [(1.36, 80, 100), (0.51, 10, 2), (1.08, 20, 10), (0.69, 80, 30)]


@pytest.mark.parametrize(("noise", "groups", "choices"), CELLS)
def test_a_token_with_that_lead_comes_out_as_often_as_is_said(
    noise: float, groups: int, choices: int
) -> None:
    lead = required_lead(noise, n_groups=groups, choices=choices, is_gaussian=True)
    rate = wins(noise, groups=groups, choices=choices, lead=lead)
    assert rate > PASS_RATE - MARGIN, "it is a bound"
    if choices == 2:
        assert rate < PASS_RATE + MARGIN, "with one other token it is exact"
    # And not a loose one: three quarters of it would not do.
    short = wins(noise, groups=groups, choices=choices, lead=0.75 * lead)
    assert short < PASS_RATE - MARGIN


@pytest.mark.parametrize("factor", [1 / math.sqrt(2), 0.5])
def test_twin_noise_without_its_sensitivity_or_its_double_is_found_out(
    factor: float,
) -> None:
    # sqrt(2) is forgotten in the noise, or in the difference of two of it.
    for noise, groups, choices in CELLS:
        lead = factor * required_lead(
            noise, n_groups=groups, choices=choices, is_gaussian=True
        )
        rate = wins(noise, groups=groups, choices=choices, lead=lead)
        assert rate < PASS_RATE - MARGIN


@pytest.mark.parametrize(("epsilon", "groups", "choices"), [(1.0, 20, 8), (0.5, 60, 3)])
def test_the_bound_of_noisy_max(epsilon: float, groups: int, choices: int) -> None:
    lead = required_lead(epsilon, n_groups=groups, choices=choices, is_gaussian=False)
    assert 0 < lead < 1
    rows = np.zeros((groups, choices))
    # Rows are scaled to maximum 1: all have the right token at 1, the others below.
    rows[:, 0] = 1.0
    rows[:, 1:] = 1.0 - lead
    rows /= rows.sum(axis=1, keepdims=True)
    paid, draws = Pure(epsilon=epsilon), 3000
    with seeded(13):
        won = sum(
            noisy_max_next_token(rows, paid, Relation.REPLACE) == 0
            for _ in range(draws)
        )
    margin = 4.9 * math.sqrt(PASS_RATE * (1 - PASS_RATE) / draws)
    assert won / draws > PASS_RATE - margin


def test_leads_move_as_they_must() -> None:
    def lead(noise: float = 1.0, groups: int = 20, choices: int = 50) -> float:
        return required_lead(noise, n_groups=groups, choices=choices, is_gaussian=True)

    assert lead(noise=2.0) == pytest.approx(2 * lead())
    assert lead(groups=40) == pytest.approx(lead() / 2)
    assert lead(choices=500) > lead() > lead(choices=2) > 0
    assert lead(choices=1) == lead(choices=2)
    more = required_lead(2.0, n_groups=20, choices=50, is_gaussian=False)
    less = required_lead(1.0, n_groups=20, choices=50, is_gaussian=False)
    assert less == pytest.approx(2 * more), "there, more epsilon is less noise"


def forecast(*leads: float) -> GenerationForecast:
    labels = tuple(
        LabelForecast(f"label {n}", 0.1, 1.0, lead) for n, lead in enumerate(leads)
    )
    return GenerationForecast(labels, model_calls=1234, tokens=56)


def test_advice_names_the_labels_that_noise_drowns() -> None:
    good = forecast(0.2, 0.3)
    assert good.is_possible
    assert "0.3" in good.advice()
    assert "'label 1'" in good.advice()
    bad = forecast(0.2, 1.5, 1.01)
    assert not bad.is_possible
    for word in ("'label 1'", "'label 2'", "1.5", "n_groups", "1234"):
        assert word in bad.advice()
    assert "'label 0'" not in bad.advice()
    assert forecast(1.0).is_possible
