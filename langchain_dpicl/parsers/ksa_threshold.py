"""Keyword space aggregation by a threshold: the words that enough groups used."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from typing_extensions import override

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import ThresholdCurve, ThresholdNoise
from langchain_dpicl.parsers.keywords import KeywordMechanism, KeywordOutputParser


class KSAThresholdOutputParser(KeywordOutputParser[ThresholdNoise | ThresholdCurve]):
    """Release the short answers that enough groups gave.

    Use it for open answers. It needs no list of possible answers and no gap: several
    right items come out side by side, tied or not. In return an answer counts only for
    its first `items_per_answer` different items. An answer of up to three words is one
    item; in a longer answer each word is an item. *A longer answer is cut there*, and
    the cut may remove the words that matter.

    Two mechanisms make this release. A *curve* releases each word with a probability
    that grows with its count as fast as a Renyi divergence allows; a *Gaussian* adds
    noise to each count, and shows it. A curve needs about 0.6 times the count, and a
    plan or `accounting="renyi"`; sampled groups and a `noise_multiplier` of your own
    need the Gaussian. By default the account takes the mechanism with the smaller
    count.

    With the Gaussian the answer is one item if it clearly leads all others: of two
    items with the same count one does so in at most 5 % of questions. Otherwise it is
    "Among the most frequent: ...", the largest noisy count first. A curve's answer is
    "Given by enough groups, in no order: ...". The record has all items. No model
    rewords the answer: it might claim more.

    Use `KSAPTROutputParser` for sentences, and where three or more words belong
    together and lead the others clearly: its gap does not grow with their number. Here
    the Gaussian's noise grows with the square root of `items_per_answer`. Under
    `REPLACE` a word needs 0.6 times the count that is `KSAPTROutputParser`'s gap for
    one item, and 0.8 times for two. `dpicl plan` shows both.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.threshold_curve`, one Renyi divergence and delta0; or
        `mechanisms.keyword_threshold`, Gaussian(z, q) and q * delta0. Which of the two
        follows from the terms of the account and of the parser, which are public, and
        stands in the charge. Each answer is
        cut to `items_per_answer` items by a public rule on that answer alone. Which
        item leads, and the order of all, are post-processing of the noisy counts; a
        curve's items are in alphabetical order.

    Raises:
        InvalidParameterError: If `items_per_answer` is below 1, the noise or the
            failure probability can't be used, or what is given does not go with
            `mechanism`.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> parser = KSAThresholdOutputParser(
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["A dry cough."] * 60 + ["Nausea."] * 50 + ["A rash."])
        'Given by enough groups, in no order: dry cough, nausea'
    """

    items_per_answer: int = 1
    """How many different items one answer counts for: its first ones. Groups are asked
    for up to three words, which are one item. Each further item costs noise."""

    mechanism: KeywordMechanism | None = None
    """`curve` or `gaussian`; None takes the one that needs the smaller count."""

    noise_multiplier: float | None = None
    """z of the Gaussian's counts; None leaves it to the budget's plan."""

    delta0: float | None = None
    """Probability that words of one answer alone come out; None lets the plan divide
    half of delta among the releases, or a quarter for curves."""

    @override
    def check(self) -> None:
        """Refuse what the release would refuse, before anything is paid for it."""
        self.require_curve()
        self.event_template()
        mechanisms.required_count(
            items_per_answer=self.items_per_answer,
            noise_multiplier=self.noise_multiplier or 1.0,
            delta0=self.delta0 or 1e-6,
            relation=Relation.REPLACE,
        )

    @override
    def event_template(
        self, sampling_rate: float = 1.0
    ) -> EventTemplate[ThresholdNoise | ThresholdCurve]:
        """Return the event template of one release."""
        gaussian = mechanisms.threshold_template(
            "ksa/threshold",
            self.noise_multiplier,
            delta0=self.delta0,
            sampling_rate=sampling_rate,
        )
        if sampling_rate < 1:
            if self.mechanism == "curve":
                raise InvalidParameterError(
                    "A release curve for each word has no proof with sampled groups, "
                    "where all words of one person switch together: use "
                    "mechanism='gaussian', or KSAPTROutputParser."
                )
            return gaussian
        curve = mechanisms.threshold_curve_template(
            "ksa/threshold curve",
            self.items_per_answer,
            delta0=self.delta0,
        )
        return self.made_by(gaussian, curve)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: PaidCharge[ThresholdNoise | ThresholdCurve],
        relation: Relation,
        slot_count: int,
        prepared: frozenset[str],
    ) -> Outcome:
        """Count the answers' first words and release those above the threshold."""
        counts = self._counts(slots, prepared, self.items_per_answer)
        terms: dict[str, Any] = {**vars(paid.noise), "relation": relation}
        if isinstance(paid.noise, ThresholdCurve):
            words = sorted(
                mechanisms.curve_words(
                    counts, self.items_per_answer, **terms, random=self.random
                )
            )
            order = ", in no order" if len(words) > 1 else ""
            return _outcome(words, f"Given by enough groups{order}: {_listed(words)}")
        noisy = mechanisms.threshold_words(
            counts, self.items_per_answer, **terms, random=self.random
        )
        first = mechanisms.clear_first(noisy, self.items_per_answer, **terms)
        shown = {word: round(count, 1) for word, count in noisy.items()}
        text = first or f"Among the most frequent: {_listed(noisy)}"
        return _outcome(noisy, text, noisy_counts=shown)

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return how many items an answer counts for, and which words are left out."""
        return {
            "items_per_answer": self.items_per_answer,
            **super().public_parameters(),
        }


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _outcome(words: Collection[str], text: str, **details: Any) -> Outcome:
    if words:
        return Outcome(Status.RELEASED, text, tuple(words), details=details)
    # Noise, another word and a failed call look the same.
    reason = "no word passed the threshold"
    return Outcome(Status.FALLBACK, details={"reason": reason})
