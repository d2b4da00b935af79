"""What each parser makes of the groups' counts: by its own rules, at its own noise.

The noise is what a plan for so many questions gives. The counts are drawn
(`crowd.py`); whether one word comes out at a count or gap is then known in closed form,
and the noise of votes is drawn as well. The parsers themselves are not run: ten
thousand runs of each take milliseconds here. The tests hold both against each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import Event, EventTemplate
from langchain_dpicl.budget import plan_queries
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    GaussianNoise,
    PTRCurve,
    PTRNoise,
    ThresholdCurve,
    ThresholdNoise,
    sensitivity,
)
from langchain_dpicl.mechanisms.stages import Asked, blocks, usual_stop
from langchain_dpicl.mechanisms.voting import OTHER_BINS
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
        has_stages: Whether the groups may be asked in stages.
    """

    parser: DPOutputParser[Any]
    code: str
    public_calls: int
    rated: Callable[[Method, Any, Crowd, int, float, int], Rated]
    drafted: bool = False
    has_stages: bool = False

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
        return template.read(_events(template, budget))


@functools.lru_cache(maxsize=1024)
def _events(template: EventTemplate[Any], budget: Budget) -> tuple[Event, ...]:
    return plan_queries(
        template,
        epsilon=budget.epsilon,
        delta=budget.delta,
        queries=budget.queries,
        confirmed=False,
    )


@functools.lru_cache(maxsize=4)
def _counts(crowd: Crowd, groups: int, rate: float, stages: int) -> tuple[Counts, ...]:
    """Return the counts of each block of groups; every parser reads the same ones."""
    sizes = tuple(map(len, blocks(groups, stages)))
    # The same chance for every number of people: what differs is they.
    random = np.random.default_rng([SEED, groups, stages])
    return tuple(crowd.counts(groups, rate, sizes, RUNS, random))


@functools.lru_cache(maxsize=4)
def _noises(choices: int, stages: int) -> tuple[Rates, ...]:
    """Return standard noise for each block: the same one at every scale."""
    random = np.random.default_rng([SEED, choices, stages, 1])
    bins = choices + OTHER_BINS
    return tuple(random.standard_normal((RUNS, bins)) for _ in range(stages))


def _vote(
    method: Method,
    noise: GaussianNoise,
    crowd: Crowd,
    groups: int,
    rate: float,
    stages: int,
) -> Rated:
    """Rate a vote, asked in stages or at once; see `chain.stages`."""
    parts = blocks(groups, stages)
    sigma = noise.noise_multiplier * sensitivity.vote_l2(RELATION)
    stop_at = usual_stop(stages, lets_ties_out=not method.drafted)
    total = np.zeros((RUNS, crowd.choices + OTHER_BINS))
    goes_on = np.ones(RUNS, bool)
    right, wrong, asked = (np.zeros(RUNS) for _ in range(3))
    counts = _counts(crowd, groups, rate, stages)
    noises = _noises(crowd.choices, stages)
    made = zip(parts, counts, noises, strict=True)
    for number, (block, votes, noise_of_one) in enumerate(made, 1):
        # A crowd has no replies that can't be read, and no failed calls.
        total += np.pad(votes, ((0, 0), (0, OTHER_BINS - 1))) + sigma * noise_of_one
        asked[goes_on] += len(block)
        part = Asked(block.stop, groups, number, stages)
        said = _said(total, part, sigma, drafted=method.drafted)
        is_last = goes_on & ((said.is_answer & (said.lead >= stop_at)) | part.is_whole)
        right[is_last & said.is_out & said.is_first] = 1
        wrong[is_last & said.is_out & ~said.is_first] = 1
        goes_on &= ~is_last
    return Rated.of(right, wrong, asked)


class _Said(NamedTuple):
    """What many noisy votes say; see `parsers.staged.Said`."""

    is_out: Flags
    is_first: Flags
    is_answer: Flags
    lead: Rates


def _said(noisy: Rates, asked: Asked, sigma: float, *, drafted: bool) -> _Said:
    """Return whether a label comes out, whether it is the first, and how clear it is.

    It is `VoteOutputParser.said` for many votes at once. The last columns are the
    `OTHER_BINS`; sigma is the noise of one block.
    """
    votes, others = noisy[:, :-OTHER_BINS], noisy[:, -OTHER_BINS:]
    second, first = np.partition(votes, -2, axis=1)[:, -2:].T
    next_other, other = np.partition(others, -2, axis=1)[:, -2:].T
    summed, looks = asked.noise(sigma), asked.of_stages
    tie = functools.partial(mechanisms.lead_over_a_tie, summed, looks=looks)
    min_lead, over = tie() if drafted else 0.0, tie(labels=1)
    least = mechanisms.least_votes(summed, votes.shape[1], looks)
    ahead, behind = first - other, other - np.maximum(next_other, first)
    lead = np.where(ahead >= 0, np.minimum(first - second, ahead), behind)
    is_out = (
        (first >= least) & (first - second >= min_lead) & (ahead >= max(min_lead, over))
    )
    return _Said(
        is_out,
        votes.argmax(axis=1) == 0,
        is_out | ((other >= least) & (behind >= over)),
        np.maximum(lead, 0.0) / asked.deviation(math.sqrt(2) * sigma),
    )


def _ptr(
    _: Method,
    noise: PTRNoise | PTRCurve,
    crowd: Crowd,
    groups: int,
    rate: float,
    stages: int,
) -> Rated:
    [counts] = _counts(crowd, groups, rate, stages)
    words = counts[:, :-1]
    second, first = np.partition(words, -2, axis=1)[:, -2:].T
    if isinstance(noise, PTRCurve):
        terms: dict[str, Any] = vars(noise)
        passes = _by_count(mechanisms.curve_gap_pass_rate, groups, **terms)
    else:
        terms = {"noise_multiplier": noise.noise_multiplier, "delta0": noise.delta0}
        passes = _by_count(mechanisms.ptr_pass_rate, groups, **terms)
    out = passes[first - second]
    is_right = words.argmax(axis=1) == 0
    return Rated.of(out * is_right, out * ~is_right, groups)


def _threshold(
    _: Method,
    noise: ThresholdNoise | ThresholdCurve,
    crowd: Crowd,
    groups: int,
    rate: float,
    stages: int,
) -> Rated:
    [counts] = _counts(crowd, groups, rate, stages)
    pass_rate = (
        mechanisms.curve_count_pass_rate
        if isinstance(noise, ThresholdCurve)
        else mechanisms.threshold_pass_rate
    )
    passes = _by_count(pass_rate, groups, items_per_answer=1, **vars(noise))
    out = passes[counts[:, :-1]]
    no_wrong = (1 - out[:, 1:]).prod(axis=1)
    return Rated.of(out[:, 0] * no_wrong, 1 - no_wrong, groups)


def _by_count(pass_rate: Callable[..., float], most: int, **terms: Any) -> Rates:
    """Return how often something comes out, for every count or gap there may be."""
    rates = [pass_rate(count, relation=RELATION, **terms) for count in range(most + 1)]
    return np.array(rates)


METHODS = {
    "vote": Method(
        VoteOutputParser(labels=["yes", "no"]),
        "VoteOutputParser(labels=[...])",
        0,
        _vote,
        has_stages=True,
    ),
    "draft": Method(
        VoteOutputParser(labels="draft"),
        'VoteOutputParser(labels="draft")',
        1,
        _vote,
        drafted=True,
        has_stages=True,
    ),
    "threshold": Method(
        KSAThresholdOutputParser(), "KSAThresholdOutputParser()", 1, _threshold
    ),
    "ptr": Method(KSAPTROutputParser(k=1), "KSAPTROutputParser(k=1)", 1, _ptr),
}
"""The parsers to choose from, by name. Of two that are as good the first is taken."""
