"""The laws of a pair of worlds, against exact ones; and their composition."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.audit_chains import groups_of, people

from langchain_dpicl import (
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    VoteOutputParser,
)
from langchain_dpicl.accounting import Gaussian, compose
from langchain_dpicl.audit.laws import Laws, Pair
from langchain_dpicl.audit.losses import (
    FiniteLoss,
    GaussianLoss,
    Loss,
    epsilon_of,
    finite_loss,
    gaussian_loss,
)
from langchain_dpicl.audit.worlds import Canary, Worlds
from langchain_dpicl.common.replies import FAILED, Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.mechanisms import keyword_ptr, keyword_threshold, random
from langchain_dpicl.parsers import KSAJointOutputParser, PublicInput


def slots(**counts: int) -> list[Slot]:
    return [Slot(word) for word, count in counts.items() for _ in range(count)]


def losses(
    parser: Any, pair: Pair, rate: float = 1.0, epsilon: float = 30.0
) -> tuple[list[Loss] | None, Any]:
    """Return what a pair loses, and the events of the charge."""
    budget = PrivacyBudgetHandler(
        epsilon=epsilon, delta=1e-6, queries=1, ledger=":memory:"
    )
    paid = budget.buy(parser.charge(rate))
    laws = Laws(parser, Relation.REPLACE, rate)
    laws.ask(paid, parser.prepare(PublicInput("Which?", "Which?")))
    (found,) = laws.losses([pair])
    return found, paid.events


def pairs_of(found: list[Loss] | None) -> list[tuple[float, float]]:
    assert found is not None
    (one,) = found
    assert isinstance(one, FiniteLoss)
    return sorted(one.pairs)


PAIR = Pair(slots(cough=9, rash=6), slots(cough=1), slots(rash=1))


def test_a_vote_moves_by_its_noise() -> None:
    parser = VoteOutputParser(labels=["cough", "rash"], noise_multiplier=3.0)
    for pair, square in (
        (PAIR, 2),
        (Pair(PAIR.common, [FAILED], slots(rash=1)), 2),
        (Pair([*PAIR.common, FAILED], [], [FAILED]), 1),
        (Pair(PAIR.common, slots(rash=1), slots(rash=1)), 0),
    ):
        found, _ = losses(parser, pair)
        distances = [one.distance for one in found or [] if hasattr(one, "distance")]
        expected = [math.sqrt(square / 2) / 3] if square else []
        assert distances == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_a_set_passes_as_often_as_the_mechanism_says(rate: float) -> None:
    parser = KSAPTROutputParser(k=1)
    found, events = losses(parser, PAIR, rate, epsilon=3)

    def passes(gap: int) -> float:
        return keyword_ptr.pass_rate(gap, events, "replace")

    p, own = passes(4), (1 - rate) * passes(4) + rate * passes(2)
    expected = sorted([(p, own), (1 - p, 1 - own)])
    for measured, exact in zip(pairs_of(found), expected, strict=True):
        assert measured == pytest.approx(exact, rel=1e-6)


def test_sets_that_differ_come_out_in_one_world_alone() -> None:
    parser = KSAPTROutputParser(k=1)
    pair = Pair(slots(cough=5, rash=5), slots(cough=1), slots(rash=1))
    found, events = losses(parser, pair)
    p = keyword_ptr.pass_rate(1, events, "replace")
    expected = sorted([(p, 0.0), (0.0, p), (1 - p, 1 - p)])
    for measured, exact in zip(pairs_of(found), expected, strict=True):
        assert measured == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_noisy_counts_lose_what_is_charged_for_them(rate: float) -> None:
    """A slot that changes one word for another moves two counts by one."""
    parser = KSAThresholdOutputParser()
    found, events = losses(parser, PAIR, rate, epsilon=3)
    (one,) = [loss for loss in found or [] if isinstance(loss, GaussianLoss)]
    assert one.rate == rate
    assert one.distance == pytest.approx(1 / events[0].noise_multiplier, rel=1e-9)


def test_a_range_of_k_is_chosen_and_then_tested() -> None:
    parser = KSAPTROutputParser(k=(1, 2))
    found, (choice, *test) = losses(parser, PAIR)

    def law(first: int, second: int) -> list[float]:
        gaps = [first - second, second]
        weights = [math.exp(choice.epsilon * gap / 4) for gap in gaps]
        chances = [weight / sum(weights) for weight in weights]
        passes = [keyword_ptr.pass_rate(gap, tuple(test), "replace") for gap in gaps]
        return [
            own * bit
            for own, p in zip(chances, passes, strict=True)
            for bit in (p, 1 - p)
        ]

    expected = sorted(zip(law(10, 6), law(9, 7), strict=True))
    for measured, exact in zip(pairs_of(found), expected, strict=True):
        assert measured == pytest.approx(exact, rel=1e-6)


def test_a_word_of_one_world_alone_comes_out_as_often_as_the_mechanism_says() -> None:
    parser = KSAThresholdOutputParser(noise_multiplier=0.9, delta0=1e-7)
    pair = Pair(slots(cough=9), slots(cough=1), slots(rash=1))
    found, events = losses(parser, pair)
    counted, word = found or []
    assert isinstance(counted, GaussianLoss)
    # A word of both worlds, of which there is one more in one of them.
    assert counted.distance == pytest.approx(1 / (0.9 * math.sqrt(2)), rel=1e-9)
    p = keyword_threshold.pass_rate(1, events, "replace", items_per_answer=1)
    assert 0 < p <= 1e-7
    assert isinstance(word, FiniteLoss)
    assert sorted(word.pairs) == [(0.0, p), (1.0, 1 - p)]


def test_a_release_that_nobody_knows_has_no_law() -> None:
    class Louder(VoteOutputParser):
        def release(self, slots: Any, **terms: Any) -> Any:
            return super().release([*slots, *slots], **terms)

    class Politer(VoteOutputParser):
        def get_format_instructions(self) -> str:
            return "Choose, please."

    joint = KSAJointOutputParser(k=1, domain=["cough", "rash"])
    assert losses(joint, PAIR)[0] is None
    assert losses(Louder(labels=["cough", "rash"]), PAIR)[0] is None
    assert losses(Politer(labels=["cough", "rash"]), PAIR)[0] is not None


# -- composition -----------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_gaussians_cost_what_the_accountant_says(rate: float) -> None:
    found = [loss for _ in range(20) for loss in gaussian_loss(0.5, rate)]
    expected = compose(
        [Gaussian(noise_multiplier=2.0, sampling_rate=rate, count=20)], 1e-6
    )
    upper, lower = (epsilon_of(found, 1e-6, upper=side) for side in (True, False))
    assert upper == pytest.approx(expected, rel=5e-3)
    assert lower <= expected * (1 + 1e-9)
    assert lower == pytest.approx(expected, rel=2e-2)


def test_bits_cost_their_exact_loss_in_the_worse_direction() -> None:
    (one,) = finite_loss({1: 0.5, 0: 0.5}, {1: 0.9, 0: 0.1}, 1.0)
    # Twice 0: once in 4, or once in 100. So delta is 1/4 - e^epsilon / 100.
    exact = math.log(100 * (1 / 4 - 1e-3))
    assert epsilon_of([one, one], 1e-3) == pytest.approx(exact, abs=5e-4)
    lower = epsilon_of([one, one], 1e-3, upper=False)
    assert exact - 5e-4 < lower <= exact
    # The other way round the same outcome tells less.
    (turned,) = finite_loss({1: 0.9, 0: 0.1}, {1: 0.5, 0: 0.5}, 1.0)
    assert epsilon_of([turned, turned], 1e-3) == pytest.approx(exact, abs=5e-4)


def test_an_outcome_of_one_world_alone_is_an_infinite_loss() -> None:
    (one,) = finite_loss({1: 1.0}, {2: 1.0}, 1.0)
    assert epsilon_of([one], 1e-6) == math.inf
    # Where none was seen there may be one that is too rare to be seen.
    assert epsilon_of([one], 1e-6, upper=False) == pytest.approx(34.5, abs=0.1)
    (rare,) = finite_loss({1: 1.0}, {1: 1 - 1e-8, 2: 1e-8}, 1.0)
    assert epsilon_of([rare] * 20, 1e-6) == pytest.approx(0.0, abs=3e-3)
    assert epsilon_of([rare] * 200, 1e-6) == math.inf


def test_equal_laws_lose_nothing() -> None:
    assert finite_loss({1: 0.3, 0: 0.7}, {1: 0.3, 0: 0.7}, 1.0) == []
    assert gaussian_loss(0.0, 1.0) == []
    assert epsilon_of([], 1e-6) == 0
    assert epsilon_of([GaussianLoss(1e-9)], 1e-6) < 1e-5


# -- worlds ----------------------------------------------------------------------------


def test_a_sample_differs_by_the_person_alone() -> None:
    documents = people(200)
    canaries = [Canary(f"unit-{i}") for i in range(0, 200, 10)]
    worlds = Worlds(groups_of(documents, sampling_rate=0.3), canaries)
    with random.seeded(1):
        index, others = worlds.pairs()
    units = {*index.unit_ids()}
    assert 40 <= len(units) <= 80
    seen = set()
    for canary, other, is_in in others:
        theirs = {*other.unit_ids()}
        assert is_in == (canary.name in units)
        assert units ^ theirs == {canary.name}
        assert len(other.rows_of(canary.name).lines) == (0 if is_in else 2)
        seen.add(is_in)
    assert seen == {True, False}
    with random.seeded(2):
        assert {*worlds.pairs()[0].unit_ids()} != units
