"""Sensitivities: how far one unit can move each quantity, per relation.

A query produces slots. Slot i holds at most one model answer, mapped to a bounded
contribution; an abstaining slot contributes zero. Under `ADD_REMOVE` one slot appears
or vanishes, under `REPLACE` one slot changes from any answer (or none) to any other.
Every mechanism takes its sensitivity from this table and from nowhere else:

| quantity                                            | ADD_REMOVE | REPLACE  |
|-----------------------------------------------------|------------|----------|
| vote histogram, L2                                  | 1          | sqrt(2)  |
| vote count of one class, L-infinity                 | 1          | 1        |
| sum of vectors clipped to an L2 ball of radius R    | R          | 2 R      |
| keyword count (an answer counts a word once)        | 1          | 1        |
| all keyword counts, c words an answer, L2           | sqrt(c)    | sqrt(2c) |
| words of one neighbor only, of either one           | c          | c        |
| count of slots that agree with something public     | 1          | 1        |
| gap H(k) - H(k+1) of sorted keyword counts          | 1          | 2        |
| joint utility -max_i (H(i) - H(s_i))                | 1          | 2        |
| top-k set is the same on all neighbors when gap is  | > 1        | > 2      |
| sum of next-token distributions, L2                 | 1          | sqrt(2)  |
| sum of next-token distributions of maximum 1, L-inf | 1          | 1        |
| histograms of rows, r a unit, all groups, L1        | r          | 2 r      |
| sums of values in [-M, M], r rows a unit, L1        | r M        | 2 r M    |
| t histograms, r rows a unit, all t together, L2     | r sqrt(t)  | r sqrt(2t) |

Why: an answer adds 0 or 1 to each count, so adding one moves every H(i) up by 0 or 1
and a difference of two order statistics by at most 1; replacing is a removal followed
by an addition. An answer of at most c words moves at most c counts by one, a
replacement at most 2c of them; a word that only one of two neighbors has is one of the
at most c words of *its* differing answer. A slot agrees with something public or does
not, before and after. A vote moves one unit vector in, or one out and another in
(distance sqrt(2)). Two points of a ball of radius R are at most 2 R apart.

The last three quantities are of table rows, not of slots: the relation adds or removes
all rows of one unit, at most r of them, or exchanges them. Each row is in at most one
group, so it moves the entries of all groups together by 1, or by M; a replacement is a
removal and an addition, and the two may be in different groups. In L2 a unit moves a
histogram most where all of its rows are in one cell, by r, and by r sqrt(2) where they
are exchanged for r in another cell; t histograms are one vector, whose squares add up.

The rows of counts, the last three among them, are checked by brute force in
`tests/mechanisms/test_sensitivity.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from langchain_dpicl.common.parameters import count, positive
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError

# Most words of one answer that are counted: far beyond what makes sense.
MAX_WORDS = 1 << 16
_SQRT_2 = math.sqrt(2.0)
"""The float next above the square root of 2, not below: noise errs upward."""


def checked_relation(relation: Any) -> Relation:
    """Return `relation` as a `Relation`; its string value is accepted.

    Example:
        >>> checked_relation("add_remove") is Relation.ADD_REMOVE
        True
    """
    if isinstance(relation, str):
        for member in Relation:
            if relation in (member, member.value):
                return member
    allowed = ", ".join(repr(member.value) for member in Relation)
    raise InvalidParameterError(
        f"relation must be a Relation or one of {allowed}, as the group source's "
        "`relation` attribute says."
    )


def _by_relation(relation: Relation | str, add_remove: float, replace: float) -> float:
    chosen = checked_relation(relation)
    return replace if chosen is Relation.REPLACE else add_remove


def _checked_words(items_per_answer: int) -> int:
    words = count(items_per_answer, "items_per_answer")
    if words > MAX_WORDS:
        raise InvalidParameterError(
            f"items_per_answer must be at most {MAX_WORDS}, not {words}."
        )
    return words


def vote_l2(relation: Relation | str) -> float:
    """Return the L2 sensitivity of a histogram of votes: 1 or sqrt(2).

    Example:
        >>> vote_l2(Relation.ADD_REMOVE)
        1.0
    """
    return _by_relation(relation, 1.0, _SQRT_2)


def embedding_l2(relation: Relation | str, radius: float) -> float:
    """Return the L2 sensitivity of a sum of vectors of norm at most R: R or 2 R.

    Example:
        >>> embedding_l2(Relation.REPLACE, radius=0.5)
        1.0
    """
    return positive("radius", radius) * _by_relation(relation, 1.0, 2.0)


def keyword_l2(relation: Relation | str, items_per_answer: int) -> float:
    """Return the L2 sensitivity of all keyword counts together: sqrt(c) or sqrt(2c).

    An answer counts for at most c words. The root is never rounded down.

    Example:
        >>> keyword_l2(Relation.REPLACE, items_per_answer=2)
        2.0
    """
    words = _checked_words(items_per_answer)
    moved = int(_by_relation(relation, words, 2 * words))
    root = math.sqrt(moved)
    return root if Fraction(root) ** 2 >= moved else math.nextafter(root, math.inf)


def new_keywords(relation: Relation | str, items_per_answer: int) -> int:
    """Return how many words one neighbor can have that the other has not: c.

    Under `REPLACE` there may be as many again the other way round. They do not add up:
    see the proof in `keyword_threshold.py`.

    Example:
        >>> new_keywords(Relation.REPLACE, items_per_answer=2)
        2
    """
    words = _checked_words(items_per_answer)
    return int(_by_relation(relation, words, words))


def keyword_gap(relation: Relation | str) -> int:
    """Return the sensitivity of H(k) - H(k+1), for any k: 1 or 2.

    Example:
        >>> keyword_gap(Relation.REPLACE)
        2
    """
    return int(_by_relation(relation, 1, 2))


def joint_utility(relation: Relation | str) -> int:
    """Return the sensitivity of -max_i (H(i) - H(s_i)), for any words s: 1 or 2."""
    return int(_by_relation(relation, 1, 2))


def ptr_threshold(relation: Relation | str) -> int:
    """Return the gap above which the top-k set is the same on all neighbors: 1 or 2."""
    return int(_by_relation(relation, 1, 2))


def next_token_l2(relation: Relation | str) -> float:
    """Return the L2 sensitivity of a sum of probability vectors: 1 or sqrt(2)."""
    return _by_relation(relation, 1.0, _SQRT_2)


def next_token_linf(relation: Relation | str) -> float:
    """Return the L-infinity sensitivity of a sum of vectors with entries in [0, 1]."""
    return _by_relation(relation, 1.0, 1.0)


def tally_l1(relation: Relation | str, bound: int, rows_per_unit: int) -> int:
    """Return the L1 sensitivity of a tally of table rows, all groups together.

    One row moves the tally by at most `bound`, in L1: 1 for a histogram or a count, M
    for a sum of values in [-M, M]. Of r rows a unit it is r * bound under `ADD_REMOVE`,
    twice that under `REPLACE`.

    Example:
        >>> tally_l1(Relation.ADD_REMOVE, bound=73, rows_per_unit=2)
        146
    """
    moved = count(bound, "bound") * count(rows_per_unit, "rows_per_unit")
    # Not by `_by_relation`: a float would round a large sensitivity.
    return moved if checked_relation(relation) is Relation.ADD_REMOVE else 2 * moved


def tally_l2(relation: Relation | str, tables: int, rows_per_unit: int) -> float:
    """Return the L2 sensitivity of several histograms of all rows, side by side.

    Args:
        relation: How neighbors differ in the rows of one unit.
        tables: How many histograms t there are. A row adds 1 to one cell of each.
        rows_per_unit: Most rows r of one unit that take part.

    Returns:
        r sqrt(t) under `ADD_REMOVE`, r sqrt(2t) under `REPLACE`, never rounded down.

    Example:
        >>> tally_l2(Relation.ADD_REMOVE, tables=4, rows_per_unit=3)
        6.0
    """
    rows = count(rows_per_unit, "rows_per_unit")
    square = tally_l1(relation, count(tables, "tables"), rows) * rows
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def noise_scale(noise_multiplier: float, sensitivity: float) -> float:
    """Return sigma = noise multiplier * sensitivity, rounded up, never down.

    Example:
        >>> noise_scale(4.0, 0.5)
        2.0
    """
    sigma = noise_multiplier * sensitivity
    if Fraction(sigma) < Fraction(noise_multiplier) * Fraction(sensitivity):
        sigma = math.nextafter(sigma, math.inf)
    return sigma
