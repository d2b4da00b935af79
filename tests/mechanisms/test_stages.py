"""Asking in stages: the public arithmetic, and an audit of what is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting.gaussian import gaussian_delta
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.rounded_gaussian import count_grid
from langchain_dpicl.mechanisms.stages import Asked, blocks, usual_stop

Floats = NDArray[np.float64]
Stop = Callable[[Asked, float], float]


@pytest.mark.parametrize(("slots", "stages"), [(1, 1), (4, 4), (10, 4), (100, 7)])
def test_each_place_is_in_one_block_of_nearly_equal_size(
    slots: int, stages: int
) -> None:
    found = blocks(slots, stages)
    assert [place for block in found for place in block] == list(range(slots))
    sizes = {len(block) for block in found}
    assert len(found) == stages
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_all_at_once_is_one_block_with_its_own_noise_and_no_part_left() -> None:
    asked = Asked.whole(100)
    assert asked.is_whole
    assert (asked.noise(3.0), asked.deviation(3.0)) == (3.0, 3.0)
    assert Asked.whole(1).deviation(2.0) == 2.0


@pytest.mark.parametrize("values", [(1, 1, 1, -1, -1, -1), (2, 2, 1, -2, -2, -1)])
def test_the_part_asked_first_varies_as_much_as_is_said_at_most(
    values: tuple[int, ...],
) -> None:
    """By enumeration: every subset that may be asked first is as likely."""
    size, most = len(values), float(max(values))
    for asked in range(1, size + 1):
        sums = [
            sum(v for v, chosen in zip(values, mask, strict=True) if chosen)
            for mask in product((0, 1), repeat=size)
            if sum(mask) == asked
        ]
        bound = Asked(asked, size).deviation(0.0, most)
        assert np.std(sums) <= bound + 1e-12
        if set(map(abs, values)) == {1}:
            assert np.std(sums) == pytest.approx(bound)


def test_one_look_is_the_rule_without_stages() -> None:
    assert usual_stop(1) == pytest.approx(mechanisms.lead_over_a_tie(1.0) / 2**0.5)
    assert mechanisms.lead_over_a_tie(3.0, looks=1) == mechanisms.lead_over_a_tie(3.0)
    assert mechanisms.least_votes(3.0, 5, 1) == mechanisms.least_votes(3.0, 5)


# -- how often a tie comes out ---------------------------------------------------------

RUNS = 60_000
ERROR = 4 * math.sqrt(0.05 * 0.95 / RUNS)
SIGMAS = (1.0, 2.9, 10.0)


def comes_out(sigma: float, stop: Stop, stages: int = 4, votes: int = 50) -> float:
    """Return how often one of two answers with the same votes is clear at some look."""
    draws = np.random.default_rng(7)
    edges = [block.stop for block in blocks(100, stages)]
    left = np.tile([votes, votes, 100 - 2 * votes], (RUNS, 1))
    lead, clear = np.zeros(RUNS), np.zeros(RUNS, bool)
    for stage, block in enumerate(blocks(100, stages), 1):
        # Which groups stand in a block is as good as drawn.
        one = draws.hypergeometric(left[:, 0], left[:, 1:].sum(axis=1), len(block))
        two = draws.hypergeometric(left[:, 1], left[:, 2], len(block) - one)
        left -= np.stack([one, two, len(block) - one - two], axis=1)
        lead += one - two + draws.normal(0, sigma * math.sqrt(2), RUNS)
        asked = Asked(edges[stage - 1], 100, stage, stages)
        clear |= np.abs(lead) >= stop(asked, sigma * math.sqrt(2))
    return float(clear.mean())


def usual(asked: Asked, noise: float) -> float:
    return usual_stop(asked.of_stages) * asked.deviation(noise)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("stages", [2, 4, 10])
def test_a_tie_comes_out_in_five_percent_over_all_looks(
    sigma: float, stages: int
) -> None:
    assert comes_out(sigma, usual, stages) <= 0.05 + ERROR
    assert comes_out(sigma, usual, stages, votes=45) <= 0.05 + ERROR


@pytest.mark.parametrize("sigma", SIGMAS)
def test_where_ties_come_out_each_look_is_wrong_in_five_percent(sigma: float) -> None:
    """Of a tie, one of the two is behind by nothing: both are counted here."""
    stop = usual_stop(4, lets_ties_out=True)
    for stage in range(1, 4):

        def at_one_look(asked: Asked, noise: float, own: int = stage) -> float:
            if asked.stages != own:
                return math.inf
            return stop * asked.deviation(noise)

        assert comes_out(sigma, at_one_look) <= 2 * 0.05 + 2 * ERROR


@pytest.mark.parametrize("sigma", SIGMAS)
def test_twins_other_rules_let_more_ties_out(sigma: float) -> None:
    """Each leaves one thing out of the usual rule."""

    def of_the_noise_alone(asked: Asked, noise: float) -> float:
        return 2.0 * asked.noise(noise)

    def of_one_look_at_the_end(asked: Asked, noise: float) -> float:
        if asked.is_whole:
            return usual_stop(1) * asked.noise(noise)
        return usual(asked, noise)

    def of_one_block(asked: Asked, noise: float) -> float:
        return usual_stop(4) * Asked(asked.slots, 100).deviation(noise)

    assert comes_out(sigma, of_the_noise_alone) > 0.12
    assert comes_out(sigma, of_one_look_at_the_end) > 0.05 + ERROR
    assert comes_out(sigma, of_one_block) > 0.05 + ERROR


def test_twin_boundaries_for_equal_steps_are_too_low_where_the_groups_all_vote() -> (
    None
):
    """2.36 is for four looks at a sum of equal independent steps, which this is not."""
    assert comes_out(1.0, lambda asked, noise: 2.36 * asked.deviation(noise)) > 0.057


# -- an audit of what is told ----------------------------------------------------------

Z = 1.0
DELTA = sensitivity.vote_l2(Relation.REPLACE)
Blocks = list[list[int]]

# One unit votes for the first label or the second; its group stands in block 2.
WITH: Blocks = [[3, 2], [4, 1], [2, 3]]
WITHOUT: Blocks = [[3, 2], [3, 2], [2, 3]]
# The twin: the unit is in a group of block 1 too.
IN_TWO: Blocks = [[4, 1], [4, 1], [2, 3]]
TOLD = 40_000


def told(votes: Blocks, factor: float) -> list[Floats]:
    """Ask in stages: return the noisy histograms until a lead is clear."""
    found: list[Floats] = []
    for stage, counts in enumerate(votes, 1):
        noisy = mechanisms.noisy_counts(
            counts, noise_multiplier=Z * factor, relation=Relation.REPLACE
        )
        found.append(noisy)
        total = np.sum(found, axis=0)
        asked = Asked(5 * stage, 15, stage, 3)
        noise = Z * DELTA * math.sqrt(2)
        if abs(total[0] - total[1]) >= 1.2 * asked.deviation(noise):
            break
    return found


def losses(votes: Blocks, pair: tuple[Blocks, Blocks], factor: float) -> Floats:
    """Return log P(told) / P'(told) of many runs, under the laws of two worlds."""
    variance = (Z * DELTA * factor) ** 2
    found = []
    for _ in range(TOLD):
        loss = 0.0
        for noisy, own, other in zip(told(votes, factor), *pair, strict=False):
            far, near = np.subtract(noisy, other), np.subtract(noisy, own)
            loss += float(far @ far - near @ near) / (2 * variance)
        found.append(loss)
    return np.array(found)


def excess(pair: tuple[Blocks, Blocks], factor: float = 1.0) -> tuple[float, float]:
    """Return how much delta there is above Gaussian(z)'s, and its standard error."""
    own, other = losses(pair[0], pair, factor), losses(pair[1], pair, factor)
    worst = (-1.0, 1.0)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        p, q = float((own > epsilon).mean()), float((other > epsilon).mean())
        error = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / TOLD)
        bound = gaussian_delta(1 / Z, epsilon)
        over = p - math.exp(epsilon) * q - bound
        if over / error > worst[0] / worst[1]:
            worst = (over, error)
    return worst


@pytest.mark.parametrize("pair", [(WITH, WITHOUT), (WITHOUT, WITH)])
def test_what_is_told_keeps_to_one_gaussian(pair: tuple[Blocks, Blocks]) -> None:
    over, error = excess(pair)
    assert over < 4 * error


@pytest.mark.parametrize(
    ("pair", "factor"),
    [((IN_TWO, WITHOUT), 1.0), ((WITH, WITHOUT), 1 / math.sqrt(3))],
    ids=["a unit in two blocks", "noise divided by the root of the stages"],
)
def test_twins_that_the_audit_catches(
    pair: tuple[Blocks, Blocks], factor: float
) -> None:
    over, error = excess(pair, factor)
    assert over > 6 * error


def law_of_noise(sigma: float) -> tuple[int, np.ndarray]:
    """Return how many steps of the noise a vote is, and each step's probability."""
    weight, noise = count_grid(sigma)
    edges = np.arange(-8 * int(noise.scale) - 0.5, 8 * noise.scale + 1) / noise.scale
    return weight, np.diff(stats.norm.cdf(edges))


def tail(law: np.ndarray, steps: float) -> float:
    """Return the probability of that many steps or more, of a law around 0."""
    return float(law[len(law) // 2 + math.ceil(steps) :].sum())


def least_before(sigma: float, labels: int, looks: int) -> float:
    share = -math.expm1(math.log1p(-0.01) / (labels * looks))
    return sigma * float(stats.norm.isf(share))


def lead_before(sigma: float, labels: int, looks: int) -> float:
    share = -math.expm1(math.log1p(-0.05) / looks)
    return sigma * math.sqrt(2) * float(stats.norm.isf(share / labels))


SIGMAS = [0.3, 0.5, 1.0, 1.7, 2.9, 4.1, 30.0, 400.0, 700.0]


def rates_of_nobody(least: Any, sigma: float) -> list[float]:
    """Return how often a label that nobody chose comes out, by the law as drawn."""
    weight, law = law_of_noise(sigma)
    return [
        1 - (1 - tail(law, least(sigma, labels, 1) * weight)) ** labels
        for labels in (1, 2, 7, 50)
    ]


def rates_of_ties(lead: Any, sigma: float, looks: int) -> list[float]:
    """Return how often a tie comes out at one of some looks at most, by the law."""
    weight, law = law_of_noise(sigma)
    one = signal.fftconvolve(law, law)  # A difference: the law is symmetric.
    summed = one
    for _ in range(looks - 1):
        summed = signal.fftconvolve(summed, one)
    deviation = sigma * math.sqrt(looks)
    each = [
        labels * tail(summed, lead(deviation, labels, looks) * weight)
        for labels in (1, 2)
    ]
    return [1 - (1 - rate) ** looks for rate in each]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_votes_and_leads_of_noise_alone_have_their_rates_as_it_is_drawn(
    sigma: float,
) -> None:
    """The noise is whole steps: its exact law holds the bounds, and hardly more."""
    nobody = rates_of_nobody(mechanisms.least_votes, sigma)
    assert max(nobody) <= 0.01
    assert min(nobody) > 0.0096
    for looks in (1, 3):
        ties = rates_of_ties(mechanisms.lead_over_a_tie, sigma, looks)
        assert max(ties) <= 0.05
        assert min(ties) > 0.047


def test_twin_the_quantiles_of_a_real_number_are_exceeded() -> None:
    assert max(max(rates_of_nobody(least_before, sigma)) for sigma in SIGMAS) > 0.01
    ties = [max(rates_of_ties(lead_before, sigma, 1)) for sigma in SIGMAS]
    assert max(ties) > 0.05
