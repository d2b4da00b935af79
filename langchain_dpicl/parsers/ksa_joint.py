"""Keyword space aggregation by the joint exponential mechanism: ranked public words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, cast

from langchain_core.prompts import BasePromptTemplate
from pydantic import AfterValidator, Field, SkipValidation
from typing_extensions import override

from langchain_dpicl.accounting import Charge, Exponential
from langchain_dpicl.budget import Paid
from langchain_dpicl.common import parameters
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.prompts import KEYWORD_INSTRUCTIONS, RANKED_KEYWORD_PROMPT
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_joint
from langchain_dpicl.mechanisms.random import use
from langchain_dpicl.parsers.base import DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.words import (
    Tokenizer,
    domain_places,
    lemmas,
    refuse_unnamed,
)

Domain = Sequence[str] | Callable[[str], Sequence[str]]


def _kept(domain: Any) -> Any:
    """Return an immutable copy of a list of words."""
    if callable(domain) or isinstance(domain, str):
        return domain
    if not isinstance(domain, Iterable):
        raise ValueError("give a list of words, or a function to one")  # noqa: TRY004
    return tuple(domain)


class KSAJointOutputParser(DPOutputParser):
    """Release the k words of a public domain that most groups used, in rank order.

    Use it where you can list what an answer may contain (drugs, product names, options,
    the words of a public document). "None of the words" is one more entry: only words
    that rank before it come out. There is no stability test: where hardly any group
    answers, random words come out.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.keyword_joint`, exponential(epsilon). A slot adds 1 to an entry's
        count at most, by its own text alone; so does "none of the words". The domain
        is public: it must never be collected from records or group answers.

    Raises:
        InvalidParameterError: If k is below 1 or the domain has fewer than k entries.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> parser = KSAJointOutputParser(
        ...     k=1,
        ...     domain=["cough", "nausea", "rash"],
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["A dry cough."] * 60 + ["Nausea."] * 2)
        'cough'
    """

    k: int
    """How many words to release."""

    domain: Annotated[SkipValidation[Domain], AfterValidator(_kept)] = Field(repr=False)
    """Public words or phrases, or a function from the question to them."""

    epsilon: float | None = None
    """epsilon of one release; None leaves it to the budget's plan."""

    tokenizer: SkipValidation[Tokenizer | None] = Field(default=None, exclude=True)
    """Maps a text to words; None is `words.tokenize`, and words count by their
    lemmas."""

    prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=RANKED_KEYWORD_PROMPT, exclude=True, repr=False
    )
    """The rewriting prompt, with `keywords` and `question`."""

    @override
    def check(self) -> None:
        """Refuse a k that makes no sense or does not fit the domain."""
        parameters.count(self.k, "k")
        if not callable(self.domain):
            self._entries(self.domain)
        self.charge()

    @property
    @override
    def rewrite_prompt(self) -> BasePromptTemplate[Any]:
        """The rewriting prompt."""
        return self.prompt

    @override
    def reads(self, reply: str, prepared: tuple[str, ...]) -> Reading:
        """Return whether a reply names a word of the domain."""
        words = self.tokenizer or lemmas
        if any(domain_places([reply], prepared, tokenizer=words)):
            return "answer"
        return "nothing" if says_nothing(reply) else "unreadable"

    @override
    def get_format_instructions(self) -> str:
        """Return that a group should answer in a few words."""
        return KEYWORD_INSTRUCTIONS

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one release costs."""
        return keyword_joint.charge(epsilon=self.epsilon, sampling_rate=sampling_rate)

    @override
    def prepare(self, public: PublicInput) -> tuple[str, ...]:
        """Return this question's domain without duplicate entries."""
        domain = self.domain
        return self._entries(domain(public.question) if callable(domain) else domain)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: tuple[str, ...],
    ) -> Outcome:
        """Count the domain's words and release the best k, ranked."""
        texts = (slot.text for slot in slots if slot.text is not None)
        words, none = self.tokenizer or lemmas, len(prepared)
        counts = [0] * (none + 1)
        for places in domain_places(texts, prepared, tokenizer=words):
            for place in places or {none}:
                counts[place] += 1
        event = cast("Exponential", paid.events[0])
        with use(self.random):
            ranked = keyword_joint.joint_top_k(counts, self.k, event, relation)
        before = ranked[: ranked.index(none)] if none in ranked else ranked
        if not before:
            reason = 'the noisy ranking put "none of the words" first'
            return Outcome(Status.FALLBACK, details={"reason": reason})
        return Outcome(Status.RELEASED, keywords=tuple(prepared[i] for i in before))

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        refuse_unnamed(self.tokenizer)
        entries = self.prepare(PublicInput(question=question))
        return {**super().cache_parameters(question), "entries": list(entries)}

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return k and the kind of domain."""
        fixed = not callable(self.domain)
        return {"k": self.k, "domain": "fixed" if fixed else "by question"}

    def _entries(self, domain: Sequence[str]) -> tuple[str, ...]:
        words = self.tokenizer or lemmas
        if isinstance(domain, str):
            raise InvalidParameterError("domain must be a list of words, not a string.")
        entries: dict[tuple[str, ...], str] = {}
        for entry in domain:
            form = tuple(words(entry))
            if form:
                entries.setdefault(form, entry)
        if len(entries) < self.k:
            raise InvalidParameterError(
                f"The domain has {len(entries)} different entries, fewer than k = "
                f"{self.k}. Give a larger public domain or a smaller k."
            )
        return tuple(entries.values())
