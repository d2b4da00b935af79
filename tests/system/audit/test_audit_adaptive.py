"""Two worlds, adaptive queries: the best of all strategies learns no more than claimed.

*Proven here, by enumeration.* For every corpus and x below, let an asker choose each
query (question, threshold, noise, and how groups answer) as any function of all that
was released before, up to the depth given. The hockey-stick divergence between the two
worlds' transcripts is at most delta at the claimed epsilon, in both directions.
The releases are finite and their probabilities exact: the noisy winner of two labels
(Gaussian), the exponential mechanism on two labels, and one flipped bit, which is the
sharpest pure mechanism there is. A strategy that asks on until units drop out is among
them: the depth is beyond what a balance pays for.

*Not proven here.* Deeper strategies, larger corpora, more labels; randomized strategies
are mixtures of these. That the samplers have these distributions is tested with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from suite import WHOLE
from support.audit.broken_worlds import (
    ChargesLater,
    ChargesNobody,
    ChargesTheKept,
    ChargesTheTop,
    CountsFailuresOnce,
    LetsThePoorTakePlaces,
    PaysOnce,
    RefusesLoudly,
    ResetsTheDeleted,
    SharesBalances,
    WeighsTheCrowd,
)
from support.audit.two_worlds import (
    ANSWERS,
    Account,
    Answer,
    Change,
    Query,
    Step,
    Unit,
    World,
    X,
    people,
)
from support.audit.world_pairs import (
    Adversary,
    Pair,
    PrivacyViolationError,
    hockey_stick,
    neighbors,
)

from langchain_dpicl.accounting import Event, Exponential, Gaussian, Pure

BOTH = ((0.5, 0.5),)
LOW = ((0.25, 0.25),)
ONE = ((0.25, 0.0),)
OTHER = ((0.0, 0.25),)
NEVER = ((-0.25, 0.0),)
SEVERAL = ((0.25, 0.0), (0.0, 0.5), (0.25, 0.5))
PLAIN = Unit(X, ((0.5, 0.5),))
XS = [PLAIN, Unit(X, ((0.25, 0.0), (0.25, 0.5)))]
CORPORA = [people(ONE, OTHER), people(SEVERAL, BOTH)]
if WHOLE:
    CORPORA = [people(), people(ONE), *CORPORA]

PLANS: dict[str, tuple[Account, Event]] = {
    "votes": (Account(1.0, 0.02, queries=2), Gaussian(noise_multiplier=None)),
    "exponential": (Account(1.2, 0.02, queries=2), Exponential(epsilon=None)),
    "pure": (Account(1.5, 0.02, queries=2), Pure(epsilon=None)),
}
# Of both, a flipped bit tells more of one slot.
SHARPEST = ["pure", pytest.param("exponential", marks=pytest.mark.whole)]
FILTERED = Account(1.5, 0.05, accounting="renyi", delta0_share=0.1, order=4.0)
RELEASES: list[Event] = [
    Exponential(epsilon=1.1),
    Gaussian(noise_multiplier=2.7),
    Pure(epsilon=0.25),
]


def questions(part: Event) -> list[Step]:
    return [Query(q, t, part) for q, t in [(0, 0.25), (1, 0.5), (0, 0.5)]]


def audit(pairs: Any, queries: Sequence[Step]) -> tuple[float, ...]:
    """Hold all pairs against the claims; return how much of each is used at most."""
    used = [pair.check_adaptive(queries) for pair in pairs]
    return tuple(max(each) for each in zip(*used, strict=True))


@pytest.mark.parametrize(
    ("plan", "used"), [("votes", 0.6), ("exponential", 0.9), ("pure", 0.98)]
)
def test_plan(plan: str, used: float) -> None:
    account, part = PLANS[plan]
    pairs = [
        *neighbors(CORPORA, XS[:1], account, 3),
        *neighbors([CORPORA[0], CORPORA[-1]] if WHOLE else [], XS[1:], account, 3),
    ]
    found = audit(pairs, questions(part))
    # Nothing is wasted either: where one unit's slot goes from yes to no.
    assert max(found) > used


def test_filter() -> None:
    queries: list[Step] = [Query(0, 0.25, part) for part in RELEASES]
    queries += [Query(1, 0.5, RELEASES[0])]
    some = CORPORA[1:] if WHOLE else CORPORA[:1]
    pairs = neighbors(some, XS[:1], FILTERED, 3)
    assert max(audit(pairs, queries)) > 0.6


@pytest.mark.parametrize("plan", PLANS)
def test_who_asks_until_everybody_has_dropped_out_learns_no_more(plan: str) -> None:
    account, part = PLANS[plan]
    query = Query(0, 0.25, part)
    twice, often = (
        audit(neighbors([people(ONE, BOTH)], XS[:1], account, depth), [query])
        for depth in (2, 6)
    )
    assert often == pytest.approx(twice)


@pytest.mark.parametrize("plan", SHARPEST)
@pytest.mark.parametrize("name", ["x", "a"])
def test_deleted_and_added_again(plan: str, name: str) -> None:
    account, part = PLANS[plan]
    steps: list[Step] = [Query(0, 0.25, part), Change(name)]
    pairs = neighbors([people(LOW)], XS[:1], account, 5)
    assert max(audit(pairs, steps)) > 0.9


def failing(kind: type[World]) -> tuple[float, ...]:
    account = Account(1.0, 0.05, accounting="renyi", delta0_share=0.9, order=8.0)
    vote = Gaussian(noise_multiplier=8.0)
    queries = [Query(q, 0.25, vote, delta0=0.02) for q in (0, 1)]
    return audit(neighbors([CHAIN], XS[:1], account, 3, kind=kind), queries)


def test_probabilities_of_failure_add_up_for_each_unit() -> None:
    [used] = failing(World)
    # Two failures of 0.02 fit into 0.9 * 0.05, and a third does not.
    assert used == pytest.approx((1 - 0.98**2) / 0.05)
    with pytest.raises(PrivacyViolationError):
        failing(CountsFailuresOnce)


def test_the_search_finds_the_best_of_all_strategies() -> None:
    """Against a plain enumeration of what is asked first, and then on each answer."""
    queries: list[Step] = [Query(0, 0.25, part) for part in RELEASES]
    pair = Adversary(people(ONE, OTHER), PLAIN, 1, FILTERED, 2)

    def outcomes(*asked: tuple[Step, str]) -> list[Pair]:
        answers = pair.answers([query for query, _ in asked])
        p, q = (a.yes(asked[-1][1]) for a in answers if isinstance(a, Answer))
        return [(p, q), (1 - p, 1 - q)]

    options = list(product(queries, ANSWERS))
    for epsilon in (0.0, 0.3, 0.6):
        figure = hockey_stick(epsilon)
        best = max(
            sum(
                figure(p * a, q * b)
                for (p, q), then in zip(outcomes(first), second, strict=True)
                for a, b in outcomes(first, then)
            )
            for first in options
            for second in product(options, repeat=2)
        )
        assert pair.adaptive(queries, figure) == pytest.approx(best)


CHAIN = people(ONE, OTHER)
CROWD = people(LOW, NEVER, NEVER, LOW)
TWINS = [
    (ChargesTheKept, CHAIN, 1),
    (ChargesTheTop, CHAIN, 1),
    (RefusesLoudly, CHAIN, 1),
    (LetsThePoorTakePlaces, CHAIN, 1),
    (ChargesLater, CHAIN, 1),
    (ChargesNobody, CHAIN, 1),
    (PaysOnce, CHAIN, 1),
    (WeighsTheCrowd, CHAIN, 1),
    (SharesBalances, CROWD, 2),
]


def audit_crowd(plan: str, others: Any, n_groups: int, kind: type[World]) -> None:
    account, part = PLANS[plan]
    queries = [Query(q, t, part) for q, t in [(0, 0.25), (0, 0.5), (1, 0.25)]]
    account = replace(account, queries=1)
    audit(neighbors([others], XS[:1], account, 3, n_groups, kind), queries)


@pytest.mark.parametrize(("kind", "others", "n_groups"), TWINS)
@pytest.mark.parametrize("plan", SHARPEST)
def test_a_broken_account_is_caught(
    kind: type[World], others: Any, n_groups: int, plan: str
) -> None:
    with pytest.raises(PrivacyViolationError):
        audit_crowd(plan, others, n_groups, kind)


@pytest.mark.parametrize(("others", "n_groups"), [(CHAIN, 1), (CROWD, 2)])
@pytest.mark.parametrize("plan", SHARPEST)
def test_the_same_audit_passes_the_library(
    others: Any, n_groups: int, plan: str
) -> None:
    audit_crowd(plan, others, n_groups, World)


@pytest.mark.parametrize("plan", SHARPEST)
def test_a_balance_that_deletion_resets_is_caught(plan: str) -> None:
    account, part = PLANS[plan]
    steps: list[Step] = [Query(0, 0.25, part), Change("x")]
    pairs = neighbors([people(LOW)], XS, account, 5, kind=ResetsTheDeleted)
    with pytest.raises(PrivacyViolationError):
        audit(pairs, steps)
