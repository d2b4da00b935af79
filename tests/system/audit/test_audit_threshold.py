"""Two worlds, a threshold by noisy counts: who is counted pays, and nobody else.

*Proven here, by enumeration.* Each query makes two releases: the noisy counts of the
bins that are touched, then the answer at the threshold they give. The counts are
released to the nearest of 0, ..., target, and each of these values has its exact
probability, a difference of two Gaussian tails; the library's own code is driven along
*every* sequence of such counts, so that every choice of an edge occurs, and charges
whom it will. The best adaptive strategy over two queries then learns no more from
counts and answers together than the account claims.

*Not proven here.* The library releases less (the edge and the sum of the counts) with a
finer rounding: post-processing of the same Gaussians. More bins, units and queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from support.audit.broken_worlds import everybody
from support.audit.exact_losses import PrivacyViolationError, cell
from support.audit.small_corpora import people, unit_x
from support.audit.two_worlds import Account, Answer, Query, Setting, World, votes
from support.audit.world_pairs import Adversary, neighbors

from langchain_dpicl.accounting import ExponentialPart
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.groups import NoisyThreshold, RetrievedGroups, threshold

HIGH = ((0.5, 0.25),)
LOW = ((0.25, 0.5),)
SEVERAL = ((0.0, 0.25), (0.25, 0.5))
ONE = [people(LOW)]
TWO = [people(HIGH, SEVERAL)]
XS = [unit_x((0.5, 0.25)), unit_x((0.25, 0.0), (0.0, 0.5))]

ZCDP = Account(1.0, 0.05, accounting="zcdp", delta0_share=0.0)
BINS = NoisyThreshold(units=2, bins=(0.5, 0.25), noise_multiplier=4.0)
THREE = NoisyThreshold(units=2, bins=(0.75, 0.5, 0.25), noise_multiplier=3.0)


@dataclass(frozen=True)
class CountedQuery(Query):
    """A query whose threshold is chosen first; a script holds the noisy counts."""

    @property
    def scripts(self) -> Sequence[tuple[int, ...]]:
        return list(self._after(()))

    def _after(self, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        terms = self.threshold
        assert isinstance(terms, NoisyThreshold)
        if len(counts) == len(terms.bins) or sum(counts) >= terms.units:
            yield counts
        else:
            for value in range(terms.units + 1):
                yield from self._after((*counts, value))


class CountingWorld(World):
    """Chooses the threshold by the library's code, with the noise of a script."""

    def ask(self, query: Query, script: tuple[int, ...]) -> Answer:
        source = self.source(query)
        terms = query.threshold
        assert isinstance(terms, NoisyThreshold)
        script_left, reach = list(script), 1.0

        def released(
            counts: Sequence[int],
            *,
            noise_multiplier: float,
            relation: Relation,
            random: object,  # noise is what the script stands for
        ) -> list[float]:
            nonlocal reach
            assert relation is Relation.ADD_REMOVE
            value = script_left.pop(0)
            reach *= cell(value, terms.units, counts[0], noise_multiplier)
            return [float(value)]

        paid = self.charge(query, source, terms.event_template())
        prepared = source.prepare(str(query.question))
        with mock.patch.object(threshold, "noisy_counts", released):
            refined = source.release_threshold(
                prepared, paid=paid, charge_units=self.count(paid)
            )
        assert not script_left
        paid = self.charge(query, source, query.event_template)
        slots = self.draw(source, refined.prepared, paid)
        return Answer(votes(slots), source.relation, paid, reach)

    def count(self, paid: PaidCharge) -> Any:
        return self.till(paid)


class CountsForNothing(CountingWorld):
    """Nobody pays for being counted."""

    def count(self, paid: PaidCharge) -> Any:
        return everybody


class ChargesTheLastBin(CountingWorld):
    """Units above the chosen edge's bin are counted for nothing."""

    def count(self, paid: PaidCharge) -> Any:
        def charge_units(unit_ids: Sequence[str]) -> Sequence[bool]:
            found = [self.units[unit] for unit in unit_ids]
            if any(score == 0.5 for unit in found for score in unit.documents[0]):
                return everybody(unit_ids)
            return self.till(paid)(unit_ids)

        return charge_units


class CountIsEnough(CountingWorld):
    """Who has paid for the count takes part in the answer as well."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: PaidCharge) -> Any:
        self.till(paid)
        return source.draw_prepared(prepared, charge_units=everybody)


CHEAP = NoisyThreshold(units=2, bins=(0.5, 0.25), noise_multiplier=2.0)
PART = ExponentialPart(0.8)
BOTH_QUESTIONS = [CountedQuery(question, BINS, PART) for question in (0, 1)]


def audit(pairs: Iterable[Adversary], query: Sequence[Query]) -> tuple[float, ...]:
    """Hold two queries against the claim; return how much of it is used."""
    used = [pair.check_adaptive(query) for pair in pairs]
    return tuple(max(each) for each in zip(*used, strict=True))


@pytest.mark.parametrize(("grouping", "used"), [("shard", 0.6), ("unit", 0.2)])
def test_counts_and_answers_together_keep_the_claim(grouping: str, used: float) -> None:
    setting = Setting((ZCDP,), grouping)
    pairs = [
        *neighbors(
            ONE, XS if grouping == "shard" else XS[:1], setting, 2, CountingWorld
        ),
        Adversary(*TWO, XS[0], 1, setting, 2, CountingWorld),
    ]
    assert max(audit(pairs, BOTH_QUESTIONS)) > used


def test_three_bins() -> None:
    pairs = neighbors(ONE, XS[:1], Setting((ZCDP,)), 2, CountingWorld)
    assert max(audit(pairs, [CountedQuery(0, THREE, PART)])) > 0.3


@pytest.mark.parametrize("kind", [CountsForNothing, ChargesTheLastBin, CountIsEnough])
def test_a_count_that_is_not_paid_for_is_caught(kind: type[World]) -> None:
    pairs = neighbors(ONE, XS[:1], Setting((ZCDP,)), 2, kind)
    with pytest.raises(PrivacyViolationError):
        audit(pairs, [CountedQuery(0, CHEAP, PART)])


def spent(world: World) -> dict[str, int]:
    """Return what each unit has spent of its rho, in millionths."""
    [budget] = world.budgets
    limit = ZCDP.renyi_claims(())[0][1] / 1.5
    balances = {b.tag: b.spent for b in world.ledger.unit_balances(budget.account)}
    return {
        unit: round(1e6 * limit * balances[tag].loss / budget_steps(world))
        for unit in world.units
        if (tag := world.ledger.unit_tag(budget.account, unit)) in balances
    }


def budget_steps(world: World) -> int:
    return world.ledger.state("0").terms.limit.loss


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # The first bin is enough: x, in the second, is neither counted nor asked.
        ((2,), {"a": 1 / 32 + 0.08}),
        # The second bin is touched and the edge moves down: x pays for both.
        ((1, 1), {"a": 1 / 32 + 0.08, "x": 1 / 32 + 0.08}),
    ],
)
def test_an_untouched_bin_pays_nothing(
    script: tuple[int, ...], expected: dict[str, float]
) -> None:
    world = CountingWorld((*people(HIGH), XS[1]), Setting((ZCDP,)))
    world.ask(BOTH_QUESTIONS[0], script)
    assert spent(world) == {u: round(1e6 * rho) for u, rho in expected.items()}


def test_a_unit_that_pays_for_the_count_and_not_for_the_answer() -> None:
    """The second time x is counted, and has nothing left for the answer."""
    pair = Adversary(people(), XS[0], 0, Setting((ZCDP,)), 2, CountingWorld)
    path = ((BOTH_QUESTIONS[0], (2,)),)
    once, never = pair.answers(path)
    assert once.votes != never.votes
    assert once.reach > never.reach
    twice, never = pair.answers(path * 2)
    assert twice.votes == never.votes
    assert twice.reach > never.reach


def test_scripts_are_all_that_can_happen() -> None:
    for terms, number in ((BINS, 7), (THREE, 13)):
        query = CountedQuery(0, terms)
        assert len(query.scripts) == len(set(query.scripts)) == number
        for counts in ([0, 0, 0], [1, 2, 0], [5, 1, 1]):
            total = math.fsum(
                math.prod(
                    cell(value, terms.units, count, 3.0)
                    for value, count in zip(script, counts, strict=False)
                )
                for script in query.scripts
            )
            assert total == pytest.approx(1)
