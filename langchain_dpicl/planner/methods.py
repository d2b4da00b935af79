"""What each parser makes of the groups' counts: by its own rules, at its own noise.

The noise is what a plan for so many questions gives. The counts are drawn
(`crowd.py`); whether one word comes out at a count or gap is then known in closed form,
and the noise of votes is drawn as well. The parsers themselves are not run: ten
thousand runs of each take milliseconds here. The tests hold both against each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import Event, EventTemplate
from langchain_dpicl.budget import plan_queries
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    GaussianNoise,
    PTRNoise,
    ThresholdNoise,
    sensitivity,
)
from langchain_dpicl.parsers import (
    DPOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)
from langchain_dpicl.planner.crowd import Counts, Crowd

RUNS = 10_000
SEED = 20_260_101
RELATION = Relation.REPLACE
"""That of groups by shard."""

Flags = npt.NDArray[np.bool_]
Rates = npt.NDArray[np.float64]


class Rated(NamedTuple):
    """How often a question is answered rightly, and wrongly; groups that are asked."""

    right: float
    wrong: float
    groups: float

    @classmethod
    def of(cls, right: Any, wrong: Any, groups: Any) -> Rated:
        """Return the means over runs."""
        return cls(*(float(np.mean(each)) for each in (right, wrong, groups)))


@dataclass(frozen=True)
class Budget:
    """What a plan has for all of its questions."""

    epsilon: float
    delta: float
    queries: int


@dataclass(frozen=True)
class Method:
    """A parser to choose, and how it is rated.

    Attributes:
        parser: The parser, as it comes.
        code: How it is written.
        public_calls: Model calls without records, for an answered question.
        rated: From its noise, the crowd, the groups, the rate and the stages to what
            comes out.
        drafted: Whether the model drafts the labels.
        stages: In how many parts the groups may be asked.
    """

    parser: DPOutputParser[Any]
    code: str
    public_calls: int
    rated: Callable[[Method, Any, Crowd, int, float, int], Rated]
    drafted: bool = False
    stages: tuple[int, ...] = (1,)

    def written(self, choices: int) -> str:
        """Return how the parser is written, for so many possible answers."""
        usual = getattr(self.parser, "max_labels", choices)
        if not self.drafted or choices == usual:
            return self.code
        return self.code.replace(")", f", max_labels={choices})")

    def noise(self, budget: Budget, rate: float) -> Any:
        """Return the noise of one question under a plan.

        Raises:
            PlanMismatchError: If there is no such plan.
        """
        template = self.parser.event_template(rate)
        return template.read(_events(_plain(template), budget))


def _plain(template: EventTemplate[Any]) -> EventTemplate[Any]:
    """Return the shape alone: parsers whose releases cost the same share a plan."""
    return replace(template, mechanism="plan", noise=_values)


def _values(*values: float) -> tuple[float, ...]:
    return values


@functools.lru_cache(maxsize=1024)
def _events(template: EventTemplate[Any], budget: Budget) -> tuple[Event, ...]:
    return plan_queries(
        template,
        epsilon=budget.epsilon,
        delta=budget.delta,
        queries=budget.queries,
        confirmed=False,
    )


def _random(groups: int) -> np.random.Generator:
    # The same chance for every epsilon and number of people: what differs is they.
    return np.random.default_rng([SEED, groups])


def _vote(
    method: Method, noise: GaussianNoise, crowd: Crowd, groups: int, rate: float, _: int
) -> Rated:
    random = _random(groups)
    [counts] = crowd.counts(groups, rate, (groups,), RUNS, random)
    sigma = noise.noise_multiplier * sensitivity.vote_l2(RELATION)
    noisy = counts + sigma * random.standard_normal(counts.shape)
    is_out, is_right = _verdict(noisy, sigma, drafted=method.drafted)
    return Rated.of(is_out & is_right, is_out & ~is_right, groups)


def _verdict(noisy: Rates, sigma: float, *, drafted: bool) -> tuple[Flags, Flags]:
    """Return where a label comes out, and where the first label leads.

    It is `parsers.lead.verdict`, with the least leads of `VoteOutputParser`, for many
    votes at once. The last column counts "none of these".
    """
    votes, none = noisy[:, :-1], noisy[:, -1]
    second, first = np.partition(votes, -2, axis=1)[:, -2:].T
    min_lead = mechanisms.lead_over_a_tie(sigma) if drafted else 0.0
    over_none = max(min_lead, mechanisms.lead_over_a_tie(sigma, labels=1))
    is_out = (
        (first >= mechanisms.least_votes(sigma, votes.shape[1]))
        & (first - second >= min_lead)
        & (first - none >= over_none)
    )
    return is_out, votes.argmax(axis=1) == 0


def _ptr(
    _: Method, noise: PTRNoise, crowd: Crowd, groups: int, rate: float, __: int
) -> Rated:
    [counts] = crowd.counts(groups, rate, (groups,), RUNS, _random(groups))
    words = counts[:, :-1]
    second, first = np.partition(words, -2, axis=1)[:, -2:].T
    passes = _by_count(
        functools.partial(
            mechanisms.ptr_pass_rate,
            noise_multiplier=noise.noise_multiplier,
            delta0=noise.delta0,
            relation=RELATION,
        ),
        groups,
    )
    out = passes[first - second]
    is_right = words.argmax(axis=1) == 0
    return Rated.of(out * is_right, out * ~is_right, groups)


def _threshold(
    _: Method, noise: ThresholdNoise, crowd: Crowd, groups: int, rate: float, __: int
) -> Rated:
    [counts] = crowd.counts(groups, rate, (groups,), RUNS, _random(groups))
    passes = _by_count(
        functools.partial(
            mechanisms.threshold_pass_rate,
            items_per_answer=1,
            noise_multiplier=noise.noise_multiplier,
            delta0=noise.delta0,
            relation=RELATION,
        ),
        groups,
    )
    out = passes[counts[:, :-1]]
    no_wrong = (1 - out[:, 1:]).prod(axis=1)
    return Rated.of(out[:, 0] * no_wrong, 1 - no_wrong, groups)


def _by_count(pass_rate: Callable[[float], float], most: int) -> Rates:
    return np.array([pass_rate(count) for count in range(most + 1)])


METHODS = {
    "vote": Method(
        VoteOutputParser(labels=["yes", "no"]),
        "VoteOutputParser(labels=[...])",
        0,
        _vote,
    ),
    "draft": Method(
        VoteOutputParser(labels="draft"),
        'VoteOutputParser(labels="draft")',
        1,
        _vote,
        drafted=True,
    ),
    "threshold": Method(
        KSAThresholdOutputParser(), "KSAThresholdOutputParser()", 1, _threshold
    ),
    "ptr": Method(KSAPTROutputParser(k=1), "KSAPTROutputParser(k=1)", 1, _ptr),
}
"""The parsers to choose from, by name. Of two that are as good the first is taken."""

__all__ = ["METHODS", "RUNS", "Budget", "Counts", "Method", "Rated"]
