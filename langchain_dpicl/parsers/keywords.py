"""Keyword space aggregation: the words that many groups' answers have in common.

`KSAPTROutputParser` tests whether all groups agree (propose, test, release);
`KSAThresholdOutputParser` releases what enough groups said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Annotated, Any, cast

from langchain_core.prompts import BasePromptTemplate
from pydantic import (
    AfterValidator,
    Field,
    SkipValidation,
    StrictInt,
    field_validator,
    model_validator,
)
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.prompts import KEYWORD_INSTRUCTIONS, KEYWORD_PROMPT
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_ptr, keyword_threshold
from langchain_dpicl.parsers.base import Count, DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.reading import declines, dropped_words, items
from langchain_dpicl.parsers.words import STOP_WORDS, lemma
from langchain_dpicl.release.record import Outcome, Status
from langchain_dpicl.sealed import attempt

Tokenizer = Callable[[str], Sequence[str]]


def _words(given: Collection[str]) -> frozenset[str]:
    if isinstance(given, str) or not all(isinstance(word, str) for word in given):
        raise ValueError("give a list of words")
    return frozenset(given)


class KeywordOutputParser(DPOutputParser):
    """Base of the parsers whose words come from the answers, not from a list.

    Public rules decide which items an answer counts for, one answer at a time. An
    answer of up to three words is one item: its phrase. In a longer answer each word
    counts, by its lemma, except stop words and the words of the question and of the
    prompts. An answer that says "I don't know" counts for nothing.
    """

    tokenizer: SkipValidation[Tokenizer | None] = Field(default=None, exclude=True)
    """Maps a text to the items that it counts for; None is
    `langchain_dpicl.parsers.reading.items`."""

    language: str | None = "en"
    """Language of the lemmas, by simplemma's code; None counts words without lemmas."""

    stop_words: Annotated[Collection[str], AfterValidator(_words)] = Field(
        default=STOP_WORDS, repr=False
    )
    """Public words that never count in a longer answer. Words that can be an answer
    ("up", "before", "no") are not among them."""

    drop_public_words: bool = True
    """Whether words of the question and of the prompts are left out of longer answers:
    they carry no information and would displace words that do. The words of the public
    zero-shot answer do count: often the groups confirm them."""

    @field_validator("language")
    @classmethod
    def _known_language(cls, language: str | None) -> str | None:
        lemma("word", language)  # A code that simplemma lacks is a ValueError.
        return language

    @override
    def get_format_instructions(self) -> str:
        """Return that a group should answer in a few words."""
        return KEYWORD_INSTRUCTIONS

    @override
    def reads(self, reply: str, prepared: frozenset[str]) -> Reading:
        """Return whether a reply is one item, as asked for, or counts word by word."""
        if declines(reply):
            return "nothing"
        found = self._items(reply, prepared)
        is_loose = len(found) > 1 and self.tokenizer is None
        return ("loose" if is_loose else "answer") if found else "unreadable"

    @override
    def prepare(self, public: PublicInput) -> frozenset[str]:
        """Return the words that are not counted for this question."""
        texts = (public.question, public.prompt_text) if self.drop_public_words else ()
        own = self.tokenizer
        if own is None:
            return dropped_words(self.stop_words, texts, self.language)
        return dropped_words([*self.stop_words, *(w for t in texts for w in own(t))])

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on.

        Raises:
            InvalidParameterError: If there is a custom tokenizer.
        """
        if self.tokenizer is not None:
            raise InvalidParameterError(
                "Answers can't be kept: functions such as tokenizer= can't be told "
                "apart. Use the library's own tokenizer, or cache=False."
            )
        known = super().cache_parameters(question)
        words = sorted(self.stop_words)
        return {**known, "stop_words": words, "language": self.language}

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return whether public words are left out, which more, and what was asked."""
        more = sorted({*self.stop_words} - STOP_WORDS)
        return {
            "drop_public_words": self.drop_public_words,
            **({"dropped_words": more} if more else {}),
        }

    def counts(
        self,
        slots: Sequence[Slot],
        dropped: frozenset[str],
        items_per_answer: int | None = None,
    ) -> Counter[str]:
        """Return in how many slots each item occurs. Private.

        An answer adds at most 1 to any count, whatever its length, and to at most
        `items_per_answer` of them, its first ones. One that can't be read adds nothing:
        the failure of a custom tokenizer on it does not stop the release of the others.
        """
        counts: Counter[str] = Counter()
        for slot in slots:
            if slot.text is not None:
                found = attempt(partial(self._items, slot.text, dropped)) or []
                counts.update(found[:items_per_answer])
        return counts

    def _items(self, answer: str, dropped: frozenset[str]) -> list[str]:
        """Return the different items of an answer that are not dropped."""
        if self.tokenizer is None:
            return items(answer, dropped, self.language)
        found = dict.fromkeys(map(str, self.tokenizer(answer)))
        return [word for word in found if word not in dropped]


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
