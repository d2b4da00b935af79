from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    SecureRandom,
    SeededRandom,
    randomize,
    randomized_response,
    response_chances,
)
from langchain_dpicl.mechanisms.exponential_trials import MARGIN
from langchain_dpicl.mechanisms.randomized_response import (
    MAX_DOMAIN_SIZE,
    _exact_chance,
    _truthful,
)

Fits = Callable[..., bool]

DRAWS = 100_000


def exact_chances(epsilon: float, size: int) -> tuple[mpmath.mpf, mpmath.mpf]:
    odds = mpmath.exp(mpmath.mpf(epsilon))
    return odds / (size - 1 + odds), 1 / (size - 1 + odds)


def law(epsilon: float, size: int, true: int) -> dict[int, float]:
    with mpmath.workdps(50):
        p, q = exact_chances(epsilon, size)
        return {code: float(p if code == true else q) for code in range(size)}


CASES = [(0.1, 2), (1.0, 2), (1.0, 3), (0.5, 10), (2.5, 10), (4.0, 50)]


@pytest.mark.parametrize(("epsilon", "size"), CASES)
@pytest.mark.parametrize("end", ["first", "last"])
def test_reports_follow_the_exact_formula(
    fits: Fits, epsilon: float, size: int, end: str
) -> None:
    true = 0 if end == "first" else size - 1
    codes = np.full(DRAWS, true)
    reports = randomize(
        codes, domain_size=size, epsilon=epsilon, random=SeededRandom(1)
    ).tolist()
    assert fits(reports, law(epsilon, size, true))
    # Twins: half the budget, twice the budget, the other end, p with d for d - 1.
    assert not fits(reports, law(epsilon / 2, size, true))
    assert not fits(reports, law(epsilon * 2, size, true))
    assert not fits(reports, law(epsilon, size, size - 1 - true))
    if size <= 10:
        p = math.exp(epsilon) / (size + math.exp(epsilon))
        wrong = dict.fromkeys(range(size), (1 - p) / (size - 1)) | {true: p}
        assert not fits(reports, wrong)


def test_a_lie_that_may_be_the_truth_is_caught(fits: Fits) -> None:
    """A twin whose shift starts at 0: the truth comes too often."""
    size, epsilon = 4, 1.0
    source = SeededRandom(2)
    truthful = _truthful(DRAWS, size, epsilon, source)
    shifts = np.where(truthful, 0, source.integers(DRAWS, size))
    assert not fits(shifts.tolist(), law(epsilon, size, 0))
    shifts = np.where(truthful, 0, 1 + source.integers(DRAWS, size - 1))
    assert fits(shifts.tolist(), law(epsilon, size, 0))


def test_every_code_is_reported_independently(fits: Fits) -> None:
    """Neighboring codes of one block and across blocks."""
    rows = np.tile([0, 2, 1], (DRAWS, 1))
    reports = randomize(rows, domain_size=3, epsilon=1.0, random=SeededRandom(3))
    one, two = law(1.0, 3, 0), law(1.0, 3, 2)
    joint = {(a, b): p * q for a, p in one.items() for b, q in two.items()}
    assert fits(map(tuple, reports[:, :2].tolist()), joint)
    assert fits(reports[:, 2].tolist(), law(1.0, 3, 1))


@settings(deadline=None, max_examples=200)
@given(
    st.floats(1e-9, 600.0) | st.floats(600.0, 1e6),
    st.integers(2, 1000) | st.integers(2, MAX_DOMAIN_SIZE),
)
def test_the_chances_agree_with_the_exact_ones(epsilon: float, size: int) -> None:
    p, q = response_chances(epsilon, size)
    with mpmath.workdps(60):
        exact_p, exact_q = exact_chances(epsilon, size)
        assert abs(p - exact_p) <= exact_p * 2**-50
        assert abs(p - exact_p) < MARGIN / 1000
        # Below the normal floats only the absolute error can be small.
        assert abs(q - exact_q) <= max(exact_q * 2**-50, mpmath.mpf(2) ** -1070)


@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 1.0, 40.0, 1000.0, 1e6, 1e300])
@pytest.mark.parametrize("size", [2, 10, 2**52])
def test_the_exact_chance_keeps_its_promise_at_any_precision(
    epsilon: float, size: int
) -> None:
    for bits in (64, 128, 256):
        with mpmath.workprec(bits + 1200):
            p = 1 / (1 + (size - 1) * mpmath.exp(-mpmath.mpf(epsilon)))
            exact = p * mpmath.mpf(2) ** bits
            assert abs(_exact_chance(epsilon, size)(bits) - exact) < 2


@pytest.mark.parametrize(("epsilon", "size"), [*CASES, (30.0, 2), (0.01, 10**6)])
def test_no_ratio_of_probabilities_exceeds_the_bound(epsilon: float, size: int) -> None:
    """The claim, on what is drawn: p of the trial, (1 - p) / (d - 1) of a lie."""
    with mpmath.workprec(400):
        p = mpmath.mpf(_exact_chance(epsilon, size)(300)) / mpmath.mpf(2) ** 300
        lie = (1 - p) / (size - 1)
        bound = mpmath.exp(mpmath.mpf(epsilon))
        slack = mpmath.mpf(2) ** -200
        assert abs(p / lie / bound - 1) < slack
        # A trial with d for d - 1 in the denominator would not reach e^epsilon; one
        # that lies over d - 2 values would exceed it.
        if size > 2:
            assert p / ((1 - p) / (size - 2)) < bound
        assert p / ((1 - p) / size) > bound


class Scripted(SecureRandom):
    """Words as given, then bits that continue each of them as given."""

    def __init__(self, words: list[int], further: int) -> None:
        super().__init__()
        self.given = np.array(words, np.uint64)
        self.further = further

    def words(self, count: int) -> np.ndarray:
        assert count == self.given.size
        return self.given

    def bits(self, count: int) -> int:
        return self.further >> (64 - count)


@pytest.mark.parametrize(("epsilon", "size"), CASES)
def test_words_next_to_the_probability_are_decided_exactly(
    epsilon: float, size: int
) -> None:
    fine = _exact_chance(epsilon, size)(128)
    edge, below = divmod(fine, 2**64)
    words = [edge - 2**30, edge - 3, edge - 1, edge, edge + 1, edge + 3, edge + 2**30]
    for further, at_edge in ((below - 5, True), (below + 5, False)):
        source = Scripted(words, further)
        expected = [True, True, True, at_edge, False, False, False]
        assert _truthful(7, size, epsilon, source).tolist() == expected


def test_a_floating_point_comparison_alone_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from langchain_dpicl.mechanisms import exponential_trials

    monkeypatch.setattr(exponential_trials, "MARGIN", -1.0)
    with pytest.raises(AssertionError):
        test_words_next_to_the_probability_are_decided_exactly(1.0, 3)


def test_reports_do_not_depend_on_codes_but_by_a_shift() -> None:
    """The draws, late decisions and lies are the same for all true values."""
    size = 7
    codes = np.arange(3000) % size

    def report(true: np.ndarray) -> np.ndarray:
        source = SeededRandom(4)
        return randomize(true, domain_size=size, epsilon=1.0, random=source)

    moved = (report(codes) - codes) % size
    assert (report(np.zeros_like(codes)) == moved).all()


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.uint64])
def test_shapes_are_kept_and_the_input_is_not_changed(
    shape: tuple[int, ...], kind: type
) -> None:
    codes = np.ones(shape, kind)
    reports = randomize(codes, domain_size=3, epsilon=0.1)
    assert reports.shape == shape
    assert reports.dtype == np.int64
    assert (codes == 1).all()
    assert not np.shares_memory(codes, reports)


def test_transposed_codes_keep_their_places() -> None:
    codes = np.arange(12).reshape(3, 4).T
    assert (randomize(codes, domain_size=12, epsilon=1e6) == codes).all()


def test_blocks_are_reported_to_the_last_code(
    fits: Fits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(randomized_response, "_BLOCK", 7)
    codes = np.zeros(20_003, int)
    reports = randomize(codes, domain_size=3, epsilon=0.5, random=SeededRandom(5))
    assert fits(reports.tolist(), law(0.5, 3, 0))
    at_starts = np.concatenate([reports[::7], reports[6::7], reports[-3:]])
    assert fits(at_starts.tolist(), law(0.5, 3, 0))


def test_no_codes_and_huge_domains() -> None:
    assert randomize([], domain_size=2, epsilon=1.0).tolist() == []
    top = MAX_DOMAIN_SIZE - 1
    reports = randomize([top] * 50, domain_size=MAX_DOMAIN_SIZE, epsilon=1.0)
    assert ((reports >= 0) & (reports <= top)).all()
    assert len(set(reports.tolist())) > 45


BAD_CODES = [[771], [-771], [0, 3], [1.0], [True], ["771"], [0, [1]], [10**30], None]


@pytest.mark.parametrize("codes", BAD_CODES)
def test_codes_outside_the_domain_are_refused_without_their_values(
    codes: object,
) -> None:
    with pytest.raises(InvalidParameterError, match="codes") as caught:
        randomize(codes, domain_size=3, epsilon=1.0)
    assert "771" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("size", [1, 0, -3, 2.0, "2", None, True, 2**52 + 1])
def test_domain_sizes_out_of_range_are_refused(size: object) -> None:
    with pytest.raises(InvalidParameterError, match="domain_size"):
        randomize([0], domain_size=size, epsilon=1.0)
    with pytest.raises(InvalidParameterError, match="domain_size"):
        response_chances(1.0, size)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_budgets_out_of_range_are_refused(epsilon: object) -> None:
    with pytest.raises(InvalidParameterError, match="epsilon"):
        randomize([0], domain_size=2, epsilon=epsilon)
    with pytest.raises(InvalidParameterError, match="epsilon"):
        response_chances(epsilon, 2)


def test_other_generators_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="SecureRandom"):
        randomize([0], domain_size=2, epsilon=1.0, random=np.random.default_rng(1))


def test_an_integer_or_fraction_epsilon_is_as_good_as_a_float() -> None:
    for epsilon in (1, Fraction(1), np.float64(1.0)):
        assert response_chances(epsilon, 4) == response_chances(1.0, 4)
