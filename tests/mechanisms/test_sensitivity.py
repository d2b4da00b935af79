"""The table of sensitivities, by brute force over three answers and four words."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import sensitivity

WORDS = 4
ANSWERS = [*itertools.product((0, 1), repeat=WORDS)]
Histogram = tuple[int, ...]
Pairs = list[tuple[Histogram, Histogram]]


def add(*answers: tuple[int, ...]) -> Histogram:
    return tuple(map(sum, zip(*answers, strict=True)))


def neighbors(relation: Relation) -> Iterator[tuple[Histogram, Histogram]]:
    """All pairs of histograms of up to three answers that differ by one unit."""
    pairs = set()
    for others in itertools.combinations_with_replacement(ANSWERS, 2):
        rest = add(*others)
        for one in ANSWERS:
            if relation is Relation.ADD_REMOVE:
                pairs.add((rest, add(rest, one)))
                pairs.add((add(rest, one), rest))
            else:
                pairs.update((add(rest, one), add(rest, two)) for two in ANSWERS)
    return iter(pairs)


def gap(histogram: Histogram, k: int) -> int:
    ranked = [*sorted(histogram, reverse=True), 0, 0]
    return ranked[k - 1] - ranked[k]


def utility(histogram: Histogram, words: tuple[int, ...]) -> int:
    ranked = sorted(histogram, reverse=True)
    return -max(ranked[i] - histogram[word] for i, word in enumerate(words))


def top(histogram: Histogram, k: int) -> frozenset[int]:
    return frozenset(sorted(range(WORDS), key=lambda w: (-histogram[w], w))[:k])


@pytest.fixture(scope="module", params=list(Relation))
def relation(request: pytest.FixtureRequest) -> Relation:
    return request.param


@pytest.fixture(scope="module")
def pairs(relation: Relation) -> Pairs:
    return list(neighbors(relation))


def test_keyword_gap(relation: Relation, pairs: Pairs) -> None:
    for k in range(1, WORDS + 2):
        moved = max(abs(gap(x, k) - gap(y, k)) for x, y in pairs)
        if k <= WORDS - 1:
            assert moved == sensitivity.keyword_gap(relation)
        assert moved <= sensitivity.keyword_gap(relation)


@pytest.mark.parametrize("c", [1, 2, 3])
def test_all_counts_of_answers_of_at_most_c_words(relation: Relation, c: int) -> None:
    short = [answer for answer in ANSWERS if sum(answer) <= c]
    ends = short if relation is Relation.REPLACE else [(0,) * WORDS]
    moved, new = 0.0, 0
    for rest in itertools.chain([(0,) * WORDS], short):
        for one, two in itertools.product(short, ends):
            x, y = add(rest, one), add(rest, two)
            alone = [a for a, b in zip(x, y, strict=True) if a and not b]
            assert set(alone) <= {1}
            moved, new = max(moved, math.dist(x, y)), max(new, len(alone))
    bound = sensitivity.keyword_l2(relation, c)
    assert moved <= bound
    # Two answers of three words each don't fit four words without sharing some.
    if 2 * c <= WORDS or relation is Relation.ADD_REMOVE:
        assert bound < moved * (1 + 1e-15)
    assert new == sensitivity.new_keywords(relation, c)


def test_joint_utility(relation: Relation, pairs: Pairs) -> None:
    for k in (1, 2, 3):
        moved = 0
        for words in itertools.permutations(range(WORDS), k):
            moved = max(
                moved, *(abs(utility(x, words) - utility(y, words)) for x, y in pairs)
            )
        assert moved == sensitivity.joint_utility(relation)


def test_top_k_set_is_stable_above_the_threshold_and_only_there(
    relation: Relation, pairs: Pairs
) -> None:
    threshold = sensitivity.ptr_threshold(relation)
    for k in (1, 2, 3):
        assert all(top(x, k) == top(y, k) for x, y in pairs if gap(x, k) > threshold)
    assert any(
        top(x, k) != top(y, k)
        for k in (1, 2, 3)
        for x, y in pairs
        if gap(x, k) == threshold
    )


def test_the_clamped_gap_moves_no_farther_than_the_gap(
    relation: Relation, pairs: Pairs
) -> None:
    threshold = sensitivity.ptr_threshold(relation)
    for k in (1, 2, 3):
        moved = max(
            abs(max(threshold, gap(x, k)) - max(threshold, gap(y, k))) for x, y in pairs
        )
        assert moved <= sensitivity.keyword_gap(relation)


def test_votes(relation: Relation) -> None:
    votes = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    if relation is Relation.ADD_REMOVE:
        changes = [(vote, votes[0]) for vote in votes]
    else:
        changes = list(itertools.product(votes, votes))
    l2 = max(math.dist(x, y) for x, y in changes)
    assert l2 <= sensitivity.vote_l2(relation) < l2 * (1 + 1e-15)
    assert sensitivity.next_token_l2(relation) == sensitivity.vote_l2(relation)
    assert sensitivity.next_token_linf(relation) == 1


def test_embeddings() -> None:
    """A point of the ball against nothing, and against its antipode."""
    assert sensitivity.embedding_l2(Relation.ADD_REMOVE, 0.25) == 0.25
    assert sensitivity.embedding_l2(Relation.REPLACE, 0.25) == 0.5


def moved_tallies(
    relation: Relation, values: list[int], rows_per_unit: int
) -> tuple[int, int]:
    """The farthest that a histogram and a sum move, over two groups, in L1.

    A row is a category, which is also its value, in one of two groups or in none.
    """
    kinds = [None, *itertools.product((0, 1), values)]
    ends = []
    for rows in itertools.combinations_with_replacement(kinds, rows_per_unit):
        histogram = Counter(rows)
        del histogram[None]
        sums = [sum(v for g, v in filter(None, rows) if g == group) for group in (0, 1)]
        ends.append((histogram, sums))
    cells = [*itertools.product((0, 1), values)]
    nothing = (Counter(), [0, 0])
    others = ends if relation is Relation.REPLACE else [nothing]
    pairs = [*itertools.product(ends, others)]
    return (
        max(sum(abs(x[c] - y[c]) for c in cells) for (x, _), (y, _) in pairs),
        max(abs(x[0] - y[0]) + abs(x[1] - y[1]) for (_, x), (_, y) in pairs),
    )


@pytest.mark.parametrize("rows_per_unit", [1, 2, 3])
def test_tallies_of_table_rows(relation: Relation, rows_per_unit: int) -> None:
    """A unit's rows may be in different groups. Values are centered: -2 .. 2."""
    counts, sums = moved_tallies(relation, [-2, -1, 0, 1, 2], rows_per_unit)
    assert counts == sensitivity.tally_l1(relation, 1, rows_per_unit)
    assert sums == sensitivity.tally_l1(relation, 2, rows_per_unit)


@pytest.mark.parametrize(("tables", "rows_per_unit"), [(1, 1), (1, 3), (2, 2), (3, 2)])
def test_histograms_of_rows_side_by_side(
    relation: Relation, tables: int, rows_per_unit: int
) -> None:
    """A row is in a cell of each table, whichever: brute force over three cells."""
    kinds = [None, *itertools.product(range(3), repeat=tables)]
    ends = [
        Counter(cell for row in rows if row for cell in enumerate(row))
        for rows in itertools.combinations_with_replacement(kinds, rows_per_unit)
    ]
    others = ends if relation is Relation.REPLACE else [Counter()]
    square = max(
        sum((one[cell] - two[cell]) ** 2 for cell in {*one, *two})
        for one, two in itertools.product(ends, others)
    )
    found = Fraction(sensitivity.tally_l2(relation, tables, rows_per_unit))
    assert square <= found**2 <= square * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize(("tables", "rows"), [(0, 1), (1, 0), (1.0, 1), (1, True)])
def test_histograms_of_nothing_are_refused(tables: object, rows: object) -> None:
    with pytest.raises(InvalidParameterError, match=r"tables|rows_per_unit"):
        sensitivity.tally_l2(Relation.ADD_REMOVE, tables, rows)


def test_sums_that_are_not_centered_move_farther(relation: Relation) -> None:
    """The same interval of width 4, shifted by its lower end, and not shifted."""
    centered = sensitivity.tally_l1(relation, 2, 1)
    _, shifted = moved_tallies(relation, [0, 1, 2, 3, 4], 1)
    _, plain = moved_tallies(relation, [5, 6, 7, 8, 9], 1)
    assert shifted > centered
    assert plain > shifted


def test_large_tallies_are_not_rounded() -> None:
    assert sensitivity.tally_l1("add_remove", 2**60 + 1, 3) == 3 * 2**60 + 3
    assert sensitivity.tally_l1("replace", 2**60 + 1, 1) == 2**61 + 2


@pytest.mark.parametrize(("bound", "rows"), [(0, 1), (1, 0), (1.0, 1), (1, True)])
def test_tallies_of_nothing_are_refused(bound: object, rows: object) -> None:
    with pytest.raises(InvalidParameterError, match=r"bound|rows_per_unit"):
        sensitivity.tally_l1(Relation.ADD_REMOVE, bound, rows)


def test_irrational_sensitivities_err_upward() -> None:
    """The float is at least sqrt(2): its square, taken exactly, is at least 2."""
    numerator, denominator = sensitivity.vote_l2(Relation.REPLACE).as_integer_ratio()
    assert numerator**2 >= 2 * denominator**2
    for c in range(1, 200):
        numerator, denominator = sensitivity.keyword_l2(
            Relation.ADD_REMOVE, c
        ).as_integer_ratio()
        assert numerator**2 >= c * denominator**2


def test_the_noise_scale_is_never_rounded_down() -> None:
    for z in (0.1, 1 / 3, 0.7, 1.1, 2.3, 1e-6, 999999.9):
        for delta in (1.0, 2.0, math.sqrt(2)):
            sigma = sensitivity.noise_scale(z, delta)
            a, b = sigma.as_integer_ratio()
            c, d = z.as_integer_ratio()
            e, f = delta.as_integer_ratio()
            assert a * d * f >= c * e * b
            assert sigma <= z * delta * (1 + 1e-15)


@pytest.mark.parametrize("name", ["replace", "add_remove", *Relation])
def test_relations_may_be_given_by_value(name: object) -> None:
    assert sensitivity.checked_relation(name) == Relation(name)


@pytest.mark.parametrize("bad", ["swap", "", None, 1, True, ["replace"], Relation])
def test_other_relations_are_refused(bad: object) -> None:
    with pytest.raises(InvalidParameterError, match=r"relation.*add_remove"):
        sensitivity.vote_l2(bad)


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "1", None])
def test_radii_out_of_range_are_refused(radius: object) -> None:
    with pytest.raises(InvalidParameterError, match="radius"):
        sensitivity.embedding_l2(Relation.REPLACE, radius)
