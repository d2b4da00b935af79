"""Draws have exactly the law they are said to have, and the late words decide right."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from support.exact_laws import gaussian_steps, keeps_to, laplace_steps

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.mechanisms import exact, responses
from langchain_dpicl.mechanisms.random import SecureRandom, seeded, use

DRAWS = 20_000


class Bits(SecureRandom):
    """Words as given, and then further bits as given: all zeros, or all ones."""

    def __init__(self, words: list[int], further: int) -> None:
        super().__init__()
        self._given, self._further, self.late = words, further, 0

    def words(self, count: int) -> Any:
        return np.array(self._given[:count], np.uint64)

    def randbytes(self, n: int) -> bytes:
        self.late += 1
        return bytes([self._further]) * n


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.5])
def test_rounded_gaussian_draws_keep_to_their_law(sigma: float) -> None:
    law = gaussian_steps(sigma)
    with seeded(1):
        assert keeps_to(exact.RoundedGaussian(sigma).draw(DRAWS).tolist(), law)
        # The twin: half the noise.
        half = exact.RoundedGaussian(sigma / 2).draw(DRAWS).tolist()
        assert not keeps_to(half, law)


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(22, 3)])
def test_discrete_laplace_draws_keep_to_their_law(scale: Fraction) -> None:
    law = laplace_steps(float(scale))
    with seeded(2):
        assert keeps_to(exact.DiscreteLaplace(scale).draw(DRAWS).tolist(), law)
        half = exact.DiscreteLaplace(scale / 2).draw(DRAWS).tolist()
        assert not keeps_to(half, law)
        # The twin: minus zero is not drawn again, so that zero counts twice.
        signs = np.random.default_rng(1).choice([-1, 1], DRAWS)
        twice = (exact.geometric(scale, DRAWS) * signs).tolist()
        assert not keeps_to(twice, law)


def test_a_large_scale_is_drawn_in_two_parts_of_one_law() -> None:
    scale = Fraction((1 << 22) + 3, 2)
    edges = [-float(scale) * np.log1p(-share) for share in np.arange(20) / 20]
    with seeded(3):
        drawn = exact.geometric(scale, DRAWS)
    cells = (np.searchsorted(edges, drawn + 0.5) - 1).tolist()
    assert keeps_to(cells, dict.fromkeys(range(20), 0.05))
    # The rest below a step is as good as uniform.
    step = 1 << (int(scale).bit_length() - 18)
    assert keeps_to((drawn % step).tolist(), dict.fromkeys(range(step), 1 / step))


def gaussian_edge(j: int) -> mp.mpf:
    return mp.erf((j + mp.mpf("0.5")) / (mp.mpf(3.7) * mp.sqrt(2)))


def geometric_edge(j: int) -> mp.mpf:
    return 1 - mp.exp(-(j + 1) / mp.mpf(5))


def drawn_gaussian(words: list[int]) -> list[int]:
    drawn: list[int] = exact.RoundedGaussian(3.7).draw(len(words)).tolist()
    return drawn


def drawn_geometric(words: list[int]) -> list[int]:
    drawn: list[int] = exact.geometric(Fraction(5), len(words)).tolist()
    return drawn


CELLS: list[Any] = [
    pytest.param(gaussian_edge, 63, lambda w: w, drawn_gaussian, id="gaussian"),
    # Uniforms of geometric draws are taken from the top.
    pytest.param(
        *(geometric_edge, 64, lambda w: (1 << 64) - 1 - w, drawn_geometric),
        id="geometric",
    ),
]


@pytest.mark.parametrize(("edge", "bits", "word", "draw"), CELLS)
@pytest.mark.parametrize("further", [0, 255])
def test_words_on_an_edge_are_decided_by_further_bits(
    edge: Callable[[int], mp.mpf],
    bits: int,
    word: Callable[[int], int],
    draw: Callable[[list[int]], list[int]],
    further: int,
) -> None:
    with mp.workdps(60):
        heads = [int(edge(j) * 2**bits) for j in range(12)]
    for shift, cell in ((-1, 0), (1, 1)):
        source = Bits([word(head + shift) for head in heads], further)
        with use(source):
            drawn = draw(heads)
        assert drawn == [j + cell for j in range(12)]
        assert source.late > 0, "floating point decided what it can't know"
    # Of the word that an edge lies in, zeros are below it and ones above it.
    with use(Bits([word(head) for head in heads], further)):
        assert draw(heads) == [j + (further == 255) for j in range(12)]


def test_a_margin_of_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with mp.workdps(60):
        heads = [int(gaussian_edge(j) * 2**63) for j in range(12)]
    monkeypatch.setattr(exact, "MARGIN", -1.0)
    right = [[j + cell for j in range(12)] for cell in (0, 1)]
    drawn = []
    for shift in (-1, 1):
        with use(Bits([head + shift for head in heads], 0)):
            drawn.append(drawn_gaussian(heads))
    assert drawn != right


@pytest.mark.parametrize("further", [0, 255])
def test_trials_on_the_edge_of_their_chance(further: int) -> None:
    losses, slope = np.arange(1, 8), Fraction(2, 7)
    with mp.workdps(60):
        heads = [int(mp.exp(-mp.mpf(2 * int(n)) / 7) * 2**64) for n in losses]
        chance = 1 / (1 + 4 * mp.exp(-mp.mpf(0.7)))
        edge = int(chance * 2**64)
    for shift, success in ((-1, True), (0, further == 0), (1, False)):
        with use(Bits([head + shift for head in heads], further)):
            assert exact.bernoulli_exp(losses, slope).tolist() == [success] * 7
        source = Bits([edge + shift], further)
        with use(source):
            true = responses.randomize([3], domain_size=5, epsilon=0.7)[0] == 3
        assert true == success


@pytest.mark.parametrize("scale", [0.4, 5.0, 512.0])
def test_a_quantile_is_the_least_that_noise_as_drawn_passes_rarely(
    scale: float,
) -> None:
    noise = exact.RoundedGaussian(scale)
    for share in (0.05, 1e-6, 1e-300):
        t = noise.upper_quantile(share)
        with mp.workdps(330):
            tails = [
                mp.erfc((q + mp.mpf("0.5")) / (mp.mpf(scale) * mp.sqrt(2))) / 2
                for q in (t, t - 1)
            ]
        assert tails[0] <= share
        assert tails[1] > share * (1 - 1e-6)


def test_tails_and_deviations_are_those_of_the_law() -> None:
    for noise, law in (
        (exact.RoundedGaussian(0.6), gaussian_steps(0.6)),
        (exact.RoundedGaussian(4.2), gaussian_steps(4.2)),
        (exact.DiscreteLaplace(Fraction(5, 3)), laplace_steps(5 / 3)),
    ):
        for t in (-2, 0, 1, 4):
            tail = mp.fsum(mass for k, mass in law.items() if k >= t)
            assert float(noise.reaches(t)) == pytest.approx(float(tail), rel=1e-10)
        square = mp.fsum(mass * k * k for k, mass in law.items())
        found = noise.standard_deviation
        assert found == pytest.approx(float(mp.sqrt(square)), rel=1e-4)


def test_a_laplace_scale_is_never_below_what_was_asked_for() -> None:
    for moved, epsilon in ((1, 0.3), (7, 1e-9), (3, 1e300), (2, 0.1)):
        scale = exact.DiscreteLaplace.calibrated(moved, epsilon).scale
        asked = moved / Fraction(epsilon)
        assert (
            asked <= scale <= max(asked * (1 + Fraction(1, 2**38)), Fraction(1, 9**6))
        )
    for moved, epsilon in ((1, 1e-16), (0, 1.0), (1, -1.0)):
        with pytest.raises(InvalidParameterError):
            exact.DiscreteLaplace.calibrated(moved, epsilon)
    for scale in (Fraction(0), Fraction((1 << 50) + 1), 1.0):
        with pytest.raises(InvalidParameterError):
            exact.DiscreteLaplace(scale)  # type: ignore[arg-type]
