"""Words, their lemmas, and sentences: how the offline stand-ins look at text."""

from __future__ import annotations

import re
from functools import lru_cache

from langchain_dpicl.parsers.words import STOP_WORDS, lemma, word_set

# Each sign of a script without spaces counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:'[^\W_]+)*")
_BREAK = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_lemma = lru_cache(maxsize=65536)(lemma)


def words(text: str) -> list[str]:
    """Return the case-folded words of a text, in order.

    Example:
        >>> words("She doesn't take Ann's Lisinopril, 10 mg.")
        ['she', "doesn't", 'take', 'ann', 'lisinopril', '10', 'mg']
    """
    held = _WORD.findall(text.casefold().replace("\u2019", "'"))
    return [word.removesuffix("'s") for word in held]


def stems(text: str) -> list[str]:
    """Return the lemmas of a text's words, in order.

    Example:
        >>> stems("Two reported studies")
        ['two', 'report', 'study']
    """
    return [_lemma(word) for word in words(text)]


def sentences(text: str) -> list[str]:
    r"""Cut a text into sentences and lines.

    Example:
        >>> sentences("Seen today. No fever.\nBack in May!")
        ['Seen today.', 'No fever.', 'Back in May!']
    """
    return [piece for piece in map(str.strip, _BREAK.split(text)) if piece]


STOP_STEMS = frozenset(
    stems(
        "after all always among at before below between every few less many more most "
        "mostly much never no nor not now often on once only out over she since still "
        f"up without {' '.join(STOP_WORDS)}"
    )
)
"""Lemmas that say nothing about a text's subject."""

GENERIC_STEMS = word_set(
    "answer ask call choose come common commonly customer describe everyone feel find "
    "frequent frequently general get give have individual keep know main mainly make "
    "member mention name new note old patient people person popular prefer present "
    "record regular report say see state take tell time today top total typical use "
    "user usual usually visit want week well work year"
)
"""Lemmas that occur around any subject: they count, but little."""
