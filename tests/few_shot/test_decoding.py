"""Decoders: which token is taken of noisy probabilities, and how often."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2

from langchain_dpicl.accounting import Pure
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot import Greedy, NoisyMax, Sampling
from langchain_dpicl.few_shot.decoding import noise_of_mean
from langchain_dpicl.few_shot.forecast import PASS_RATE, required_lead
from langchain_dpicl.mechanisms.next_token import noisy_max_next_token
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom, seeded, use

NOISY = np.array([0.06, 0.5, -0.1, 0.25, 0.0, 0.15, 0.04])
NOISE = 0.025
DRAWS = 8_000


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


CASES = [
    Sampling(floor=0.0),
    Sampling(),
    Sampling(temperature=0.6, floor=0.0),
    Sampling(temperature=2.5, floor=1.0),
    Sampling(top_p=0.8, floor=0.0),
    Sampling(top_p=0.5, floor=0.0),
    Sampling(temperature=0.7, top_p=0.9, floor=2.0),
]


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_sampling_has_its_exact_distribution(sampling: Sampling) -> None:
    assert fits(sampling, exact(sampling))


@pytest.mark.parametrize(
    ("broken", "right"),
    [
        (Sampling(floor=0.0), Sampling(temperature=0.8, floor=0.0)),
        (Sampling(floor=0.0), Sampling(floor=2.0)),
        (Sampling(floor=1.0), Sampling(floor=2.0)),
        (Sampling(floor=0.0), Sampling(top_p=0.95, floor=0.0)),
        (Sampling(top_p=0.75, floor=0.0), Sampling(top_p=0.8, floor=0.0)),
        (
            Sampling(top_p=0.9, floor=2.0),
            Sampling(temperature=0.7, top_p=0.9, floor=2.0),
        ),
    ],
)
def test_twin_another_distribution_is_found_out(
    broken: Sampling, right: Sampling
) -> None:
    assert not fits(broken, exact(right))


class Fixed(SecureRandom):
    """Always draws one number."""

    def __init__(self, share: float) -> None:
        self.share = share

    def randrange(self, bound: int, *_: Any) -> int:  # type: ignore[override]
        return min(int(self.share * bound), bound - 1)


def chosen(decoder: Greedy | Sampling, noisy: Any, noise: float, share: float) -> int:
    """Return what is drawn where the source shows this share."""
    with use(Fixed(share)):
        return decoder.choose(noisy, noise)


vectors = arrays(
    np.float64,
    st.integers(1, 12),
    elements=st.floats(-2, 2, allow_subnormal=False)
    | st.sampled_from([0.0, 0.5, 1e-300]),
)
shares = st.floats(0, 1)


@settings(deadline=None, max_examples=200)
@given(
    vectors,
    shares,
    st.floats(1e-3, 1e3),
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
    if kept:
        assert noisy[place] in kept
        # No more than the nucleus: what is larger than it has less than top_p in all.
        larger = sum(
            (p / max(kept)) ** (1 / temperature) for p in kept if p > noisy[place]
        )
        total = sum((p / max(kept)) ** (1 / temperature) for p in kept)
        assert larger <= top_p * total * (1 + 1e-9)
    else:
        assert place == int(np.argmax(noisy))


@settings(deadline=None, max_examples=100)
@given(
    vectors.filter(lambda v: (v > 0).any()),
    shares,
    st.sampled_from([(1e-9, 1.0), (1e-300, 1.0), (5e-324, 1.0), (1.0, 1e-12)]),
)
def test_a_low_temperature_or_a_small_nucleus_takes_the_largest(
    noisy: Any, share: float, terms: tuple[float, float]
) -> None:
    top = np.sort(noisy)[::-1]
    if len(top) > 1 and top[0] - top[1] < 1e-6 * top[0]:
        return  # Too close for either to tell apart.
    place = chosen(
        Sampling(temperature=terms[0], top_p=terms[1], floor=0.0), noisy, 0.1, share
    )
    assert place == Greedy().choose(noisy, 0.1)


def test_where_nothing_stands_out_the_largest_is_taken() -> None:
    for noisy in ([-0.3, -0.1, -0.2], [0.0, 0.0, -1.0], [0.1, 0.19, 0.15]):
        values = np.array(noisy)
        for share in (0.0, 0.5, 1.0):
            found = chosen(Sampling(floor=2.0), values, 0.1, share)
            assert found == int(np.argmax(values))


def test_the_floor_is_in_deviations_of_the_noise() -> None:
    values = np.array([0.19, 0.21])
    assert chosen(Sampling(floor=2.0), values, 0.1, 0.999) == 1
    assert {chosen(Sampling(floor=2.0), values, 0.1, s) for s in (0, 0.999)} == {1}
    assert {chosen(Sampling(floor=1.0), values, 0.1, s) for s in (0, 0.999)} == {
        0,
        1,
    }
    # The floor itself counts, and so does what is just above it.
    for least in (0.2, 0.205):
        both = np.array([0.3, least])
        drawn = {chosen(Sampling(floor=2.0), both, 0.1, s) for s in (0, 0.999)}
        assert drawn == {0, 1}


@pytest.mark.parametrize("share", [1e-3, 1e-9])
def test_a_rare_token_can_be_drawn(share: float) -> None:
    values = np.array([1 - share, share])
    decoder = Sampling(floor=0.0)
    assert chosen(decoder, values, 0.0, 1 - share / 2) == 1
    assert chosen(decoder, values, 0.0, 1 - 2 * share) == 0


def test_greedy_takes_the_first_of_equal_ones() -> None:
    assert Greedy().choose(np.array([0.1, 0.4, 0.4, 0.2]), 0.0) == 1
    assert Greedy().choose(np.zeros(5), 0.0) == 0
    assert Greedy().choose(np.array([-1.0]), 9.0) == 0


def test_equal_ones_at_the_edge_of_the_nucleus_go_by_public_order() -> None:
    values = np.array([0.25, 0.25, 0.25, 0.25])
    decoder = Sampling(top_p=0.5, floor=0.0)
    assert {chosen(decoder, values, 0.0, s) for s in (0, 0.3, 0.6, 0.999)} == {
        0,
        1,
    }


@pytest.mark.parametrize(
    "terms",
    [
        {"temperature": 0},
        {"temperature": -1.0},
        {"temperature": math.inf},
        {"temperature": math.nan},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"floor": -0.1},
        {"floor": math.inf},
        {"floor": "2"},
        {"contrast": -1.0},
        {"contrast": math.nan},
        {"stop": [""]},
        {"stop": 7},
    ],
)
def test_values_out_of_range_are_named(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(terms))):
        Sampling(**terms)


def test_the_noise_of_a_mean() -> None:
    random = np.random.default_rng(5)
    sums = random.normal(scale=1.3 * math.sqrt(2), size=100_000)
    spread = (sums / 25).std()
    # The relative error of a deviation of n draws is 1 / sqrt(2 n).
    error = 5 / math.sqrt(2 * 100_000)
    assert spread == pytest.approx(noise_of_mean(1.3, 25), rel=error)
    assert spread != pytest.approx(noise_of_mean(1.3 * math.sqrt(2), 25), rel=error)


def test_the_winner_alone_can_not_be_tempered() -> None:
    assert NoisyMax(stop=["."]).stop == (".",)
    with pytest.raises(InvalidParameterError, match="no field"):
        NoisyMax(top_p=0.5)  # type: ignore[call-arg]


def test_by_default_noise_alone_is_not_drawn_from() -> None:
    draws = np.random.default_rng(3).normal(0.0, 0.1, (4000, 500))
    above = draws >= 0.1 * 3.7190164854556804
    assert 0.03 < above.any(axis=1).mean() < 0.07
    for noisy, stands_out in zip(draws[:200], above[:200], strict=True):
        drawn = chosen(Sampling(), noisy, 0.1, 0.999999)
        assert stands_out[drawn] or drawn == noisy.argmax()


# ---- the lead that a forecast tells --------------------------------------------------

LEAD_DRAWS = 40_000
# 4.9 deviations: a probability of 1e-6 on both sides together.
MARGIN = 4.9 * math.sqrt(PASS_RATE * (1 - PASS_RATE) / LEAD_DRAWS)


def wins(noise: float, *, groups: int, choices: int, lead: float) -> float:
    """Return how often the leading token has the largest noisy mean."""
    random = np.random.default_rng(11)
    won = done = 0
    while done < LEAD_DRAWS:
        size = min(4000, LEAD_DRAWS - done)
        means = random.normal(scale=noise * math.sqrt(2) / groups, size=(size, choices))
        means[:, 0] += lead
        won += int((means.argmax(axis=1) == 0).sum())
        done += size
    return won / LEAD_DRAWS


CELLS = [(1.36, 80, 100), (0.51, 10, 2), (1.08, 20, 10), (0.69, 80, 30)]


@pytest.mark.parametrize(("noise", "groups", "choices"), CELLS)
def test_a_token_with_that_lead_comes_out_as_often_as_is_said(
    noise: float, groups: int, choices: int
) -> None:
    lead = required_lead(noise_of_mean(noise, groups), choices, is_max=False)
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
            noise_of_mean(noise, groups), choices, is_max=False
        )
        rate = wins(noise, groups=groups, choices=choices, lead=lead)
        assert rate < PASS_RATE - MARGIN


@pytest.mark.parametrize(("epsilon", "groups", "choices"), [(1.0, 20, 8), (0.5, 60, 3)])
def test_the_bound_of_noisy_max(epsilon: float, groups: int, choices: int) -> None:
    lead = required_lead(2 / (epsilon * groups), choices, is_max=True)
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
