"""Keyword space aggregation by propose-test-release: the words all groups agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.prompts import BasePromptTemplate
from pydantic import Field, SkipValidation, StrictInt, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.prompts import KEYWORD_PROMPT
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_ptr
from langchain_dpicl.parsers.keywords import KeywordOutputParser
from langchain_dpicl.release.record import Outcome, Status


class KSAPTROutputParser(KeywordOutputParser):
    """Release the k words that nearly all groups used, or nothing.

    It needs no list of possible answers. It answers where the groups agree: the k-th
    word must lead the next one by a gap that `dpicl plan` states. If the groups do not
    agree, the outcome is a fallback. So is the outcome of every question about a single
    person.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.keyword_ptr`, Gaussian(z, q) and q * delta0, where a range of k is
        resolved first, exponential(epsilon). A slot adds 1 to a word's count at most,
        by its own text alone. The words are a set: they are released in alphabetical
        order. The rewriting call sees the question and the released words only.

    Raises:
        InvalidParameterError: If k is not a positive integer or a range of them.

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

    k: StrictInt | tuple[StrictInt, StrictInt] = 1
    """How many words: a number, or a public range (first, last) to choose from. The
    choice is private too, so it costs noise. It takes the widest gap, which is not
    always the most useful number of words. Give a number where you can."""

    noise_multiplier: float | None = None
    """z of the test; None leaves it to the budget's plan."""

    delta0: float | None = None
    """Failure probability of one test; None lets the plan divide half of delta among
    the tests."""

    selection_epsilon: float | None = None
    """epsilon of choosing k from a range; None leaves it to the plan."""

    prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=KEYWORD_PROMPT, exclude=True, repr=False
    )
    """The rewriting prompt, with `keywords` and `question`."""

    @model_validator(mode="after")
    def _test_can_pass(self) -> Self:
        """Refuse what the release would refuse, before anything is paid for it."""
        first, last = self._range
        if not (first >= 1 and 0 <= last - first < keyword_ptr.MAX_CHOICES):
            raise InvalidParameterError(
                "k must be a number, or a range (first, last) of at most "
                f"{keyword_ptr.MAX_CHOICES} such, not {self.k}"
            )
        test: Any = self.charge().at(1.0, delta0=1e-6)[-2:]
        keyword_ptr.required_gap(test, Relation.REPLACE)
        return self

    @property
    @override
    def rewrite_prompt(self) -> BasePromptTemplate[Any]:
        """The rewriting prompt."""
        return self.prompt

    @property
    def _range(self) -> tuple[int, int]:
        return (self.k, self.k) if isinstance(self.k, int) else self.k

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one release costs, and the choice of k before it."""
        test: Any = {
            "noise_multiplier": self.noise_multiplier,
            "delta0": self.delta0,
            "sampling_rate": sampling_rate,
        }
        first, last = self._range
        if first == last:
            return keyword_ptr.charge(**test)
        return keyword_ptr.range_charge(epsilon=self.selection_epsilon, **test)

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
        """Count words, and release the first k if their gap passes."""
        *choice, gaussian, failure = cast("tuple[Any, ...]", paid.events)
        counts, k = self.counts(slots, prepared), self._range[0]
        if choice:
            k = keyword_ptr.choose_k(counts, self._range, choice[0], relation)
        top = keyword_ptr.ptr_top_k(counts, k, (gaussian, failure), relation)
        if top is None:
            # One noisy test tells that it failed, and not why.
            reason = "the test for agreement was not passed"
            return Outcome(Status.FALLBACK, details={"k": k, "reason": reason})
        return Outcome(Status.RELEASED, keywords=tuple(sorted(top)), details={"k": k})

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return k, and which public words are left out."""
        k = self.k if isinstance(self.k, int) else list(self.k)
        return {"k": k, **super().public_parameters()}
