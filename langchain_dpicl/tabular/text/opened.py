"""What is named outside the list of an open column: public rules about one text.

A text is cut at commas, semicolons and line breaks, without an "other:" in front. Of
each piece of up to three words the phrase of lemmas counts, case-folded (`phrase_of`).
Nothing is named by a denial, a refusal, "unknown" and the like, longer pieces, and the
listed values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from langchain_dpicl.parsers.reading.keywords import MAX_PHRASE, phrase_of
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.reading.text import word_set
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.spelling import UnreadableError, spelled
from langchain_dpicl.tabular.text.fields import is_denial

OTHER = re.compile(r"[\W_]*others?\b(?!\s+than\b)[\W_]*", re.IGNORECASE)
"""How a reply begins that names what is not listed."""

UNSAID = word_set("null missing blank unspecific illegible redacted")
"""First words of a reply that names nothing."""

_VAGUE = word_set("various several multiple different miscellaneous") | {"n/a", "na"}
_CUTS = re.compile(r"[,;\n]")
_LONGEST = 2_000
_LONGEST_NAME = 60


def names_in(column: CategoricalColumn, text: str) -> tuple[str, ...]:
    """Return what a text names outside a column's list, each once.

    Args:
        column: An open column.
        text: A cell, or what a reply says of the column. Private.

    Returns:
        At most `column.max_items` names.

    Privacy:
        A pure function of one text and of the public column.

    Example:
        >>> ill = CategoricalColumn(
        ...     name="ill", values=["flu", "cold"], open=True, max_items=2
        ... )
        >>> [names_in(ill, text) for text in ("Other: Gout", "unknown", "no pain")]
        [('gout',), (), ()]
        >>> names_in(ill, "gout; a cold, hay fever and more of it, asthma, cramps")
        ('gout', 'asthma')
    """
    text = text[:_LONGEST]
    if (other := OTHER.match(text)) is not None:
        text = text[other.end() :]
    if says_nothing(text):
        return ()
    listed = _listed(column.values, tuple(column.texts.values()))
    found = dict.fromkeys(filter(None, map(_name, _CUTS.split(text))))
    return tuple(name for name in found if name not in listed)[: column.max_items]


def names_of(
    column: CategoricalColumn, cell: Any, named: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return what one row counts for in an open column, each name once.

    Args:
        column: The open column.
        cell: The row's cell.
        named: What the row names beside it.

    Returns:
        At most `column.max_items` names: those beside the cell, or what a cell that is
        not listed names by itself.

    Privacy:
        A pure function of one row and of the public column. That it is never more than
        `max_items` different names is what the release's noise is made for.
    """
    if named:
        found = dict.fromkeys(one for one in named if _is_name(column, one))
        return tuple(found)[: column.max_items]
    try:
        text = spelled(cell)
    except UnreadableError:
        return ()
    if text is None or column.lists(text):
        return ()
    return names_in(column, text)


def _is_name(column: CategoricalColumn, text: Any) -> bool:
    """Return whether what stands in a file can have been read as a name."""
    if not isinstance(text, str) or len(text) > _LONGEST_NAME or not text.isprintable():
        return False
    if not 0 < len(text.split()) <= MAX_PHRASE or text != " ".join(text.split()):
        return False
    return text not in _listed(column.values, tuple(column.texts.values()))


def _name(piece: str) -> str | None:
    if is_denial(piece):
        return None
    phrase = phrase_of(piece)
    if phrase is None or len(phrase) > _LONGEST_NAME or not phrase.isprintable():
        return None
    first = phrase.split()[0]
    return None if first in UNSAID | _VAGUE or OTHER.fullmatch(phrase) else phrase


@lru_cache(maxsize=64)
def _listed(values: tuple[str, ...], texts: tuple[str, ...]) -> frozenset[str]:
    """Return the names of what is listed, from public values alone."""
    return frozenset(filter(None, map(phrase_of, (*values, *texts))))
