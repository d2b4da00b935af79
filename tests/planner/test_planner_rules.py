"""What a plan predicts is what real parsers release, of real groups, in real chains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.planned_world import measure

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.ledger.base import NOTHING
from langchain_dpicl.mechanisms import GaussianNoise, sensitivity
from langchain_dpicl.mechanisms.stages import Asked
from langchain_dpicl.planner import methods
from langchain_dpicl.planner.crowd import Crowd
from langchain_dpicl.planner.methods import METHODS, Budget, Rated
from langchain_dpicl.planner.result import Option

ASKS = 120
POINTS = 0.05
BUDGET = Budget(8.0, 1e-6, 20)
GRID: dict[str, tuple[Crowd, Option]] = {
    name: (Crowd(people, *guess), Option(parser, rate, groups, stages, 0.0, 0.0, 0.0))
    for name, (parser, people, guess, groups, rate, stages) in {
        "a vote of sampled people": ("vote", 300, (0.5, 0.2, 8), 25, 0.25, 1),
        "a vote of everybody": ("vote", 60, (0.6, 0.2, 2), 50, 1.0, 1),
        "a vote in stages": ("vote", 300, (0.5, 0.2, 8), 50, 0.25, 4),
        "a drafted vote": ("draft", 300, (0.5, 0.2, 8), 50, 0.25, 1),
        "a drafted vote in stages": ("draft", 300, (0.6, 0.1, 8), 50, 0.5, 2),
        "words by a threshold": ("threshold", 150, (0.6, 0.15, 6), 50, 0.5, 1),
        "words of everybody": ("threshold", 80, (0.6, 0.15, 6), 50, 1.0, 1),
        "the words of nearly all": ("ptr", 300, (0.7, 0.1, 4), 50, 0.25, 1),
    }.items()
}


def rated_as(crowd: Crowd, option: Option, noise: Any) -> Rated:
    method = METHODS[option.parser]
    return method.rated(
        method, noise, crowd, option.groups, option.sampling_rate, option.stages
    )


@pytest.mark.parametrize("name", GRID)
def test_a_prediction_is_what_a_real_chain_does(name: str) -> None:
    crowd, option = GRID[name]
    method = METHODS[option.parser]
    noise = method.noise(BUDGET, option.sampling_rate)
    rated = rated_as(crowd, option, noise)
    found = measure(crowd, option, noise, asks=ASKS)
    # Neither is next to 0 or 1, where any prediction would do.
    assert 0.3 < rated.right < 0.99
    for told, seen in ((rated.right, found.right), (rated.wrong, found.wrong)):
        chance = math.sqrt(max(told * (1 - told), 0.0) / found.asks)
        assert abs(told - seen) < POINTS + 2 * chance
    # Beside the groups: a draft or a wording, or a question alone, once a chain.
    calls = rated.groups + method.public_calls
    assert abs(found.calls - calls) < (1 if option.stages == 1 else 0.08 * calls)
    assert (rated.groups < option.groups) == (option.stages > 1)


def test_twin_a_prediction_of_other_noise_is_seen() -> None:
    crowd, option = GRID["a vote of sampled people"]
    method = METHODS[option.parser]
    # As if the sample were free.
    rated = rated_as(crowd, option, method.noise(BUDGET, 1.0))
    true = method.noise(BUDGET, option.sampling_rate)
    found = measure(crowd, option, true, asks=ASKS)
    chance = math.sqrt(rated.right * (1 - rated.right) / found.asks)
    assert abs(rated.right - found.right) > POINTS + 2 * chance


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("asked", [Asked.whole(40), Asked(20, 40, 2, 4)])
def test_the_rule_of_many_votes_is_the_parsers_own(
    asked: Asked, *, drafted: bool
) -> None:
    random = np.random.default_rng(3)
    counts = random.poisson([14, 8, 3, 9, 2, 1], size=(2000, 6))
    labels = ("cough", "rash", "fever")
    parser = VoteOutputParser(labels="draft" if drafted else labels)
    noise = GaussianNoise(1.5)
    sigma = noise.noise_multiplier * sensitivity.vote_l2(Relation.REPLACE)
    noisy = counts + asked.noise(sigma) * random.standard_normal(counts.shape)
    found = methods._said(noisy, asked, sigma, drafted=drafted)
    paid = PaidCharge(noise, (), "account", 1, NOTHING)
    outs = set()
    for place, row in enumerate(noisy):
        said = parser.said(
            row,
            asked=asked,
            paid=paid,
            relation=Relation.REPLACE,
            prepared=labels,
        )
        text = said.outcome.text
        assert found.is_out[place] == (text is not None)
        assert text is None or found.is_first[place] == (text == "cough")
        assert found.is_answer[place] == said.is_answer
        assert found.lead[place] == pytest.approx(said.lead)
        outs.add((text, said.is_answer))
    assert len(outs) >= 4


@pytest.mark.parametrize("name", METHODS)
def test_the_noise_is_that_of_the_parsers_own_plan(name: str) -> None:
    method = METHODS[name]
    for rate in (1.0, 0.25):
        budget = PrivacyBudgetHandler(
            epsilon=3, delta=1e-6, queries=10, ledger=":memory:", account="own"
        )
        paid: Any = budget.charge(method.parser.event_template(rate))
        assert method.noise(Budget(3.0, 1e-6, 10), rate) == paid.noise


def test_a_parser_is_written_as_it_is_made() -> None:
    for choices in (8, 12):
        for method in METHODS.values():
            code = method.written(choices).replace("[...]", '["yes", "no"]')
            made = eval(code, {**vars(methods)})  # noqa: S307 - our own text
            assert type(made) is type(method.parser)
            if method.drafted:
                assert isinstance(made, VoteOutputParser)
                assert made.max_labels == choices


@pytest.mark.parametrize("name", ["vote", "draft", "ptr"])
def test_more_people_and_more_epsilon_never_answer_less(name: str) -> None:
    method = METHODS[name]
    by_epsilon = {
        epsilon: method.noise(Budget(epsilon, 1e-6, 20), 1.0)
        for epsilon in (1.0, 3.0, 8.0, 20.0)
    }
    crowds = [Crowd.of(people, 0.5, 0.2, 8) for people in (10, 50, 200, 1000, 5000)]
    for groups in (100, 200):
        table = np.array(
            [
                [
                    method.rated(method, noise, crowd, groups, 1.0, 1).right
                    for crowd in crowds
                ]
                for noise in by_epsilon.values()
            ]
        )
        # Three tenths of a point are chance.
        assert (np.diff(table, axis=0) > -0.003).all()
        assert (np.diff(table, axis=1) > -0.003).all()
        assert table[-1, -1] - table[0, 0] > 0.3


def test_drafted_labels_need_more_than_given_ones() -> None:
    crowd, noise = Crowd.of(500, 0.5, 0.2, 8), GaussianNoise(3.0)
    given, drafted = (
        METHODS[name].rated(METHODS[name], noise, crowd, 100, 1.0, 1)
        for name in ("vote", "draft")
    )
    assert drafted.right < given.right
    assert drafted.wrong <= given.wrong
    assert isinstance(METHODS["vote"].parser, VoteOutputParser)


def test_a_wrong_word_beside_the_right_one_is_no_right_answer() -> None:
    noise = METHODS["threshold"].noise(Budget(30.0, 1e-6, 1), 1.0)
    crowd = Crowd.of(10_000, 0.55, 0.45, 2)
    rated = METHODS["threshold"].rated(METHODS["threshold"], noise, crowd, 200, 1.0, 1)
    assert rated.right < 0.01
    assert rated.wrong > 0.99
