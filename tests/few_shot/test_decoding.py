"""Which token is taken of noisy probabilities, how often, and by what lead."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2

from langchain_dpicl.accounting import Pure
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot import Greedy, Sampling
from langchain_dpicl.few_shot.decoding import noise_of_mean
from langchain_dpicl.few_shot.terms import PASS_RATE, required_lead
from langchain_dpicl.mechanisms.next_token import noisy_max_next_token
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom, seeded, use

NOISY = np.array([0.06, 0.5, -0.1, 0.25, 0.0, 0.15, 0.04])
NOISE = 0.025
DRAWS = 4_000


def exact(sampling: Sampling) -> list[float]:
    """Return the decoder's distribution of `NOISY`, written down plainly."""
    # Of seven entries of noise, none is above 2.4500 deviations in 95 % of all cases.
    floor = 2.4499767 if sampling.floor is None else sampling.floor
    weights = [
        p ** (1 / sampling.temperature) if p > 0 and p >= floor * NOISE else 0.0
        for p in NOISY.tolist()
    ]
    total = sum(weights)
    nucleus: list[int] = []
    for place in sorted(range(len(weights)), key=lambda place: -weights[place]):
        if sum(weights[each] for each in nucleus) < sampling.top_p * total - 1e-9:
            nucleus.append(place)
    mass = sum(weights[place] for place in nucleus)
    return [
        weights[place] / mass if place in nucleus else 0.0
        for place in range(len(weights))
    ]


def fits(decoder: Sampling, expected: list[float]) -> bool:
    """Whether draws are distributed as expected, at significance 1e-6."""
    counts = [0] * len(NOISY)
    with use(SeededRandom(7)):
        for _ in range(DRAWS):
            counts[decoder.choose(NOISY, NOISE)] += 1
    pairs = list(zip(counts, expected, strict=True))
    if any(count for count, share in pairs if not share):
        return False
    used = [(count, DRAWS * share) for count, share in pairs if share]
    statistic = sum((count - mean) ** 2 / mean for count, mean in used)
    return bool(statistic <= chi2.isf(1e-6, max(len(used) - 1, 1)))


# Each decoder, and another one that the test must tell from it.
CASES = [
    (Sampling(floor=0.0), Sampling(temperature=0.8, floor=0.0)),
    (Sampling(), Sampling(floor=0.0)),
    (Sampling(temperature=2.5, floor=1.0), Sampling(temperature=2.5, floor=2.0)),
    (Sampling(top_p=0.8, floor=0.0), Sampling(top_p=0.75, floor=0.0)),
    (
        Sampling(temperature=0.7, top_p=0.9, floor=2.0),
        Sampling(top_p=0.9, floor=2.0),
    ),
]


@pytest.mark.parametrize(("sampling", "other"), CASES, ids=str)
def test_sampling_has_its_exact_distribution(
    sampling: Sampling, other: Sampling
) -> None:
    assert fits(sampling, exact(sampling))
    assert not fits(other, exact(sampling)), "the broken twin"


class Fixed(SecureRandom):
    """Always draws one number."""

    def __init__(self, share: float) -> None:
        self.share = share

    def randrange(self, bound: int, *_: Any) -> int:  # type: ignore[override]
        return min(int(self.share * bound), bound - 1)


def chosen(decoder: Greedy | Sampling, noisy: Any, noise: float, share: float) -> int:
    """Return what is drawn where the source shows this share."""
    with use(Fixed(share)):
        return decoder.choose(np.asarray(noisy), noise)


def drawn(decoder: Sampling, noisy: list[float], noise: float) -> set[int]:
    """Return all that can be drawn."""
    return {chosen(decoder, noisy, noise, share) for share in (0, 0.3, 0.6, 0.9999999)}


vectors = arrays(
    np.float64,
    st.integers(1, 12),
    elements=st.floats(-2, 2, allow_subnormal=False)
    | st.sampled_from([0.0, 0.5, 1e-300]),
)


@given(
    vectors,
    st.floats(0, 1),
    st.floats(1e-3, 1e3) | st.sampled_from([1e-300, 5e-324]),
    st.floats(1e-6, 1),
    st.floats(0, 4),
    st.floats(0, 1),
)
def test_what_is_drawn_stands_out_of_the_noise_or_is_the_largest(
    noisy: Any,
    share: float,
    temperature: float,
    top_p: float,
    floor: float,
    noise: float,
) -> None:
    decoder = Sampling(temperature=temperature, top_p=top_p, floor=floor)
    place = chosen(decoder, noisy, noise, share)
    kept = [p for p in noisy if p > 0 and p >= floor * noise]
    assert 0 <= place < len(noisy)
    if not kept:
        assert place == int(np.argmax(noisy))
        return
    assert noisy[place] in kept
    # No more than the nucleus: what is larger than it has less than top_p in all.
    weights = {p: math.exp(math.log(p / max(kept)) / temperature) for p in kept}
    larger = sum(weights[p] for p in kept if p > noisy[place])
    assert larger <= top_p * sum(weights[p] for p in kept) * (1 + 1e-9)


def test_the_floor_is_in_deviations_of_the_noise() -> None:
    assert drawn(Sampling(floor=2.0), [0.19, 0.21], 0.1) == {1}
    assert drawn(Sampling(floor=1.0), [0.19, 0.21], 0.1) == {0, 1}
    assert drawn(Sampling(floor=2.0), [0.3, 0.2], 0.1) == {0, 1}, "itself counts"
    assert drawn(Sampling(floor=0.0), [1 - 1e-6, 1e-6], 0.0) == {0, 1}, "a rare one"
    # By default noise alone is hardly ever drawn from: in 5 % of all steps.
    draws = np.random.default_rng(3).normal(0.0, 0.1, (4000, 500))
    above = draws >= 0.1 * 3.7190164854556804
    assert 0.03 < above.any(axis=1).mean() < 0.07
    for noisy, stands_out in zip(draws[:100], above[:100], strict=True):
        place = chosen(Sampling(), noisy, 0.1, 0.999999)
        assert stands_out[place] or place == noisy.argmax()


def test_equal_ones_go_by_public_order() -> None:
    assert Greedy().choose(np.array([0.1, 0.4, 0.4, 0.2]), 0.0) == 1
    assert Greedy().choose(np.array([-1.0]), 9.0) == 0
    assert drawn(Sampling(top_p=0.5, floor=0.0), [0.25] * 4, 0.0) == {0, 1}


@pytest.mark.parametrize(
    "terms",
    [
        {"temperature": 0},
        {"temperature": math.nan},
        {"top_p": 0},
        {"top_p": 1.1},
        {"floor": math.inf},
        {"floor": "2"},
        {"contrast": -1.0},
        {"stop": [""]},
        {"stop": 7},
    ],
)
def test_values_out_of_range_are_named(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(terms))):
        Sampling(**terms)


# ---- the lead that a forecast tells --------------------------------------------------

LEAD_DRAWS = 20_000
# 4.9 deviations: a probability of 1e-6 on both sides together.
MARGIN = 4.9 * math.sqrt(PASS_RATE * (1 - PASS_RATE) / LEAD_DRAWS)


def wins(noise: float, *, groups: int, choices: int, lead: float) -> float:
    """Return how often the leading token has the largest noisy mean."""
    random = np.random.default_rng(11)
    spread = noise * math.sqrt(2) / groups
    means = random.normal(scale=spread, size=(LEAD_DRAWS, choices))
    means[:, 0] += lead
    return float((means.argmax(axis=1) == 0).mean())


@pytest.mark.parametrize(
    ("noise", "groups", "choices"), [(1.36, 80, 100), (0.51, 10, 2), (1.08, 20, 10)]
)
def test_a_token_with_that_lead_comes_out_as_often_as_is_said(
    noise: float, groups: int, choices: int
) -> None:
    lead = required_lead(noise_of_mean(noise, groups), choices, is_max=False)
    rate = wins(noise, groups=groups, choices=choices, lead=lead)
    assert rate > PASS_RATE - MARGIN, "it is a bound"
    if choices == 2:
        assert rate < PASS_RATE + MARGIN, "with one other token it is exact"
    # Less would not do: the twins without the noise's or the difference's sqrt(2).
    for short in (0.75 * lead, lead / math.sqrt(2)):
        rate = wins(noise, groups=groups, choices=choices, lead=short)
        assert rate < PASS_RATE - MARGIN


def test_the_bound_of_noisy_max() -> None:
    epsilon, groups, choices, draws = 1.0, 20, 8, 3000
    lead = required_lead(2 / (epsilon * groups), choices, is_max=True)
    assert 0 < lead < 1
    # Rows are scaled to maximum 1: all have the right token at 1, the others below.
    rows = np.full((groups, choices), 1.0 - lead)
    rows[:, 0] = 1.0
    rows /= rows.sum(axis=1, keepdims=True)
    paid = Pure(epsilon=epsilon)
    with seeded(13):
        won = sum(
            noisy_max_next_token(rows, paid, Relation.REPLACE) == 0
            for _ in range(draws)
        )
    margin = 4.9 * math.sqrt(PASS_RATE * (1 - PASS_RATE) / draws)
    assert won / draws > PASS_RATE - margin
