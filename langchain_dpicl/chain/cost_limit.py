"""What one question may take of the model, at most: refused before it is charged.

Privacy:
    The number of calls follows from public terms (groups, parser, gate, the account's
    scope), the tokens from the question and from declared lengths. No record takes
    part, so that a refusal tells nothing of any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_dpicl.budget.forecast import ANSWER_TOKENS, PROMPT_TOKENS, cost_of
from langchain_dpicl.chain.made_up import CHARACTERS
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError

if TYPE_CHECKING:
    from langchain_dpicl.chain.prompting import Question
    from langchain_dpicl.chain.sealed_query import SealedQuery


@dataclass(frozen=True)
class CostLimit:
    """What one question may take of the model, at most.

    A question that may take more is refused, with an `InvalidParameterError`, before
    the model is asked and the account is charged. Calls are counted at their most: all
    groups in all stages, those of a gate and of `then=`, and the public ones. Not
    counted are the model's own retries, and calls that `redact=` makes.

    Attributes:
        calls: Most model calls; None: any number.
        price: Most that they may cost, in the prices' currency; None: any amount.
            Needs both prices and `tokens_per_record`.
        price_in: Price of a million tokens that are sent.
        price_out: Price of a million tokens that come back.
        tokens_per_record: Tokens of one record.
        records_per_group: Records of one group; None: the groups' `docs_per_group`.
        tokens_per_answer: Tokens of an answer, hidden reasoning included.

    Raises:
        InvalidParameterError: If there is no limit, a price has no prices or lengths,
            or a value is out of its range.

    Example:
        >>> CostLimit(price=0.05, price_in=0.15, price_out=0.6, tokens_per_record=80)
        CostLimit(calls=None, price=0.05, price_in=0.15, ...)
    """

    calls: int | None = None
    price: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    tokens_per_record: int | None = None
    records_per_group: int | None = None
    tokens_per_answer: int = ANSWER_TOKENS

    def __post_init__(self) -> None:
        if self.calls is None and self.price is None:
            raise InvalidParameterError("CostLimit needs calls= or price=.")
        if self.calls is not None:
            parameters.count(self.calls, "calls")
        if self.price is None:
            return
        parameters.positive("price", self.price)
        if None in (self.price_in, self.price_out, self.tokens_per_record):
            raise InvalidParameterError(
                "CostLimit(price=...) needs price_in=, price_out= and "
                "tokens_per_record=: what a million tokens cost, and how long records "
                "are."
            )
        self._price(1, 1, self.records_per_group or 1, 1)

    def check(self, private: SealedQuery) -> None:
        """Refuse a chain whose questions' costs are not known in advance.

        Raises:
            InvalidParameterError: If the number of groups follows from the records, or
                nobody says how many records a group has.
        """
        if not isinstance(self, CostLimit):
            raise InvalidParameterError(
                f"cost_limit must be a CostLimit, not {type(self).__name__}."
            )
        if private.groups.relation is not Relation.REPLACE:
            raise InvalidParameterError(
                "cost_limit= needs a public number of groups, and these have one for "
                'each person who is found. Use grouping="shard", or give max_groups=.'
            )
        if self.price is not None and self._records(private) is None:
            raise InvalidParameterError(
                f"{type(private.groups).__name__} has no docs_per_group: give "
                "CostLimit(records_per_group=...)."
            )

    def require(self, private: SealedQuery, question: Question, scope: str) -> None:
        """Refuse a question that may take more.

        Args:
            private: The chain's private parts.
            question: The question.
            scope: The scope of the account that pays.

        Raises:
            InvalidParameterError: If the question may take more.
        """
        groups, public = most_calls(private, scope)
        calls = groups + public
        if self.calls is not None and calls > self.calls:
            raise InvalidParameterError(
                f"The question may take {calls} model calls, and cost_limit= allows "
                f"{self.calls}: it was not asked, and nothing was charged. Raise the "
                "limit, or use fewer groups, no gate= or no then=."
            )
        if self.price is None:
            return
        length = len(private.prompting.fixed_text(question))
        # Instructions and drafted options are not known yet.
        prompt = math.ceil(length / CHARACTERS) + PROMPT_TOKENS
        price = self._price(groups, calls, self._records(private) or 1, prompt)
        if price > self.price:
            raise InvalidParameterError(
                f"The question may cost {price:.3g}, and cost_limit= allows "
                f"{self.price:.3g}: it was not asked, and nothing was charged. Raise "
                "the limit, shorten the question, or use fewer groups or records."
            )

    def _records(self, private: SealedQuery) -> int | None:
        own = private.groups.description.get("docs_per_group")
        return self.records_per_group or (own if isinstance(own, int) else None)

    def _price(self, groups: int, calls: int, records: int, prompt: int) -> float:
        record = self.tokens_per_record
        cost = cost_of(
            groups,
            calls,
            1,
            records_per_group=records,
            tokens_per_record=1 if record is None else record,
            tokens_per_prompt=prompt,
            tokens_per_answer=self.tokens_per_answer,
            price_in=self.price_in,
            price_out=self.price_out,
        )
        return cost.price or 0.0


def most_calls(private: SealedQuery, scope: str | None) -> tuple[int, int]:
    """Return the calls of one question at most: of groups, and without records.

    Args:
        private: The chain's private parts.
        scope: The scope of the account that pays, if it is known.
    """
    second = private.second
    # A gate and the release share their answers unless units pay or are sampled.
    twice = private.gate is not None and (
        private.groups.sampling_rate < 1 or scope == "unit"
    )
    groups = private.groups.n_groups * (1 + twice + (second is not None))
    zero_shot = max(private.parser.zero_shot_answers, int(private.gate is not None), 1)
    parsers = [private.parser]
    if second is not None:
        parsers.append(second.parser)
        more = second.parser.zero_shot_answers
        zero_shot += more if more > zero_shot else 0
    drafts = sum(one.draft_prompt is not None for one in parsers)
    words = any(one.rewrite_prompt is not None for one in parsers)
    return groups, zero_shot + drafts + words
