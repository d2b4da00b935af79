"""Keyword space aggregation by the joint exponential mechanism: ranked public words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, cast

from langchain_core.prompts import BasePromptTemplate
from pydantic import AfterValidator, Field, SkipValidation, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge, Exponential
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.prompts import KEYWORD_INSTRUCTIONS, RANKED_KEYWORD_PROMPT
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_joint
from langchain_dpicl.parsers.base import Count, DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.reading import declines
from langchain_dpicl.parsers.words import lemma, tokenize
from langchain_dpicl.release.record import Outcome, Status
from langchain_dpicl.sealed import attempt

Domain = Sequence[str] | Callable[[str], Sequence[str]]

_BRACKETED = re.compile(r"([^()]+)\(([^()]+)\)\s*")


def _kept(domain: Any) -> Any:
    """Return an immutable copy of a list of words."""
    if callable(domain):
        return domain
    if isinstance(domain, str) or not isinstance(domain, Iterable):
        raise ValueError("give a list of words, not a string")  # noqa: TRY004
    return tuple(domain)


def lemmas(text: str) -> tuple[str, ...]:
    """Return the words of a text by their lemmas.

    Example:
        >>> lemmas("Dry coughs.")
        ('dry', 'cough')
    """
    return tuple(map(lemma, tokenize(text)))


def domain_places(answers: Iterable[str], domain: Sequence[str]) -> list[set[int]]:
    """Return for each answer the places of the entries of a public domain it names.

    Words count by their lemmas. An entry of several words is named where they occur one
    after the other; one with brackets, "silent (no pain)", also where the words outside
    or inside them do. A name that two entries share in this way stands for neither.

    Example:
        >>> domain_places(["A dry cough.", "None."], ["dry cough", "cough", "rash"])
        [{0, 1}, set()]
    """
    whole = [lemmas(entry) for entry in domain]
    parts = [
        set(map(lemmas, found.groups() if found else ()))
        for found in map(_BRACKETED.fullmatch, domain)
    ]
    often = Counter([*whole, *(name for names in parts for name in names)])
    entries: dict[tuple[str, ...], list[int]] = {}
    for place, (one, names) in enumerate(zip(whole, parts, strict=True)):
        for name in {one, *(name for name in names if often[name] == 1)} - {()}:
            entries.setdefault(name, []).append(place)
    lengths = sorted({len(name) for name in entries})

    def places(answer: str) -> set[int]:
        words = lemmas(answer)
        runs = {
            words[start : start + length]
            for length in lengths
            for start in range(len(words) - length + 1)
        }
        return {place for name in runs & entries.keys() for place in entries[name]}

    # An answer that can't be read names nothing, and stops no other.
    return [attempt(partial(places, answer)) or set() for answer in answers]


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

    k: Count
    """How many words to release."""

    domain: Annotated[SkipValidation[Domain], AfterValidator(_kept)] = Field(repr=False)
    """Public words or phrases, or a function from the question to them."""

    epsilon: float | None = None
    """epsilon of one release; None leaves it to the budget's plan."""

    prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=RANKED_KEYWORD_PROMPT, exclude=True, repr=False
    )
    """The rewriting prompt, with `keywords` and `question`."""

    @model_validator(mode="after")
    def _domain_is_large_enough(self) -> Self:
        """Refuse a k that does not fit the domain."""
        if not callable(self.domain):
            self._entries(self.domain)
        return self

    @property
    @override
    def rewrite_prompt(self) -> BasePromptTemplate[Any]:
        """The rewriting prompt."""
        return self.prompt

    @override
    def reads(self, reply: str, prepared: tuple[str, ...]) -> Reading:
        """Return whether a reply names a word of the domain."""
        if any(domain_places([reply], prepared)):
            return "answer"
        return "nothing" if declines(reply) else "unreadable"

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
        none = len(prepared)
        counts = [0] * (none + 1)
        for places in domain_places(texts, prepared):
            for place in places or {none}:
                counts[place] += 1
        event = cast("Exponential", paid.events[0])
        ranked = keyword_joint.joint_top_k(counts, self.k, event, relation)
        before = ranked[: ranked.index(none)] if none in ranked else ranked
        if not before:
            reason = 'the noisy ranking put "none of the words" first'
            return Outcome(Status.FALLBACK, details={"reason": reason})
        return Outcome(Status.RELEASED, keywords=tuple(prepared[i] for i in before))

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        entries = self.prepare(PublicInput(question=question))
        return {**super().cache_parameters(question), "entries": list(entries)}

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return k and the kind of domain."""
        fixed = not callable(self.domain)
        return {"k": self.k, "domain": "fixed" if fixed else "by question"}

    def _entries(self, domain: Sequence[str]) -> tuple[str, ...]:
        if isinstance(domain, str):
            raise InvalidParameterError("domain must be a list of words, not a string.")
        entries: dict[tuple[str, ...], str] = {}
        for entry in domain:
            if not isinstance(entry, str):
                raise InvalidParameterError(
                    f"domain has a {type(entry).__name__} among its words: give text."
                )
            if form := lemmas(entry):
                entries.setdefault(form, entry)
        if len(entries) < self.k:
            raise InvalidParameterError(
                f"The domain has {len(entries)} different entries, fewer than k = "
                f"{self.k}. Give a larger public domain or a smaller k."
            )
        return tuple(entries.values())
