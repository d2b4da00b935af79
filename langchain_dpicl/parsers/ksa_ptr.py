"""Keyword space aggregation by propose-test-release: the words all groups agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.prompts import BasePromptTemplate
from pydantic import Field, SkipValidation
from typing_extensions import override

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common import parameters
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.prompts import KEYWORD_PROMPT
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import PTRCurve, PTRNoise
from langchain_dpicl.mechanisms.keyword_ptr import MAX_CHOICES
from langchain_dpicl.parsers.keywords import KeywordMechanism, KeywordOutputParser


class KSAPTROutputParser(KeywordOutputParser[PTRNoise | PTRCurve]):
    """Release the k words that nearly all groups used, or nothing.

    It needs no list of possible answers. It answers where the groups agree: the k-th
    word must lead the next one by a gap that `dpicl plan` states. If the groups do not
    agree, the outcome is a fallback. So is the outcome of every question about a single
    person.

    Two mechanisms make this release. A *curve* decides with a probability that grows
    with the gap as fast as a Renyi divergence allows; a *Gaussian* adds noise to the
    gap. A curve needs about 0.7 times the gap, and a plan or `accounting="renyi"`; a
    range of k and a `noise_multiplier` of your own need the Gaussian. By default the
    account takes the mechanism with the smaller gap.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.ptr_curve`, one Renyi divergence and q * delta0; or
        `mechanisms.keyword_ptr`, Gaussian(z, q) and q * delta0, where a range of k is
        resolved first, exponential(epsilon). Which of the two follows from the terms of
        the account and of the parser, which are public, and stands in the charge. A
        slot adds 1 to a word's count at most,
        by its own text alone. The words are a set: they are released in alphabetical
        order. The rewriting call sees the question and the released words only.

    Raises:
        InvalidParameterError: If k is not a positive integer or a range of them, or
            what is given does not go with `mechanism`.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> parser = KSAPTROutputParser(
        ...     k=1,
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["A dry cough."] * 60 + ["Nausea."] * 2)
        'dry cough'
    """

    k: int | tuple[int, int] = 1
    """How many words: a number, or a public range (first, last) to choose from. The
    choice is private too, so it costs noise. It takes the widest gap, which is not
    always the most useful number of words. Give a number where you can."""

    mechanism: KeywordMechanism | None = None
    """`curve` or `gaussian`; None takes the one that needs the smaller gap."""

    noise_multiplier: float | None = None
    """z of the Gaussian's test; None leaves it to the budget's plan."""

    delta0: float | None = None
    """Failure probability of one test; None lets the plan divide half of delta among
    the tests, or a quarter for curves."""

    selection_epsilon: float | None = None
    """epsilon of choosing k from a range; None leaves it to the plan."""

    prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=KEYWORD_PROMPT, exclude=True, repr=False
    )
    """The rewriting prompt, with `keywords` and `question`."""

    @override
    def check(self) -> None:
        """Refuse a k or a range that makes no sense."""
        first, last = (parameters.count(k, "k") for k in self._range)
        if not 0 <= last - first < MAX_CHOICES:
            raise InvalidParameterError(
                "k must be a number, or a range (first, last) of at most "
                f"{MAX_CHOICES} such, not {self.k}."
            )
        self.require_curve("a range of k" if first < last else "")
        self.event_template()

    @property
    @override
    def rewrite_prompt(self) -> BasePromptTemplate[Any]:
        """The rewriting prompt."""
        return self.prompt

    @property
    def _range(self) -> tuple[int, int]:
        return (self.k, self.k) if isinstance(self.k, int) else self.k

    @override
    def event_template(
        self, sampling_rate: float = 1.0
    ) -> EventTemplate[PTRNoise | PTRCurve]:
        """Return the template of one release, and of the choice of k before it."""
        first, last = self._range
        if first < last:
            return mechanisms.ptr_range_template(
                "ksa/ptr",
                self.noise_multiplier,
                delta0=self.delta0,
                selection_epsilon=self.selection_epsilon,
                sampling_rate=sampling_rate,
            )
        terms: dict[str, Any] = {"delta0": self.delta0, "sampling_rate": sampling_rate}
        return self.made_by(
            mechanisms.ptr_template("ksa/ptr", self.noise_multiplier, **terms),
            mechanisms.ptr_curve_template("ksa/ptr curve", **terms),
        )

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: PaidCharge[PTRNoise | PTRCurve],
        relation: Relation,
        slot_count: int,
        prepared: frozenset[str],
    ) -> Outcome:
        """Count words, and release the first k if their gap passes."""
        noise, counts = paid.noise, self._counts(slots, prepared)
        k = self._range[0]
        if isinstance(noise, PTRCurve):
            top = mechanisms.curve_top_k(
                counts, k, **vars(noise), relation=relation, random=self.random
            )
            return _outcome(top, k)
        if noise.selection_epsilon is not None:
            k = mechanisms.choose_k(
                counts,
                self._range,
                epsilon=noise.selection_epsilon,
                relation=relation,
                random=self.random,
            )
        top = mechanisms.ptr_top_k(
            counts,
            k,
            noise_multiplier=noise.noise_multiplier,
            delta0=noise.delta0,
            relation=relation,
            random=self.random,
        )
        return _outcome(top, k)

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return k, and which public words are left out."""
        k = self.k if isinstance(self.k, int) else list(self.k)
        return {"k": k, **super().public_parameters()}


def _outcome(top: frozenset[str] | None, k: int) -> Outcome:
    if top is None:
        return Outcome(
            Status.FALLBACK,
            # One noisy test tells that it failed, and not why.
            details={"k": k, "reason": "the test for agreement was not passed"},
        )
    return Outcome(Status.RELEASED, keywords=tuple(sorted(top)), details={"k": k})
