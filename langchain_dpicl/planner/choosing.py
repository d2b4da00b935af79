"""Which parser, sampling rate, groups and stages answer for the fewest model calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from langchain_dpicl.budget import Cost, plan_queries
from langchain_dpicl.budget.forecast import cost_of
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.planner.crowd import Crowd
from langchain_dpicl.planner.methods import METHODS, Budget
from langchain_dpicl.planner.result import AnswerPlan, Option

RATES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
GROUPS = (25, 50, 100, 200)
STAGES = (1, 2, 4)
MORE_GROUPS = (400, 800)
MAX_GROUPS = 5_000
MAX_STAGES = 20
MORE_PEOPLE = (2, 4, 8, 16, 32, 64)
PARSERS = tuple(METHODS)
"""Names of the parsers to choose from."""

USUAL = tuple(name for name in PARSERS if name != "vote")
"""Those that need no list of the possible answers."""

FEWEST = 0.25
"""Rates that leave fewer people a group than this are not looked at: nearly all of what
the groups know would be left out."""

ALIKE = 0.01
"""Rates of right answers that differ by less are taken for the same."""


def plan(  # noqa: PLR0913 - the public numbers of a plan, all by name
    people_per_question: int,
    *,
    share: float = 0.5,
    runner_up: float = 0.2,
    wanted: float = 0.95,
    epsilon: float = 8.0,
    delta: float = 1e-6,
    queries: int = 20,
    parser: str | Sequence[str] | None = None,
    groups: int | Sequence[int] | None = None,
    sampling_rate: float | None = None,
    stages: int | Sequence[int] | None = None,
    choices: int = 8,
    records_per_group: int | None = None,
    tokens_per_record: int | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
) -> AnswerPlan:
    """Return the cheapest way to ask that answers rightly as often as is wanted.

    No record is looked at, and no model is asked: it is arithmetic on your guess of how
    the groups answer. The guess: on a question N people have something to say. Each of
    them is in the sample with probability q, and sits in one of m groups at random, so
    that a group has about Poisson(N q / m) of them. A group with none of them says
    nothing. Each other group answers by itself: a part `share` of them names the right
    answer, a part `runner_up` the best wrong one, and the rest is spread evenly over
    the other `choices` - 2 answers, none of which gets more than the runner-up; what is
    left then says that it does not know. Then the parser's own rule is applied, at the
    noise that a plan for so many questions has, 10,000 times with a fixed seed.

    Give `RetrievedGroups` a `score_threshold`, so that such a group is empty. One that
    reads other people's records and says "none of these" is counted by a vote, and
    stands against the answer.

    Args:
        people_per_question: N: a *public* guess of how many people have something to
            say on a question. A count of private records must not be published.
        share: Part of the groups with somebody that names the right answer.
        runner_up: Part of them that names the best wrong one.
        wanted: The rate of right answers that is wanted.
        epsilon: Total privacy loss bound of all questions.
        delta: Their total failure probability.
        queries: How many questions the account pays for.
        parser: The names to choose among: "vote" (you know the possible answers),
            "draft" (the model lists them, and the right one is among them),
            "threshold" and "ptr" (the words that the groups use, with k=1). None: all
            but "vote".
        groups: The numbers of groups to choose among; None: 25, 50, 100 and 200.
        sampling_rate: The sampling rate; None: the best of 1, 1/2, 1/4, 1/8 and 1/16.
        stages: The numbers of stages to choose among, for votes (`DPChain(stages=)`);
            None: 1, 2 and 4.
        choices: How many answers there are: the labels of a vote, or the words that
            are used.
        records_per_group: Records in the prompt of one group, for the cost.
        tokens_per_record: Tokens of one record, on average, for the cost.
        price_in: Price of a million tokens that are sent.
        price_out: Price of a million tokens that come back; both or none.

    Returns:
        The plan. Of the ways that reach `wanted` it is the one with the fewest model
        calls; if none does, the one that answers rightly most often, and `advice` says
        what would be enough. Of rates that are as good, the largest is taken: it
        leaves the fewest people out.

    Raises:
        InvalidParameterError: If a number is out of its range, a parser is unknown, or
            `share` and `runner_up` are more than the whole.
        PlanMismatchError: If no noise keeps so many questions within the budget.

    Privacy:
        Everything here is public: nothing is read, released or charged. What is chosen
        changes no guarantee: each chain's own parser and group source state theirs, and
        the account charges what is in fact asked.

    Example:
        >>> found = plan(40, epsilon=1, share=0.8, runner_up=0.1, parser="vote")
        >>> found.is_enough
        False
        >>> print(found.advice)  # doctest: +ELLIPSIS
        Too few people have something to say: ...
    """
    crowd = Crowd.of(people_per_question, share, runner_up, choices)
    if not 0 < parameters.finite("wanted", wanted) < 1:
        raise InvalidParameterError(
            f"wanted must be strictly between 0 and 1, not {wanted:g}."
        )
    budget = Budget(
        parameters.epsilon(epsilon),
        parameters.delta(delta),
        parameters.count(queries, "queries"),
    )
    field = _Field(
        _names(parser),
        GROUPS if groups is None else _numbers(groups, "groups", MAX_GROUPS),
        RATES if sampling_rate is None else (parameters.sampling_rate(sampling_rate),),
        STAGES if stages is None else _numbers(stages, "stages", MAX_STAGES),
    )
    cost_terms = _cost_terms(records_per_group, tokens_per_record, price_in, price_out)

    options = field.options(crowd, budget)
    if not options:
        raise InvalidParameterError(
            "Only votes are asked in stages, and each stage asks one group at least: "
            'leave stages out, or choose parser="vote" or "draft" and more groups.'
        )
    chosen = _confirmed(options, wanted, budget)
    is_enough = chosen.right >= wanted
    if is_enough:
        advice = f"That reaches the wanted {wanted:.0%}."
    else:
        advice = _advice(chosen, crowd, budget, wanted, field)
    cost: Cost | None = None
    if cost_terms:
        asked = chosen.calls - METHODS[chosen.parser].public_calls
        cost = cost_of(asked, chosen.calls, budget.queries, **cost_terms)
    return AnswerPlan(
        **asdict(chosen),
        code=METHODS[chosen.parser].written(crowd.choices),
        wanted=wanted,
        is_enough=is_enough,
        advice=advice,
        people_per_question=crowd.people,
        share=crowd.share,
        runner_up=crowd.runner_up,
        choices=crowd.choices,
        epsilon=budget.epsilon,
        delta=budget.delta,
        queries=budget.queries,
        cost=cost,
        options=_shown(options, chosen, wanted),
    )


def _names(parser: str | Sequence[str] | None) -> tuple[str, ...]:
    if parser is None:
        return USUAL
    asked = (parser,) if isinstance(parser, str) else tuple(parser)
    unknown = [name for name in asked if name not in METHODS]
    if unknown or not asked:
        known = ", ".join(repr(name) for name in PARSERS)
        wrong = f", not {unknown[0]!r}" if unknown else ""
        raise InvalidParameterError(f"parser must be one or more of {known}{wrong}.")
    return tuple(name for name in PARSERS if name in asked)


def _numbers(value: int | Sequence[int], name: str, most: int) -> tuple[int, ...]:
    asked = value if isinstance(value, Sequence) else (value,)
    numbers = sorted({parameters.count(one, name) for one in asked})
    if not numbers or numbers[-1] > most:
        raise InvalidParameterError(
            f"{name} must be a number from 1 to {most}, or several of them."
        )
    return tuple(numbers)


def _cost_terms(
    records: int | None,
    tokens: int | None,
    price_in: float | None,
    price_out: float | None,
) -> dict[str, Any]:
    """Return the terms of a cost, none where no sizes are given; refuse half of them.

    What is wrong with the numbers is told before anything is computed.
    """
    if (price_in is None) != (price_out is None):
        raise InvalidParameterError("Give both price_in and price_out, or none.")
    if records is None and tokens is None and price_in is None:
        return {}
    if records is None or tokens is None:
        raise InvalidParameterError(
            "What the calls cost follows from both records_per_group and "
            "tokens_per_record."
        )
    terms: dict[str, Any] = {
        "records_per_group": records,
        "tokens_per_record": tokens,
        "price_in": price_in,
        "price_out": price_out,
    }
    cost_of(1, 1, 1, **terms)
    return terms


@dataclass(frozen=True)
class _Field:
    """What is chosen among: the names of parsers, numbers of groups, rates, stages."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    stages: tuple[int, ...]

    def options(self, crowd: Crowd, budget: Budget) -> list[Option]:
        """Return every way to ask that a plan can pay for, rated.

        Raises:
            PlanMismatchError: If there is no way, and for one of them no plan.
        """
        found: list[Option] = []
        refused: PlanMismatchError | None = None
        for size in self.sizes:
            fewest = RetrievedGroups.rate_for(crowd.people, size, FEWEST)
            rates = [rate for rate in self.rates if rate >= fewest] or self.rates[:1]
            for rate, stages, name in itertools.product(rates, self.stages, self.names):
                method = METHODS[name]
                if stages > 1 and not (method.has_stages and stages <= size):
                    continue
                try:
                    noise = method.noise(budget, rate)
                except PlanMismatchError as error:
                    refused = error
                    continue
                rated = method.rated(method, noise, crowd, size, rate, stages)
                calls = rated.groups + method.public_calls
                found.append(
                    Option(name, rate, size, stages, rated.right, rated.wrong, calls)
                )
        if refused is not None and not found:
            raise refused
        return found


def _chosen(options: Sequence[Option], wanted: float) -> Option:
    """Return the way with the fewest calls that is enough, or the one right most often.

    Of ways that cost the same the one that is right most often; of those that are as
    good, the one that leaves the fewest people out.
    """
    enough = [one for one in options if one.right >= wanted]
    if enough:
        fewest = min(one.calls for one in enough)
        # The one call for a draft or a wording does not decide.
        options = [one for one in enough if one.calls <= fewest + 1]
    most = max(one.right for one in options)
    return max(
        (one for one in options if one.right >= most - ALIKE),
        key=lambda one: (one.sampling_rate, -one.calls, -PARSERS.index(one.parser)),
    )


def _confirmed(options: Sequence[Option], wanted: float, budget: Budget) -> Option:
    """Return the best way whose plan no accountant contradicts, as an account asks."""
    left = list(options)
    while True:
        chosen = _chosen(left, wanted)
        parser, rate = chosen.parser, chosen.sampling_rate
        try:
            plan_queries(METHODS[parser].parser.event_template(rate), **asdict(budget))
        except PlanMismatchError:
            left = [
                one for one in left if (one.parser, one.sampling_rate) != (parser, rate)
            ]
            if not left:
                raise
        else:
            return chosen


def _shown(
    options: Iterable[Option], chosen: Option, wanted: float
) -> tuple[Option, ...]:
    """Return the best way of every parser and number of groups."""
    kinds: dict[tuple[int, int], list[Option]] = {}
    for one in options:
        kinds.setdefault((PARSERS.index(one.parser), one.groups), []).append(one)
    found = (kinds[kind] for kind in sorted(kinds))
    return tuple(chosen if chosen in each else _chosen(each, wanted) for each in found)


def _advice(
    chosen: Option, crowd: Crowd, budget: Budget, wanted: float, field: _Field
) -> str:
    """Return what would be enough, where nothing is."""

    def is_enough(
        *,
        people: int = crowd.people,
        queries: int = budget.queries,
        **others: Any,
    ) -> bool:
        found = replace(field, **others).options(
            replace(crowd, people=people), replace(budget, queries=queries)
        )
        return any(one.right >= wanted for one in found)

    if crowd.share <= crowd.runner_up:
        return (
            "The groups name a wrong answer as often as the right one, or more often: "
            "no budget and no number of groups makes the right one stand out."
        )
    ways = []
    wider = [size for size in (*GROUPS, *MORE_GROUPS) if size > field.sizes[-1]]
    larger = (size for size in wider if is_enough(sizes=(size,)))
    ways += [f"{size} groups" for size in itertools.islice(larger, 1)]
    near = tuple(sorted({field.rates[0], chosen.sampling_rate}, reverse=True))
    halved = (budget.queries >> n for n in range(1, budget.queries.bit_length()))
    # All rates, a search for its noise each, where it decides what is possible.
    fewer = (
        queries
        for queries in halved
        if is_enough(queries=queries, rates=field.rates if queries == 1 else near)
    )
    for queries in itertools.islice(fewer, 1):
        few = "one question" if queries == 1 else f"{queries} questions"
        ways.append(f"{few} instead of {budget.queries}")
    crowds = (crowd.people * factor for factor in MORE_PEOPLE)
    enough = (people for people in crowds if is_enough(people=people))
    more = [f"about {each:,} people a question" for each in itertools.islice(enough, 1)]
    short = (
        f"Nothing here is right in {wanted:.0%} of questions; this comes nearest, with "
        f"{chosen.right:.0%}."
    )
    if ways:
        told = ", or ".join(ways + more)
        return f"{short} It would take {told}; or a larger epsilon."
    if more:
        by = " or ".join(repr(name) for name in field.names)
        return (
            "Too few people have something to say: differential privacy can't answer "
            f"here at epsilon {budget.epsilon:g} by {by}, not even one question, as "
            f"often as is wanted. It would take {more[0]}."
        )
    return f"{short} Neither more groups, fewer questions nor more people help."
