"""Keyword space aggregation by a threshold: the words that enough groups used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.mechanisms import keyword_threshold
from langchain_dpicl.parsers.base import Count
from langchain_dpicl.parsers.keywords import KeywordOutputParser
from langchain_dpicl.release.record import Outcome, Status


class KSAThresholdOutputParser(KeywordOutputParser):
    """Release the short answers that enough groups gave.

    Use it for open answers. It needs no list of possible answers and no gap: several
    right items come out side by side, tied or not. In return an answer counts only for
    its first `items_per_answer` different items. An answer of up to three words is one
    item; in a longer answer each word is an item. *A longer answer is cut there*, and
    the cut may remove the words that matter.

    The answer is one item if it clearly leads all others: of two items with the same
    count one does so in at most 5 % of questions. Otherwise it is "Among the most
    frequent: ...", the largest noisy count first. The record has all items. No model
    rewords the answer: it might claim more.

    Use `KSAPTROutputParser` for sentences, and where three or more words belong
    together and lead the others clearly: its gap does not grow with their number. Here
    the noise grows with the square root of `items_per_answer`. Under
    `REPLACE` a word needs 0.6 times the count that is `KSAPTROutputParser`'s gap for
    one item, and 0.8 times for two. `dpicl plan` shows both.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.keyword_threshold`, Gaussian(z, q) and q * delta0. Each answer is
        cut to `items_per_answer` items by a public rule on that answer alone. Which
        item leads, and the order of all, are post-processing of the noisy counts.

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
        'dry cough'
    """

    items_per_answer: Count = 1
    """How many different items one answer counts for: its first ones. Groups are asked
    for up to three words, which are one item. Each further item costs noise."""

    noise_multiplier: float | None = None
    """z of the counts; None leaves it to the budget's plan."""

    delta0: float | None = None
    """Probability that words of one answer alone come out; None lets the plan divide
    half of delta among the releases."""

    @model_validator(mode="after")
    def _count_can_pass(self) -> Self:
        """Refuse what the release would refuse, before anything is paid for it."""
        paid: Any = self.charge().at(1.0, delta0=1e-6)
        keyword_threshold.required_count(
            paid, Relation.REPLACE, items_per_answer=self.items_per_answer
        )
        return self

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one release costs."""
        return keyword_threshold.charge(
            noise_multiplier=self.noise_multiplier,
            delta0=self.delta0,
            sampling_rate=sampling_rate,
        )

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: frozenset[str],
    ) -> Outcome:
        """Count the answers' first words and release those above the threshold."""
        counts = self.counts(slots, prepared, self.items_per_answer)
        terms: Any = {
            "paid": paid.events,
            "relation": relation,
            "items_per_answer": self.items_per_answer,
        }
        noisy = keyword_threshold.threshold_words(counts, **terms)
        if not noisy:
            # Noise, another word and a failed call look the same.
            reason = "no word passed the threshold"
            return Outcome(Status.FALLBACK, details={"reason": reason})
        first = keyword_threshold.clear_first(noisy, **terms)
        text = first or f"Among the most frequent: {', '.join(noisy)}"
        shown = {word: round(count, 1) for word, count in noisy.items()}
        details = {"noisy_counts": shown}
        return Outcome(Status.RELEASED, text, tuple(noisy), details=details)

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return how many items an answer counts for, and which words are left out."""
        return {
            "items_per_answer": self.items_per_answer,
            **super().public_parameters(),
        }
