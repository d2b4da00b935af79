"""Keyword space aggregation by propose-test-release: the words all groups agree on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.prompts import BasePromptTemplate
from pydantic import Field, SkipValidation
from typing_extensions import override

from langchain_dpicl import mechanisms
from langchain_dpicl.budget import Demand, ExponentialPart, GaussianPart
from langchain_dpicl.budget.demand import SELECTION_RATIO, Grant, Part
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.outcome import Outcome, Status
from langchain_dpicl.parsers.base import DPOutputParser, PublicInput
from langchain_dpicl.parsers.words import (
    STOP_WORDS,
    Tokenizer,
    keyword_counts,
    refuse_unnamed,
    tokenize,
)
from langchain_dpicl.prompts import KEYWORD_PROMPT
from langchain_dpicl.relation import Relation
from langchain_dpicl.slots import Slot


class KSAPTROutputParser(DPOutputParser):
    """Release the k words that nearly all groups used, or nothing.

    It needs no list of possible answers. It answers where the groups agree: the k-th
    word must lead the next one by a gap that `dpicl plan` states. Where they do not,
    the outcome is a fallback, which is also what every question about a single person
    ends in.

    Privacy:
        Unit and relation: the group source's. Sensitivity of the gap
        d_k = H(k) - H(k+1): 1 under `ADD_REMOVE`, 2 under `REPLACE`; the set of the
        top k words is the same on every neighbor when d_k exceeds that. Noise:
        N(0, (z * sensitivity)^2) on the gap, tested against a threshold that a set
        which is *not* stable passes with probability at most delta0. Event:
        Gaussian(z, q) and q * delta0. A range of k is resolved first, by the
        exponential mechanism with the gap as utility. Event: exponential(epsilon),
        which is (epsilon^2 / 8)-zCDP. The words are a set: they are released in
        alphabetical order. Source: Wu et al. (ICLR 2024), Algorithms 5 and 6,
        Theorems 10 to 12; Zhu and Wang (AISTATS 2022). The rewriting call sees the
        question and the released words only.

    Raises:
        InvalidParameterError: If k is not a positive integer or a range of them.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> parser = KSAPTROutputParser(
        ...     k=2,
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["A dry cough."] * 60 + ["Nausea."] * 2)
        'cough, dry'
    """

    k: int | tuple[int, int] = 1
    """How many words: a number, or a public range (first, last) to choose from. The
    choice is private too and costs noise, and it goes for the widest gap, not for the
    most useful number of words: give a number where you can."""

    noise_multiplier: float | None = None
    """z of the test; None leaves it to the budget's plan."""

    delta0: float | None = None
    """Failure probability of one test; None lets the plan share out half of delta."""

    selection_epsilon: float | None = None
    """epsilon of choosing k from a range; None leaves it to the plan."""

    tokenizer: SkipValidation[Tokenizer | None] = Field(default=None, exclude=True)
    """From text to words; None is `langchain_dpicl.parsers.words.tokenize`."""

    stop_words: Collection[str] = Field(default=STOP_WORDS, repr=False)
    """Public words that are never counted."""

    drop_public_words: bool = True
    """Whether words of the question, of the prompts and of the public zero-shot answer
    are left out: they carry no news and would use up the gap."""

    prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=KEYWORD_PROMPT, exclude=True, repr=False
    )
    """The rewriting prompt, with `keywords` and `question`."""

    @override
    def check(self) -> None:
        """Refuse a k or a range that makes no sense."""
        if min(self._range) < 1 or self._range[0] > self._range[1]:
            raise InvalidParameterError(
                f"k must be at least 1, or a range (first, last) of such, not {self.k}."
            )
        self.demand()

    @property
    def _range(self) -> tuple[int, int]:
        return (self.k, self.k) if isinstance(self.k, int) else self.k

    @property
    def _has_choice(self) -> bool:
        first, last = self._range
        return first < last

    @property
    @override
    def zero_shot_answers(self) -> int:
        """One, whose words are left out."""
        return 1 if self.drop_public_words else 0

    @property
    @override
    def rewrite_prompt(self) -> BasePromptTemplate[Any]:
        """The rewriting prompt."""
        return self.prompt

    @override
    def demand(self, sampling_rate: float = 1.0) -> Demand:
        """Return what one test asks of the account."""
        parts: tuple[Part, ...] = (GaussianPart(self.noise_multiplier),)
        if self._has_choice:
            choice = ExponentialPart(self.selection_epsilon, SELECTION_RATIO)
            parts = (choice, *parts)
        return Demand("ksa/ptr", parts, sampling_rate, True, self.delta0)

    @override
    def prepare(self, public: PublicInput) -> frozenset[str]:
        """Return the words that are not counted for this question."""
        dropped = {word.casefold() for word in self.stop_words}
        if self.drop_public_words:
            words = self.tokenizer or tokenize
            for text in (public.question, public.prompt_text, *public.zero_shot):
                dropped.update(words(text))
        return frozenset(dropped)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        grant: Grant,
        relation: Relation,
        slot_count: int,
        prepared: frozenset[str],
    ) -> Outcome:
        """Count words, test the gap, and release the words on a pass."""
        if grant.noise_multiplier is None:
            raise InvalidParameterError("The grant holds no noise for the test.")
        counts = keyword_counts(
            (slot.text for slot in slots if slot.text is not None),
            tokenizer=self.tokenizer or tokenize,
            dropped=prepared,
        )
        k = self._range[0]
        if self._has_choice:
            if grant.epsilon is None:
                raise InvalidParameterError("The grant holds no epsilon to choose k.")
            k = mechanisms.choose_k(
                counts,
                self._range,
                epsilon=grant.epsilon,
                relation=relation,
                random=self.random,
            )
        top = mechanisms.ptr_top_k(
            counts,
            k,
            noise_multiplier=grant.noise_multiplier,
            delta0=grant.delta0,
            relation=relation,
            random=self.random,
        )
        if top is None:
            return Outcome(
                Status.FALLBACK,
                details={
                    "k": k,
                    "reason": "the groups did not agree, or their calls failed",
                },
            )
        return Outcome(Status.RELEASED, keywords=tuple(sorted(top)), details={"k": k})

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        refuse_unnamed(self.tokenizer)
        known = super().cache_parameters(question)
        return {**known, "stop_words": sorted(self.stop_words)}

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return k and whether public words are left out."""
        return {
            "k": self.k if isinstance(self.k, int) else list(self.k),
            "drop_public_words": self.drop_public_words,
        }
