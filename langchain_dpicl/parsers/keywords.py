"""Shared parts of the parsers that find their words in the groups' answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field, SkipValidation
from typing_extensions import Self, override

from langchain_dpicl.common.prompts import KEYWORD_INSTRUCTIONS
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.base import DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.reading.keywords import STOP_WORDS, items_of
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.words import (
    Tokenizer,
    keyword_counts,
    refuse_unnamed,
    tokenize,
)


class KeywordOutputParser(DPOutputParser):
    """Base of the parsers whose words come from the answers, not from a list.

    Public rules decide which items an answer counts for, one answer at a time. An
    answer of up to three words is one item: its phrase. In a longer answer each word
    counts, by its lemma, except stop words and the words of the question and of the
    prompts. An answer that says "I don't know" counts for nothing.
    """

    tokenizer: SkipValidation[Tokenizer | None] = Field(default=None, exclude=True)
    """Maps a text to the items that it counts for; None is
    `langchain_dpicl.parsers.reading.keywords.items_of`."""

    language: str | None = "en"
    """Language of the lemmas, by simplemma's code; None counts words without lemmas."""

    stop_words: Annotated[Collection[str], AfterValidator(frozenset)] = Field(
        default=STOP_WORDS, repr=False
    )
    """Public words that never count in a longer answer. Words that can be an answer
    ("up", "before", "no") are not among them."""

    drop_public_words: bool = True
    """Whether words of the question and of the prompts are left out of longer answers:
    they carry no information and would displace words that do. The words of the public
    zero-shot answer do count: often the groups confirm them."""

    def without(self, words: Iterable[str]) -> Self:
        """Return a parser that leaves more words out of longer answers.

        Privacy:
            The words must be public; never words that groups of private records used.
            They stand in each answer's record.

        Args:
            words: What the model says whatever it is asked.

        Raises:
            InvalidParameterError: If `words` is a string, not a list of strings.
        """
        if isinstance(words, str):
            raise InvalidParameterError("words must be a list of words, not a string.")
        return self.model_copy(update={"stop_words": {*self.stop_words, *words}})

    @override
    def get_format_instructions(self) -> str:
        """Return that a group should answer in a few words."""
        return KEYWORD_INSTRUCTIONS

    @override
    def reads(self, reply: str, prepared: frozenset[str]) -> Reading:
        """Return whether a reply is one item, as asked for, or counts word by word."""
        if says_nothing(reply):
            return "nothing"
        if self.tokenizer is not None:
            return "answer" if set(self.tokenizer(reply)) - prepared else "unreadable"
        items = items_of(reply, prepared, self.language)
        return ("loose" if len(items) > 1 else "answer") if items else "unreadable"

    @override
    def prepare(self, public: PublicInput) -> frozenset[str]:
        """Return the words that are not counted for this question."""
        dropped = {word.casefold() for word in self.stop_words}
        if self.drop_public_words:
            words = self.tokenizer or tokenize
            for text in (public.question, public.prompt_text):
                dropped.update(words(text))
        return frozenset(dropped)

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        refuse_unnamed(self.tokenizer)
        known = super().cache_parameters(question)
        return {
            **known,
            "stop_words": sorted(self.stop_words),
            "language": self.language,
        }

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
        """Return in how many slots each item occurs. Private."""
        own = self.tokenizer
        items = own or partial(items_of, question_words=dropped, language=self.language)
        return keyword_counts(
            (slot.text for slot in slots if slot.text is not None),
            tokenizer=items,
            dropped=dropped if own else (),
            items_per_answer=items_per_answer,
        )
