"""Two worlds, audited exactly: what comes out by curves, for all small neighbors.

The outcomes are finitely many, so their laws are exact numbers. The number of steps,
and the set that comes out, are taken from the release itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest
from support.curve_audit import Law, bit, claimed, delta, mixture, product, worst

from langchain_dpicl.accounting import Failure, RenyiEvent, compose
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    curve_top_k,
    curve_words,
    ptr_curve,
    sensitivity,
    threshold_curve,
)
from langchain_dpicl.mechanisms.release_curve import ReleaseCurve, release_curve

WORDS = "abc"
Slots = tuple[frozenset[str], ...]
Neighbors = list[tuple[Slots, Slots]]

TERMS: dict[str, Any] = {"order": 3.0, "divergence": 0.4, "delta0": 1e-3}
EPSILONS = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)


def counts_of(slots: Slots) -> dict[str, int]:
    said = [word for slot in slots for word in slot]
    return {word: said.count(word) for word in {*said}}


@lru_cache
def neighbors(relation: Relation, most: int) -> Neighbors:
    """Return all pairs of neighboring lists of slots over three words.

    A slot holds any set of up to `most` words. Their order tells nothing, so lists are
    multisets; up to four slots are the same in both.
    """
    sets = [
        frozenset(s) for n in range(most + 1) for s in itertools.combinations(WORDS, n)
    ]
    shared = [
        rest
        for n in range(5)
        for rest in itertools.combinations_with_replacement(sets, n)
    ]
    if relation is Relation.REPLACE:
        changes = [*itertools.combinations(sets, 2)]
        return [((*rest, a), (*rest, b)) for rest in shared for a, b in changes]
    return [(rest, (*rest, a)) for rest in shared for a in sets]


# -- the set of the top k --------------------------------------------------------------


@cache
def law_of_set(
    slots: Slots, k: int, relation: Relation, rate: float, steps: Any = None
) -> Law:
    """Return the law of `curve_top_k`, by the steps and the set that it takes."""
    taken: list[int] = []

    class Noting(ReleaseCurve):
        def draw(self, given: Sequence[int], source: Any) -> npt.NDArray[np.bool_]:
            taken.extend(given)
            return np.ones(len(given), bool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptr_curve, "_curve", lambda *_: Noting((1,)))
        found = curve_top_k(
            counts_of(slots), k, relation=relation, sampling_rate=rate, **TERMS
        )
    [n] = taken
    if steps is not None:
        n = steps(slots, k, relation)
    table = ptr_curve._curve(sampling_rate=rate, **TERMS)
    return bit(table.probability(n), found, None)


def gap(slots: Slots, k: int) -> int:
    ranked = [*sorted(counts_of(slots).values(), reverse=True), 0, 0, 0, 0]
    return ranked[k - 1] - ranked[k]


def check_pair(p: Law, q: Law, rate: float = 1.0) -> None:
    """Fail unless two laws are within what one release is charged."""
    failure = rate * TERMS["delta0"]
    for epsilon in EPSILONS:
        allowed = claimed(TERMS["order"], TERMS["divergence"], failure, epsilon)
        assert delta(p, q, epsilon) <= allowed
    # Without the failure: the divergence itself.
    if {o for o, m in p.items() if m} == {o for o, m in q.items() if m}:
        assert worst(p, q, TERMS["order"]) <= TERMS["divergence"]
    else:
        assert delta(p, q, 0.0) <= failure


def audit_sets(relation: Relation, steps: Any = None) -> None:
    seen = set()
    for x, y in neighbors(relation, 3):
        for k in (1, 2):
            p, q = (law_of_set(one, k, relation, 1.0, steps) for one in (x, y))
            key = (frozenset(p.items()), frozenset(q.items()))
            if key not in seen:
                check_pair(p, q)
                seen.add(key)


@pytest.mark.parametrize("relation", Relation)
def test_sets_of_all_neighbors_are_within_the_charge(relation: Relation) -> None:
    audit_sets(relation)


@pytest.mark.parametrize("relation", Relation)
def test_a_set_comes_out_from_a_gap_of_one_on(relation: Relation) -> None:
    """No step is given away: the first begins at a gap of one."""
    step = 2 if relation is Relation.REPLACE else 1
    table = ptr_curve._curve(sampling_rate=1.0, **TERMS)
    for n in range(4 * step):
        slots = (frozenset("a"),) * n
        law = law_of_set(slots, 1, relation, 1.0)
        assert (
            law[frozenset("a") if n else frozenset()]
            == bit(table.probability(-(-n // step)))[True]
        )


def one_too_far(slots: Slots, k: int, relation: Relation) -> int:
    """A step begins one answer too early: the error in T that is easily made."""
    step = sensitivity.keyword_gap(relation)
    return -(-(gap(slots, k) + 1) // step)


def one_for_each_answer(slots: Slots, k: int, relation: Relation) -> int:
    """The sensitivity of `ADD_REMOVE` under both relations."""
    return gap(slots, k)


@pytest.mark.parametrize(
    ("relation", "steps"),
    [
        (Relation.REPLACE, one_too_far),
        (Relation.ADD_REMOVE, one_too_far),
        (Relation.REPLACE, one_for_each_answer),
    ],
)
def test_twin_steps_that_begin_too_early_are_noticed(
    relation: Relation, steps: Callable[..., int]
) -> None:
    with pytest.raises(AssertionError):
        audit_sets(relation, steps)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("uses", [2, 3])
def test_several_releases_are_within_what_they_compose_to(
    relation: Relation, uses: int
) -> None:
    """Any combination of pairs, one for each use, at the epsilon that is claimed."""
    events = [RenyiEvent(3.0, 0.4, uses), Failure(1e-3, uses)]
    kinds = {
        (frozenset(p.items()), frozenset(q.items())): (p, q)
        for x, y in neighbors(relation, 2)
        for p, q in [[law_of_set(one, 1, relation, 1.0) for one in (x, y)]]
        if p != q
    }
    # Words are alike: only one name for each pair of laws.
    shapes = {
        tuple(sorted((float(p.get(o, 0)), float(q.get(o, 0))) for o in {*p, *q})): (
            p,
            q,
        )
        for p, q in kinds.values()
    }
    pairs = [*shapes.values()]
    assert len(pairs) >= 3
    for total in (0.01, 0.05):
        epsilon = compose(events, total)
        for chosen in itertools.combinations_with_replacement(pairs, uses):
            ours = product(*(p for p, _ in chosen))
            theirs = product(*(q for _, q in chosen))
            assert delta(ours, theirs, epsilon) <= total


# -- the same on a sample of units -----------------------------------------------------


def sampled_law(
    units: Sequence[tuple[int, frozenset[str]]], rate: float, k: int, table_rate: float
) -> Law:
    """Return the law where each unit is in the sample with a rate.

    A unit stands in one slot; a slot says the words of its sampled units, and nothing
    without one. So a unit changes its slot's answer.
    """
    found: dict[Hashable, mp.mpf] = {}
    for coins in itertools.product((False, True), repeat=len(units)):
        with mp.workdps(60):
            weight = mp.mpf(1)
            for inside in coins:
                weight *= mp.mpf(rate) if inside else 1 - mp.mpf(rate)
        slots: list[frozenset[str]] = [frozenset()] * 6
        for inside, (slot, words) in zip(coins, units, strict=True):
            if inside:
                slots[slot] = words
        law = law_of_set(tuple(slots), k, Relation.REPLACE, table_rate)
        for outcome, mass in law.items():
            with mp.workdps(60):
                found[outcome] = found.get(outcome, mp.mpf(0)) + weight * mass
    return found


def populations() -> Iterator[list[tuple[int, frozenset[str]]]]:
    a, b, ab = frozenset("a"), frozenset("b"), frozenset("ab")
    yield [(i, a) for i in range(5)]
    yield [(i, ab) for i in range(4)] + [(4, b)]
    yield [(0, b), (0, a), (1, a), (2, a), (3, b)]
    yield []


def audit_samples(rate: float, table_rate: float) -> None:
    for others in populations():
        for slot, words in itertools.product((0, 5), ("a", "b", "ab")):
            more = [*others, (slot, frozenset(words))]
            p = sampled_law(others, rate, 1, table_rate)
            q = sampled_law(more, rate, 1, table_rate)
            failure = rate * TERMS["delta0"]
            for epsilon in EPSILONS:
                allowed = claimed(3.0, TERMS["divergence"], failure, epsilon)
                assert delta(p, q, epsilon) <= allowed


@pytest.mark.parametrize("rate", [0.25, 0.6, 0.95])
def test_sets_of_sampled_units_are_within_the_charge(rate: float) -> None:
    audit_samples(rate, rate)


@pytest.mark.parametrize("rate", [0.25, 0.6])
def test_each_coin_of_the_worst_pair_is_within_the_charge(rate: float) -> None:
    """Every n and n' of neighbors, given the others' coins."""
    table = ptr_curve._curve(sampling_rate=rate, **TERMS)
    for n in range(1, len(table.entries) + 2):
        own = bit(table.probability(n))
        for other in (n - 1, n, n + 1):
            world = mixture(rate, own, bit(table.probability(other)))
            if other == 0:
                with mp.workdps(60):
                    assert delta(own, world, 0.0) <= mp.mpf(rate) * TERMS["delta0"]
            else:
                assert worst(own, world, 3.0) <= TERMS["divergence"]


Shards = tuple[tuple[frozenset[str], ...], ...]


def shard_law(groups: Shards, table_rate: float) -> Law:
    """Return the law where one shard of each group is searched, secretly chosen."""
    found: dict[Hashable, mp.mpf] = {}
    choices = [*itertools.product(*groups)]
    for slots in choices:
        for outcome, mass in law_of_set(
            tuple(sorted(slots, key=sorted)), 1, Relation.REPLACE, table_rate
        ).items():
            with mp.workdps(60):
                found[outcome] = found.get(outcome, mp.mpf(0)) + mass / len(choices)
    return found


def audit_shards(table_rate: float) -> None:
    """Two shards a group, so that a unit's is searched with probability 1/2."""
    none, a, b, ab = (frozenset(said) for said in ("", "a", "b", "ab"))
    others: list[Shards] = [
        ((a, a),) * 5,
        ((a, b),) * 4,
        ((ab, none),) * 3 + ((b, b),),
        ((a, none),) * 4 + ((b, b),),
    ]
    for shared, beside in itertools.product(others, (none, a, b)):
        for with_unit, without in itertools.combinations((none, a, b, ab), 2):
            p, q = (
                shard_law((*shared, (said, beside)), table_rate)
                for said in (with_unit, without)
            )
            for epsilon in EPSILONS:
                allowed = claimed(
                    3.0, TERMS["divergence"], 0.5 * TERMS["delta0"], epsilon
                )
                assert delta(p, q, epsilon) <= allowed


def test_sets_of_sampled_shards_are_within_the_charge() -> None:
    audit_shards(0.5)


def test_twin_shards_by_a_curve_for_a_smaller_rate_are_noticed() -> None:
    with pytest.raises(AssertionError):
        audit_shards(0.02)


def test_twin_a_curve_for_a_smaller_rate_is_noticed() -> None:
    with pytest.raises(AssertionError):
        audit_samples(0.95, 0.1)


def test_twin_a_failure_that_is_scaled_the_wrong_way_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The charge is q delta0: a table that starts at delta0 / q fails it."""
    real = ptr_curve._curve

    def unscaled(**terms: Any) -> ReleaseCurve:
        return real(**{**terms, "delta0": terms["delta0"] / terms["sampling_rate"]})

    monkeypatch.setattr(ptr_curve, "_curve", unscaled)
    table = unscaled(sampling_rate=0.25, **TERMS)
    world = mixture(0.25, bit(Fraction(0)), bit(table.probability(1)))
    assert delta(bit(Fraction(0)), world, 0.0) > 0.25 * TERMS["delta0"]


# -- words by a threshold --------------------------------------------------------------


def words_table(c: int, relation: Relation, order: float = 3.0) -> ReleaseCurve:
    loss, delta0 = TERMS["divergence"], TERMS["delta0"]
    return threshold_curve._curve(c, order, loss, delta0, relation)


@cache
def word_laws(
    slots: Slots, c: int, relation: Relation, table: ReleaseCurve
) -> tuple[Law, ...]:
    """Return the law of each word of `curve_words`, by the steps that it takes."""
    counts = counts_of(slots)
    taken: list[int] = []

    class Noting(ReleaseCurve):
        def draw(self, given: Sequence[int], source: Any) -> npt.NDArray[np.bool_]:
            taken.extend(given)
            return np.ones(len(given), bool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threshold_curve, "_curve", lambda *_: Noting((1,)))
        out = curve_words({**counts, "never": 0}, c, relation=relation, **TERMS)
    assert out == {*counts}
    steps = dict(zip(sorted(counts), taken, strict=True))
    return tuple(bit(table.probability(steps.get(word, 0))) for word in WORDS)


def audit_words(relation: Relation, c: int, table: ReleaseCurve | None = None) -> None:
    if table is None:
        table = words_table(c, relation)
    seen = set()
    for x, y in neighbors(relation, c):
        ours, theirs = (word_laws(one, c, relation, table) for one in (x, y))
        key = tuple((a[True], b[True]) for a, b in zip(ours, theirs, strict=True))
        if key in seen:
            continue
        seen.add(key)
        p, q = product(*ours), product(*theirs)
        for epsilon in EPSILONS:
            allowed = claimed(3.0, TERMS["divergence"], TERMS["delta0"], epsilon)
            assert delta(p, q, epsilon) <= allowed
        both = [
            (a, b) for a, b in zip(ours, theirs, strict=True) if a[True] and b[True]
        ]
        shared = [product(*laws) for laws in zip(*both, strict=True)]
        if shared:
            assert worst(shared[0], shared[1], 3.0) <= TERMS["divergence"]
        for one, other in ((ours, theirs), (theirs, ours)):
            # What only one of them can release comes out by failure alone.
            new = [a[False] for a, b in zip(one, other, strict=True) if not b[True]]
            with mp.workdps(60):
                assert 1 - mp.fprod(new) <= TERMS["delta0"]


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("relation", Relation)
def test_words_of_all_neighbors_are_within_the_charge(
    relation: Relation, c: int
) -> None:
    audit_words(relation, c)


@pytest.mark.parametrize("c", [1, 2])
def test_twin_half_the_bits_are_noticed(c: int) -> None:
    """The curve of `ADD_REMOVE` under `REPLACE`: c bits, and not 2c."""
    table = words_table(c, Relation.ADD_REMOVE)
    with pytest.raises(AssertionError):
        audit_words(Relation.REPLACE, c, table)


@pytest.mark.parametrize("relation", Relation)
def test_twin_a_failure_for_each_word_is_noticed(relation: Relation) -> None:
    """delta0 for each of two words, and not for both."""
    bits = sensitivity.keyword_bits(relation, 2)
    table = release_curve(3.0, Fraction(TERMS["divergence"]) / bits, Fraction(1e-3))
    with pytest.raises(AssertionError):
        audit_words(relation, 2, table)


def test_twin_a_curve_of_another_order_than_charged_is_noticed() -> None:
    table = words_table(1, Relation.REPLACE, order=2.0)
    with pytest.raises(AssertionError):
        audit_words(Relation.REPLACE, 1, table)
