"""Keyword space aggregation by a threshold: the words that enough groups used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.common.validation import checked
from langchain_dpicl.mechanisms import ThresholdNoise
from langchain_dpicl.parsers.keywords import KeywordOutputParser


class KSAThresholdOutputParser(KeywordOutputParser[ThresholdNoise]):
    """Release every answer of a few words that enough groups gave.

    It is the parser for open answers. It needs no list of possible answers and no gap:
    several right items, tied or not, come out side by side, each one by itself. In
    return an answer counts for its first `items_per_answer` different items only: an
    answer of up to three words is one item, of a longer one each word is. *A longer
    answer is cut there*: the words that matter may be those that are cut off.

    Use `KSAPTROutputParser` for sentences, and where three words or more belong
    together and lead the others clearly: its noise does not grow with their number,
    this one's grows with the square root of `items_per_answer`. Under `REPLACE` it is
    0.7 times that of `KSAPTROutputParser` for one item and the same for two; under
    `ADD_REMOVE`, the same for one and 1.4 times for two. `dpicl plan` shows both.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.keyword_threshold`, Gaussian(z, q) and q * delta0. Each answer is
        cut to `items_per_answer` items by a public rule on that answer alone. The items
        are a set: they are released in alphabetical order. The rewriting call sees the
        question and the released words only.

    Raises:
        InvalidParameterError: If `items_per_answer` is below 1, or the noise or the
            failure probability can't be used.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> parser = KSAThresholdOutputParser(
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["A dry cough."] * 60 + ["Nausea."] * 50 + ["A rash."])
        'dry cough, nausea'
    """

    items_per_answer: int = 1
    """How many different items one answer counts for, its first ones. Groups are asked
    for an answer of up to three words, which is one item; each more costs noise."""

    noise_multiplier: float | None = None
    """z of the counts; None leaves it to the budget's plan."""

    delta0: float | None = None
    """Probability that words of one answer alone come out; None lets the plan share
    out half of delta."""

    @override
    def check(self) -> None:
        """Refuse what the release would refuse, before anything is paid for it."""
        self.event_template()
        checked(
            mechanisms.required_count,
            items_per_answer=self.items_per_answer,
            noise_multiplier=self.noise_multiplier or 1.0,
            delta0=self.delta0 or 1e-6,
            relation=Relation.REPLACE,
        )

    @override
    def event_template(
        self, sampling_rate: float = 1.0
    ) -> EventTemplate[ThresholdNoise]:
        """Return what one release is charged."""
        return checked(
            mechanisms.threshold_template,
            "ksa/threshold",
            self.noise_multiplier,
            delta0=self.delta0,
            sampling_rate=sampling_rate,
        )

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: PaidCharge[ThresholdNoise],
        relation: Relation,
        slot_count: int,
        prepared: frozenset[str],
    ) -> Outcome:
        """Count the answers' first words and release those above the threshold."""
        words = mechanisms.threshold_words(
            self._counts(slots, prepared, self.items_per_answer),
            self.items_per_answer,
            noise_multiplier=paid.noise.noise_multiplier,
            delta0=paid.noise.delta0,
            relation=relation,
            random=self.random,
        )
        if not words:
            return Outcome(
                Status.FALLBACK,
                details={
                    "reason": "no word was used by enough groups, or their calls failed"
                },
            )
        return Outcome(Status.RELEASED, keywords=tuple(sorted(words)))

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return how many items an answer counts for, and which words are left out."""
        return {
            "items_per_answer": self.items_per_answer,
            **super().public_parameters(),
        }
