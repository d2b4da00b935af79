"""Shared parts of the parsers that find their words in the groups' answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field, SkipValidation
from typing_extensions import Self, override

from langchain_dpicl.common.prompts import KEYWORD_INSTRUCTIONS
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.base import DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.reading import declines, dropped_words, items
from langchain_dpicl.parsers.words import STOP_WORDS
from langchain_dpicl.sealed import attempt

Tokenizer = Callable[[str], Sequence[str]]


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
