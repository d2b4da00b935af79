"""What a plan will be able to answer: computed from public numbers, before any record.

A forecast says by how many groups the right answer must lead for a release to be right
(or, for propose-test-release, to be made) with 95 % probability; for a threshold
release, in how many groups' answers a word must be. It tells a user before the first
question whether the groups are enough for the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget.pricing import planned, require_charge
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    keyword_joint,
    keyword_ptr,
    keyword_threshold,
    voting,
)

PASS_RATE = 0.95

PROMPT_TOKENS = 200
"""Tokens of a prompt besides its records: question, instructions, options."""

ANSWER_TOKENS = 50
"""Tokens of an answer: a few words, or a sentence."""

UNSEEN = (
    "No plan can see how much the groups agree, how many of them find no record, and "
    "whether the model answers in the form that it is asked for."
)
"""What every forecast leaves open."""

THRESHOLD = "ksa/threshold"
"""How mechanisms begin whose words stand alone: there is no lead over a next one."""


class Cost(NamedTuple):
    """What the model calls of one question take, where every group has its records."""

    input_tokens: int
    """Tokens that are sent."""

    output_tokens: int
    """Tokens that come back."""

    price: float | None
    """What they cost, in the prices' currency; None without prices."""


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
        calls_per_query: Model calls of one query: groups and public ones.
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

    def cost(
        self,
        *,
        records_per_group: int,
        tokens_per_record: int,
        price_in: float | None = None,
        price_out: float | None = None,
    ) -> Cost:
        """Return the tokens and the price of one question.

        Args:
            records_per_group: Records in the prompt of one group.
            tokens_per_record: Tokens of one record, on average.
            price_in: Price of a million tokens that are sent.
            price_out: Price of a million tokens that come back; both or none.

        Example:
            >>> terms = {"epsilon": 8, "delta": 1e-6, "queries": 20, "groups": 100}
            >>> plan = forecast(voting.charge(), **terms)
            >>> plan.cost(records_per_group=8, tokens_per_record=50).input_tokens
            60000
        """
        records = parameters.count(records_per_group, "records_per_group")
        records *= parameters.count(tokens_per_record, "tokens_per_record")
        sent = self.calls_per_query * PROMPT_TOKENS + self.groups * records
        back = self.calls_per_query * ANSWER_TOKENS
        if price_in is None and price_out is None:
            return Cost(sent, back, None)
        price = sent * parameters.extended("price_in", price_in)
        price += back * parameters.extended("price_out", price_out)
        return Cost(sent, back, parameters.finite("price", price / 1e6))

    def advice(self) -> str:
        """Return what the numbers mean, in a sentence."""
        lead = math.ceil(self.required_lead)
        if not self.is_possible:
            return (
                f"Not even a unanimous answer of {self.groups} groups stands out of "
                f"the noise: it takes {lead}. Use more groups (more people), fewer "
                "queries, or a larger epsilon."
            )
        what = f"An answer must lead the next one by {lead} of {self.groups} groups"
        if self.mechanism.startswith(THRESHOLD):
            what = f"A word must be in the answers of {lead} of {self.groups} groups"
        return f"{what} to come out in {PASS_RATE:.0%} of cases."


def forecast(  # noqa: PLR0913 - the public parameters of a plan, all by name
    charge: Charge,
    *,
    epsilon: float,
    delta: float,
    queries: int,
    groups: int,
    relation: Relation = Relation.REPLACE,
    public_calls: int = 0,
    choices: int = 2,
    items_per_answer: int = 1,
    drafted: bool = False,
) -> Forecast:
    """Return what each query of a plan can do.

    Args:
        charge: What one release costs.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: Number of releases.
        groups: Public number of groups.
        relation: How neighboring slots differ.
        public_calls: Model calls without records, for one query.
        choices: Labels, candidates or domain words to choose among.
        items_per_answer: For a threshold release: how many words an answer counts for.
        drafted: For a vote: whether the model drafts the labels. Then a label must
            also lead by more than one of two equal labels does.

    Returns:
        The forecast, of the shape that the plan takes. It is exact for
        propose-test-release with a given k, for one word of a threshold release, and
        for a vote in which all other groups find no record; for pure and exponential
        mechanisms it is an upper bound.

    Raises:
        PlanMismatchError: If there is no such plan.
        InvalidParameterError: If an argument is out of its range (there is a group and
            two choices at least; `items_per_answer` too), or the release is not a vote
            where labels are drafted.

    Example:
        >>> terms = {"epsilon": 8, "delta": 1e-6, "queries": 20, "groups": 100}
        >>> plan = forecast(keyword_ptr.charge(), **terms)
        >>> plan.is_possible, 40 < plan.required_lead < 50
        (True, True)
    """
    require_charge(charge)
    groups = parameters.count(groups, "groups")
    choices = parameters.count(choices, "choices", minimum=2)
    public_calls = parameters.count(public_calls, "public_calls", minimum=0)
    events = planned(
        charge,
        parameters.epsilon(epsilon),
        parameters.delta(delta),
        parameters.count(queries, "queries"),
    )
    parts: dict[str, Any] = {event.kind: event for event in events}
    test, failure = parts.get("gaussian"), parts.get("failure")
    choice: Any = parts.get("exponential", parts.get("pure"))
    if drafted and not (test and failure is None):
        raise InvalidParameterError(
            f"drafted= goes with a vote, and {charge.name} is none."
        )
    noise: float | None = None
    lead: float
    if test is None:
        # A wrong choice at distance g has probability at most exp(-eps g / 2 Delta).
        # The others are all choices but one, and "none of them".
        odds = choices * PASS_RATE / (1 - PASS_RATE)
        steps = keyword_joint.sensitivity(relation) / choice.epsilon
        lead = 2 * steps * math.log(odds)
    elif failure is None:
        noise = voting.sigma(test, relation)
        least = voting.lead_over_a_tie(noise) if drafted else 0
        lead = voting.required_lead(
            choices, sigma=noise, min_lead=least, pass_rate=PASS_RATE
        )
    elif charge.name.startswith(THRESHOLD):
        terms: Any = {"items_per_answer": items_per_answer}
        noise = keyword_threshold.sigma((test, failure), relation, **terms)
        lead = keyword_threshold.required_count(
            (test, failure), relation, pass_rate=PASS_RATE, **terms
        )
    else:
        noise = test.noise_multiplier * keyword_ptr.sensitivity(relation)
        lead = keyword_ptr.required_gap((test, failure), relation, pass_rate=PASS_RATE)
    return Forecast(
        mechanism=charge.name,
        noise_multiplier=getattr(test, "noise_multiplier", None),
        epsilon=getattr(choice, "epsilon", None),
        delta0=getattr(failure, "delta0", None),
        noise=noise,
        required_lead=lead,
        groups=groups,
        calls_per_query=groups + public_calls,
        queries=queries,
    )
