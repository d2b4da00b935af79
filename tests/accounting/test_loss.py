"""Privacy loss distributions: what is composed, what its errors may hide, its bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import fft, optimize

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    FixedSampleGaussianEvent,
    Gaussian,
    Pure,
    RenyiEvent,
    ZCDPEvent,
    loss,
)
from langchain_dpicl.accounting.discretization import (
    COARSE,
    FINE,
    SLOPES,
    Measure,
    _measure,
    discretize,
    grid_step,
    one_use,
)
from langchain_dpicl.accounting.loss import (
    _compose,
    _Composed,
    _epsilon_at,
    _fold,
    _order_epsilon,
    _window,
    loss_epsilon,
)

Floats = npt.NDArray[np.float64]

# -- figures --------------------------------------------------------------------------

LISTS: dict[str, list[Event]] = {
    "plain": [Gaussian(6.0, count=30)],
    "sampled": [Gaussian(1.1, 0.02, 100)],
    "often": [Gaussian(40.0, 0.1, 20_000)],
    "fixed sample": [FixedSampleGaussianEvent(1.3, 0.05, 40)],
    "pure": [Pure(0.3, 20)],
    "large and pure": [Pure(3.0, 5)],
    "exponential": [Exponential(0.1, 300)],
    "both orders": [Gaussian(0.5, 0.4), Pure(0.9)],
    "mixed": [Gaussian(2.0, 0.05, 50), Pure(0.2, 3), Exponential(0.4)],
    "hardly any noise": [Gaussian(0.02, 0.3, 2)],
}
RECORDED: dict[tuple[str, float, float], float] = {
    ("plain", 1e-06, FINE): 4.406589760794814,
    ("plain", 1e-06, COARSE): 4.410025728908382,
    ("sampled", 1e-06, FINE): 1.3875541864572307,
    ("sampled", 1e-06, COARSE): 1.387853603316375,
    ("sampled", 1e-10, FINE): 2.52264475383963,
    ("sampled", 1e-10, COARSE): 2.5229076164736286,
    ("sampled", 1e-13, FINE): math.inf,
    ("sampled", 1e-13, COARSE): math.inf,
    ("often", 1e-06, FINE): 1.5445427887537317,
    ("fixed sample", 1e-06, FINE): 1.8079311540530845,
    ("pure", 1e-06, FINE): 5.932445435086922,
    ("pure", 1e-10, FINE): 6.052532641580657,
    ("pure", 1e-13, FINE): 6.0777748416737944,
    ("large and pure", 1e-06, FINE): 14.999998725027591,
    ("large and pure", 0.9, FINE): 8.092426780872083,
    ("exponential", 1e-06, FINE): 9.16663357440966,
    ("both orders", 0.45, FINE): 0.08839902367727866,
    ("both orders", 0.001, FINE): 6.764124903472066,
    ("mixed", 1e-06, FINE): 1.7824457719572049,
    ("mixed", 1e-10, FINE): 2.2894357520808803,
    ("mixed", 1e-13, FINE): 2.682879784281776,
    ("hardly any noise", 1e-06, FINE): 2814.9803595293256,
}


@pytest.mark.parametrize(("name", "delta", "resolution"), RECORDED)
def test_recorded_figures(name: str, delta: float, resolution: float) -> None:
    found = loss_epsilon(LISTS[name], delta, resolution=resolution)
    expected = RECORDED[name, delta, resolution]
    # Processors round Fourier transforms differently.
    assert found == pytest.approx(expected, rel=1e-7, abs=0)


def test_the_default_resolution_is_the_fine_one() -> None:
    events = LISTS["sampled"]
    assert loss_epsilon(events, 1e-6) == loss_epsilon(events, 1e-6, resolution=FINE)
    assert loss_epsilon(events, 1e-6) < loss_epsilon(events, 1e-6, resolution=COARSE)
    with pytest.raises(TypeError):
        loss_epsilon(events, 1e-6, COARSE)  # type: ignore[misc]


@pytest.mark.parametrize("event", [ZCDPEvent(1e-9), RenyiEvent(3.0, 1e-9)])
def test_what_has_no_distribution_has_no_bound(event: Event) -> None:
    assert loss_epsilon([event], 0.5) == math.inf
    assert loss_epsilon([Pure(0.1), event], 0.5) == math.inf
    assert loss_epsilon([event, Pure(0.1)], 0.5) == math.inf


def test_a_million_uses_are_the_most() -> None:
    often = [Gaussian(100.0, 0.01, 999_999), Pure(1e-4)]
    assert 0.3 < loss_epsilon(often, 1e-6) < 0.6
    assert loss_epsilon([*often, Pure(1e-5)], 1e-6) == math.inf


def test_a_step_of_sixteen_is_the_longest() -> None:
    least = [Gaussian(2.0**-9)]
    assert grid_step(least, FINE) == 16.0
    assert 131_072 < loss_epsilon(least, 1e-6) < 140_000
    assert grid_step([Gaussian(2.0**-10)], FINE) == 32.0
    assert loss_epsilon([Gaussian(2.0**-10)], 1e-6) == math.inf
    assert loss_epsilon([Gaussian(1e-200)], 1e-6) == math.inf


@pytest.mark.parametrize("error", [OverflowError, ValueError, MemoryError])
def test_what_the_other_library_refuses_has_no_bound(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_args: object) -> None:
        raise error

    monkeypatch.setattr(loss, "discretize", refuse)
    assert loss_epsilon([Gaussian(1.0, 0.5)], 1e-6) == math.inf


@pytest.mark.parametrize("figures", [(1.0, math.nan), (math.nan, 1.0)])
def test_a_figure_that_is_no_number_is_no_bound(
    monkeypatch: pytest.MonkeyPatch, figures: tuple[float, float]
) -> None:
    left = list(figures)
    monkeypatch.setattr(loss, "_order_epsilon", lambda *_: left.pop())
    assert loss_epsilon([Gaussian(1.0, 0.5)], 1e-6) == math.inf
    assert left == []


@pytest.mark.parametrize("first", [1.0, 2.0])
def test_the_dearer_order_of_the_neighbors_counts(
    monkeypatch: pytest.MonkeyPatch, first: float
) -> None:
    left = [3.0 - first, first]
    asked: list[Any] = []

    def bound(uses: Any, *_args: object) -> float:
        asked.append(uses)
        return left.pop()

    monkeypatch.setattr(loss, "_order_epsilon", bound)
    gaussian, pure = Gaussian(1.0, 0.5, 3), Pure(0.5, 7)
    assert loss_epsilon([gaussian, pure], 1e-6) == 2.0
    step = grid_step([gaussian, pure], FINE)
    removing, adding = discretize(one_use(gaussian), step)
    (both,) = discretize(one_use(pure), step)
    assert [[n for _, n in uses] for uses in asked] == [[3, 7]] * 2
    assert [[m for m, _ in uses] for uses in asked] == [
        [removing, both],
        [adding, both],
    ]
    left.append(5.0)
    asked.clear()
    assert loss_epsilon([pure], 1e-6) == 5.0
    assert len(asked) == 1


def test_a_window_of_too_many_points_has_no_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = Pure(0.5)
    step = grid_step([event], FINE)
    lowest, highest = _window([(discretize(event, step)[0], 1)], None)
    size = highest - lowest + 1
    assert size % 2 == 0
    monkeypatch.setattr(loss, "MAX_COMPOSED", size // 2)
    assert math.isfinite(loss_epsilon([event], 1e-3))
    monkeypatch.setattr(loss, "MAX_COMPOSED", (size - 1) / 2)
    assert loss_epsilon([event], 1e-3) == math.inf


# -- one order ------------------------------------------------------------------------


def tilt_of(uses: list[tuple[Measure, int]], step: float, delta: float) -> int:
    """Return the slope, above 0, of the least Chernoff bound of the loss at delta."""
    slopes = SLOPES[SLOPES > 0] / step
    totals = sum(n * m.cumulants[: len(slopes)] for m, n in uses)
    return int(np.argmin((totals - math.log(delta)) / slopes))


@pytest.mark.parametrize("share", [0.0029, 0.0031])
def test_errors_that_are_a_large_share_of_delta_are_made_small(share: float) -> None:
    event = Gaussian(1.1, 0.02)
    step = grid_step([event], FINE)
    uses = [(discretize(event, step)[0], 100)]
    plain = _compose(uses, step, None)
    delta = plain.noise / share
    untilted = _epsilon_at(plain, delta, step)
    composed = _compose(uses, step, tilt_of(uses, step, delta))
    tilted = _epsilon_at(composed, delta, step)
    assert tilted < untilted
    assert _order_epsilon(uses, delta, step) == (tilted if share > 0.003 else untilted)


def test_a_tilted_window_is_eight_times_as_long_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event, delta = Gaussian(1.1, 0.02), 1e-11
    step = grid_step([event], FINE)
    uses = [(discretize(event, step)[0], 100)]
    plain = _compose(uses, step, None)
    tilt = tilt_of(uses, step, delta)
    lowest, highest = _window(uses, tilt)
    assert loss._TILTED_SIZE == 8
    share = (highest - lowest) / len(plain.tilted)
    assert share * len(plain.tilted) == highest - lowest
    untilted = _epsilon_at(plain, delta, step)
    monkeypatch.setattr(loss, "_TILTED_SIZE", share)
    assert _order_epsilon(uses, delta, step) == untilted
    monkeypatch.setattr(loss, "_TILTED_SIZE", share * 1.001)
    assert _order_epsilon(uses, delta, step) < untilted


def test_the_smaller_of_both_figures_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    event, delta = Gaussian(1.1, 0.02), 1e-13
    step = grid_step([event], FINE)
    uses = [(discretize(event, step)[0], 100)]
    for figures in ([1.0, 2.0], [2.0, 1.0]):
        left = list(figures)
        monkeypatch.setattr(loss, "_epsilon_at", lambda *_, left=left: left.pop())
        assert _order_epsilon(uses, delta, step) == 1.0
        assert left == []


# -- the convolution ------------------------------------------------------------------

STEP = 0.25
ONE = _measure(-2, np.array([0.1, 0.0, 0.2, 0.4, 0.3]), 0.0, STEP)
OTHER = _measure(1, np.array([0.5, 0.5000001]), 1e-7, STEP)
USES = [(ONE, 3), (OTHER, 2)]


def convolved() -> Floats:
    found = np.ones(1)
    for measure, count in USES:
        for _ in range(count):
            found = np.convolve(found, measure.probabilities)
    return found


def test_the_tilt_is_that_of_the_least_chernoff_bound() -> None:
    # Of few grid points, where the bounds are close to one another.
    uses, delta = [(ONE, 6)], 1e-12
    plain = _epsilon_at(_compose(uses, STEP, None), delta, STEP)
    tilt = tilt_of(uses, STEP, delta)
    figures = [
        _epsilon_at(_compose(uses, STEP, k), delta, STEP)
        for k in (tilt, tilt - 20, tilt - 5)
    ]
    assert figures[0] not in figures[1:]
    assert _order_epsilon(uses, delta, STEP) == min(plain, figures[0]) == figures[0]


@pytest.mark.parametrize("tilt", [None, 40, 90, 120])
def test_uses_are_convolved_tilted_and_with_their_errors_known(
    tilt: int | None,
) -> None:
    composed = _compose(USES, STEP, tilt)
    mass = convolved()
    first = 3 * -2 + 2 * 1
    slope = 0.0 if tilt is None else SLOPES[tilt] / STEP
    losses = (first + np.arange(len(mass))) * STEP
    cumulant = math.log(float((mass * np.exp(slope * losses)).sum())) if slope else 0.0
    assert composed.start == first * STEP
    assert composed.slope == slope
    assert composed.cumulant == pytest.approx(cumulant, rel=1e-9, abs=1e-12)
    tilted = mass * np.exp(slope * losses - cumulant)
    assert composed.tilted == pytest.approx(tilted, abs=1e-15)
    # Two masses above 1: what each use's own error may hide grows with them.
    errors = 3 * ONE.error + 2 * (1e-7 + OTHER.error)
    growth = (1.0000001 + 1e-7) ** 2
    assert composed.allowance == pytest.approx(errors * growth, rel=1e-12, abs=0)
    # Two cut tails, and four roundings for each use and one bit of a transform.
    length = fft.next_fast_len(len(mass), real=True)
    spectrum = fft.rfft(tilted, length)
    norm = math.sqrt(2 * float((abs(spectrum) ** 2).sum()))
    roundings = 4 * math.log2(length + 1) * (5 + 2)
    if tilt is not None:
        for measure, count in USES:
            grid = np.arange(len(measure.probabilities)) + measure.lowest
            weights = slope * grid * STEP - measure.cumulants[tilt]
            roundings += count * float(np.abs(weights).max())
    expected = 2e-16 + 2.0**-52 * roundings * norm
    assert composed.noise == pytest.approx(expected, rel=1e-6, abs=0)


@pytest.mark.parametrize("tilt", [None, 30, 60, 85, 99])
@pytest.mark.parametrize(("z", "q", "uses"), [(1.1, 0.02, 100), (40.0, 0.1, 2000)])
def test_a_window_ends_where_the_best_chernoff_bound_leaves_next_to_nothing(
    z: float, q: float, uses: int, tilt: int | None
) -> None:
    event = Gaussian(z, q)
    step = grid_step([event], FINE)
    measure = discretize(event, step)[0]
    slope, at_slope = 0.0, 0.0
    if tilt is not None:
        slope, at_slope = SLOPES[tilt], measure.cumulants[tilt]
    rising = SLOPES - slope
    exponents = uses * (measure.cumulants - at_slope) - math.log(1e-16)
    ends = (
        uses * measure.lowest,
        uses * (measure.lowest + len(measure.probabilities) - 1),
    )
    bounds = exponents[rising < 0] / rising[rising < 0]
    lowest = math.floor(max([*bounds, ends[0]]))
    bounds = exponents[rising > 0] / rising[rising > 0]
    highest = math.ceil(min([*bounds, ends[1]]))
    assert _window([(measure, uses)], tilt) == (lowest, highest)


def test_a_window_ends_where_the_grid_does() -> None:
    assert _window(USES, None) == (3 * -2 + 2 * 1, 3 * 2 + 2 * 2)


@pytest.mark.parametrize(("size", "length"), [(3, 7), (7, 7), (8, 7), (20, 7), (1, 1)])
def test_folding_adds_what_agrees_modulo_the_length(size: int, length: int) -> None:
    values = np.arange(1.0, size + 1)
    expected = [values[k::length].sum() for k in range(length)]
    assert _fold(values, length).tolist() == expected


def test_no_mass_far_out_is_no_mass_however_it_is_tilted() -> None:
    masses = np.zeros(500)
    masses[:2] = 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        composed = _compose([(_measure(0, masses, 0.0, STEP), 2)], STEP, 99)
    assert np.isfinite(composed.tilted).all()
    assert composed.tilted.sum() == pytest.approx(1.0)


def test_what_is_cut_off_is_wrapped_and_never_lost() -> None:
    event = Gaussian(1.1, 0.02)
    step = grid_step([event], FINE)
    composed = _compose([(discretize(event, step)[0], 400)], step, None)
    assert len(composed.tilted) < 400 * len(discretize(event, step)[0].probabilities)
    assert composed.tilted.sum() == pytest.approx(1.0, abs=1e-12)
    # Nor is a mass that rounding puts below 0.
    few = _compose([(discretize(event, step)[0], 3)], step, None)
    assert min(composed.tilted.min(), few.tilted.min()) == 0.0


# -- the figure -----------------------------------------------------------------------

LOSSES = 0.1 * np.arange(40)
MASS = np.exp(-LOSSES) / np.exp(-LOSSES).sum()


def curve(epsilon: float, start: float = 0.0) -> float:
    losses = start + LOSSES
    return float((MASS * np.maximum(0.0, -np.expm1(epsilon - losses))).sum())


@pytest.mark.parametrize("start", [-3.0, -0.05, 0.0, 0.3])
@pytest.mark.parametrize("delta", [0.3, 0.01, 1e-4, 1e-7])
def test_the_figure_is_where_the_curve_meets_delta(start: float, delta: float) -> None:
    composed = _Composed(start, MASS, 0.0, 0.0, allowance=delta / 5, noise=0.0)
    found = _epsilon_at(composed, delta, 0.1)
    target = delta * (1 - 1e-10) - delta / 5
    least = max(0.0, start)
    if curve(least, start) <= target:
        assert found == pytest.approx(least, rel=2e-12)
        assert found >= least
        return
    root = optimize.brentq(lambda e: curve(e, start) - target, least, 10, xtol=1e-15)
    assert found == pytest.approx(root * (1 + 1e-12), rel=1e-11)


def test_points_below_no_loss_are_not_looked_at() -> None:
    composed = _Composed(-0.05, MASS, 0.0, 0.0, allowance=0.0, noise=0.0)
    found = _epsilon_at(composed, 0.9, 0.1)
    assert found == pytest.approx(0.05 * (1 + 1e-12), rel=1e-14)
    composed = composed._replace(start=-0.1)
    assert _epsilon_at(composed, 0.9, 0.1) == 0.0


def test_the_noise_of_a_loss_is_that_of_all_losses_beyond_it() -> None:
    tilt, noise, delta = 0.5, 1e-5, 1e-3
    cumulant = math.log(float((MASS * np.exp(tilt * LOSSES)).sum()))
    tilted = MASS * np.exp(tilt * LOSSES - cumulant)
    composed = _Composed(0.0, tilted, tilt, cumulant, 0.0, noise)
    found = _epsilon_at(composed, delta, 0.1)

    # Between two points it is counted as it is a whole step below the upper one.
    upper = LOSSES[np.searchsorted(LOSSES, found * (1 - 1e-9))]
    hidden = noise * math.exp(cumulant - tilt * (upper - 0.1))
    assert curve(found) + hidden == pytest.approx(delta, rel=1e-9)


def test_running_sums_may_be_off_by_a_rounding_for_each_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With much larger roundings their weight can be seen.
    monkeypatch.setattr(loss, "ROUNDING", 1e-5)
    delta = 0.01
    found = _epsilon_at(_Composed(0.0, MASS, 0.0, 0.0, 0.0, 0.0), delta, 0.1)
    upper = int(np.searchsorted(LOSSES, found * (1 - 1e-9)))
    hidden = 2e-5 * len(LOSSES) * float(MASS[upper:].sum())
    assert curve(found) + hidden == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("start", [0.35, 2.0])
def test_nothing_is_known_below_the_first_loss_nor_where_nothing_is_rare(
    start: float,
) -> None:
    # exp(K - t l) is no bound of a probability below K / t.
    tilted = np.full(3, 1e-12)
    composed = _Composed(0.0, np.zeros(40), 0.5, start / 2, 0.0, 1e-9)
    found = _epsilon_at(composed, 0.5, 0.1)
    first = math.ceil(start / 0.1 - 1e-9) * 0.1
    assert found == pytest.approx(first * (1 + 1e-12), rel=1e-15)
    # Where all losses are below that, the least is the figure, or nothing is known.
    short = _Composed(0.0, tilted, 0.5, start / 2, 0.0, 1e-9)
    assert _epsilon_at(short, 1.0000001e-9, 0.1) == start * (1 + 1e-12)
    assert _epsilon_at(short, 1e-9, 0.1) == math.inf


def test_a_delta_that_is_used_up_has_no_bound() -> None:
    for delta, allowance in ((1e-6, 1e-6), (1e-6, 1e-6 * (1 - 1e-10)), (1e-6, 1e-3)):
        composed = _Composed(-1.0, np.zeros(40), 0.0, 0.0, allowance, 0.0)
        assert _epsilon_at(composed, delta, 0.1) == math.inf
    almost = _Composed(-1.0, np.zeros(40), 0.0, 0.0, 1e-6 * (1 - 1e-9), 0.0)
    assert _epsilon_at(almost, 1e-6, 0.1) == 0.0
    # Nor is there one where the noise alone is more.
    noisy = _Composed(-1.0, np.zeros(40), 0.0, 0.0, 0.0, 1.1e-6)
    assert _epsilon_at(noisy, 1e-6, 0.1) == math.inf


def test_a_curve_that_jumps_to_delta_is_met_at_the_point_before() -> None:
    # Hardly any mass from the second point on: the noise decides, a step earlier.
    mass = np.array([1.0, 1e-13, 1e-13, 1e-13])
    composed = _Composed(0.0, mass, 1.0, 0.0, 0.0, 1e-3)
    factor = math.exp(0.1)
    delta = 1e-3 * factor * math.exp(-0.2) * (1 + 1e-6)
    found = _epsilon_at(composed, delta, 0.1)
    assert found == pytest.approx(0.1 * (1 + 1e-12), rel=1e-14)
