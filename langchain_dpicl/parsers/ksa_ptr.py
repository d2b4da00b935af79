"""Keyword space aggregation by propose-test-release: the words all groups agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from langchain_dpicl import mechanisms, parameters
from langchain_dpicl.budget import Demand, ExponentialPart, GaussianPart
from langchain_dpicl.budget.demand import SELECTION_RATIO, Grant, Part
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.mechanisms.keyword_ptr import MAX_CHOICES
from langchain_dpicl.outcome import Outcome, Status
from langchain_dpicl.parsers.keywords import KeywordOutputParser
from langchain_dpicl.relation import Relation
from langchain_dpicl.slots import Slot
from langchain_dpicl.validation import checked


class KSAPTROutputParser(KeywordOutputParser):
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

    @override
    def check(self) -> None:
        """Refuse a k or a range that makes no sense."""
        first, last = (checked(parameters.count, k, "k") for k in self._range)
        if not 0 <= last - first < MAX_CHOICES:
            raise InvalidParameterError(
                "k must be a number, or a range (first, last) of at most "
                f"{MAX_CHOICES} such, not {self.k}."
            )
        self.demand()

    @property
    def _range(self) -> tuple[int, int]:
        return (self.k, self.k) if isinstance(self.k, int) else self.k

    @property
    def _has_choice(self) -> bool:
        first, last = self._range
        return first < last

    @override
    def demand(self, sampling_rate: float = 1.0) -> Demand:
        """Return what one test asks of the account."""
        parts: tuple[Part, ...] = (GaussianPart(self.noise_multiplier),)
        if self._has_choice:
            choice = ExponentialPart(self.selection_epsilon, SELECTION_RATIO)
            parts = (choice, *parts)
        return Demand("ksa/ptr", parts, sampling_rate, True, self.delta0)

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
        counts = self._counts(slots, prepared)
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
    def public_parameters(self) -> dict[str, Any]:
        """Return k and whether public words are left out."""
        return {
            "k": self.k if isinstance(self.k, int) else list(self.k),
            "drop_public_words": self.drop_public_words,
        }
