"""Which way to ask a plan chooses, and what it says where none is enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

import langchain_dpicl
from langchain_dpicl import InvalidParameterError, PlanMismatchError, RetrievedGroups
from langchain_dpicl.budget import forecast, plan_queries
from langchain_dpicl.planner import PARSERS, AnswerPlan, Option, choosing, plan
from langchain_dpicl.planner.crowd import Crowd
from langchain_dpicl.planner.methods import METHODS, Budget


def best(found: AnswerPlan) -> float:
    return max(one.right for one in found.options)


def test_it_is_the_packages_own() -> None:
    assert langchain_dpicl.plan is plan


def test_a_topic_of_many_people_is_sampled() -> None:
    found = plan(3000, epsilon=1, parser="vote")
    assert found.is_enough
    assert found.sampling_rate < 1
    everybody = plan(3000, epsilon=1, parser="vote", sampling_rate=1.0)
    assert not everybody.is_enough
    assert everybody.right < found.right - 0.2
    assert {one.sampling_rate for one in everybody.options} == {1.0}


def test_a_small_topic_at_a_large_epsilon_takes_everybody() -> None:
    for parser in ("draft", "ptr"):
        found = plan(60, epsilon=20, share=0.8, runner_up=0.1, parser=parser)
        assert found.sampling_rate == 1.0, parser


def test_of_the_ways_that_are_enough_it_takes_the_cheapest() -> None:
    found = plan(2000, epsilon=3, wanted=0.9)
    enough = [one for one in found.options if one.right >= 0.9]
    assert found.is_enough
    assert len(enough) > 1
    assert found.calls <= min(one.calls for one in enough) + 1
    assert "wanted 90%" in found.advice
    # It is one of the ways that are listed, with the call for the draft.
    [same] = [
        one
        for one in found.options
        if dataclasses.asdict(one).items() <= dataclasses.asdict(found).items()
    ]
    assert same.calls == same.groups + METHODS[same.parser].public_calls
    assert same.right + same.wrong + same.nothing == pytest.approx(1)


def test_nothing_that_is_enough_is_left_out_for_more_calls() -> None:
    little = plan(2000, epsilon=3, wanted=0.7, parser="vote")
    much = plan(2000, epsilon=3, wanted=0.99, parser="vote")
    assert little.groups < much.groups
    assert little.is_enough
    assert much.is_enough


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"people_per_question": 100}, {"people_per_question": 400}),
        ({"people_per_question": 400}, {"people_per_question": 3000}),
        ({"epsilon": 1.0}, {"epsilon": 3.0}),
        ({"epsilon": 3.0}, {"epsilon": 8.0}),
        ({"queries": 40}, {"queries": 20}),
    ],
)
def test_more_never_answers_less(first: Any, then: Any) -> None:
    terms: dict[str, Any] = {"people_per_question": 400, "epsilon": 3}
    less, more = plan(**{**terms, **first}), plan(**{**terms, **then})
    assert best(more) > best(less) - 0.01
    assert more.is_enough or not less.is_enough


def test_people_who_are_too_few_are_told_so() -> None:
    found = plan(15, epsilon=1, share=0.9, runner_up=0.05)
    assert not found.is_enough
    assert "differential privacy can't answer" in found.advice
    assert "about" in found.advice
    needed = int(found.advice.split("about ")[1].split()[0].replace(",", ""))
    assert plan(needed, epsilon=1, share=0.9, runner_up=0.05).is_enough


def test_what_would_be_enough_is_so() -> None:
    terms: dict[str, Any] = {"epsilon": 1, "parser": "vote"}
    found = plan(800, **terms, groups=25)
    assert not found.is_enough
    told = found.advice
    groups = int(told.split(" groups")[0].split()[-1])
    assert plan(800, **terms, groups=groups).is_enough
    assert not plan(800, **terms, groups=groups // 2).is_enough
    fixed: dict[str, Any] = {**terms, "groups": 200, "sampling_rate": 1.0}
    found = plan(1200, **fixed)
    assert not found.is_enough
    queries = int(found.advice.split(" questions instead")[0].split()[-1])
    assert plan(1200, **fixed, queries=queries).is_enough
    assert not plan(1200, **fixed, queries=2 * queries).is_enough


def test_groups_that_are_wrong_are_told_so() -> None:
    found = plan(1000, share=0.3, runner_up=0.4, parser="vote", groups=25)
    assert not found.is_enough
    assert "no budget and no number of groups" in found.advice


def test_what_the_user_fixes_is_fixed() -> None:
    found = plan(500, groups=60, sampling_rate=0.3, parser=["vote", "ptr"])
    assert {(one.groups, one.sampling_rate) for one in found.options} == {(60, 0.3)}
    assert {one.parser for one in found.options} == {"vote", "ptr"}
    several = plan(500, groups=[30, 60], parser="vote")
    assert {one.groups for one in several.options} == {30, 60}
    assert {one.parser for one in plan(500).options} == set(PARSERS) - {"vote"}


def test_rates_that_leave_nearly_nobody_are_not_looked_at() -> None:
    field = choosing._Field(("vote",), (25, 200), choosing.RATES, (1,))
    looked = field.options(Crowd.of(100, 0.5, 0.2, 8), Budget(8.0, 1e-6, 20))
    for one in looked:
        fewest = RetrievedGroups.rate_for(100, one.groups, choosing.FEWEST)
        assert one.sampling_rate >= fewest
    assert {one.sampling_rate for one in looked if one.groups == 200} == {1.0, 0.5}
    assert len([one for one in looked if one.groups == 25]) == 5


def test_it_costs_what_a_forecast_says() -> None:
    sizes: dict[str, Any] = {"records_per_group": 8, "tokens_per_record": 50}
    prices: dict[str, Any] = {"price_in": 2.0, "price_out": 10.0}
    found = plan(500, parser="draft", groups=100, stages=1, **sizes, **prices)
    parser = METHODS["draft"].parser
    told = forecast(
        parser.event_template(),
        epsilon=8,
        delta=1e-6,
        queries=20,
        groups=100,
        public_calls=1,
    )
    assert found.cost == told.cost(**sizes, **prices)
    assert "1,204,000 tokens" in str(found)
    assert "3.42 in all" in str(found)
    without = plan(500, parser="draft", groups=100, stages=1, **sizes)
    assert without.cost is not None
    assert without.cost.price is None
    assert "1,204,000 tokens" in str(without)
    assert plan(500, parser="draft", groups=100).cost is None


def test_clear_votes_are_asked_in_stages() -> None:
    clear: dict[str, Any] = {"share": 0.9, "runner_up": 0.05, "parser": "vote"}
    found = plan(5000, **clear, groups=100, wanted=0.99)
    assert found.stages > 1
    assert found.calls < 60
    assert f"stages={found.stages})" in str(found)
    at_once = plan(5000, **clear, groups=100, wanted=0.99, stages=1)
    assert at_once.calls == 100
    assert {one.stages for one in at_once.options} == {1}
    sizes: dict[str, Any] = {"records_per_group": 8, "tokens_per_record": 50}
    costs = [
        plan(5000, **clear, groups=100, wanted=0.99, stages=stages, **sizes).cost
        for stages in (1, found.stages)
    ]
    assert costs[0] is not None
    assert costs[1] is not None
    sent = costs[1].input_tokens / costs[0].input_tokens
    assert sent == pytest.approx(found.calls / 100, abs=0.01)


@pytest.mark.parametrize(
    "terms", [{"parser": ["ptr", "threshold"]}, {"parser": "vote", "groups": 3}]
)
def test_what_can_not_be_asked_in_stages_is_refused(terms: Any) -> None:
    with pytest.raises(InvalidParameterError, match="Only votes are asked in stages"):
        plan(100, stages=4, **terms)


def test_the_same_question_gets_the_same_plan() -> None:
    first, second = (plan(500, parser="vote", epsilon=3) for _ in range(2))
    assert first == second


def test_it_is_shown_as_a_table_that_says_what_to_write() -> None:
    found = plan(3000, epsilon=1, choices=12, parser=["draft", "ptr"])
    shown = str(found)
    assert f"n_groups={found.groups}, sampling_rate={found.sampling_rate:g}" in shown
    assert 'VoteOutputParser(labels="draft", max_labels=12)' in shown
    assert shown.count("<- chosen") == 1
    assert f"Right {found.right:.0%}, wrong {found.wrong:.0%}, nothing" in shown
    assert "options" not in repr(found)
    assert "right=" in repr(found)
    assert max(map(len, shown.splitlines()[-9:])) <= 88
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.wanted = 0.5  # type: ignore[misc]


def test_a_rate_that_no_plan_can_pay_for_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = type(METHODS["vote"]).noise

    def noise(method: Any, budget: Budget, rate: float) -> Any:
        if rate < 1:
            raise PlanMismatchError("No such plan.")
        return real(method, budget, rate)

    monkeypatch.setattr(type(METHODS["vote"]), "noise", noise)
    found = plan(3000, epsilon=3, parser="vote", groups=100)
    assert found.sampling_rate == 1.0
    with pytest.raises(PlanMismatchError, match="No such plan"):
        plan(3000, epsilon=3, parser="vote", groups=100, sampling_rate=0.5)


def test_a_plan_that_the_accountants_disagree_on_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: dict[str, Any] = {"epsilon": 1, "parser": "vote", "groups": 100}
    usual = plan(3000, **wanted)
    assert usual.sampling_rate < 1
    real = plan_queries

    def doubted(template: Any, **terms: Any) -> Any:
        if template.sampling_rate == usual.sampling_rate:
            raise PlanMismatchError("They disagree.")
        return real(template, **terms)

    monkeypatch.setattr(choosing, "plan_queries", doubted)
    other = plan(3000, **wanted)
    assert other.sampling_rate != usual.sampling_rate
    with pytest.raises(PlanMismatchError, match="disagree"):
        plan(3000, **wanted, sampling_rate=usual.sampling_rate)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"people_per_question": 0}, "people_per_question"),
        ({"share": 0.7, "runner_up": 0.4}, "add up to more than 1"),
        ({"wanted": 0}, "wanted"),
        ({"wanted": 1}, "wanted"),
        ({"wanted": float("nan")}, "wanted"),
        ({"parser": "oracle"}, "'vote', 'draft', 'threshold', 'ptr', not 'oracle'"),
        ({"parser": []}, "one or more"),
        ({"groups": 0}, "groups"),
        ({"groups": []}, "groups"),
        ({"groups": 10**6}, "groups"),
        ({"groups": 2.5}, "groups"),
        ({"stages": 0}, "stages"),
        ({"stages": []}, "stages"),
        ({"stages": 50}, "stages"),
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"queries": 0}, "queries"),
        ({"records_per_group": 8}, "tokens_per_record"),
        ({"price_in": 1.0, "price_out": 1.0}, "tokens_per_record"),
        (
            {"records_per_group": 8, "tokens_per_record": 9, "price_in": 1.0},
            "price_out",
        ),
        ({"records_per_group": 0, "tokens_per_record": 9}, "records_per_group"),
    ],
)
def test_numbers_that_can_not_be_are_refused_before_anything_is_computed(
    terms: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Sequence[Option]:
        raise AssertionError

    monkeypatch.setattr(choosing._Field, "options", never)
    with pytest.raises(InvalidParameterError, match=named):
        plan(**{"people_per_question": 100, **terms})
