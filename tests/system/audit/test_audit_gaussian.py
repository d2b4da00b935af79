"""Two worlds, Gaussian histograms: per-unit accounts keep what they claim.

*Proven here, by enumeration.* For every corpus, every x, every place of x among the
others and every sequence of queries listed below: what the library's own retrieval,
handler and ledger let into the slots, under Gaussian noise as granted, distinguishes
the corpus with x from that without x by no more than the account claims. The loss is
the exact one of the joint Gaussian, in both directions, and every content of a slot
counts as a label of its own.

*Not proven here.* Larger corpora and longer sequences (the argument for those is in
`groups.drawing` and `accounting.filters`); that the sampler draws a Gaussian
(`tests/mechanisms`); queries that depend on answers (`test_audit_adaptive.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from support.audit.broken_worlds import (
    ChargesLater,
    ChargesNobody,
    ChargesTheKept,
    ChargesTheTop,
    LetsThePoorTakePlaces,
    PaysOnce,
    RefusesLoudly,
    ResetsTheDeleted,
    SharesBalances,
    WeighsTheCrowd,
)
from support.audit.exact_losses import PrivacyViolationError
from support.audit.small_corpora import Unit, people, unit_x
from support.audit.two_worlds import Account, Change, Query, Setting, Step, World
from support.audit.world_pairs import neighbors

from langchain_dpicl.accounting import GaussianPart

# Scores on two questions. The thresholds are 0.25 and 0.5: ties at both.
BOTH = ((0.5, 0.5),)
LOW = ((0.25, 0.25),)
ONE = ((0.25, 0.0),)
OTHER = ((0.0, 0.25),)
SEVERAL = ((0.25, 0.0), (0.0, 0.5), (0.25, 0.5))
NEVER = ((0.0, -0.25),)
XS = [unit_x((0.5, 0.5)), unit_x((0.25, 0.0), (0.25, 0.5), (0.0, 0.25))]
TWO = [people(ONE, OTHER), people(SEVERAL, BOTH)]
FEW = [people(), people(BOTH), people(SEVERAL), *TWO]
MANY = [*FEW, people(NEVER, SEVERAL, BOTH), people(BOTH, ONE, OTHER, LOW)]

PLAN = Account(1.0, 1e-5, queries=2)
ZCDP = Account(1.0, 1e-5, accounting="zcdp", delta0_share=0.0)
GDP = Account(1.0, 1e-5, accounting="gdp", delta0_share=0.1)

OPEN = [Query(q, threshold) for q in (0, 1) for threshold in (0.25, 0.5)]
"""Noise left to the account."""

MIXED = [
    Query(0, 0.25, GaussianPart(4.5)),
    Query(0, 0.5, GaussianPart(7.0)),
    Query(1, 0.25, GaussianPart(7.0)),
    Query(1, 0.5, GaussianPart(11.0)),
]
"""Cheap and dear: one of 4.5 is most of a balance, and of 11.0 it takes seven."""

Shape = dict[str, Any]
SHARDS: Shape = {"n_groups": 2}


def audit(
    setting: Setting,
    queries: Sequence[Step],
    length: int,
    *,
    corpora: Sequence[tuple[Unit, ...]] = FEW,
    xs: Sequence[Unit] = XS,
    kind: type[World] = World,
) -> float:
    """Hold all sequences against the claims; return the first account's worst delta."""
    return max(
        pair.check_fixed(steps)[0]
        for pair in neighbors(corpora, xs, setting, length, kind)
        for steps in product(queries, repeat=length)
    )


@pytest.mark.parametrize(
    ("shape", "corpora", "queries"),
    [({}, FEW, OPEN[:3]), (SHARDS, MANY, OPEN)],
    ids=["one shard", "shards"],
)
def test_plan(shape: Shape, corpora: Any, queries: Any) -> None:
    setting = Setting((PLAN,), **shape)
    audit(setting, queries, 3, corpora=corpora[2:4], xs=XS[1:])
    worst = audit(setting, queries, 3, corpora=corpora, xs=XS[:1])
    # Nothing is wasted either: a unit that takes part twice has spent it all.
    assert worst > 0.999 * PLAN.delta


@pytest.mark.parametrize(("account", "used"), [(ZCDP, 0.01), (GDP, 0.5)])
def test_filter(account: Account, used: float) -> None:
    worst = audit(Setting((account,)), MIXED, 3, corpora=TWO[:1], xs=XS[:1])
    assert worst > used * account.delta


def test_a_unit_that_cannot_pay_the_dear_release_pays_the_cheap_one() -> None:
    # By GDP the balance is 1/z^2 of about 0.072, or 0.049 + 0.02 and not 0.049 twice.
    dear, cheap = Query(0, 0.25, GaussianPart(4.5)), Query(0, 0.25, GaussianPart(7.0))
    setting = Setting((GDP,))
    [pair] = neighbors([people()], XS[:1], setting, 4)
    mu = [pair.fixed(steps)[0] for steps in ([dear], [dear, dear], [dear, dear, cheap])]
    # x alone fills an empty slot: half of what a slot can change.
    assert mu[0] == mu[1] < mu[2] == pytest.approx((4.5**-2 + 7.0**-2) / 2)
    for steps in product([dear, cheap], repeat=4):
        pair.check_fixed(steps)


def test_concurrent_accounts() -> None:
    """Two accounts of one corpus, asked in turns: each keeps its own, and they add."""
    dear = GaussianPart(4.5)
    queries = [
        *(Query(0, threshold, account=0) for threshold in (0.25, 0.5)),
        *(Query(q, 0.5, dear, account=1) for q in (0, 1)),
    ]
    audit(Setting((PLAN, ZCDP)), queries, 3, corpora=TWO, xs=XS[:1])


@pytest.mark.parametrize("name", ["x", "a"])
def test_deleted_and_added_again(name: str) -> None:
    """A balance outlives the unit's documents: of x, and of the others."""
    corpora = [people(BOTH), people(BOTH, BOTH)]
    worst = audit(Setting((PLAN,)), comings(name), 5, corpora=corpora, xs=XS[:1])
    assert worst > 0.999 * PLAN.delta


def comings(name: str) -> list[Step]:
    return [Query(0, 0.25), Change(name)]


CHAIN = people(ONE, OTHER)
CROWD = people(LOW, LOW, LOW, LOW)
TWINS: list[tuple[type[World], tuple[Unit, ...], Shape]] = [
    (ChargesTheKept, CHAIN, {}),
    (ChargesTheTop, CHAIN, {}),
    (RefusesLoudly, CHAIN, {}),
    (LetsThePoorTakePlaces, CHAIN, {}),
    (ChargesLater, CHAIN, {}),
    (ChargesNobody, CHAIN, {}),
    (PaysOnce, CHAIN, {}),
    (WeighsTheCrowd, CHAIN, {}),
    (SharesBalances, CROWD, SHARDS),
]


@pytest.mark.parametrize(("kind", "others", "shape"), TWINS)
def test_a_broken_account_is_caught(kind: Any, others: Any, shape: Shape) -> None:
    queries = [*OPEN[:2], Query(1, 0.25)]
    setting = Setting((replace(PLAN, queries=1),), **shape)
    with pytest.raises(PrivacyViolationError):
        audit(setting, queries, 3, corpora=[others], xs=XS[:1], kind=kind)


def test_a_balance_that_deletion_resets_is_caught() -> None:
    def check(kind: type[World]) -> None:
        steps = comings("x")
        audit(Setting((PLAN,)), steps, 5, corpora=[people(BOTH)], xs=XS, kind=kind)

    check(World)
    with pytest.raises(PrivacyViolationError):
        check(ResetsTheDeleted)
