"""What the tests of promises do not hold of releases: planning, grids, refusals.

That draws have the law that was paid for, and that no neighbor is farther away than the
sensitivity, stands in `tests/unit_tests/laws`, with the broken twins.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from support.exact_laws import gaussian_steps, keeps_to, laplace_steps

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.accounting import Exponential, Failure, Gaussian, Pure
from langchain_dpicl.mechanisms import (
    keyword_joint,
    keyword_ptr,
    keyword_threshold,
    next_token,
    responses,
    tables,
    voting,
)
from langchain_dpicl.mechanisms.random import seeded

# ---- Votes ---------------------------------------------------------------------------


def test_thresholds_of_large_noise_hold_too() -> None:
    for sigma in (1023.0, 1025.0, 5e4, 1.4e6):
        below = float(stats.norm.sf((voting.least_votes(sigma, 3) - 0.5) / sigma))
        assert -math.expm1(3 * math.log1p(-below)) == pytest.approx(0.01, rel=0.01)
        lead = voting.lead_over_a_tie(sigma)
        real = 2 * float(stats.norm.sf(lead / (sigma * math.sqrt(2))))
        assert real == pytest.approx(0.05, rel=0.01)
        found = voting.required_lead(4, sigma=sigma) / sigma
        assert found == pytest.approx(
            voting.required_lead(4, sigma=800.0) / 800, rel=0.01
        )


@pytest.mark.parametrize("min_lead", [0.0, 6.5])
def test_a_required_lead_is_the_least_that_comes_out(min_lead: float) -> None:
    sigma, labels, runs = 2.5, 3, 60_000
    lead = voting.required_lead(labels, sigma=sigma, min_lead=min_lead)
    least = voting.least_votes(sigma, labels)
    tie = voting.lead_over_a_tie(sigma, labels=1)

    def rate(votes: int) -> float:
        noise = np.rint(np.random.default_rng(2).normal(0, sigma, (runs, 6)))
        first = votes + noise[:, 0]
        others = first - noise[:, 1:3].max(axis=1)
        reasons = first - noise[:, 3:].max(axis=1)
        out = (others >= max(1, min_lead)) & (reasons >= max(tie, min_lead))
        return float((out & (first >= least)).mean())

    assert rate(lead) > 0.945
    assert rate(lead - 2) < 0.95


def test_votes_that_were_not_paid_are_refused_and_no_count_is_told() -> None:
    paid = Gaussian(noise_multiplier=1.0)
    for wrong in (Failure(delta0=0.1), Gaussian(noise_multiplier=None), 2.0):
        with pytest.raises(InvalidParameterError):
            voting.noisy_counts([1], wrong, "replace")  # type: ignore[arg-type]
    for counts in ([], [-77], [77.5], [[77]], [77, [77]], [77 << 40], ["77"]):
        with pytest.raises(InvalidParameterError) as caught:
            voting.noisy_counts(counts, paid, "replace")  # type: ignore[arg-type]
        assert "77" not in str(caught.value)
    for relation in ("both", None, 1):
        with pytest.raises(InvalidParameterError):
            voting.noisy_counts([1], paid, relation)  # type: ignore[arg-type]


# ---- Words ---------------------------------------------------------------------------

CHANGE = {"add_remove": 1, "replace": 2}
PAID = Gaussian(noise_multiplier=1.5), Failure(delta0=1e-3)


def tail(sigma: float, t: int) -> mp.mpf:
    """Return P(K > t) of whole noise."""
    return mp.erfc((t + mp.mpf("0.5")) / (mp.mpf(sigma) * mp.sqrt(2))) / 2


def passes(value: float, floor: int, sigma: float, share: float) -> float:
    """Return how often a count passes a noisy threshold, in steps of its own."""
    with mp.workdps(30):
        weight = 1 << 20
        t = int(weight * sigma * mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(share)))
        while tail(weight * sigma, t) > share:
            t += 1
        return float(tail(weight * sigma, t - weight * int(value - floor)))


@pytest.mark.parametrize("relation", CHANGE)
def test_the_laws_of_passing_are_exact(relation: str) -> None:
    change, delta0 = CHANGE[relation], 1e-3
    for gap in (change, change + 1, 6, 9, 20):
        found = keyword_ptr.pass_rate(gap, PAID, relation)
        assert found == pytest.approx(
            passes(gap, change, 1.5 * change, delta0), rel=0.01
        )
        if gap != 6:
            continue
        # The twins: half the noise, T lower by one.
        for twin in ((change, 0.75 * change), (change - 1, 1.5 * change)):
            assert found != pytest.approx(passes(gap, *twin, delta0), rel=0.02)
    sigma = 1.5 * math.sqrt(2 * change)
    for count in (1, 2, 6, 12):
        found = keyword_threshold.pass_rate(count, PAID, relation, items_per_answer=2)
        assert found == pytest.approx(passes(count, 1, sigma, delta0 / 2), rel=0.01)
        # The twin: delta0 for each word instead of a share.
        assert found < 0.99 * passes(count, 1, sigma, delta0) or count == 12
    assert keyword_ptr.pass_rate(change, PAID, relation) <= delta0
    new = keyword_threshold.pass_rate(1, PAID, relation, items_per_answer=2)
    assert delta0 * 0.99 <= 2 * new <= delta0


def test_too_few_words_never_come_out_and_zeros_are_none() -> None:
    sure = Gaussian(noise_multiplier=1e-6), Failure(delta0=0.9)
    for counts in ({}, {"a": 0}, {"a": 900}, {"a": 900, "b": 0}):
        assert keyword_ptr.ptr_top_k(counts, 2, sure, "replace") is None
    loose = Gaussian(noise_multiplier=5.0), Failure(delta0=0.9)
    zeros = dict.fromkeys("abcdefgh", 0)
    for _ in range(50):
        assert not keyword_threshold.threshold_words(
            zeros, loose, "replace", items_per_answer=1
        )


def test_required_counts_are_the_least() -> None:
    for relation in CHANGE:
        gap = keyword_ptr.required_gap(PAID, relation)
        assert keyword_ptr.pass_rate(gap, PAID, relation) >= 0.95
        assert keyword_ptr.pass_rate(gap - 1, PAID, relation) < 0.95
        terms: Any = {"items_per_answer": 3}
        count = keyword_threshold.required_count(PAID, relation, **terms)
        assert keyword_threshold.pass_rate(count, PAID, relation, **terms) >= 0.95
        assert keyword_threshold.pass_rate(count - 1, PAID, relation, **terms) < 0.95


def test_one_of_two_equal_words_rarely_leads_clearly() -> None:
    paid = Gaussian(noise_multiplier=2.0), Failure(delta0=0.01)
    terms: Any = {"relation": "replace", "items_per_answer": 1}
    clear = 0
    with seeded(6):
        for _ in range(2_000):
            noisy = keyword_threshold.threshold_words({"a": 60, "b": 60}, paid, **terms)
            clear += keyword_threshold.clear_first(noisy, paid, **terms) is not None
    assert 60 <= clear <= 145
    assert keyword_threshold.clear_first({"a": 90.0}, paid, **terms) == "a"
    assert keyword_threshold.clear_first({}, paid, **terms) is None


def test_ranked_words_of_extreme_privacy_and_domains() -> None:
    counts = np.zeros(200_000, int)
    counts[[7, 70_000, 199_999]] = [900, 800, 700]
    for epsilon, expected in ((50.0, True), (1e-12, False)):
        paid = Exponential(epsilon=epsilon)
        found = keyword_joint.joint_top_k(counts, 3, paid, "replace")
        assert (found == [7, 70_000, 199_999]) == expected
        assert len(set(found)) == 3
    paid = Exponential(epsilon=1e300)
    assert keyword_joint.joint_top_k([1 << 32, 0, 3], 3, paid, "replace") == [0, 2, 1]


def test_what_was_not_paid_is_refused_and_no_word_is_told() -> None:
    test, failure = PAID
    wrong: list[Any] = [
        (test,),
        (failure, test),
        (test, Failure(delta0=None)),
        (test, Failure(delta0=0.0)),
        (test, Failure(delta0=1e-3, sampling_rate=0.5)),
        test,
    ]
    for paid in wrong:
        with pytest.raises(InvalidParameterError):
            keyword_ptr.ptr_top_k({"a": 1}, 1, paid, "replace")
        with pytest.raises(InvalidParameterError):
            keyword_threshold.threshold_words(
                {"a": 1}, paid, "replace", items_per_answer=1
            )
    for counts in ({"secret": -77}, {"secret": 7.7}, {"secret": True}, {b"secret": 7}):
        with pytest.raises(InvalidParameterError) as caught:
            keyword_ptr.ptr_top_k(counts, 1, PAID, "replace")  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)
        assert "7" not in str(caught.value).replace("4294967296", "")
    for k_range in ((3, 1), [], [0], 5, (1, 20_000), None, ["a"]):
        with pytest.raises(InvalidParameterError):
            keyword_ptr.choose_k({}, k_range, Exponential(epsilon=1.0), "replace")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError):
        keyword_ptr.range_charge(sampling_rate=0.5)
    for most in (0, 1 << 17, 1.5):
        with pytest.raises(InvalidParameterError):
            keyword_threshold.check(most)  # type: ignore[arg-type]


def laplace_tail(scale: float, t: int) -> mp.mpf:
    """Return P(K > t) of discrete Laplace noise."""
    with mp.workdps(30):
        rate = mp.exp(-1 / mp.mpf(scale))
        return (
            rate ** (t + 1) / (1 + rate) if t >= 0 else 1 - laplace_tail(scale, -t - 1)
        )


@pytest.mark.parametrize("relation", CHANGE)
@pytest.mark.parametrize("most", [1, 2])
def test_words_with_laplace_noise_keep_to_their_law(relation: str, most: int) -> None:
    epsilon, delta0 = 0.5, 1e-3
    paid = Pure(epsilon=epsilon), Failure(delta0=delta0)
    scale = most * CHANGE[relation] / epsilon
    t = next(t for t in itertools.count() if laplace_tail(scale, t) <= delta0 / most)
    for count in (1, 2, 10, 30):
        found = keyword_threshold.pass_rate(
            count, paid, relation, items_per_answer=most
        )
        assert found == pytest.approx(float(laplace_tail(scale, t - count + 1)))
        # The twins: half the noise, delta0 for each word.
        assert found != pytest.approx(float(laplace_tail(scale / 2, t - count + 1)))
    assert keyword_threshold.pass_rate(1, paid, relation, items_per_answer=most) <= (
        delta0 / most
    )
    least = keyword_threshold.required_count(paid, relation, items_per_answer=most)
    rates = [
        keyword_threshold.pass_rate(n, paid, relation, items_per_answer=most)
        for n in (least - 1, least)
    ]
    assert rates[0] < 0.95 <= rates[1]


# ---- Tables, reports, tokens ---------------------------------------------------------

SINGLE = [(n,) for n in range(3)]
SETS = [own for k in range(3) for own in itertools.combinations(range(3), k)]


def tallied(rows: Any, second: int) -> list[Any]:
    """Return the counts of two columns and of their pairs, of rows of sets."""
    found = [np.zeros(3, int), np.zeros(second, int), np.zeros((3, second), int)]
    for own, other in rows:
        for x in own:
            found[0][x] += 1
            for y in other:
                found[2][x, y] += 1
        for y in other:
            found[1][y] += 1
    return found


def farthest(first: Any, rows: int) -> tuple[int, float]:
    """Return how far a unit moves all tables together, in L1 and in L2."""
    cells = itertools.product(first, [(0,), (1,)])
    moved = [
        np.concatenate([table.ravel() for table in tallied(own, 2)])
        for own in itertools.combinations_with_replacement(list(cells), rows)
    ]
    return max(int(m.sum()) for m in moved), max(map(np.linalg.norm, moved))


def spread(cells: list[int], rows: int) -> tuple[Any, Any]:
    """Return the noise's scales at epsilon 1 and at z = 1: the sensitivities."""
    laplace = tables.noises(Pure(epsilon=1.0), 3, cells=cells, rows=rows)
    unit = Gaussian(noise_multiplier=1.0)
    gaussian = tables.noises(unit, 3, cells=cells, rows=rows)
    assert len({n.scale for n in laplace}) == len({n.scale for n in gaussian}) == 1
    return laplace[0].scale, gaussian[0].scale


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("first", "most"), [(SINGLE, 1), (SETS, 2)])
def test_no_unit_moves_tables_farther_than_the_sensitivity(
    first: Any, most: int, rows: int
) -> None:
    flat, long = farthest(first, rows)
    # A set of m values hits m cells, alone and in a pair; single values one.
    scale, sigma = spread([most, 1, most], rows)
    assert scale == flat
    assert sigma == pytest.approx(long)
    assert sigma >= long


@pytest.mark.parametrize("rows", [1, 2])
def test_twin_a_set_that_counts_once(rows: int) -> None:
    flat, long = farthest(SETS, rows)
    scale, sigma = spread([1, 1, 1], rows)
    assert scale < flat
    assert sigma < long


def test_tallies_and_histograms_keep_to_their_laws() -> None:
    zeros = np.zeros(20_000, int)
    given = {"bounds": [1, 5], "cells": [3, 1], "rows_per_unit": 2}
    for factor in (1.0, 2.0):
        with seeded(1):
            drawn = tables.noisy_tallies([zeros, zeros], Pure(epsilon=factor), **given)
            drawn += tables.noisy_histograms(
                [zeros, zeros], Gaussian(noise_multiplier=2.0 / factor), **given
            )
        # Four cells in all, of two rows.
        laws = [laplace_steps(8), laplace_steps(40), gaussian_steps(8)]
        laws.append(gaussian_steps(40))
        for found, law in zip(drawn, laws, strict=True):
            # The twin: half the noise.
            assert keeps_to(found.tolist(), law) == (factor == 1.0)


def test_a_bound_for_each_tally() -> None:
    paid = Pure(epsilon=0.3)
    for wrong in ({"bounds": [1]}, {"cells": [1, 1, 1]}, {"cells": [1, 0]}):
        with pytest.raises(InvalidParameterError):
            tables.noisy_tallies([[1], [2]], paid, **wrong)


def test_extreme_tallies_are_clipped_and_wrong_ones_refused() -> None:
    most = 1 << 61
    paid = Pure(epsilon=1e6)
    given = np.array([1 << 63, 5], np.uint64)
    found = tables.noisy_tallies([given, [-(1 << 63)]], paid, bounds=[1, 1])
    assert [t.tolist() for t in found] == [[most, 5], [-most]]
    for wrong in ([[0.5]], [["77"]], [[1 << 70]], [[1, [2]]], []):
        with pytest.raises(InvalidParameterError) as caught:
            tables.noisy_tallies(wrong, paid, bounds=[1] * len(wrong))
        assert "77" not in str(caught.value)
    with pytest.raises(InvalidParameterError):
        tables.noises(Gaussian(noise_multiplier=1e6), 1, cells=[1 << 62])


def test_reports_keep_shapes_and_refuse_what_is_no_code() -> None:
    assert responses.randomize([], domain_size=2, epsilon=1.0).shape == (0,)
    codes = np.array([[0, 1], [2, 0]])
    found = responses.randomize(codes.T, domain_size=3, epsilon=500.0)
    assert found.tolist() == codes.T.tolist()
    assert responses.response_chances(1e6, 10) == (1.0, 0.0)
    for wrong, size in (([3], 3), ([-1], 3), ([0.5], 3), ([0], 1), ([0], 1 << 53)):
        with pytest.raises(InvalidParameterError):
            responses.randomize(wrong, domain_size=size, epsilon=1.0)


def test_no_row_is_longer_on_the_grid_than_the_limit() -> None:
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=50) * 10.0**n for n in (-300, -3, 0, 3, 200, 300)]
    rows += [np.full(50, 1.7e308), np.eye(50)[0], np.full(50, 50**-0.5), np.zeros(50)]
    for limit in (1e-9, 0.8, 3.0, 16384.0, 1e9):
        grid = next_token.on_grid(np.array(rows), limit)
        squares = [sum(int(x) ** 2 for x in row) for row in grid]
        assert max(squares) <= limit**2
    grid = next_token.on_grid(np.array([[0.6, 0.8]]), 16384.0)
    assert np.abs(grid / 16384 - [0.6, 0.8]).max() < 3e-4


def test_a_row_alone_decides_its_point() -> None:
    rows = np.random.default_rng(4).normal(size=(40, 7))
    whole = next_token.on_grid(rows, 9_000.0)
    alone = [next_token.on_grid(rows[n : n + 1], 9_000.0)[0] for n in range(40)]
    assert np.array_equal(whole, alone)


def test_tokens_of_a_slot_are_its_own_and_wrong_ones_abstain() -> None:
    logs: list[Any] = [
        np.log([0.5, 0.25, 0.25]),
        np.log([0.1, 0.6, 0.3]),
        None,
        [0.0, np.nan, 0.0],
        [1.0, 0.0, 0.0],
        np.full(3, -np.inf),
        [0.0],
        "no",
        [["x"]],
        [-np.inf, -2.0, -np.inf],
    ]
    found = next_token.token_distributions(logs, 3, [0, 2])
    for row, logs_alone in zip(found, logs, strict=True):
        (alone,) = next_token.token_distributions([logs_alone], 3, [0, 2])
        assert np.array_equal(row, alone) if alone is not None else row is None
    assert [n for n, row in enumerate(found) if row is not None] == [0, 1]
    assert found[0] == pytest.approx([2 / 3, 1 / 3])
    assert next_token.token_distributions(logs, 3, [7]) == [None] * len(logs)
    for wrong in ([[0]], [], [-1], [0.5]):
        with pytest.raises(InvalidParameterError):
            next_token.token_distributions([np.zeros(3)], 3, wrong)


def test_rows_that_are_no_probabilities_are_refused_without_telling() -> None:
    paid = Gaussian(noise_multiplier=1.0)
    for rows in (
        [[0.77, 0.77]],
        [[-0.77, 0]],
        [[np.nan, 0]],
        [[1, 2], [3]],
        [0.7],
        [["x"]],
    ):
        with pytest.raises(InvalidParameterError) as caught:
            next_token.noisy_next_token(rows, paid, "replace")
        assert "77" not in str(caught.value)
        assert caught.value.__cause__ is None
