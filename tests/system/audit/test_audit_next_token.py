"""Two worlds, many tokens: an attack on what few-shot generation releases.

*Measured here.* A unit x is in a token's sample with probability q, and its slot is
then certain of another token. An attacker sees the noisy *vectors* of T tokens and
says whether x was among the records. What that proves of epsilon, at confidence 1 -
1e-6 and for each of several deltas, stays below what the accountant claims; and it is
sharp enough to find out half the noise, the wrong sensitivity, and a sample that is
drawn once and used for every token.

An attack on the argmax alone would not do: the last test shows that half the noise
goes unseen there.

*Not measured here.* The exact law of the noise (`tests/mechanisms`), and that a
generator samples as this file does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

from langchain_dpicl import accounting
from langchain_dpicl.mechanisms import (
    SecureRandom,
    SeededRandom,
    next_token,
    noisy_next_token,
    sensitivity,
)
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

SIDE, CALLS = 100, 90
DELTAS = (1e-3, 1e-2, 0.03, 0.1, 0.2)
DOUBT = 5e-8
"""Of each bound; of two of them, at five deltas, by two scores: 1e-6."""

Sampling = Callable[[SecureRandom, int], np.ndarray]
Score = Callable[[np.ndarray], np.ndarray]


def sample(source: SecureRandom, rate: float) -> np.ndarray:
    return source.words(SIDE) < np.uint64(int(rate * 2**63) * 2 - 1)


def afresh(rate: float) -> Sampling:
    """Whether x is in the sample: drawn for every token, shape `(T, SIDE)`."""
    return lambda source, tokens: np.array(
        [sample(source, rate) for _ in range(tokens)]
    )


def once(rate: float) -> Sampling:
    """The same sample for every token: its seed is set again at each of them."""
    return lambda source, tokens: np.tile(sample(source, rate), (tokens, 1))


def never(source: SecureRandom, tokens: int) -> np.ndarray:
    return np.zeros((tokens, SIDE), bool)


def releases(sampling: Sampling, z: float, tokens: int, seed: int) -> np.ndarray:
    """Return the vectors of `CALLS * SIDE` runs: how far each leans to x's token.

    One call serves `SIDE` runs. Each has a row and two tokens of its own, and as the
    noise of all coordinates is independent they are as good as calls of their own.
    A lean is 0 without x and 1 / z with it, in units of the noise it should have.
    """
    source = SeededRandom(seed)
    rows = np.arange(SIDE)
    seen = np.empty((CALLS, tokens, SIDE))
    for call in range(CALLS):
        for token, sampled in enumerate(sampling(source, tokens)):
            slots = np.zeros((SIDE, 2 * SIDE))
            slots[rows, 2 * rows + sampled] = 1.0
            noisy = noisy_next_token(slots, noise_multiplier=z, random=source)
            seen[call, token] = noisy[1::2] - noisy[::2] + 1
    return seen.transpose(0, 2, 1).reshape(-1, tokens) / (2 * z)


def excess(absent: np.ndarray, present: np.ndarray, claims: list[float]) -> float:
    """Return by how much epsilon is surely exceeded, at its worst delta.

    The threshold is found on the first third of the runs and tried on the others.
    """
    third = len(absent) // 3
    scores = np.concatenate([absent[:third], present[:third]])
    thresholds = np.quantile(scores, np.linspace(0.01, 0.999, 60))

    def bound(delta: float, threshold: float, part: slice) -> float:
        n = len(absent[part])
        fp = int(np.sum(absent[part] > threshold))
        tp = int(np.sum(present[part] > threshold))
        most = stats.beta.ppf(1 - DOUBT, fp + 1, n - fp) if fp < n else 1.0
        least = stats.beta.ppf(DOUBT, tp, n - tp + 1) if tp else 0.0
        return math.log(max(least - delta, 1e-300) / most)

    def measured(delta: float) -> float:
        train, test = slice(third), slice(third, None)
        best = max(thresholds, key=lambda one: bound(delta, one, train))
        return bound(delta, best, test)

    return max(
        measured(delta) - claim for delta, claim in zip(DELTAS, claims, strict=True)
    )


def claimed(z: float, rate: float, tokens: int) -> list[float]:
    event = accounting.Gaussian(z, sampling_rate=rate, count=tokens)
    return [accounting.compose([event], delta=delta) for delta in DELTAS]


def found_at_once(score: Score) -> float:
    """One token, no sampling, z = 1."""
    absent = releases(never, 1.0, 1, seed=1)
    present = releases(lambda *_: np.ones((1, SIDE), bool), 1.0, 1, seed=2)
    return excess(score(absent), score(present), claimed(1.0, 1.0, 1))


def lean(seen: np.ndarray) -> np.ndarray:
    return seen.sum(axis=1)


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        next_token, "RoundedGaussian", lambda scale: RoundedGaussian(scale / 2)
    )


def test_a_vector_tells_no_more_than_is_claimed() -> None:
    assert -0.4 < found_at_once(lean) <= 0


def test_half_the_noise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    assert found_at_once(lean) > 1.0


def test_the_sensitivity_of_add_remove_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensitivity, "next_token_l2", lambda relation: 1.0)
    assert found_at_once(lean) > 0.2


RATE, Z, TOKENS = 0.1, 1.0, 16


def likelihood(seen: np.ndarray) -> np.ndarray:
    """The best score there is, where each token has a sample of its own."""
    ratios = seen / Z - 1 / (2 * Z**2)
    each: np.ndarray = special.logsumexp(
        [ratios + math.log(RATE), np.full_like(ratios, math.log1p(-RATE))], axis=0
    )
    return each.sum(axis=1)


def found_in_samples(sampling: Sampling) -> float:
    absent = releases(never, Z, TOKENS, seed=3)
    present = releases(sampling, Z, TOKENS, seed=4)
    claims = claimed(Z, RATE, TOKENS)
    return max(
        excess(score(absent), score(present), claims) for score in (lean, likelihood)
    )


def test_fresh_samples_tell_no_more_than_is_claimed() -> None:
    assert -0.4 < found_in_samples(afresh(RATE)) <= 0


def test_one_sample_for_all_tokens_is_found_out() -> None:
    assert found_in_samples(once(RATE)) > 1.0


def test_half_the_noise_is_found_out_in_samples_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shrink(monkeypatch)
    assert found_in_samples(afresh(RATE)) > 0.5


def test_the_argmax_alone_would_hide_half_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why the vector is audited: here the other slots leave no doubt of the token."""

    def winner(seen: np.ndarray) -> np.ndarray:
        # Ten other slots are certain of x's token.
        return (seen[:, 0] + 10 / 2 > 0).astype(float)

    shrink(monkeypatch)
    assert found_at_once(lean) > 0.5
    assert found_at_once(winner) < 0
