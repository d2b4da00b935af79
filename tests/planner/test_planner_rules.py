"""What a plan predicts is what real parsers release, of real groups, in real chains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.planned_world import measure

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser, mechanisms
from langchain_dpicl.mechanisms import GaussianNoise
from langchain_dpicl.parsers.lead import verdict
from langchain_dpicl.planner import methods
from langchain_dpicl.planner.crowd import Crowd
from langchain_dpicl.planner.methods import METHODS, Budget
from langchain_dpicl.planner.result import Option

ASKS = 120
POINTS = 0.05
BUDGET = Budget(8.0, 1e-6, 20)
GRID: dict[str, tuple[str, int, tuple[float, float, int], int, float]] = {
    "a vote of sampled people": ("vote", 300, (0.5, 0.2, 8), 25, 0.25),
    "a vote of everybody": ("vote", 60, (0.6, 0.2, 2), 50, 1.0),
    "a drafted vote": ("draft", 300, (0.5, 0.2, 8), 50, 0.25),
    "words by a threshold": ("threshold", 150, (0.6, 0.15, 6), 50, 0.5),
    "the words of nearly all": ("ptr", 300, (0.7, 0.1, 4), 50, 0.25),
}


@pytest.mark.parametrize("name", GRID)
def test_a_prediction_is_what_a_real_chain_does(name: str) -> None:
    parser, people, guess, groups, rate = GRID[name]
    crowd, method = Crowd.of(people, *guess), METHODS[parser]
    noise = method.noise(BUDGET, rate)
    rated = method.rated(method, noise, crowd, groups, rate, 1)
    option = Option(parser, rate, groups, 1, rated.right, rated.wrong, 0.0)
    found = measure(crowd, option, noise, asks=ASKS)
    # Neither is next to 0 or 1, where any prediction would do.
    assert 0.3 < rated.right < 0.99
    for told, seen in ((rated.right, found.right), (rated.wrong, found.wrong)):
        chance = math.sqrt(max(told * (1 - told), 0.0) / found.asks)
        assert abs(told - seen) < POINTS + 2 * chance
    assert found.calls <= groups + method.public_calls + 1


def test_twin_a_prediction_of_other_noise_is_seen() -> None:
    parser, people, guess, groups, rate = GRID["a vote of sampled people"]
    crowd, method = Crowd.of(people, *guess), METHODS[parser]
    noise = method.noise(BUDGET, 1.0)  # As if the sample were free.
    rated = method.rated(method, noise, crowd, groups, rate, 1)
    true = method.noise(BUDGET, rate)
    option = Option(parser, rate, groups, 1, 0.0, 0.0, 0.0)
    found = measure(crowd, option, true, asks=ASKS)
    chance = math.sqrt(rated.right * (1 - rated.right) / found.asks)
    assert abs(rated.right - found.right) > POINTS + 2 * chance


@pytest.mark.parametrize("drafted", [False, True])
def test_the_rule_of_many_votes_is_the_parsers_own(*, drafted: bool) -> None:
    random = np.random.default_rng(3)
    sigma, counts = 3.0, random.poisson([14, 8, 3, 6], size=(3000, 4))
    noisy = counts + sigma * random.standard_normal(counts.shape)
    min_lead = mechanisms.lead_over_a_tie(sigma) if drafted else 0.0
    over_none = max(min_lead, mechanisms.lead_over_a_tie(sigma, labels=1))
    is_out, is_first = methods._verdict(noisy, sigma, drafted=drafted)
    winners = [
        verdict(
            row[:-1].tolist(),
            float(row[-1]),
            sigma=sigma,
            min_lead=min_lead,
            over_none=over_none,
        ).winner
        for row in noisy
    ]
    told = [
        None if not out else first
        for out, first in zip(is_out.tolist(), is_first.tolist(), strict=True)
    ]
    assert told == [None if won is None else won == 0 for won in winners]
    assert {True, False, None} <= set(told)


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
