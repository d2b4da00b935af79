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
from support.few_shot_fakes import WordModel, generator_of, records_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot import Decoder, Greedy, Sampling
from langchain_dpicl.few_shot.decoding import noise_of_mean
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom, use

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
    Sampling(floor=0),
    Sampling(),
    Sampling(temperature=0.6, floor=0),
    Sampling(temperature=2.5, floor=1),
    Sampling(top_p=0.8, floor=0),
    Sampling(top_p=0.5, floor=0),
    Sampling(temperature=0.7, top_p=0.9, floor=2),
]


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_sampling_has_its_exact_distribution(sampling: Sampling) -> None:
    assert fits(sampling, exact(sampling))


@pytest.mark.parametrize(
    ("broken", "right"),
    [
        (Sampling(floor=0), Sampling(temperature=0.8, floor=0)),
        (Sampling(floor=0), Sampling(floor=2)),
        (Sampling(floor=1), Sampling(floor=2)),
        (Sampling(floor=0), Sampling(top_p=0.95, floor=0)),
        (Sampling(top_p=0.75, floor=0), Sampling(top_p=0.8, floor=0)),
        (Sampling(top_p=0.9, floor=2), Sampling(temperature=0.7, top_p=0.9, floor=2)),
    ],
)
def test_twin_another_distribution_is_found_out(
    broken: Sampling, right: Sampling
) -> None:
    assert not fits(broken, exact(right))


class Fixed(SecureRandom):
    """Draws one number for ever."""

    def __init__(self, share: float) -> None:
        self.share = share

    def randrange(self, bound: int, *_: Any) -> int:  # type: ignore[override]
        return min(int(self.share * bound), bound - 1)


def chosen(decoder: Decoder, noisy: Any, noise: float, share: float) -> int:
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
    decoder = Sampling(temperature, top_p, floor)
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
    place = chosen(Sampling(*terms, floor=0), noisy, 0.1, share)
    assert place == Greedy().choose(noisy, 0.1)


def test_where_nothing_stands_out_the_largest_is_taken() -> None:
    for noisy in ([-0.3, -0.1, -0.2], [0.0, 0.0, -1.0], [0.1, 0.19, 0.15]):
        values = np.array(noisy)
        for share in (0.0, 0.5, 1.0):
            found = chosen(Sampling(floor=2), values, 0.1, share)
            assert found == int(np.argmax(values))


def test_the_floor_is_in_deviations_of_the_noise() -> None:
    values = np.array([0.19, 0.21])
    assert chosen(Sampling(floor=2), values, 0.1, 0.999) == 1
    assert {chosen(Sampling(floor=2), values, 0.1, s) for s in (0, 0.999)} == {1}
    assert {chosen(Sampling(floor=1), values, 0.1, s) for s in (0, 0.999)} == {
        0,
        1,
    }
    # The floor itself counts, and so does what is just above it.
    for least in (0.2, 0.205):
        both = np.array([0.3, least])
        drawn = {chosen(Sampling(floor=2), both, 0.1, s) for s in (0, 0.999)}
        assert drawn == {0, 1}


@pytest.mark.parametrize("share", [1e-3, 1e-9])
def test_a_rare_token_can_be_drawn(share: float) -> None:
    values = np.array([1 - share, share])
    decoder = Sampling(floor=0)
    assert chosen(decoder, values, 0.0, 1 - share / 2) == 1
    assert chosen(decoder, values, 0.0, 1 - 2 * share) == 0


def test_greedy_takes_the_first_of_equal_ones() -> None:
    assert Greedy().choose(np.array([0.1, 0.4, 0.4, 0.2]), 0.0) == 1
    assert Greedy().choose(np.zeros(5), 0.0) == 0
    assert Greedy().choose(np.array([-1.0]), 9.0) == 0


def test_equal_ones_at_the_edge_of_the_nucleus_go_by_public_order() -> None:
    values = np.array([0.25, 0.25, 0.25, 0.25])
    decoder = Sampling(top_p=0.5, floor=0)
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
    ],
)
def test_values_out_of_range_are_named(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(terms))):
        Sampling(**terms)


def test_decoders_describe_themselves() -> None:
    assert Greedy().described() == {"decoder": "Greedy"}
    assert Sampling(0.5, 0.9, 1.0).described() == {
        "decoder": "Sampling",
        "temperature": 0.5,
        "top_p": 0.9,
        "floor": 1.0,
    }


def test_a_decoder_of_ones_own() -> None:
    class Last(Decoder):
        def choose(self, noisy: Any, noise: float) -> int:
            return len(noisy) - 1

    terms: dict[str, Any] = {"top_k_public": None, "max_tokens": 2}
    made = generator_of(WordModel(ending=None), decoder=Last(), **terms)
    found = made.generate(records_of(400))
    assert found[0]["text"] == "wide wide"
    assert found.record["parameters"]["decoder"] == "Last"


def test_the_decoder_is_told_the_noise_of_the_mean() -> None:
    told: list[float] = []

    class Curious(Greedy):
        def choose(self, noisy: Any, noise: float) -> int:
            told.append(noise)
            return super().choose(noisy, noise)

    made = generator_of(
        labels=["color"], n_groups=10, noise_multiplier=2.0, decoder=Curious()
    )
    made.generate([{"text": "red", "label": "color"}] * 60)
    # Replacing an answer moves the sum by sqrt 2 at most.
    assert told == [pytest.approx(2.0 * math.sqrt(2) / 10)] * len(told) != []


def test_the_noise_of_a_mean() -> None:
    random = np.random.default_rng(5)
    sums = random.normal(scale=1.3 * math.sqrt(2), size=100_000)
    spread = (sums / 25).std()
    # The relative error of a deviation of n draws is 1 / sqrt(2 n).
    error = 5 / math.sqrt(2 * 100_000)
    assert spread == pytest.approx(noise_of_mean(1.3, 25), rel=error)
    assert spread != pytest.approx(noise_of_mean(1.3 * math.sqrt(2), 25), rel=error)


def test_by_default_noise_alone_is_not_drawn_from() -> None:
    draws = np.random.default_rng(3).normal(0.0, 0.1, (4000, 500))
    above = draws >= 0.1 * 3.7190164854556804
    assert 0.03 < above.any(axis=1).mean() < 0.07
    for noisy, stands_out in zip(draws[:200], above[:200], strict=True):
        drawn = chosen(Sampling(), noisy, 0.1, 0.999999)
        assert stands_out[drawn] or drawn == noisy.argmax()
