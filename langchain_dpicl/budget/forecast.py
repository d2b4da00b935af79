"""What a plan will be able to answer: computed from public numbers, before any record.

A forecast says by how many groups the right answer must lead for a release to be right
(or, for propose-test-release, to be made) with 95 % probability; for a threshold
release, in how many groups' answers a word must be. It tells a user before the first
question whether the groups are enough for the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget.charge import require_template
from langchain_dpicl.budget.planning import plan_queries
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.validation import checked
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.mechanisms import (
    ExponentialNoise,
    GaussianNoise,
    PTRNoise,
    PureNoise,
    ThresholdNoise,
    sensitivity,
)

PASS_RATE = 0.95

CountNoise = GaussianNoise | ExponentialNoise | PureNoise | PTRNoise | ThresholdNoise
"""The noise of releases that choose by counts of groups."""

THRESHOLD = "ksa/threshold"
"""The mechanism whose words stand on their own: there is no lead over a next one."""


@dataclass(frozen=True)
class Forecast:
    """What each query of a plan can do.

    Attributes:
        mechanism: The mechanism.
        noise_multiplier: z of its Gaussian, if it has one.
        epsilon: Of its exponential or pure step, if it has one.
        delta0: Failure probability of one test, if it has one.
        noise: Standard deviation of the noise on a count of groups, if it is additive.
        required_lead: By how many groups the right answer must lead for 95 %; for a
            threshold release the number of groups with the word, whatever the others.
        groups: The number of groups.
        calls_per_query: Model calls of one query: groups, public answers, rewriting.
        queries: The number of queries.
    """

    mechanism: str
    noise_multiplier: float | None
    epsilon: float | None
    delta0: float | None
    noise: float | None
    required_lead: float
    groups: int
    calls_per_query: int
    queries: int

    @property
    def is_possible(self) -> bool:
        """Whether a unanimous answer would be released."""
        return self.required_lead <= self.groups

    def advice(self) -> str:
        """Return what the numbers mean, in a sentence."""
        lead = math.ceil(self.required_lead)
        if not self.is_possible:
            return (
                f"Not even a unanimous answer of {self.groups} groups stands out of "
                f"the noise: it takes {lead}. Use more groups (more people), fewer "
                "queries, or a larger epsilon."
            )
        if self.mechanism == THRESHOLD:
            return (
                f"A word must be in the answers of {lead} of {self.groups} groups to "
                f"come out in {PASS_RATE:.0%} of cases."
            )
        return (
            f"An answer must lead the next one by {lead} of {self.groups} groups to "
            f"come out in {PASS_RATE:.0%} of cases."
        )


def forecast(  # noqa: PLR0913 - the public parameters of a plan, all by name
    template: EventTemplate[CountNoise],
    *,
    epsilon: float,
    delta: float,
    queries: int,
    groups: int,
    relation: Relation = Relation.REPLACE,
    public_calls: int = 0,
    choices: int = 2,
    items_per_answer: int = 2,
) -> Forecast:
    """Return what each query of a plan can do.

    Args:
        template: The shape of one release.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: Number of releases.
        groups: Public number of groups.
        relation: How neighboring slots differ.
        public_calls: Model calls without records, for one query.
        choices: Labels, candidates or domain words to choose among.
        items_per_answer: For a threshold release: how many words an answer counts for.

    Returns:
        The forecast. It is exact for propose-test-release with a given k and for one
        word of a threshold release, and a normal approximation for the others.

    Raises:
        PlanMismatchError: If there is no such plan.
        InvalidParameterError: If an argument is out of its range (there is a group and
            two choices at least), or the release is not a choice among counts (ESA by
            cosine).
        ParameterError: If `items_per_answer` is out of its range.

    Example:
        >>> ptr = mechanisms.ptr_template("ksa/ptr")
        >>> found = forecast(ptr, epsilon=8, delta=1e-6, queries=20, groups=100)
        >>> found.is_possible, 40 < found.required_lead < 50
        (True, True)
    """
    require_template(template)
    groups = checked(parameters.count, groups, "groups")
    choices = checked(parameters.count, choices, "choices", minimum=2)
    public_calls = checked(parameters.count, public_calls, "public_calls", minimum=0)
    if template.mechanism == "esa/cosine":
        raise InvalidParameterError(
            "What a noisy sum of embeddings can tell apart depends on the candidates: "
            "there is no lead to forecast for ESA by cosine. With select='vote' there "
            "is."
        )
    events = plan_queries(template, epsilon=epsilon, delta=delta, queries=queries)
    found = template.read(events)
    noise: float | None = None
    if isinstance(found, ThresholdNoise):
        noise = found.noise_multiplier * sensitivity.keyword_l2(
            relation, items_per_answer
        )
        lead = mechanisms.required_count(
            items_per_answer=items_per_answer,
            noise_multiplier=found.noise_multiplier,
            delta0=found.delta0,
            relation=relation,
            pass_rate=PASS_RATE,
        )
    elif isinstance(found, PTRNoise):
        noise = found.noise_multiplier * sensitivity.keyword_gap(relation)
        lead = mechanisms.required_gap(
            noise_multiplier=found.noise_multiplier,
            delta0=found.delta0,
            relation=relation,
            pass_rate=PASS_RATE,
        )
    elif isinstance(found, GaussianNoise):
        noise = found.noise_multiplier * sensitivity.vote_l2(relation)
        # Two noisy counts, each against the winner's: a union bound over the others.
        tail = (1 - PASS_RATE) / (choices - 1)
        # Of a tail so thin that 1 - tail is 1 there is a quantile all the same.
        lead = noise * math.sqrt(2) * -NormalDist().inv_cdf(tail)
    else:
        # A wrong choice at distance g has probability at most exp(-eps g / 2 Delta).
        scale = 2 * sensitivity.joint_utility(relation) / found.epsilon
        lead = scale * math.log((choices - 1) * PASS_RATE / (1 - PASS_RATE))
    return Forecast(
        mechanism=template.mechanism,
        noise_multiplier=getattr(found, "noise_multiplier", None),
        epsilon=getattr(found, "epsilon", getattr(found, "selection_epsilon", None)),
        delta0=getattr(found, "delta0", None),
        noise=noise,
        required_lead=lead,
        groups=groups,
        calls_per_query=groups + public_calls,
        queries=queries,
    )
