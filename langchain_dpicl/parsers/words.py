"""From an answer to its words: public rules, the same for every answer.

Nothing here may depend on what other answers said: the tokenizer, the stop words and
the public words are fixed before the first group is asked.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading.keywords import lemma
from langchain_dpicl.sealed import attempt

Tokenizer = Callable[[str], Sequence[str]]

_BRACKETED = re.compile(r"([^()]+)\(([^()]+)\)\s*")
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")


def tokenize(text: str) -> list[str]:
    """Return a text's words, case-folded, in order.

    A word is a run of letters and digits of any script; inner hyphens and apostrophes
    belong to it.

    Example:
        >>> tokenize("A dry cough, non-productive.")
        ['a', 'dry', 'cough', 'non-productive']
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _WORD.findall(folded.replace("\u2019", "'"))


def keyword_counts(
    answers: Iterable[str],
    *,
    tokenizer: Tokenizer = tokenize,
    dropped: Collection[str] = (),
    items_per_answer: int | None = None,
) -> Counter[str]:
    """Count in how many answers each word occurs.

    Args:
        answers: One text per slot that answered.
        tokenizer: From text to words.
        dropped: Public words that are not counted.
        items_per_answer: How many different words an answer counts for, the first ones
            that are not dropped; None is all.

    Returns:
        H(w), the number of answers that contain w. One answer adds at most 1 to any
        count, whatever its length, and to at most `items_per_answer` of them.

    Example:
        >>> sorted(keyword_counts(["cough, cough", "Dry cough"]).items())
        [('cough', 2), ('dry', 1)]
        >>> sorted(
        ...     keyword_counts(
        ...         ["cough, cough", "Dry cough"], items_per_answer=1
        ...     ).items()
        ... )
        [('cough', 1), ('dry', 1)]
    """
    counts: Counter[str] = Counter()
    for answer in answers:
        counts.update(_words(answer, tokenizer, dropped, items_per_answer))
    return counts


def domain_places(
    answers: Iterable[str],
    domain: Sequence[str],
    *,
    tokenizer: Tokenizer = tokenize,
) -> list[set[int]]:
    """Return for each answer the places of the entries of a public domain it names.

    An entry of several words is named where they occur one after the other; one with
    brackets, "silent (no pain)", also where the words outside or inside them do. A name
    that two entries share in this way stands for neither.

    Args:
        answers: One text per slot that answered.
        domain: Public words or phrases.
        tokenizer: From text to words; used on the domain as well.

    Example:
        >>> domain_places(["A dry cough.", "None."], ["dry cough", "cough", "rash"])
        [{0, 1}, set()]
    """
    whole = [tuple(tokenizer(entry)) for entry in domain]
    parts = [
        {tuple(tokenizer(part)) for part in (found.groups() if found else ())}
        for found in map(_BRACKETED.fullmatch, domain)
    ]
    often = Counter([*whole, *(name for names in parts for name in names)])
    entries: dict[tuple[str, ...], list[int]] = {}
    for place, (one, names) in enumerate(zip(whole, parts, strict=True)):
        for name in {one, *(name for name in names if often[name] == 1)} - {()}:
            entries.setdefault(name, []).append(place)
    lengths = sorted({len(name) for name in entries})
    return [
        {
            place
            for name in _entries(answer, tokenizer, lengths) & entries.keys()
            for place in entries[name]
        }
        for answer in answers
    ]


def lemmas(text: str) -> list[str]:
    """Return the words of a text by their lemmas.

    Example:
        >>> lemmas("Dry coughs.")
        ['dry', 'cough']
    """
    return [lemma(word) for word in tokenize(text)]


def refuse_unnamed(tokenizer: Tokenizer | None) -> None:
    """Refuse to store answers that depend on a custom tokenizer.

    Raises:
        InvalidParameterError: If there is one: functions cannot be compared.
    """
    if tokenizer is not None:
        raise InvalidParameterError(
            "cache=True can't tell one tokenizer= from another, and would mix up their "
            "answers. Use the library's own tokenizer, or no cache."
        )


def named(thing: object) -> list[str]:
    """Return a model's class and name, to tell it from others in a cache key."""
    name = getattr(thing, "model_name", None) or getattr(thing, "model", None)
    kind = type(thing)
    return [
        f"{kind.__module__}.{kind.__qualname__}",
        name if isinstance(name, str) else "",
    ]


def _words(
    answer: str,
    tokenizer: Tokenizer,
    dropped: Collection[str],
    items_per_answer: int | None,
) -> list[str]:
    """Return an answer's first different words; one that can't be read has none.

    The tokenizer may be a custom one: its failure on one answer must not stop the
    release of all the others.
    """

    def read() -> list[str]:
        different = dict.fromkeys(str(word) for word in tokenizer(answer))
        kept = (word for word in different if word not in dropped)
        return list(islice(kept, items_per_answer))

    return attempt(read) or []


def _entries(
    answer: str, tokenizer: Tokenizer, lengths: Sequence[int]
) -> set[tuple[str, ...]]:
    """Return an answer's runs of words of some lengths; see `_words`."""

    def read() -> set[tuple[str, ...]]:
        words = [str(word) for word in tokenizer(answer)]
        return {
            tuple(words[i : i + length])
            for length in lengths
            for i in range(len(words) - length + 1)
        }

    return attempt(read) or set()
